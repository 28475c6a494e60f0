"""Samplers and iterables that shuffle their own lists in place, or count their own epochs: one stream all the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, Sampler, get_worker_info

import torchdali as td

N = 24


class PerClass(Sampler[int]):
    """As pytorch-metric-learning's MPerClassSampler: some samples of each class, of classes that it shuffles."""

    def __init__(self, labels: list[int], per_class: int) -> None:
        self.labels = sorted(set(labels))
        self.indices = {label: np.flatnonzero(np.array(labels) == label) for label in self.labels}
        self.per_class = per_class

    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[int]:
        drawn: list[int] = []
        while len(drawn) < N:
            np.random.shuffle(self.labels)
            for label in self.labels:
                drawn += np.random.choice(self.indices[label], self.per_class).tolist()
        return iter(drawn[:N])


class InPlace(Sampler[int]):
    """Shuffles an array in place, by rows, and a list that a dict holds."""

    def __init__(self) -> None:
        self.rows = np.arange(N).reshape(-1, 2)
        self.parts = {"all": list(range(len(self.rows)))}

    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[int]:
        np.random.shuffle(self.rows)
        random.shuffle(self.parts["all"])
        for part in self.parts["all"]:
            yield from self.rows[part].tolist()


class Bound(Sampler[int]):
    """Puts a shuffled array into the place of its own."""

    def __init__(self) -> None:
        self.order = torch.arange(N)

    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[int]:
        self.order = self.order[torch.randperm(N)]
        return iter(self.order.tolist())


class Counting(Sampler[int]):
    """Seeds itself by an epoch that it counts, as many do."""

    def __init__(self) -> None:
        self.epoch, self.seed = 3, 7

    def __len__(self) -> int:
        return N

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        self.epoch += 1
        return iter(torch.randperm(N, generator=generator).tolist())


SAMPLERS = {
    "per class": lambda: PerClass([i % 4 for i in range(N)], 2),
    "in place": InPlace,
    "bound": Bound,
    "counting": Counting,
}


def orders(loader: Any, epochs: int) -> list[list[int]]:
    return [torch.cat(list(loader)).tolist() for _ in range(epochs)]


@pytest.mark.parametrize("name", SAMPLERS)
def test_an_epoch_does_not_follow_from_those_before_it(name: str) -> None:
    make = SAMPLERS[name]
    whole = orders(td.DataLoader(range(N), 5, sampler=make()), 3)
    assert whole[0] != whole[1] != whole[2]

    later = td.DataLoader(range(N), 5, sampler=make())
    later.seek(2, 3)
    assert orders(later, 1)[0] == whole[2][15:]

    broken = td.DataLoader(range(N), 5, sampler=make())
    next(iter(broken))
    assert orders(broken, 2) == whole[1:]  # as in torch, a pass that is broken off is over
    broken.set_epoch(0)
    assert orders(broken, 1) == whole[:1]


def test_a_sampler_that_counts_gives_torchs_order() -> None:
    ours = orders(td.DataLoader(range(N), 5, sampler=Counting()), 3)
    assert ours == orders(torch.utils.data.DataLoader(range(N), 5, sampler=Counting()), 3)


def test_each_class_is_there_as_often() -> None:
    labels = [i % 4 for i in range(N)]
    batches = list(td.DataLoader(range(N), 8, sampler=PerClass(labels, 2)))
    assert all(np.bincount([labels[i] for i in batch], minlength=4).tolist() == [2] * 4 for batch in batches)


def test_the_owners_changes_count() -> None:
    sampler = PerClass([i % 4 for i in range(N)], 2)
    loader = td.DataLoader(range(N), 8, sampler=sampler)
    orders(loader, 2)
    sampler.labels.remove(3)
    assert all(i % 4 < 3 for i in orders(loader, 1)[0])
    counting = Counting()
    loader = td.DataLoader(range(N), 5, sampler=counting)
    orders(loader, 2)
    counting.epoch = 10
    expected = torch.randperm(N, generator=torch.Generator().manual_seed(17)).tolist()
    assert orders(loader, 1) == [expected]


