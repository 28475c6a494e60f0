"""What torch's DataLoader takes, gives and does, in every corner: torchdali's does the same."""

from __future__ import annotations

import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    Subset,
)
from torch.utils.data import DataLoader as TorchLoader

import torchdali as td
from torchdali import source as source_module
from torchdali import transforms as T
from torchdali.testing import assert_resumes_exactly

N = 23


def make(dataset: Any = None, batch_size: int | None = 4, **options: Any) -> td.DataLoader:
    dataset = td.InMemoryDataset(x=np.arange(N), fields=("x",)) if dataset is None else dataset
    return td.DataLoader(dataset, batch_size, **({"device": "cpu"} | options))


def read(loader: td.DataLoader) -> list[list[int]]:
    return [batch[0].tolist() if isinstance(batch, tuple) else batch.tolist() for batch in loader]


# batch_sampler


class Pairs(Sampler[list[int]]):
    """Batches of any sizes, in an order of their own for each epoch."""

    def __init__(self, n: int = N) -> None:
        self.n, self.generator = n, torch.Generator()

    def __len__(self) -> int:
        return len(self._cut(torch.arange(self.n)))

    def _cut(self, order: torch.Tensor) -> list[list[int]]:
        return [part.tolist() for part in order.split([1, 2, 3, 4] * (self.n // 10) + [self.n % 10])]

    def __iter__(self) -> Iterator[list[int]]:
        yield from self._cut(torch.randperm(self.n, generator=self.generator))


def test_torchs_batch_sampler_is_a_sampler_a_size_and_drop_last() -> None:
    for drop_last in (False, True):
        given = BatchSampler(SequentialSampler(range(N)), 5, drop_last)
        loader = make(batch_size=1, batch_sampler=given)
        assert read(loader) == [batch.tolist() for batch in TorchLoader(range(N), batch_sampler=given)]
        assert len(loader) == len(given) and loader.batch_size == 5
    shuffled = read(make(batch_size=1, batch_sampler=BatchSampler(RandomSampler(range(N)), 5, False)))
    assert sorted(sum(shuffled, [])) == list(range(N))  # noqa: RUF017


def test_batches_of_any_sampler() -> None:
    loader = make(batch_size=1, batch_sampler=Pairs())
    first, second = read(loader), read(loader)
    assert [len(batch) for batch in first] == [1, 2, 3, 4, 1, 2, 3, 4, 3] and len(loader) == 9
    assert sorted(i for batch in first for i in batch) == list(range(N)) and first != second
    assert read(make(batch_size=1, batch_sampler=Pairs())) == first  # by the loader's seed
    assert read(make(batch_size=1, batch_sampler=Pairs(), seed=1)) != first
    fixed = [[3, 1], [4], [1, 5, 9]]
    assert read(make(batch_size=1, batch_sampler=fixed)) == fixed


def test_batches_of_a_sampler_resume_with_other_ranks() -> None:
    assert_resumes_exactly(lambda: make(batch_size=1, batch_sampler=Pairs()))
    whole = read(make(batch_size=1, batch_sampler=Pairs()))
    ranks = [read(make(batch_size=1, batch_sampler=Pairs(), rank=rank, world_size=2)) for rank in range(2)]
    assert [batch for step in zip(*ranks, strict=True) for batch in step][:8] == whole[:8]
    assert sorted(i for rank in ranks for batch in rank for i in batch) == list(range(N))
    one = make(batch_size=1, batch_sampler=Pairs(), rank=0, world_size=2)
    iterator = iter(one)
    next(iterator), next(iterator)
    alone = make(batch_size=1, batch_sampler=Pairs())
    alone.load_state_dict(one.state_dict())
    assert alone.step == 4 and read(alone) == whole[4:]


def test_images_in_batches_of_a_sampler(folder: Path) -> None:
    loader = make(
        td.ImageFolder(folder, fields=("image", "index")), 1, batch_sampler=Pairs(22), transform=T.Resize((8, 8))
    )
    batches = list(loader)
    assert [len(images) for images, _ in batches] == [1, 2, 3, 4, 1, 2, 3, 4, 2]
    assert sorted(i for _, index in batches for i in index.tolist()) == list(range(22))


class Shares(Pairs):
    num_replicas = 2


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"batch_size": 2, "shuffle": True}, ValueError, "batch_sampler gives the batches: leave batch_size, shuffle"),
        ({"drop_last": True}, ValueError, "leave drop_last out"),
        ({"sampler": range(3)}, ValueError, "leave sampler out"),
        ({"batch_sampler": 3}, TypeError, "batch_sampler must be an iterable of lists of indices .* got int"),
        ({"batch_sampler": Shares()}, TypeError, r"Shares gives one rank's of 2 \(num_replicas\)"),
        ({"batch_sampler": BatchSampler(DistributedSampler(range(N), 2, 0), 2, False)}, TypeError, "gives one rank's"),
    ],
)
def test_what_can_not_be_beside_a_batch_sampler(options: dict[str, Any], error: Any, sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        make(**{"batch_size": 1, "batch_sampler": [[1]]} | options)


@pytest.mark.parametrize(
    ("batches", "error", "sentence"),
    [
        ([1, 2], TypeError, "batch_sampler must yield lists of indices, list yielded 1"),
        ([[1], []], ValueError, "at least one index, list yielded an empty one"),
        ([[1, 99]], ValueError, "yielded indices 1..99 for a dataset of 23 samples"),
        ([["a"]], TypeError, "batch_sampler must yield lists of integers, list yielded 'a'"),
    ],
)
def test_batches_that_cannot_be(batches: Any, error: Any, sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        read(make(batch_size=1, batch_sampler=batches))


# Samplers without a length


class Forever(Sampler[int]):
    """An endless order that shuffles again and again, with the global generators."""

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from torch.randperm(N).tolist()
            yield random.randrange(N)


class ForeverBatches(Sampler[list[int]]):
    def __iter__(self) -> Iterator[list[int]]:
        while True:
            yield torch.randint(N, (random.randint(1, 3),)).tolist()


class Unsized(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(N).tolist()


def take(loader: td.DataLoader, n: int) -> list[list[int]]:
    found = []
    for batch in loader:
        torch.rand(1), random.random()  # training draws as well
        found.append(batch[0].tolist())
        if len(found) == n:
            return found
    return found


@pytest.mark.parametrize("options", [{"sampler": Forever()}, {"batch_sampler": ForeverBatches(), "batch_size": 1}])
def test_an_endless_sampler(options: dict[str, Any]) -> None:
    state = torch.get_rng_state()
    with make(**options) as loader:
        assert next(iter(loader)) is not None and torch.equal(torch.get_rng_state(), state)
    with make(**options) as loader:
        whole = take(loader, 40)
        state_dict = loader.state_dict()
        with pytest.raises(TypeError, match="has no length"):
            len(loader)
    with make(**options) as loader:
        iterator = iter(loader)
        for _ in range(17):
            next(iterator)
        before = loader.state_dict()
        assert loader.step == 17
    with make(**options) as loader:
        loader.load_state_dict(before)
        with pytest.warns(RuntimeWarning, match=rf"no length: {before['samples_seen']} indices are drawn again"):
            assert take(loader, 23) == whole[17:]
        assert loader.state_dict() == state_dict
    if "sampler" in options:
        ranks = [take(make(**options, rank=rank, world_size=2), 20) for rank in range(2)]
        assert [i for step in zip(*ranks, strict=True) for part in step for i in part] == [
            i for batch in take(make(**options), 40) for i in batch
        ]


def test_a_sampler_that_ends_somewhere() -> None:
    with make(sampler=Unsized()) as loader:
        first, second = read(loader), read(loader)
    assert [len(batch) for batch in first] == [4, 4, 4, 4, 4, 3] and first != second
    assert sorted(i for batch in first for i in batch) == list(range(N))
    assert len(read(make(sampler=Unsized(), drop_last=True))) == 5


def test_a_sampler_that_can_be_iterated_once() -> None:
    with pytest.raises(TypeError, match="that can be iterated for each epoch, got list_iterator"):
        make(sampler=iter([1, 2]))


# generator=, num_workers=


def test_a_generators_first_seed_is_the_seed() -> None:
    def stream(**options: Any) -> Any:
        return read(make(shuffle=True, **options))

    generator = torch.Generator().manual_seed(7)
    assert stream(generator=generator) == stream(seed=7) != stream()
    torch.rand(3, generator=generator)
    assert stream(generator=generator) == stream(seed=7)
    assert stream(generator=generator, seed=3) == stream(seed=3)
    assert make(generator=generator).generator is generator
    with pytest.raises(TypeError, match=r"generator must be a torch.Generator, got 3"):
        make(generator=3)


def test_workers_of_a_dataset_that_needs_none_are_warned_about_once() -> None:
    source_module._warned.clear()
    with pytest.warns(UserWarning, match=r"InMemoryDataset needs no worker processes.*write num_threads=3") as caught:
        loader = make(num_workers=3, prefetch_factor=4, persistent_workers=True, multiprocessing_context="spawn")
    assert caught[0].filename == __file__.replace(".pyc", ".py") and len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(make(num_workers=3)) == read(loader) == read(make())


# Nothing


class Nothing(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(())


EMPTY: dict[str, dict[str, Any]] = {
    "a list": {"dataset": []},
    "a subset": {"dataset": Subset([1, 2], [])},  # type: ignore[arg-type]
    "a subset of ours": {"dataset": Subset(td.InMemoryDataset(x=[1, 2]), [])},  # type: ignore[arg-type]
    "an iterable": {"dataset": Nothing()},
    "an iterable in workers": {"dataset": Nothing(), "num_workers": 2},
    "a sampler": {"sampler": []},
    "a batch sampler": {"batch_sampler": [], "batch_size": 1},
    "drop_last": {"batch_size": N + 1, "drop_last": True},
    "drop_last on ranks": {"batch_size": 4, "drop_last": True, "rank": 0, "world_size": 6},
    "a shuffled list": {"dataset": [], "shuffle": True},
    "a filled list": {"dataset": [], "pad_last": True},
    "collate_fn": {"dataset": [], "collate_fn": list},
    "a transform": {"dataset": [], "transform": T.Resize(3)},
}


@pytest.mark.parametrize("options", EMPTY.values(), ids=EMPTY)
def test_nothing_gives_no_batch_as_in_torch(options: dict[str, Any]) -> None:
    with make(**options) as loader:
        for _ in range(2):
            assert list(loader) == []
        if options.get("dataset") is None or hasattr(options["dataset"], "__len__"):
            assert len(loader) == 0
        assert loader.epoch == 2 and loader.step == 0
        state = loader.state_dict()
        loader.load_state_dict(state)
        assert list(loader) == []
        if not loader.source.endless:
            assert list(loader.batch_sampler) == []


def test_fewer_samples_than_ranks_repeat_some_as_torchs_sampler_does() -> None:
    for options in ({"batch_size": 1}, {"batch_size": 4}):
        rows = []
        for rank in range(5):
            data = td.InMemoryDataset(x=[10, 20, 30], fields=("x", "valid"))
            loader = make(data, **options, rank=rank, world_size=5)
            assert len(loader) == 1
            with pytest.warns(RuntimeWarning, match="3 samples of the epoch are left for 5 ranks: some repeat one"):
                ((x, valid),) = list(loader)
            rows.append((x.tolist(), valid.tolist()))
        assert rows == [([10], [True]), ([20], [True]), ([30], [True]), ([10], [False]), ([20], [False])]


# Small things


def test_a_loader_in_an_annotation() -> None:
    def train(loader: td.DataLoader[int]) -> None: ...  # type: ignore[type-arg]

    assert td.DataLoader[int].__origin__ is td.DataLoader  # type: ignore[misc]


def test_the_length_of_an_iterator() -> None:
    iterator = iter(make())
    assert len(iterator) == 6 == len(make())  # type: ignore[arg-type]
    next(iterator)
    assert len(iterator) == 6  # type: ignore[arg-type]  # as torch's
    assert len(list(iterator)) == 5


def test_the_next_step() -> None:
    loader = make()
    assert loader.step == 0
    for number, _ in enumerate(loader, loader.step):
        assert loader.step == number + 1
        if number == 2:
            break
    assert loader.step == 3
    other = make()
    other.load_state_dict(loader.state_dict())
    assert [step for step, _ in enumerate(other, other.step)] == [3, 4, 5]
    assert other.step == 0 and other.epoch == 1
    for world_size in (1, 2, 3, 5):
        loader = make(rank=0, world_size=world_size)
        for step in range(len(loader) + 1):
            loader.seek(0, step)
            assert loader.step == step, world_size
    sampler = td.LengthBucketSampler([1 + i % 5 for i in range(N)], 10)
    loader = make(batch_size=1, sampler=sampler)
    loader.seek(0, 3)
    assert loader.step == 3


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_list_that_grows_has_more_samples_in_the_next_epoch(shuffle: bool) -> None:
    data = list(range(6))
    loader = make(data, shuffle=shuffle)
    iterator = iter(loader)
    seen = next(iterator).tolist()
    data.append(6)
    assert len(loader) == 2 and sorted(seen + [i for batch in iterator for i in batch.tolist()]) == list(range(6))
    data.extend([7, 8])
    assert len(loader) == len(TorchLoader(data, 4)) == 3  # type: ignore[arg-type]
    assert sorted(i for batch in loader for i in batch.tolist()) == list(range(9))
    assert loader.state_dict()["num_samples"] == 9


# memory_format


@pytest.mark.parametrize(
    "transform", [T.Resize((8, 9)), T.Compose([T.Resize((8, 9)), T.Normalize((0.5,) * 3, (0.5,) * 3)])], ids=str
)
@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_images_that_can_be_flattened(folder: Path, transform: Any, engine: Any) -> None:
    options = {"transform": transform, "engine": engine, "drop_last": True}
    plain = list(make(td.ImageFolder(folder), **options))
    flat = list(make(td.ImageFolder(folder), memory_format=torch.contiguous_format, **options))
    for (one, label), (other, same) in zip(plain, flat, strict=True):
        assert one.is_contiguous(memory_format=torch.channels_last) and not one.is_contiguous()
        assert other.is_contiguous() and torch.equal(one, other) and torch.equal(label, same)
        assert other.view(4, -1).shape == (4, 3 * 8 * 9)


def test_ragged_and_decoded_images_that_can_be_flattened(folder: Path) -> None:
    (images, _), *_ = make(td.ImageFolder(folder), memory_format=torch.contiguous_format)
    (plain, _), *_ = make(td.ImageFolder(folder))
    assert isinstance(images, td.Padded) and images.data.is_contiguous() and torch.equal(images.data, plain.data)
    pixels = [np.full((4, 5, 3), k, np.uint8) for k in range(4)]
    (batch,) = make(pixels, memory_format=torch.contiguous_format)
    assert batch.shape == (4, 3, 4, 5) and batch.is_contiguous()


def test_other_memory_formats() -> None:
    with pytest.raises(ValueError, match=r"memory_format must be torch.channels_last or torch.contiguous_format, got"):
        make(memory_format=torch.channels_last_3d)


# Errors that name the way


def test_what_people_give_instead(folder: Path) -> None:
    import nvidia.dali.experimental.dynamic as ndd
    from torchvision.transforms import v2

    with pytest.raises(TypeError, match=r"got DALI's reader File: write torchdali.readers.File\(...\)"):
        make(ndd.readers.File(file_root=str(folder)))
    with pytest.raises(TypeError, match=r"got str for 'x': for lists of files write FileDataset\({...}\)"):
        td.NumpyDataset({"x": "x.npy"})  # type: ignore[arg-type]
    for given in (torch.nn.Flatten(), T.Compose):
        with pytest.raises(TypeError):
            make(td.ImageFolder(folder), transform=given)
    with pytest.raises(TypeError, match="the torch module Flatten: call it on the batch in your loop"):
        T.Compose([T.Resize(8), torch.nn.Flatten()])
    with pytest.raises(TypeError, match=r"write torchdali.transforms.Resize with the same arguments"):
        T.Compose([v2.Resize(8)])
