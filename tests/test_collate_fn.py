"""Batches that the user's own `collate_fn` makes, and batches that a dataset holds ready."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data import IterableDataset, default_collate

import torchdali as td
from torchdali import transforms as T

WORKERS = pytest.mark.parametrize("num_workers", [0, 2])


class Boxes:
    """Detection data: an image, and as many boxes as there happen to be."""

    def __init__(self, n: int = 10) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> tuple[torch.Tensor, dict[str, Any]]:
        return torch.full((3, 4, 4), index), {"boxes": torch.ones(index % 3, 4), "id": f"image {index}"}


class Words(IterableDataset[str]):
    def __iter__(self) -> Any:
        return (f"word {i}" for i in range(11))


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass
class Record:
    tensor: torch.Tensor
    name: str


def detection(samples: list[Any]) -> Any:
    return tuple(zip(*samples, strict=True))


def everything(samples: list[Any]) -> Any:
    images = torch.stack([image for image, _ in samples])
    return {
        "nested": [Pair(images, None), ("text", 1.5)],
        "packed": pack_sequence([torch.arange(len(target["id"])) for _, target in samples], enforce_sorted=False),
        "record": Record(images[:1], "r"),
        "array": images.numpy(),
        "bfloat16": images.bfloat16(),
        "set": {1, 2},
        "function": lambda: len(samples),
    }


def make(dataset: Any, batch_size: int | None = 4, **options: Any) -> td.DataLoader:
    return td.DataLoader(dataset, batch_size, device="cpu", **options)


@WORKERS
def test_a_detection_dataset_gives_what_torch_gives(num_workers: int) -> None:
    with make(Boxes(), num_workers=num_workers, collate_fn=detection) as loader:
        ours = list(loader)
    theirs = list(TorchLoader(Boxes(), 4, collate_fn=detection))
    assert len(ours) == len(theirs) == 3
    for one, other in zip(ours, theirs, strict=True):
        assert type(one) is tuple and all(map(torch.equal, one[0], other[0]))
        assert [target["id"] for target in one[1]] == [target["id"] for target in other[1]]
        assert [target["boxes"].shape for target in one[1]] == [target["boxes"].shape for target in other[1]]


@WORKERS
def test_a_batch_may_hold_anything(num_workers: int) -> None:
    with make(Boxes(), num_workers=num_workers, collate_fn=everything) as loader:
        batches = list(loader)
    for batch, other in zip(batches, TorchLoader(Boxes(), 4, collate_fn=everything), strict=True):
        assert batch.keys() == other.keys()
        assert torch.equal(batch["nested"][0].first, other["nested"][0].first) and batch["nested"][0].second is None
        assert type(batch["nested"][0]) is Pair and batch["nested"][1] == ("text", 1.5)
        assert isinstance(batch["packed"], PackedSequence) and torch.equal(batch["packed"].data, other["packed"].data)
        assert isinstance(batch["record"], Record) and torch.equal(batch["record"].tensor, other["record"].tensor)
        assert isinstance(batch["array"], np.ndarray) and np.array_equal(batch["array"], other["array"])
        assert batch["bfloat16"].dtype == torch.bfloat16 and torch.equal(batch["bfloat16"], other["bfloat16"])
        assert batch["set"] == {1, 2} and batch["function"]() == other["function"]()


class Random:
    def __len__(self) -> int:
        return 14

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, random.random()


def noisy(samples: list[Any]) -> Any:
    indices, numbers = zip(*samples, strict=True)
    return list(indices), list(numbers), torch.rand(2).tolist(), float(np.random.rand()), random.random()


@pytest.mark.processes
def test_random_code_in_it_is_the_same_for_any_number_of_workers_and_after_a_resume() -> None:
    def stream(num_workers: int, skip: int = 0) -> list[Any]:
        with make(Random(), shuffle=True, num_workers=num_workers, collate_fn=noisy) as loader:
            loader.seek(0, skip)
            epochs = [list(loader), list(loader)]
        return epochs

    before = torch.get_rng_state(), random.getstate()
    whole = stream(0)
    assert torch.equal(torch.get_rng_state(), before[0]) and random.getstate() == before[1]
    assert stream(2) == whole and stream(3) == whole
    first, second = whole
    assert len(first) == 4 and first != second
    assert len({tuple(batch[2]) for batch in first + second}) == 8  # each batch has its own
    assert stream(2, skip=2) == [first[2:], second]


@WORKERS
def test_an_iterable(num_workers: int) -> None:
    source = td.IterableSource(Words(), shard="skip")
    with make(source, 3, num_workers=num_workers, collate_fn=" ".join) as loader:
        batches = list(loader)
        assert sorted(" ".join(batches).replace("word ", "").split(), key=int) == [str(i) for i in range(11)]
        assert all(isinstance(batch, str) for batch in batches)
    if not num_workers:
        assert batches == [" ".join(f"word {i}" for i in range(k, min(k + 3, 11))) for k in (0, 3, 6, 9)]
        with make(source, 3, collate_fn=" ".join) as loader:
            iterator = iter(loader)
            next(iterator)
            state = loader.state_dict()
        with make(source, 3, collate_fn=" ".join) as loader:
            loader.load_state_dict(state)
            with pytest.warns(RuntimeWarning, match="3 samples are iterated again"):
                assert list(loader) == batches[1:]


def test_ranks_each_collate_their_own() -> None:
    ranks = [
        [ids for batch in make(Random(), rank=rank, world_size=2, collate_fn=noisy) for ids in batch[0]]
        for rank in range(2)
    ]
    assert sorted(ranks[0] + ranks[1]) == list(range(14))


def test_torchs_own_collate_is_simply_accepted(folder: Any) -> None:
    from torch.utils.data._utils.collate import default_collate as inner

    for function in (default_collate, inner):
        (batch,) = make([(1, 2.0), (3, 4.0)], 2, collate_fn=function)
        assert batch[0].tolist() == [1, 3] and batch[1].tolist() == [2.0, 4.0]
        make(td.ImageFolder(folder), collate_fn=function)


class Failing(Boxes):
    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise OSError("sample 5 is damaged")
        return index


@WORKERS
def test_a_bad_sample_is_replaced_before_collating(num_workers: int) -> None:
    with make(Failing(), num_workers=num_workers, collate_fn=list, on_bad_sample="substitute") as loader:
        batches = list(loader)
        (bad,) = loader.bad_samples
    assert bad.index == 5 and bad.substitute is not None and bad.substitute != 5
    assert batches == [[0, 1, 2, 3], [4, bad.substitute, 6, 7], [8, 9]]
    with make(Failing(), num_workers=num_workers, collate_fn=list) as loader:
        iterator = iter(loader)
        assert next(iterator) == [0, 1, 2, 3]
        with pytest.raises(OSError, match="sample 5 is damaged"):
            next(iterator)
        assert next(iterator) == [8, 9]


def broken(samples: list[Any]) -> Any:
    raise KeyError("no such word")


@WORKERS
def test_an_error_in_it_is_the_users(num_workers: int) -> None:
    with make(Boxes(), num_workers=num_workers, collate_fn=broken) as loader:
        with pytest.raises(KeyError, match="no such word") as caught:
            next(iter(loader))
        assert any("collate_fn raised this" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("dataset", "options", "error", "sentence"),
    [
        (
            [1],
            {"transform": T.Resize(3), "batch_size": None},
            ValueError,
            "batch_size=None makes one without: write the",
        ),
        (Boxes(), {"output": "dict"}, ValueError, "output='dict' names fields.*leave output out"),
        (Boxes(), {"collate_fn": 3}, TypeError, "collate_fn must be a function of a list of samples, got 3"),
        (td.PythonDataset(Boxes(), ["a", "b", "c"]), {}, ValueError, "fields= and ragged= of PythonDataset name"),
    ],
)
def test_what_can_not_be_beside_it(dataset: Any, options: dict[str, Any], error: Any, sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        make(dataset, **{"collate_fn": list} | options)


def test_a_transform_can_not_be_set_later() -> None:
    loader = make(Boxes(), collate_fn=detection)
    with pytest.raises(ValueError, match="make it with transform=, and it gets transformed ones"):
        loader.transform = T.Resize(3)
    assert loader.transform is None and len(list(loader)) == 3


# batch_size=None


class Ready(IterableDataset[Any]):
    """Batches, as WebDataset's pipelines make them."""

    def __iter__(self) -> Any:
        return ((np.full((k + 1, 2), k, np.float32), ["a"] * (k + 1)) for k in range(4))


