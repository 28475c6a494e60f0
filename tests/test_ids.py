"""Samplers that yield other things than indices: the dataset is asked for them, and the stream is as exact."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice
from pathlib import PurePosixPath
from typing import Any
from uuid import UUID

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, Sampler, SequentialSampler, Subset
from torch.utils.data import DataLoader as TorchLoader

import torchdali as td
from torchdali import ids
from torchdali.ids import Taken
from torchdali.testing import assert_resumes_exactly, assert_same_stream

NAMES = [f"name {i}" for i in range(11)]


class Words:
    """Samples by strings, with random numbers."""

    bad: str | None = None

    def __len__(self) -> int:
        return len(NAMES)

    def __getitem__(self, name: str) -> dict[str, Any]:
        if name == self.bad:
            raise ValueError("a broken sample")
        return {"name": name, "x": float(name.split()[1]), "random": random.random(), "torch": torch.rand(2)}


class Shuffled(Sampler[Any]):
    def __init__(self, given: Any = NAMES) -> None:
        self.given, self.generator = given, torch.Generator()

    def __len__(self) -> int:
        return len(self.given)

    def __iter__(self) -> Iterator[Any]:
        yield from (self.given[i] for i in torch.randperm(len(self.given), generator=self.generator).tolist())


class Endless(Sampler[Any]):
    def __init__(self, given: Any = NAMES) -> None:
        self.given = given

    def __iter__(self) -> Iterator[Any]:
        while True:
            yield random.choice(self.given)


def make(dataset: Any = None, batch_size: int | None = 3, **options: Any) -> td.DataLoader:
    options = {"sampler": Shuffled(), "device": "cpu", "seed": 5} | options
    return td.DataLoader(Words() if dataset is None else dataset, batch_size, **options)


def names(loader: td.DataLoader) -> list[list[str]]:
    return [batch["name"] for batch in loader]


def test_each_sample_once_in_another_order_per_epoch() -> None:
    loader = make()
    first, second = names(loader), names(loader)
    assert [len(batch) for batch in first] == [3, 3, 3, 2] and len(loader) == 4 and first != second
    for epoch in (first, second):
        assert sorted(sum(epoch, [])) == sorted(NAMES)  # noqa: RUF017
    assert list(islice(make().sampler, 4)) == sum(first, [])[:4]  # noqa: RUF017
    assert names(make(sampler=NAMES)) == [NAMES[i : i + 3] for i in range(0, 11, 3)]


@pytest.mark.processes
def test_one_stream_in_workers_and_after_a_resume() -> None:
    assert_same_stream(make, lambda: make(num_workers=2), epochs=2)
    assert_resumes_exactly(make)
    assert_resumes_exactly(lambda: make(None, 1, sampler=None, batch_sampler=BatchSampler(Shuffled(), 2, False)))


def test_random_numbers_follow_from_the_id_alone() -> None:
    def numbers(**options: Any) -> dict[str, float]:
        found = {}
        for batch in make(**options):
            found |= dict(zip(batch["name"], batch["random"].tolist(), strict=True))
        return found

    assert numbers() == numbers(sampler=NAMES[::-1]) == numbers(batch_size=7) != numbers(seed=6)
    twice = [batch["random"].tolist() for batch in make(sampler=["name 3"] * 3)]
    assert len(set(twice[0])) == 3


def test_ranks_share_them() -> None:
    whole = names(make())
    ranks = [names(make(batch_size=1, rank=rank, world_size=3)) for rank in range(3)]
    steps = [sum(step, []) for step in zip(*ranks, strict=True)]  # noqa: RUF017
    assert steps[:2] == whole[:2] and sorted(sum(steps, [])) == sorted(NAMES)  # noqa: RUF017


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_batches_and_endless_samplers(num_workers: int) -> None:
    batches = [["name 3", "name 4"], ["name 0"], ["name 5", "name 5", "name 1"]]
    with make(batch_size=1, sampler=None, batch_sampler=batches, num_workers=num_workers) as loader:
        assert names(loader) == batches
    with make(sampler=Endless(), num_workers=num_workers) as loader:
        iterator = iter(loader)
        whole = [next(iterator)["name"] for _ in range(9)]
        assert set(sum(whole, [])) <= set(NAMES)  # noqa: RUF017
    with make(sampler=Endless(), num_workers=num_workers) as loader:
        iterator = iter(loader)
        begun = [next(iterator)["name"] for _ in range(4)]
        state = loader.state_dict()
    with make(sampler=Endless(), num_workers=num_workers) as loader:
        loader.load_state_dict(state)
        with pytest.warns(RuntimeWarning, match="12 indices are drawn again"):
            assert begun + [batch["name"] for batch in islice(loader, 5)] == whole


def test_an_endless_sampler_of_indices_over_a_torch_dataset() -> None:
    loader = make(list(range(9)), sampler=Endless(range(9)))
    found = [batch.tolist() for batch in islice(loader, 3)]
    assert sum(map(len, found)) == 9 and set(sum(found, [])) <= set(range(9))  # noqa: RUF017


class Sized:
    """Samples by an index and a size, as samplers for several scales yield them; it has no length."""

    def __getitem__(self, at: tuple[int, int]) -> torch.Tensor:
        index, size = at
        return torch.full((size,), index)


def test_tuples_and_a_dataset_without_a_length() -> None:
    batches = [[(i, 2), (i + 1, 2)] for i in range(3)] + [[(7, 5)]]
    loader = make(Sized(), 1, sampler=None, batch_sampler=batches, ragged=["value"])
    assert [batch.data.shape[1] for batch in loader] == [2, 2, 2, 5]
    assert [batch.data[:, 0].tolist() for batch in loader] == [[0, 1], [1, 2], [2, 3], [7]]
    with pytest.raises(TypeError, match="Sized has no length: give it a __len__, or write sampler="):
        make(Sized(), sampler=None)


def test_a_dict_by_its_keys() -> None:
    data = {"a": 1.0, "b": 2.0, 300: 3.0, -4: 4.0, ("c", 5): 5.0, None: 6.0}
    loader = make(data, 2, sampler=list(data))
    assert [batch.tolist() for batch in loader] == [[1, 2], [3, 4], [5, 6]]
    assert [batch.tolist() for batch in make({10: 1.0, 300: 3.0}, 2, sampler=[300, 10])] == [[3, 1]]
    assert [batch.tolist() for batch in make(Subset(data, ["b", None]), 2, sampler=None)] == [[2, 6]]  # type: ignore[arg-type]
    parts = {make(Subset(data, part), sampler=None).source.fingerprint() for part in (["a"], ["b"])}  # type: ignore[arg-type, list-item]
    assert len(parts) == 2


class Bulk:
    """Reads many samples at a time."""

    def __len__(self) -> int:
        return 7

    def __getitem__(self, at: list[int]) -> torch.Tensor:
        return torch.as_tensor(at)


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_a_sampler_of_lists_is_for_items_that_are_batches(num_workers: int) -> None:
    """As torch's documentation reads in bulk."""
    sampler = BatchSampler(RandomSampler(range(7)), 3, False)
    with make(Bulk(), None, sampler=sampler, num_workers=num_workers) as loader:
        found = [batch.tolist() for batch in loader]
    assert [len(batch) for batch in found] == [3, 3, 1] and sorted(sum(found, [])) == list(range(7))  # noqa: RUF017
    ordered = BatchSampler(SequentialSampler(range(7)), 3, False)
    assert [b.tolist() for b in make(Bulk(), None, sampler=ordered)] == [
        b.tolist()
        for b in TorchLoader(Bulk(), None, sampler=ordered)  # type: ignore[arg-type]
    ]
    with pytest.raises(TypeError, match="BatchSampler yields batches: write batch_sampler="):
        make(Bulk(), 2, sampler=ordered)
    with pytest.raises(TypeError, match=r"sampler must yield integers, list yielded \[0, 1\]: for batches write batch"):
        list(make(Bulk(), 2, sampler=[[0, 1]]))


