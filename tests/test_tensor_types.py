"""Tensors of a type of the user's, as MONAI's MetaTensor: batches keep the type, as torch's do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset
from torch.utils.data._utils.collate import default_collate_fn_map

import torchdali as td
from torchdali import transforms as T
from torchdali.errors import FieldTypeError


class Scan(torch.Tensor):
    """A tensor that knows where it is from, as MetaTensor does."""

    where: Any = None


class Plain(torch.Tensor):
    pass


class Made(Dataset[Any]):
    def __init__(self, function: Callable[[int], Any]) -> None:
        self.function = function

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return self.function(index)


def scan(index: int) -> Any:
    made = torch.full((1, 2, 2), float(index)).as_subclass(Scan)
    made.where = f"scan {index}"
    return made


def collate_scans(batch: list[Any], *, collate_fn_map: Any = None) -> Any:
    made = torch.stack(batch)
    made.where = [one.where for one in batch]
    return made


SAMPLES: dict[str, Callable[[int], Any]] = {
    "a tuple": lambda i: (torch.full((3,), i).as_subclass(Plain), i),
    "a dict": lambda i: {"x": {"y": torch.full((3, 4), i / 2).as_subclass(Plain)}},
    "a number": lambda i: {"x": torch.tensor(float(i)).as_subclass(Plain)},
    "alone": lambda i: torch.full((3,), i).as_subclass(Plain),
    "an image": lambda i: (torch.full((3, 4, 4), i, dtype=torch.uint8).as_subclass(Plain), i),
}


def flat(batch: Any) -> list[Any]:
    parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, (list, tuple)) else None
    return [batch] if parts is None else [leaf for part in parts for leaf in flat(part)]


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.processes)], ids=["here", "worker"])
def test_the_type_is_kept_as_torch_keeps_it(name: str, num_workers: int) -> None:
    dataset = Made(SAMPLES[name])
    loader = td.DataLoader(dataset, 4, num_workers=num_workers)
    for ours, theirs in zip(loader, torch.utils.data.DataLoader(dataset, 4), strict=True):
        for one, other in zip(flat(ours), flat(theirs), strict=True):
            assert type(one) is type(other) and one.dtype == other.dtype
            assert torch.equal(one.as_subclass(torch.Tensor), other.as_subclass(torch.Tensor))
    loader.close()


def test_a_registered_function_keeps_what_they_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(default_collate_fn_map, Scan, collate_scans)
    images, numbers = next(iter(td.DataLoader(Made(lambda i: (scan(i), i)), 3)))
    assert type(images) is Scan and images.where == ["scan 0", "scan 1", "scan 2"]
    assert numbers.tolist() == [0, 1, 2]


def test_parameters_and_transformed_images_are_plain() -> None:
    batch = next(iter(td.DataLoader(Made(lambda i: torch.nn.Parameter(torch.ones(2) * i)), 3)))
    assert type(batch) is torch.Tensor
    images, _ = next(iter(td.DataLoader(Made(SAMPLES["an image"]), 3, transform=T.Resize((2, 2)))))
    assert type(images) is torch.Tensor and images.shape == (3, 3, 2, 2)
    images, _ = next(iter(td.DataLoader(Made(SAMPLES["an image"]), 3, kinds={"image": "image"})))
    assert type(images) is torch.Tensor


def test_lists_and_functions_get_them() -> None:
    images, _ = next(iter(td.DataLoader(Made(lambda i: (scan(i), i)), 3, output="list")))
    assert [type(image) for image in images] == [Scan] * 3 and images[2].where == "scan 2"
    samples = next(iter(td.DataLoader(Made(lambda i: (scan(i), i)), 3, collate_fn=list)))
    assert [sample[0].where for sample in samples] == ["scan 0", "scan 1", "scan 2"]


def test_several_shapes_say_what_to_write() -> None:
    ragged = Made(lambda i: {"x": torch.zeros(i + 1).as_subclass(Plain)})
    with pytest.raises(FieldTypeError, match=r"got \(1,\) and \(2,\): write kinds=\{'x': 'array'\} for plain ones"):
        next(iter(td.DataLoader(ragged, 3)))
    batch = next(iter(td.DataLoader(ragged, 3, kinds={"x": "array"})))
    assert batch["x"].sizes.tolist() == [[1], [2], [3]]


class Whole(Dataset[Any]):
    """Makes the samples of a batch together, in one object, as tensordict's do."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index)

    def __getitems__(self, indices: list[int]) -> torch.Tensor:
        return torch.tensor(indices)


def test_a_function_gets_what_the_dataset_made_of_the_indices() -> None:
    for loader in (td.DataLoader, torch.utils.data.DataLoader):
        batches = list(loader(Whole(), 4, collate_fn=lambda batch: batch))
        assert all(isinstance(batch, torch.Tensor) for batch in batches)
        assert [batch.tolist() for batch in batches] == [[0, 1, 2, 3], [4, 5]]


def test_scripts_of_torchdata_keep_their_word() -> None:
    loader = td.DataLoader(Whole(), 2, snapshot_every_n_steps=10)
    next(iter(loader))
    assert loader.state_dict()["samples_seen"] == 2
    with pytest.raises(ValueError, match="snapshot_every_n_steps"):
        td.DataLoader(Whole(), 2, snapshot_every_n_steps=0)