@WORKERS
def test_an_item_is_a_batch(num_workers: int) -> None:
    with make(Boxes(3), None, num_workers=num_workers) as loader:
        assert loader.batch_size is None and len(loader) == 3
        ours = list(loader)
    for one, other in zip(ours, TorchLoader(Boxes(3), None), strict=True):
        assert torch.equal(one[0], other[0]) and one[1]["id"] == other[1]["id"]
        assert torch.equal(one[1]["boxes"], other[1]["boxes"])
    with make(Ready(), None, num_workers=num_workers) as loader:
        batches = sorted(loader, key=len)
    assert [tuple(batch[0].shape) for batch in batches] == [(1, 2), (2, 2), (3, 2), (4, 2)]
    assert all(isinstance(batch[0], torch.Tensor) and batch[1] == ["a"] * len(batch[0]) for batch in batches)
    assert len(list(make(Boxes(3), None, collate_fn=lambda item: item[1]["id"]))) == 3


def test_batches_that_are_ready_are_shuffled_shared_and_resumed() -> None:
    data = [np.full((2, 3), k) for k in range(9)]

    def numbers(loader: td.DataLoader) -> list[int]:
        return [int(batch[0, 0]) for batch in loader]

    whole = numbers(make(data, None, shuffle=True, seed=3))
    assert sorted(whole) == list(range(9)) != whole
    ranks = [numbers(make(data, None, shuffle=True, seed=3, rank=rank, world_size=3)) for rank in range(3)]
    assert sorted(k for rank in ranks for k in rank) == list(range(9))
    loader = make(data, None, shuffle=True, seed=3)
    iterator = iter(loader)
    next(iterator)
    other = make(data, None, shuffle=True, seed=3)
    other.load_state_dict(loader.state_dict())
    assert numbers(other) == whole[1:]


