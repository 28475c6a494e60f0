"""Datasets side by side: each sample is made of the same sample of all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Subset

import torchdali as td
from torchdali import InMemoryDataset, Zip
from torchdali import transforms as T
from torchdali.kinds import ENCODED, OBJECT
from torchdali.testing import assert_resumes_exactly, assert_same_stream, truncate_file

N = 22  # as many as the folder's images


def numbers(factor: int = 1, **more: object) -> InMemoryDataset:
    return InMemoryDataset(x=np.arange(N) * factor, **more)


def test_fields_come_in_the_datasets_order(folder: Path) -> None:
    images = td.ImageFolder(folder, fields=("image", "label", "path"))
    dataset = Zip(images, numbers(10, text=[f"row {i}" for i in range(N)], fields=["index", "x", "text"]))
    assert dataset.fields == ("image", "label", "x", "text", "index", "path") and len(dataset) == N
    assert dataset.kinds["image"] == ENCODED and dataset.kinds["text"] == OBJECT and dataset.blocking
    order = np.array([7, 0, 21])
    columns = dataset.read(order)
    assert columns["x"].tolist() == [70, 0, 210] and columns["text"] == ["row 7", "row 0", "row 21"]
    assert columns["label"].tolist() == [images.targets[i] for i in order]
    assert columns["path"] == [images.paths[i] for i in order] and dataset.path(3) == images.paths[3]
    assert torch.equal(dataset[5][0], images[5][0])


def test_fields_with_one_name() -> None:
    dataset = Zip(left=numbers(), right=numbers(3, y=np.arange(N) * 0.5))
    assert dataset.fields == ("left_x", "right_x", "y") and dataset.path(0) is None
    columns = dataset.read(np.array([4, 2]))
    assert {name: list(column) for name, column in columns.items()} == {
        "left_x": [4, 2], "right_x": [12, 6], "y": [2.0, 1.0],
    }  # fmt: skip
    chosen = Zip(numbers(), Subset(InMemoryDataset(y=np.arange(99)), range(98, 76, -1)))
    assert {name: list(column) for name, column in chosen.read(np.array([1])).items()} == {"x": [1], "y": [97]}
    three = Zip(a=dataset, b=numbers(7))
    assert three.fields == ("left_x", "right_x", "y", "x") and three.read(np.array([2]))["x"].tolist() == [14]


def test_wrong_arguments() -> None:
    for error, message, make in [
        (ValueError, "Zip takes datasets, or datasets by name: write", lambda: Zip()),
        (ValueError, "Zip takes datasets, or datasets by name: write", lambda: Zip(numbers(), b=numbers())),
        (ValueError, "must be of one length, got {'0': 22, '1': 3}",
         lambda: Zip(numbers(), InMemoryDataset(y=[1, 2, 3]))),
        (ValueError, r"the field 'x': write Zip\(left=..., right=...\) to get 'left_x' and 'right_x'",
         lambda: Zip(numbers(), numbers())),
        (ValueError, r"fields of Zip must differ, got \['a: x', 'b: x', 'c: a_x'\]",
         lambda: Zip(a=numbers(), b=numbers(), c=InMemoryDataset(a_x=range(N)))),
        (TypeError, "datasets of torchdali that are read by index, got list as '1': for other",
         lambda: Zip(numbers(), [1, 2])),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            make()


def test_fingerprint_is_of_all() -> None:
    def prints(*factors: int, names: str = "ab") -> str:
        return Zip(**{name: numbers(factor) for name, factor in zip(names, factors)}).fingerprint()

    assert prints(1, 2) == prints(1, 2)
    assert len({prints(1, 2), prints(2, 1), prints(1, 3), prints(1, 2, names="ac")}) == 4 and len(prints(1, 2)) <= 100


class Told(InMemoryDataset):
    epochs: list[int]

    def set_epoch(self, epoch: int) -> None:
        self.epochs = [*getattr(self, "epochs", []), epoch]


def test_each_dataset_is_told_the_epoch() -> None:
    left, right = Told(x=range(N)), Told(y=range(N))
    loader = td.DataLoader(Zip(left, right), batch_size=8, device="cpu")
    for _ in range(2):
        list(loader)
    assert left.epochs == right.epochs == [0, 1]


def make_loader(folder: Path, dataset: Any = None, **changes: Any) -> td.DataLoader:
    dataset = dataset or Zip(td.ImageFolder(folder, fields=["image", "index"]), numbers(5))
    options = {"batch_size": 4, "shuffle": True, "seed": 3, "device": "cpu", "transform": T.RandomResizedCrop(16)}
    return td.DataLoader(dataset, **{**options, **changes})


def test_through_the_loader(folder: Path) -> None:
    alone = make_loader(folder, td.ImageFolder(folder, fields=["image", "index"]))
    for (pixels, x, index), (same_pixels, same_index) in zip(make_loader(folder), alone, strict=True):
        assert torch.equal(index, same_index) and torch.equal(x, 5 * index) and torch.equal(pixels, same_pixels)
    assert_resumes_exactly(lambda: make_loader(folder))
    assert_same_stream(
        lambda: make_loader(folder),
        lambda: [make_loader(folder, batch_size=2, rank=rank, world_size=2) for rank in range(2)],
        steps=False,
    )


def test_a_bad_file_is_named_by_its_path(own_folder: Path) -> None:
    images = td.ImageFolder(own_folder)
    truncate_file(images.paths[3])
    loader = td.DataLoader(Zip(numbers(), images), batch_size=4, device="cpu", transform=T.Resize((8, 8)))
    with pytest.raises(td.BadSampleError, match=r"sample 3 \(.*class_0/0003\.jpg\)"):
        list(loader)
