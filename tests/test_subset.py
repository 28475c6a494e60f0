"""torch's Subset, random_split and ConcatDataset of torchdali's datasets: read as columns, as these are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset, random_split

import torchdali as td
from torchdali import datasets
from torchdali import transforms as T
from torchdali.datasets import as_columns
from torchdali.testing import assert_resumes_exactly, assert_same_stream, garble_file

TRANSFORM = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip()])
FIELDS = ("image", "label", "index", "path")


def batches(dataset: Any, **options: Any) -> list[dict[str, Any]]:
    options = {"batch_size": 4, "device": "cpu", "output": "dict", "transform": T.Resize((8, 8))} | options
    with td.DataLoader(dataset, **options) as loader:
        return list(loader)


def same(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> bool:
    def equal(a: Any, b: Any) -> bool:
        return torch.equal(a, b) if isinstance(a, torch.Tensor) else bool(a == b)

    return len(one) == len(other) and all(
        a.keys() == b.keys() and all(equal(a[name], b[name]) for name in a) for a, b in zip(one, other, strict=True)
    )


def chosen(dataset: td.ImageFolder, indices: list[int]) -> td.FileDataset:
    """The dataset that one would write by hand."""
    return td.FileDataset([dataset.paths[i] for i in indices], [dataset.targets[i] for i in indices], fields=FIELDS)


def test_a_subset_is_the_dataset_of_its_files(folder: Path) -> None:
    whole = td.ImageFolder(folder, fields=FIELDS)
    indices = [20, 3, 3, 7, 11, -22]
    subset = Subset(whole, indices)
    assert isinstance(as_columns(subset), datasets.Subset)
    by_hand = chosen(whole, indices)
    assert same(batches(subset), batches(by_hand))
    random = {"shuffle": True, "seed": 5, "transform": TRANSFORM}
    assert same(batches(subset, **random), batches(by_hand, **random))


def test_splits_of_splits_and_their_concatenation(folder: Path) -> None:
    whole = td.ImageFolder(folder, fields=FIELDS)
    first, second = random_split(whole, [0.5, 0.5], generator=torch.Generator().manual_seed(0))
    inner = Subset(second, [4, 0, 9])
    for dataset, indices in [
        (first, list(first.indices)),
        (inner, [second.indices[i] for i in (4, 0, 9)]),
        (ConcatDataset([first, inner]), [*first.indices, *(second.indices[i] for i in (4, 0, 9))]),
        (first + second, [*first.indices, *second.indices]),
        (Subset(ConcatDataset([inner, first]), [1, 5]), [second.indices[0], first.indices[2]]),
    ]:
        assert isinstance(as_columns(dataset), td.MapDataset)
        assert same(batches(dataset), batches(chosen(whole, indices)))


def test_the_stream_of_a_split(folder: Path) -> None:
    def make(**options: Any) -> td.DataLoader:
        part, _ = random_split(td.ImageFolder(folder), [15, 7], generator=torch.Generator().manual_seed(1))
        options = {"batch_size": 4, "shuffle": True, "device": "cpu", "transform": TRANSFORM} | options
        return td.DataLoader(part, **options)

    assert_same_stream(make, lambda: make(engine="eager"), lambda: make(prefetch_factor=0), epochs=2)
    assert_resumes_exactly(make, steps=6)


def test_a_loader_of_a_subset_needs_no_workers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchdali.source._warned", set())
    with pytest.warns(UserWarning, match="Subset needs no worker processes"):
        td.DataLoader(Subset(td.ImageFolder(folder), [1]), num_workers=2)


def test_another_split_is_another_dataset(folder: Path) -> None:
    def make(dataset: Any) -> td.DataLoader:
        return td.DataLoader(dataset, 2, device="cpu", transform=TRANSFORM)

    whole = td.ImageFolder(folder)
    state = make(Subset(whole, [1, 2, 3])).state_dict()
    assert len(as_columns(Subset(whole, [1, 2, 3])).fingerprint()) <= 100
    make(Subset(whole, np.array([1, 2, 3]))).load_state_dict(state)
    for other in (Subset(whole, [1, 2, 4]), Subset(whole, [3, 2, 1]), whole, ConcatDataset([Subset(whole, [1, 2, 3])])):
        with pytest.raises(td.StateMismatchError, match="dataset"):
            make(other).load_state_dict(state)


def test_a_bad_sample_of_a_subset_is_named_by_its_file(own_folder: Path) -> None:
    whole = td.ImageFolder(own_folder)
    garble_file(Path(whole.paths[7]))
    with pytest.raises(td.BadSampleError, match=re.escape(whole.paths[7])) as caught:
        batches(Subset(whole, [3, 7, 4]))
    assert caught.value.index == 1


def test_the_transform_of_the_whole_is_that_of_the_part(folder: Path) -> None:
    whole = td.ImageFolder(folder)
    whole.transform = T.Resize((5, 6))
    for dataset in (Subset(whole, [1, 2]), ConcatDataset([whole, whole])):
        assert batches(dataset, transform=None)[0]["image"].shape[2:] == (5, 6)


def test_a_mix_of_splits(folder: Path) -> None:
    first, second = random_split(td.ImageFolder(folder), [15, 7], generator=torch.Generator().manual_seed(1))
    mix = td.Mix({first: 0.5, second: 0.5}, num_samples=20)
    assert mix.sampler.counts.tolist() == [10, 10] and len(mix) == 22
    assert sum(len(batch["label"]) for batch in batches(mix)) == 20


@pytest.mark.parametrize(
    ("indices", "error", "text"),
    [
        ([0, 22], IndexError, "index 22 of the subset is outside a dataset of 22 samples"),
        ([-23], IndexError, "index -23 of the subset"),
        ([0.5], TypeError, "indices must be integers, got float64"),
        ([[1, 2]], TypeError, "indices must be integers, got int64 of 2 dimensions"),
    ],
)
def test_subsets_that_cannot_be(folder: Path, indices: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        td.DataLoader(Subset(td.ImageFolder(folder), indices))


def test_concatenations_that_cannot_be(folder: Path) -> None:
    whole = td.ImageFolder(folder)
    with pytest.raises(ValueError, match="the datasets of ConcatDataset must have the same fields"):
        td.DataLoader(ConcatDataset([whole, td.ImageFolder(folder, fields=("image",))]))
    with pytest.raises(ValueError, match="dataset 1 of ConcatDataset is empty"):
        td.DataLoader(ConcatDataset([whole, Subset(whole, [])]))


def test_what_is_not_all_torchdalis_stays_torchs(folder: Path) -> None:
    class Own(Subset[Any]):
        def __getitem__(self, index: Any) -> Any:
            return {"number": index}

        def __getitems__(self, indices: Any) -> Any:
            return [self[index] for index in indices]

    whole = td.ImageFolder(folder)
    numbers = TensorDataset(torch.arange(5))
    for dataset in (Own(whole, [1, 2]), Subset(numbers, [3]), ConcatDataset([whole, numbers])):
        assert as_columns(dataset) is dataset
    assert batches(Own(whole, [1, 2]), transform=None)[0]["number"].tolist() == [0, 1]