def test_where_batches_are_not_ready(folder: Any) -> None:
    with pytest.raises(ValueError, match="ImageFolder gives samples: write batch_size=1, or how many make a batch"):
        make(td.ImageFolder(folder), None)
    with pytest.raises(ValueError, match="leave drop_last and pad_last out"):
        make(Boxes(), None, drop_last=True)


# __getitems__


class Many(Boxes):
    calls: ClassVar[list[list[int]]] = []

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("one by one")

    def __getitems__(self, indices: list[int]) -> list[int]:
        self.calls.append(list(indices))
        return [10 * index for index in indices]


def test_a_dataset_that_makes_many_samples_at_once_is_asked_once_per_batch() -> None:
    Many.calls.clear()
    found = [batch.tolist() for batch in make(Many())]
    assert found == [[0, 10, 20, 30], [40, 50, 60, 70], [80, 90]]
    assert [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]] == Many.calls[-3:]
    part = torch.utils.data.Subset(Many(), [7, 1, 2])  # type: ignore[arg-type]
    assert [batch.tolist() for batch in make(part, 2)] == [[70, 10], [20]]


def test_too_few_of_many() -> None:
    class Few(Many):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return [1]

    with pytest.raises(ValueError, match="__getitems__ must give one sample for each of 4 indices, got 1"):
        list(make(Few()))