@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.processes)])
def test_a_bad_sample_is_named_and_another_one_takes_its_place(num_workers: int) -> None:
    data = Words()
    data.bad = "name 2"
    with (
        make(data, sampler=NAMES, num_workers=num_workers) as loader,
        pytest.raises(ValueError, match="broken") as caught,
    ):
        list(loader)
    assert "it is the sample 'name 2'" in " ".join(caught.value.__notes__)
    with make(data, sampler=NAMES, num_workers=num_workers, on_bad_sample="substitute") as loader:
        first, *_ = names(loader)
        assert first[:2] == NAMES[:2] and first[2] in NAMES and first[2] != "name 2"
    (bad,) = loader.bad_samples
    assert bad.path == "'name 2'"
    with make(data, sampler=NAMES, num_workers=num_workers, on_bad_sample="skip") as loader:
        assert sum(map(len, names(loader))) == 10


class Colour(Enum):
    RED = 1


def test_numbers_of_ids() -> None:
    given = ["a", b"a", "b", 1.5, ("a", 1), ("a", "1"), [1, 2], None, Colour.RED, PurePosixPath("a"), frozenset("ab")]
    found = ids.read("S", given, Taken(3, True, True))
    assert len(set(found.numbers.tolist())) == len(given) and (found.numbers >= 0).all()
    assert list(found.ids.values()) == given and found.numbers[0] == 4215048402607874279
    same = ids.read("S", [np.str_("a"), np.array([1, 2])], Taken(3, True, True))
    assert same.numbers.tolist() == found.numbers[[0, 6]].tolist()
    with pytest.raises(TypeError, match="ids of the dataset's samples that are the same in every process: strings"):
        ids.read("S", [object()], Taken(3, True))
    with pytest.raises(TypeError, match="sampler must yield integers, S yielded 'a'"):
        ids.read("S", ["a"], Taken(3))