class Files(IterableDataset[Any]):
    """Shuffles its list in place, and draws from generators of its own."""

    def __init__(self) -> None:
        self.files = list(range(N))
        self.python, self.numpy = random.Random(), np.random.default_rng()

    def shuffle(self) -> None:
        self.python.shuffle(self.files)

    def __iter__(self) -> Iterator[Any]:
        self.shuffle()
        yield from ((file, self.numpy.random()) for file in self.files)


class FilesByGlobal(Files):
    def shuffle(self) -> None:
        random.shuffle(self.files)


class FilesByWorker(Files):
    """The workers share the list, which they have to see in one order."""

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        self.shuffle()
        number, count = (0, 1) if worker is None else (worker.id, worker.num_workers)
        yield from ((file, self.numpy.random()) for file in self.files[number::count])


@pytest.mark.filterwarnings("ignore:.* has no state_dict")
@pytest.mark.parametrize(
    "num_workers", [0, pytest.param(2, marks=[pytest.mark.processes, pytest.mark.slow])], ids=["here", "workers"]
)
@pytest.mark.parametrize("cls", [Files, FilesByGlobal, FilesByWorker])
def test_iterables_resume_in_a_later_epoch(cls: type[Files], num_workers: int) -> None:
    def loader() -> Any:
        return td.DataLoader(cls(), 5, num_workers=num_workers)

    one = loader()
    epochs = [list(one) for _ in range(3)]
    assert all(sorted(torch.cat([files for files, _ in epoch]).tolist()) == list(range(N)) for epoch in epochs)
    assert epochs[0][0][0].tolist() != epochs[1][0][0].tolist()
    other = loader()
    list(other)
    for _ in zip(range(2), other, strict=False):
        pass
    resumed = loader()
    resumed.load_state_dict(other.state_dict())
    for expected in ([*epochs[1][2:]], epochs[2]):
        torch.testing.assert_close(list(resumed), expected, rtol=0, atol=0)
    for loader_ in (one, other, resumed):
        loader_.close()


def test_a_list_that_grows_stays() -> None:
    """A replay buffer that the iteration fills is no list in another order."""

    class Collects(Files):
        def __iter__(self) -> Iterator[Any]:
            for i in range(3):
                self.files.append(N + i)
                yield i

    dataset = Collects()
    loader = td.DataLoader(dataset, 2)
    list(loader), list(loader)
    assert dataset.files == [*range(N), *[N, N + 1, N + 2] * 2]


class Endless(Sampler[int]):
    def __init__(self) -> None:
        self.rng, self.indices = np.random.default_rng(), list(range(N))

    def __iter__(self) -> Iterator[int]:
        self.rng.shuffle(self.indices)
        while True:
            yield self.indices[self.rng.integers(N)]


@pytest.mark.filterwarnings("ignore:the sampler has no length")
def test_generators_of_samplers_without_a_length() -> None:
    sampler = Endless()
    before = sampler.rng.bit_generator.state
    loader = td.DataLoader(range(N), 4, sampler=sampler)
    whole = [batch.tolist() for batch, _ in zip(loader, range(6), strict=False)]
    assert sampler.rng.bit_generator.state == before
    other = td.DataLoader(range(N), 4, sampler=Endless())
    for _ in zip(range(2), other, strict=False):
        np.random.default_rng(0).random()
    resumed = td.DataLoader(range(N), 4, sampler=Endless())
    resumed.load_state_dict(other.state_dict())
    assert [batch.tolist() for batch, _ in zip(resumed, range(4), strict=False)] == whole[2:]
    loader.set_epoch(0)
    assert [batch.tolist() for batch, _ in zip(loader, range(6), strict=False)] == whole
    loader.set_epoch(1)
    assert next(iter(loader)).tolist() != whole[0]