class Windows:
    """A grid that is asked for windows, in space and time, as TorchGeo's datasets are."""

    pixels = torch.arange(36).reshape(6, 6)

    def __getitem__(self, window: tuple[slice, slice, slice]) -> dict[str, Any]:
        rows, columns, times = window
        return {"image": self.pixels[rows, columns], "from": times.start}


def test_windows_are_ids() -> None:
    day = datetime(2020, 1, 1)
    given = [(slice(i, i + 2), slice(0, 3), slice(day + timedelta(days=i), None)) for i in range(5)]
    one = make(Windows(), 2, sampler=Shuffled(given))
    batches = list(one)
    starts = [row - day for batch in batches for row in batch["from"]]
    assert sorted(starts) == [timedelta(days=i) for i in range(5)]
    assert torch.cat([batch["image"] for batch in batches])[:, 0, 0].tolist() == [6 * start.days for start in starts]
    assert_resumes_exactly(lambda: make(Windows(), 2, sampler=Shuffled(given)))


def test_numbers_of_windows_and_times() -> None:
    given = [
        *(slice(1, 2), range(1, 2), slice(1, 2, 3), {"a": 1}, {"a": "1"}, UUID(int=1), Decimal("1.0"), Decimal("1.00")),
        *(date(2020, 1, 1), datetime(2020, 1, 1), datetime(2020, 1, 1, 0, 0, 0, 1), time(1), timedelta(1)),
        *(
            np.datetime64("2020-01-01"),
            np.datetime64("2020-01-01", "ns"),
            np.timedelta64(1, "D"),
            np.timedelta64(1, "s"),
        ),
    ]
    found = ids.read("S", given, Taken(3, True))
    assert len(set(found.numbers.tolist())) == len(given) and list(found.ids.values()) == given
    assert found.numbers[0] == ids.read("S", [slice(np.int64(1), 2)], Taken(3, True)).numbers[0]


def test_a_distributed_sampler_for_one_process_is_an_order() -> None:
    sampler = DistributedSampler(range(7), 1, 0, shuffle=False)  # type: ignore[arg-type]
    assert [batch.tolist() for batch in make(list(range(7)), 4, sampler=sampler)] == [[0, 1, 2, 3], [4, 5, 6]]
