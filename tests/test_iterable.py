"""Iterable datasets: who gets which sample, states of their own, and what they do to a pass."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import re
import time
import warnings
from typing import Any

import numpy as np
import psutil
import pytest
import torch

import torchdali as td
from torchdali.errors import LoaderTimeoutError, StateMismatchError
from torchdali.testing import assert_resumes_exactly, assert_same_stream
from torchdali.workers import WorkerDiedError

from . import source_datasets as S
from .source_datasets import N

pytestmark = pytest.mark.timeout(120)


def loader(dataset: Any, num_workers: int = 0, **options: Any) -> td.DataLoader:
    options = dict(batch_size=4, seed=3, device="cpu") | options
    if num_workers:
        options.setdefault("multiprocessing_context", "fork")
    return td.DataLoader(dataset, num_workers=num_workers, **options)


def numbers(batches: Any) -> list[list[int]]:
    """The first field of each batch."""
    return [(batch[0] if isinstance(batch, tuple) else batch).tolist() for batch in batches]


def flat(batches: Any) -> list[int]:
    return list(itertools.chain(*numbers(batches)))


# Workers and ranks


@pytest.mark.processes
def test_one_worker_is_as_none():
    """And start methods make no difference; with more workers they take turns, batch by batch."""
    assert_same_stream(
        lambda: loader(S.Stream()),
        lambda: loader(S.Stream(), 1),
        lambda: loader(S.Stream(), 1, multiprocessing_context="forkserver"),
        lambda: loader(S.Stream(), engine="debug"),
        lambda: loader(S.Stream(), prefetch_factor=0),
        epochs=2,
    )
    assert_same_stream(
        lambda: loader(S.Stream(), 2),
        lambda: loader(S.Stream(), 2, prefetch_factor=4, persistent_workers=True),
        lambda: loader(S.Stream(), 2, multiprocessing_context="spawn", prefetch_factor=1),
        epochs=2,
    )
    with loader(S.Stream(), 2) as one:
        assert numbers(one)[:3] == [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14]]


@pytest.mark.processes
def test_as_torchs_loader():
    """A dataset that shares itself gives the batches that torch's loader makes of it."""
    theirs = torch.utils.data.DataLoader(
        S.SharedStream(), 4, num_workers=2, multiprocessing_context="fork", collate_fn=list
    )
    with loader(S.SharedStream(), 2) as one:
        assert numbers(one) == [[index for index, _ in batch] for batch in theirs]


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("cls", [S.Stream, S.SharedStream, S.StatefulStream])
@pytest.mark.filterwarnings("ignore:SharedStream shares itself:RuntimeWarning")
def test_ranks_and_workers_give_each_sample_once(cls, num_workers):
    got = []
    for rank in range(3):
        with loader(cls(), num_workers, rank=rank, world_size=3) as one:
            part = flat(one)
            assert 6 <= len(part) <= 9
            got += part
    assert sorted(got) == list(range(N))


@pytest.mark.processes
def test_a_dataset_that_shares_everything_by_itself():
    class Rank(S.SharedStream):
        def __iter__(self) -> Any:
            return (sample for sample in super().__iter__() if sample[0] % 3 == 1)

    with loader(td.IterableSource(Rank(), shard="none"), 2, rank=1, world_size=3) as one:
        assert sorted(flat(one)) == [1, 4, 7, 10, 13, 16, 19, 22]
    with loader(td.IterableSource(S.SharedStream(), shard="skip"), 2) as one:
        # Both share: each worker takes a half of its half.
        assert len(flat(one)) < N


@pytest.mark.processes
def test_random_numbers_depend_on_the_place_alone():
    def drawn(one: td.DataLoader) -> list[float]:
        return list(itertools.chain(*(batch[1].tolist() for batch in one)))

    with loader(S.Stream(), 2) as one:
        first, second = drawn(one), drawn(one)
    assert len(set(first) | set(second)) == 2 * N
    with loader(S.Stream(), 2, seed=4) as one:
        assert not set(drawn(one)) & set(first)
    with loader(S.Stream(), 2) as one:
        one.set_epoch(1)
        assert drawn(one) == second


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_dataset_is_told_the_epoch(num_workers):
    with loader(S.EpochStream(), num_workers, persistent_workers=bool(num_workers)) as one:
        epochs = [flat(one) for _ in range(3)]
        one.set_epoch(1)
        assert flat(one) == epochs[1]
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert {tuple(sorted(epoch)) for epoch in epochs} == {tuple(range(N))}


# Its own state


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
@pytest.mark.parametrize("cls", [S.StatefulStream, S.RestartingStream, S.SharedStatefulStream])
def test_resumes_at_every_step_by_its_state(cls, num_workers):
    assert_resumes_exactly(lambda: loader(cls(), num_workers), every=1 + num_workers // 2)


@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.filterwarnings("ignore:.*samples are iterated again:RuntimeWarning")
def test_resumes_at_every_step_by_a_replay(num_workers):
    assert_resumes_exactly(lambda: loader(S.Stream(), num_workers), epochs=1)


@pytest.mark.processes
def test_resumes_on_a_rank():
    assert_resumes_exactly(lambda: loader(S.StatefulStream(40), 2, rank=1, world_size=2), epochs=1)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("cls", [S.StatefulStream, S.RestartingStream])
def test_each_epoch_begins_at_the_start(cls, num_workers):
    """Whatever became of the pass before, and whether its state was loaded."""
    with loader(cls(), num_workers, persistent_workers=bool(num_workers)) as one:
        iterator = iter(one)
        next(iterator), next(iterator), next(iterator)
        state = one.state_dict()
        del iterator
        assert sorted(flat(one)) == list(range(N))
        one.load_state_dict(state)
        assert len(flat(one)) == N - 12
        assert sorted(flat(one)) == list(range(N))
        one.load_state_dict(state)
        next(iter(one))
        assert sorted(flat(one)) == list(range(N))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_dataset_that_was_looked_at_before(num_workers):
    """It begins anew, and its state is the looker's."""
    data = S.RestartingStream()
    assert [index for index, _ in itertools.islice(data, 5)] == [0, 1, 2, 3, 4]
    with loader(data, num_workers) as one:
        assert sorted(flat(one)) == list(range(N))
    list(data)
    with loader(data, num_workers) as one:
        assert sorted(flat(one)) == list(range(N))


@pytest.mark.processes
def test_the_state_is_nested_and_plain():
    with loader(S.StatefulStream(), 2) as one:
        assert one.state_dict()["iterable"] == ""
        batches = iter(one)
        for _ in range(3):
            next(batches)
        state = one.state_dict()
        list(batches)
    assert state["samples_seen"] == 12
    whole = json.loads(state["iterable"])
    assert re.fullmatch("[0-9a-f]{16}", whole.pop("check"))
    assert whole == {
        "turn": 1,
        "rank": None,
        "workers": [
            {"taken": 16, "state": {"at": 16}, "ended": False, "asked": False},
            {"taken": 8, "state": {"at": 8}, "ended": False, "asked": False},
        ],
    }
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    for loaded in (json.loads(json.dumps(state)), torch.load(file, weights_only=True)):
        with loader(S.StatefulStream(), 2) as other:
            other.load_state_dict(loaded)
            assert numbers(other) == [[9, 11, 13, 15], [16, 18, 20, 22], [17, 19, 21]]
            assert loaded == state  # nothing of it was changed


@pytest.mark.processes
def test_the_state_follows_the_batches_and_not_the_workers():
    """Workers are ahead by their prefetching; the state is not."""
    with loader(S.StatefulStream(), 2, prefetch_factor=4) as one:
        batches = iter(one)
        next(batches)
        time.sleep(0.3)
        assert [worker["taken"] for worker in json.loads(one.state_dict()["iterable"])["workers"]] == [8, 0]
        del batches


@pytest.mark.processes
def test_no_place_for_a_state():
    with loader(S.SharedStatefulStream(), 2) as one:
        next(iter(one))
        state = one.state_dict()
    for count in (0, 3):
        match = f"num_workers: expected {max(count, 1)}, got 2: the dataset shares itself .* write num_workers=2"
        with pytest.raises(StateMismatchError, match=match):
            loader(S.SharedStatefulStream(), count).load_state_dict(state)
    with loader(S.StatefulStream(), 2) as one:
        next(iter(one))
        state = one.state_dict()
    with pytest.raises(StateMismatchError, match="expected the rank, or None"):
        whole = {name: value for name, value in json.loads(state["iterable"]).items() if name != "rank"}
        loader(S.StatefulStream(), 2).load_state_dict(state | {"iterable": whole})
    for junk in (3, {"workers": 2}, {"workers": [1, 2]}):
        with pytest.raises(StateMismatchError, match="expected where its workers stand"):
            loader(S.StatefulStream(), 2).load_state_dict(state | {"iterable": junk})
    with pytest.raises(StateMismatchError, match="dataset: expected"):
        loader(S.Stream(), 2).load_state_dict(state)


@pytest.mark.processes
def test_a_replay_warns_of_its_samples():
    with loader(S.Stream(), 1) as one:
        batches = iter(one)
        next(batches), next(batches)
        state = one.state_dict()
        rest = numbers(batches)
    with loader(S.Stream(), 1) as one:
        one.load_state_dict(state)
        with pytest.warns(RuntimeWarning, match="Stream has no state_dict: 8 samples are iterated again to go on"):
            assert numbers(one) == rest


@pytest.mark.parametrize("num_workers", [0, 2])
def test_endless_ones_go_on(num_workers):
    class Counter(S.StatefulStream):
        def __iter__(self) -> Any:
            while True:
                self.at += 1
                yield self.at - 1

    with loader(Counter(), num_workers) as one:
        batches = iter(one)
        for _ in range(5):
            next(batches)
        state = one.state_dict()
        rest = [next(batches).tolist() for _ in range(4)]
        one.close()
    with loader(Counter(), num_workers) as one:
        one.load_state_dict(state)
        assert numbers(itertools.islice(one, 4)) == rest


# Faults


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_has_its_place_and_the_stream_goes_on(num_workers):
    with loader(td.IterableSource(S.Itself("raise")), num_workers) as one:
        batches = iter(one)
        assert numbers([next(batches), next(batches)]) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(LookupError, match="sample 9 is lost") as caught:
            next(batches)
        notes = " ".join(caught.value.__notes__)
        assert "sample 9" in notes and (not num_workers or ("__next__" in notes and "worker 0" in notes))
        assert one.state_dict()["samples_seen"] == 8
        assert numbers(batches)[0] == [8, 10, 11, 12]  # the sample before it is not lost


@pytest.mark.parametrize("num_workers", [0, 1])
def test_stop_iteration_in_a_generator_is_an_error(num_workers):
    class Stops(S.Stream):
        def __iter__(self) -> Any:
            yield from range(6)
            next(iter(()))

    with loader(Stops(), num_workers) as one:
        batches = iter(one)
        next(batches)
        with pytest.raises(RuntimeError, match="generator raised StopIteration"):
            next(batches)


@pytest.mark.processes
def test_a_worker_that_dies_is_named():
    with loader(td.IterableSource(S.Itself("kill")), 1) as one:
        batches = iter(one)
        next(batches), next(batches)
        with pytest.raises(WorkerDiedError, match=r"killed by SIGKILL.* sample 9") as caught:
            list(batches)
        assert caught.value.worker == 0
    assert not [p for p in psutil.Process().children() if p.pid == caught.value.pid]


@pytest.mark.processes
def test_a_sample_that_hangs_is_named():
    with loader(td.IterableSource(S.Itself("hang")), 1, timeout=2) as one:
        batches = iter(one)
        next(batches), next(batches)
        with pytest.raises(LoaderTimeoutError, match="sample 9") as caught:
            list(batches)
    assert not os.path.exists(f"/proc/{caught.value.pid}")


# Words


def test_wrong_words():
    with pytest.raises(TypeError, match="has no known length"):
        len(loader(S.Stream()))
    with pytest.raises(ValueError, match="leave shuffle and sampler out"):
        loader(S.Stream(), shuffle=True)
    with pytest.raises(ValueError, match="leave shuffle and sampler out"):
        loader(S.Stream(), sampler=[0, 1])
    with pytest.raises(ValueError, match="shard must be one of"):
        td.IterableSource(S.Stream(), shard="both")
    with pytest.raises(TypeError, match="list_iterator can be iterated only once"):
        td.IterableSource(iter([1, 2]))
    with pytest.raises(TypeError, match="dataset must be an iterable, got int"):
        td.IterableSource(3)


@pytest.mark.processes
def test_fields_and_places():
    source = td.IterableSource(S.Stream(), fields=["number", "index", "drawn", "valid"])
    with loader(source, 1, output="dict") as one:
        batches = list(one)
    assert list(batches[0]) == ["number", "index", "drawn", "valid"]
    assert [i for batch in batches for i in batch["index"].tolist()] == list(range(N))
    assert all(batch["valid"].all() for batch in batches)


# States and ranks


def consumed(dataset: Any, steps: int, num_workers: int, state: Any = None, **options: Any) -> tuple[list[int], Any]:
    """The samples of some batches, and the state after them."""
    with loader(dataset, num_workers, **options) as one:
        if state is not None:
            one.load_state_dict(state)
        got = flat(itertools.islice(one, steps))
        return got, one.state_dict()


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("cls", [S.Stream, S.StatefulStream, S.RestartingStream])
@pytest.mark.filterwarnings("ignore:.*samples are iterated again:RuntimeWarning")
def test_the_state_is_the_same_on_all_ranks_and_goes_on_on_another_number(cls, num_workers, steps):
    """As trainers need it, which save what rank 0 says: none lost, none twice."""
    n = 60
    parts = [consumed(cls(n), steps, num_workers, rank=rank, world_size=3) for rank in range(3)]
    seen = [number for got, _ in parts for number in got]
    # Workers take turns, batch by batch: the first one of each rank has had its samples before the second one.
    workers = max(1, num_workers)
    turns = [len(range(worker, steps, workers)) for worker in range(workers)]
    assert sorted(seen) == [i for i in range(n) if i // (3 * workers) < 4 * turns[i % workers]]
    assert parts[0][1] == parts[1][1] == parts[2][1]
    for world_size in (1, 2, 4):
        rest = [
            consumed(cls(n), 99, num_workers, parts[0][1], rank=rank, world_size=world_size)[0]
            for rank in range(world_size)
        ]
        assert sorted(seen + list(itertools.chain(*rest))) == list(range(n))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.filterwarnings("ignore:SharedStatefulStream shares itself:RuntimeWarning")
def test_states_of_a_dataset_that_shares_itself_among_workers(num_workers):
    parts = [consumed(S.SharedStatefulStream(60), 2, num_workers, rank=rank, world_size=2) for rank in range(2)]
    assert parts[0][1] == parts[1][1]
    rest = [
        consumed(S.SharedStatefulStream(60), 99, num_workers, parts[0][1], rank=rank, world_size=2)[0]
        for rank in range(2)
    ]
    assert sorted([*parts[0][0], *parts[1][0], *rest[0], *rest[1]]) == list(range(60))


def test_the_state_of_a_dataset_that_shares_itself_among_ranks_is_its_ranks_own():
    def source() -> td.IterableSource:
        return td.IterableSource(S.StatefulStream(40), shard="none")

    _, state = consumed(source(), 2, 0, rank=1, world_size=2)
    assert consumed(source(), 2, 0, state, rank=1, world_size=2)[0] == list(range(8, 16))
    with pytest.raises(StateMismatchError, match="rank: expected 0 of 2, got 1 of 2: with shard='none' each rank has"):
        consumed(source(), 2, 0, state, rank=0, world_size=2)
    with pytest.raises(StateMismatchError, match="rank: expected one of all ranks, got 1 of 2"):
        consumed(S.StatefulStream(40), 2, 0, state, rank=1, world_size=2)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_error_is_the_ranks_whose_sample_it_would_have_been(num_workers):
    """Sample 9 is rank 1's: rank 0 passes it over, and the lost sample takes no rank's turn."""
    first, second = (
        loader(td.IterableSource(S.Itself("raise")), num_workers, batch_size=5, rank=rank, world_size=2)
        for rank in range(2)
    )
    with first, second:
        batches = iter(first)
        assert numbers([next(batches)]) == [[0, 2, 4, 6, 8]]
        assert next(batches)[:3].tolist() == [11, 13, 15]
        batches = iter(second)
        with pytest.raises(LookupError, match="sample 9 is lost"):
            next(batches)
        assert numbers([next(batches)]) == [[1, 3, 5, 7, 10]]
        assert next(batches)[:3].tolist() == [12, 14, 16]


# Datasets as people write them


class Shuffled(torch.utils.data.IterableDataset[int]):
    """A shuffle by the global generators."""

    def __iter__(self) -> Any:
        order = [int(i) for i in torch.randperm(N)]
        random.shuffle(order)
        yield from np.random.permutation(order).tolist()


class OwnEpochs(torch.utils.data.IterableDataset[int]):
    """It counts its passes by itself."""

    epoch = -1

    def __iter__(self) -> Any:
        self.epoch += 1
        yield from np.random.default_rng(self.epoch).permutation(N).tolist()


class OneShot(torch.utils.data.IterableDataset[int]):
    """A stream that can be read once."""

    def __init__(self) -> None:
        self.rest = iter(range(N))

    def __iter__(self) -> Any:
        return self.rest


class Again(torch.utils.data.IterableDataset[int]):
    """An iterator that begins again when it is asked after its end."""

    def __iter__(self) -> Any:
        self.at = -1
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at == N:
            self.at = -1
            raise StopIteration
        return self.at


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
@pytest.mark.parametrize("cls", [Shuffled, OwnEpochs, OneShot, Again])
def test_each_sample_once(cls, num_workers):
    with loader(cls(), num_workers) as one:
        assert sorted(flat(one)) == list(range(N))
    got = [flat(loader(cls(), num_workers, rank=rank, world_size=2)) for rank in range(2)]
    assert sorted(got[0] + got[1]) == list(range(N))


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.filterwarnings("ignore:.*samples are iterated again:RuntimeWarning")
def test_a_shuffle_is_the_streams(num_workers):
    with loader(Shuffled(), num_workers, persistent_workers=bool(num_workers)) as one:
        epochs = [flat(one) for _ in range(2)]
        assert epochs[0] != epochs[1] and sorted(epochs[1]) == list(range(N))
    with loader(Shuffled(), num_workers, seed=4) as one:
        assert flat(one) != epochs[0]
    with loader(Shuffled(), num_workers) as one:
        assert one.engine and flat(one) == epochs[0]  # asking before does not change it
    assert_resumes_exactly(lambda: loader(Shuffled(), num_workers), every=2)


def test_passes_are_counted_as_torchs_loader_does():
    with loader(OwnEpochs(), persistent_workers=False) as one:
        for epoch in range(3):
            assert flat(one) == np.random.default_rng(epoch).permutation(N).tolist()


@pytest.mark.parametrize("n", [0, 1, 7, 12])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_drop_last_gives_all_ranks_as_many_batches(n, num_workers):
    def batches(rank: int, world_size: int, batch_size: int) -> list[list[int]]:
        options = {"rank": rank, "world_size": world_size, "drop_last": True, "batch_size": batch_size}
        with loader(S.Stream(n + 60), num_workers, **options) as one:
            return numbers(one)

    for world_size, batch_size in ((2, 3), (3, 4)):
        ranks = [batches(rank, world_size, batch_size) for rank in range(world_size)]
        assert len({len(rank) for rank in ranks}) == 1
        assert all(len(batch) == batch_size for batch in itertools.chain(*ranks))
        seen = sum(map(len, itertools.chain(*ranks)))
        assert n + 60 - seen < 2 * world_size * batch_size * max(1, num_workers)


@pytest.mark.processes
def test_a_worker_without_samples_is_no_error_nor_is_no_sample_at_all():
    class Late(torch.utils.data.IterableDataset[int]):
        def __iter__(self) -> Any:
            info = torch.utils.data.get_worker_info()
            yield from range(5) if info is None or info.id == 1 else ()

    with loader(Late(), 2) as one:
        assert flat(one) == list(range(5))
    assert list(loader(S.Stream(0), 2)) == []


def test_a_state_is_the_callers():
    class Dict(torch.utils.data.IterableDataset[int]):
        def __init__(self) -> None:
            self.state = {"i": 0}

        def __iter__(self) -> Any:
            while self.state["i"] < N:
                self.state["i"] += 1
                yield self.state["i"] - 1
            self.state["i"] = 0

        def state_dict(self) -> dict[str, int]:
            return self.state

        def load_state_dict(self, state: dict[str, int]) -> None:
            self.state = state

    with loader(Dict()) as one:
        batches = iter(one)
        next(batches)
        state = one.state_dict()
        rest = flat(batches)
    with loader(Dict()) as other:
        other.load_state_dict(state)
        assert flat(other) == rest == list(range(4, N))


class Range(torch.utils.data.IterableDataset[int]):
    """torch's own example: `worker_init_fn` gives each worker its part."""

    def __init__(self) -> None:
        self.start, self.end = 0, N

    def __iter__(self) -> Any:
        return iter(range(self.start, self.end))


def set_part(worker: int) -> None:
    info = torch.utils.data.get_worker_info()
    each = -(-N // info.num_workers)
    info.dataset.start, info.dataset.end = info.id * each, min(N, (info.id + 1) * each)


def set_part_by_number(worker: int) -> None:
    """Never asks for its id, which is its argument."""
    info = torch.utils.data.get_worker_info()
    each = -(-N // info.num_workers)
    info.dataset.start, info.dataset.end = worker * each, min(N, (worker + 1) * each)


@pytest.mark.parametrize(
    ("num_workers", "init"), [(1, set_part), (2, set_part), (3, set_part), (2, set_part_by_number)]
)
def test_workers_that_are_given_their_parts_when_they_start(num_workers, init):
    with loader(Range(), num_workers, worker_init_fn=init, persistent_workers=True) as one:
        for _ in range(2):
            assert sorted(flat(one)) == list(range(N))


# Exactness: decided once, carried over


class Asks(torch.utils.data.IterableDataset[Any]):
    """A generator that shares itself among workers, inside its body, and draws numbers; with a state."""

    def __init__(self, n: int = 40, empty: int | None = None) -> None:
        self.n, self.at, self.empty = n, 0, empty

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        for index in range(worker, 0 if worker == self.empty else self.n, workers)[self.at :]:
            self.at += 1
            yield index, random.random(), np.random.rand()
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class AsksWithoutState(torch.utils.data.IterableDataset[Any]):
    def __init__(self, n: int = 40, empty: int | None = None) -> None:
        self.inner = Asks(n, empty)

    def __iter__(self) -> Any:
        return iter(self.inner)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("empty", [None, 0])
@pytest.mark.parametrize("cls", [Asks, AsksWithoutState])
@pytest.mark.filterwarnings("ignore:.*samples are iterated again:RuntimeWarning")
def test_a_generator_that_asks_inside_resumes_with_its_numbers(cls, empty, num_workers):
    if num_workers or empty is None:
        assert_resumes_exactly(lambda: loader(cls(23, empty), num_workers), every=2)


@pytest.mark.processes
def test_each_workers_first_sample_has_its_own_numbers():
    with loader(Asks(), 2, persistent_workers=True) as one:
        drawn = [value for _ in range(2) for batch in one for value in batch[1].tolist()]
    assert len(set(drawn)) == len(drawn) == 80


class Counts(torch.utils.data.IterableDataset[Any]):
    """It counts its passes by itself, in its state too where it has one."""

    def __init__(self, n: int = 8) -> None:
        self.n, self.at, self.epoch = n, 0, -1

    def __iter__(self) -> Any:
        if not self.at:
            self.epoch += 1
        while self.at < self.n:
            self.at += 1
            yield self.epoch, self.at - 1
        self.at = 0


class CountsInItsState(Counts):
    def state_dict(self) -> dict[str, int]:
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at, self.epoch = state["at"], state["epoch"]


def tags(one: td.DataLoader, epochs: int) -> list[set[int]]:
    return [{tag for batch in one for tag in batch[0].tolist()} for _ in range(epochs)]


MODES = [{}, {"num_workers": 1}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}]


@pytest.mark.parametrize("options", MODES, ids=str)
@pytest.mark.parametrize("cls", [Counts, CountsInItsState])
@pytest.mark.filterwarnings("ignore:.*samples are iterated again:RuntimeWarning")
def test_a_datasets_own_epoch_counter_goes_on(cls, options):
    """In each mode as in torch with 0 workers, over boundaries, and after a resume at any place."""
    with loader(cls(), **options, batch_size=3) as one:
        assert one.source.fields and tags(one, 3) == [{0}, {1}, {2}]
        boundary = json.loads(json.dumps(one.state_dict()))
        batches = iter(one)
        next(batches)
        middle = one.state_dict()
        list(batches)
        assert tags(one, 1) == [{4}]
    for state, expected in ((boundary, [{3}, {4}]), (middle, [{3}, {4}])):
        with loader(cls(), **options, batch_size=3) as one:
            one.load_state_dict(state)
            assert tags(one, 2) == expected
    with loader(cls(), **options, batch_size=3) as one:
        tags(one, 1)
        one.load_state_dict(boundary)
        assert tags(one, 2) == [{3}, {4}]


# torchdata's protocol


class Walk:
    """An iterator that has the state, which its dataset has not."""

    def __init__(self, n: int) -> None:
        self.n, self.at = n, 0

    def __iter__(self) -> Walk:
        return self

    def __next__(self) -> int:
        if self.at == self.n:
            raise StopIteration
        self.at += 1
        return self.at - 1

    def state_dict(self) -> dict[str, int]:
        return {"walked": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["walked"]


class Walked(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Any:
        return Walk(N)


class OnlyAfterIter(torch.utils.data.IterableDataset[int]):
    """Before `iter` there is no state, and none can be loaded."""

    walk: Any = None

    def __iter__(self) -> Any:
        self.walk = Walk(N)
        return self

    def __next__(self) -> int:
        return next(self.walk)

    def state_dict(self) -> Any:
        return self.walk.state_dict()

    def load_state_dict(self, state: Any) -> None:
        self.walk.load_state_dict(state)


class BeginsAnew(Walk, torch.utils.data.IterableDataset[int]):
    """Its own iterator, which begins anew with `iter`."""

    def __init__(self) -> None:
        super().__init__(N)

    def __iter__(self) -> Any:
        self.at = 0
        return self


class Exhausted(Walk, torch.utils.data.IterableDataset[int]):
    """Its own iterator, which gives nothing more after its end, whoever asks."""

    def __init__(self) -> None:
        super().__init__(N)


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}], ids=str)
@pytest.mark.parametrize("cls", [Walked, OnlyAfterIter, BeginsAnew, Exhausted])
def test_torchdatas_protocol(cls, options):
    assert_resumes_exactly(lambda: loader(cls(), **options), every=2)
    with loader(cls(), **options) as one:
        assert sorted(flat(one)) == list(range(N))
        state = one.state_dict()
        assert sorted(flat(one)) == list(range(N))
        one.load_state_dict(state)  # into objects that are exhausted
        assert sorted(flat(one)) == list(range(N)) and one.epoch == 2


# Replays


class OwnShuffle(torch.utils.data.IterableDataset[int]):
    """A shuffle by a generator that nothing seeds."""

    def __init__(self, seed: int | None = None) -> None:
        self.seed = seed

    def __iter__(self) -> Any:
        order = list(range(N))
        random.Random(self.seed).shuffle(order)
        yield from order


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.filterwarnings("ignore:.*samples are iterated again:RuntimeWarning")
def test_a_replay_of_other_samples_is_refused(num_workers):
    _, state = consumed(OwnShuffle(), 3, num_workers)
    with loader(OwnShuffle(), num_workers) as one:
        one.load_state_dict(state)
        with pytest.raises(StateMismatchError, match=r"OwnShuffle to give the same \d+ samples again.* strict=False"):
            next(iter(one))
        one.load_state_dict(state, strict=False)
        assert len(flat(one)) == N - 12
    _, state = consumed(OwnShuffle(7), 3, num_workers)
    assert consumed(OwnShuffle(7), 9, num_workers, state)[0]
    with loader(OwnShuffle(8), num_workers) as one, pytest.raises(StateMismatchError):
        one.load_state_dict(state)
        next(iter(one))


@pytest.mark.filterwarnings("ignore:.*samples are iterated again:RuntimeWarning")
def test_a_replay_that_ends_early_is_refused():
    _, state = consumed(S.Stream(), 3, 0)
    with loader(S.Stream(9)) as one, pytest.raises(StateMismatchError, match="and it ended after 9"):
        one.load_state_dict(state)
        next(iter(one))


@pytest.mark.filterwarnings("ignore:.*samples are iterated again:RuntimeWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")  # its files
def test_webdatasets_shuffle(tmp_path):
    """It takes its seed from the time, and is refused; told to take a seed, it goes on."""
    wds = pytest.importorskip("webdataset")
    with wds.TarWriter(str(tmp_path / "0.tar")) as out:
        for number in range(N):
            out.write({"__key__": f"{number:03d}", "cls": str(number)})

    def make(**seeded: Any) -> Any:
        data = wds.WebDataset(str(tmp_path / "0.tar"), shardshuffle=False).shuffle(20, **seeded)
        return data.decode().to_tuple("cls")

    _, state = consumed(make(), 3, 0)
    with loader(make()) as one, pytest.raises(StateMismatchError, match="take its randomness from"):
        one.load_state_dict(state)
        next(iter(one))
    seen, state = consumed(make(seed=5), 3, 0)
    assert sorted(seen + consumed(make(seed=5), 9, 0, state)[0]) == list(range(N))


# Another number of workers


@pytest.mark.processes
@pytest.mark.parametrize("cls", [S.Stream, S.StatefulStream])
@pytest.mark.parametrize(("before", "after", "steps"), [(2, 0, 3), (2, 3, 4), (0, 2, 2), (3, 2, 7), (2, 1, 6)])
@pytest.mark.filterwarnings("ignore:.*samples are iterated again:RuntimeWarning")
def test_another_number_of_workers_in_mid_epoch(cls, before, after, steps):
    """Each sample once, with the numbers that it would have had."""

    def pairs(batches: Any) -> list[tuple[int, float]]:
        return [pair for batch in batches for pair in zip(batch[0].tolist(), batch[1].tolist(), strict=True)]

    with loader(cls(40), before) as one:
        whole = sorted(pairs(one))
    with loader(cls(40), before) as one:
        batches = iter(one)
        seen = pairs(itertools.islice(batches, steps))
        state = json.loads(json.dumps(one.state_dict()))
        del batches
    with loader(cls(40), after) as one:
        one.load_state_dict(state)
        batches = iter(one)
        more = pairs(itertools.islice(batches, 1))
        again = one.state_dict()
        rest = more + pairs(batches)
    assert sorted(seen + rest) == whole
    with loader(cls(40), after) as one:  # in the samples that the others had in part, too
        one.load_state_dict(again)
        assert sorted(seen + more + pairs(one)) == whole


# What an iterable may be


class Anew:
    """DALI's way to write an iterator: `__iter__` begins anew."""

    def __iter__(self) -> Any:
        self.at = 0
        return self

    def __next__(self) -> int:
        if self.at == N:
            raise StopIteration
        self.at += 1
        return self.at - 1


class Once(Anew):
    """One that does not."""

    at = 0

    def __iter__(self) -> Any:
        return self


class NeedsArguments:
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Any:
        return iter(range(self.n))


def needs_arguments(n: int) -> Any:
    yield from range(n)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("what", [Anew, Anew(), lambda: range(N), NeedsArguments(N), list(range(N))])
def test_what_an_iterable_may_be(what, num_workers):
    with loader(td.IterableSource(what), num_workers) as one:
        for _ in range(2):
            assert sorted(flat(one)) == list(range(N))


def test_what_to_write_for_other_things():
    with pytest.raises(TypeError, match=r"NeedsArguments is called .* write IterableSource\(NeedsArguments\(...\)\)"):
        td.IterableSource(NeedsArguments)
    with pytest.raises(TypeError, match=r"write IterableSource\(lambda: needs_arguments\(...\)\)"):
        td.IterableSource(needs_arguments)
    for once in (iter([1]), map(int, "12"), (i for i in range(3)), itertools.count()):
        with pytest.raises(TypeError, match="can be iterated only once: write the function that makes it"):
            td.IterableSource(once)
    with (
        loader(td.IterableSource(lambda: 3)) as one,
        pytest.raises(TypeError, match="must return an iterable, got int"),
    ):
        next(iter(one))
    with loader(td.IterableSource(Once())) as one:
        assert flat(one) == list(range(N))
        with pytest.warns(RuntimeWarning, match="Once gave no sample in epoch 1, .* write the function that makes it"):
            assert flat(one) == []


# Its length


class Sized(S.Stream):
    def __init__(self, n: int, said: int) -> None:
        super().__init__(n)
        self.said = said

    def __len__(self) -> int:
        return self.said


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_iterable_may_have_a_length(num_workers, drop_last):
    for rank in range(2):
        with loader(Sized(N, N), num_workers, drop_last=drop_last, rank=rank, world_size=2) as one:
            told = len(one)
            if rank or not drop_last:
                assert len(list(one)) == told
    with loader(Sized(N, N), num_workers) as one:
        assert len(one) == 6 == len(list(one)) and one.state_dict()["num_samples"] == -1


def test_a_length_that_lies_is_warned_about_as_in_torch():
    theirs = torch.utils.data.DataLoader(Sized(N, 5), 4)
    with loader(Sized(N, 5)) as one:
        assert len(one) == len(theirs) == 2
        for each in (theirs, one):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                assert len(list(each)) == 6
            assert re.search(
                r"Length of IterableDataset .* was reported to be \d.*len\(dataloader\)", str(caught[0].message)
            )
    with loader(Sized(N, 5)) as one:
        assert sum(1 for _ in one) == 6  # list() would ask for it
    with loader(Sized(N, 99)) as one:
        assert len(one) == 25 and len(list(one)) == 6


# The first sample


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_failing_first_sample_is_a_bad_sample_like_any_other(num_workers):
    class Faulty(Anew):
        def __next__(self) -> int:
            number = super().__next__()
            if number in (0, 1, 6):
                raise LookupError(f"sample {number} is lost")
            return number

    with loader(td.IterableSource(Faulty()), num_workers) as one:
        for _ in range(2):
            batches, lost = iter(one), []
            got = []
            for _ in range(9):
                try:
                    got.append(next(batches).tolist())
                except LookupError as error:
                    lost.append(str(error))
                except StopIteration:
                    break
            assert lost == [f"sample {number} is lost" for number in (0, 1, 6)]
            assert [n for batch in got for n in batch] == [n for n in range(N) if n not in (0, 1, 6)]


# Lists, whole batches, and steps


class Lists(torch.utils.data.IterableDataset[Any]):
    """Lists of numbers and arrays, of one length or several, and random numbers; its state counts the samples."""

    def __init__(self, lengths: int = 1, stateful: bool = True) -> None:
        self.lengths, self.at = lengths, 0
        if stateful:
            self.state_dict, self.load_state_dict = self.get, self.put

    def get(self) -> dict[str, int]:
        return {"at": self.at}

    def put(self, state: dict[str, int]) -> None:
        self.at = state["at"]

    def __iter__(self) -> Any:
        begin, self.at = self.at, 0
        for i in range(begin, N):
            self.at = i + 1
            yield {
                "fixed": [i, i + 0.5],
                "crops": [np.full(k + 1, i) for k in range(3)],
                "tokens": [i] * (1 + i % self.lengths),
                "words": [str(i), "x"],
                "random": random.random(),
            }
        self.at = 0


@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_lists_are_transposed_as_the_first_batch_shows(num_workers):
    data = [*Lists(stateful=False)]
    with loader(Lists(3), num_workers) as one:
        first, *_ = one
    taken = data[: 4 * max(1, num_workers) : max(1, num_workers)]
    expected = torch.utils.data.default_collate([{k: s[k] for k in ("fixed", "crops")} for s in taken])
    for name, parts in expected.items():
        assert isinstance(first[name], list) and len(first[name]) == len(parts)
        for mine, other in zip(first[name], parts, strict=True):
            assert torch.equal(mine, other) and mine.dtype == other.dtype
    assert [len(tokens) for tokens in first["tokens"]] == [1 + s["fixed"][0] % 3 for s in taken]  # of several lengths
    assert first["words"] == [[str(s["fixed"][0]), "x"] for s in taken]


@pytest.mark.filterwarnings("ignore:.* samples are iterated again")
@pytest.mark.parametrize("stateful", [False, True])
def test_a_batch_that_was_looked_at_is_not_counted_before_it_is_given(stateful):
    """The state does not run ahead of it, and the random numbers are the same."""
    assert_resumes_exactly(lambda: loader(Lists(3, stateful)), steps=True)


def test_lists_of_another_length_later_say_what_to_write():
    class Later(Lists):
        def __iter__(self) -> Any:
            for i, sample in enumerate(super().__iter__()):
                yield {"tokens": sample["tokens"] + [0] * (i > 5)}

    with loader(Later()) as one:
        batches = iter(one)
        assert [len(part) for part in next(batches)["tokens"]] == [4]
        with pytest.raises(TypeError, match=r"must have 1 parts.*or write kinds={'tokens': 'object'} or collate_fn="):
            next(batches)
    with loader(Later(), kinds={"tokens": "object"}) as one:
        assert [[len(tokens) for tokens in batch["tokens"]] for batch in one][:2] == [[1] * 4, [1, 1, 2, 2]]


def batches_of_any_size() -> Any:
    for i in range(7):
        n = 1 + i % 3
        yield {"image": [S.picture(10 * i + k) for k in range(n)], "number": np.arange(n) + 10 * i}


@pytest.mark.filterwarnings("ignore:.* samples are iterated again")
@pytest.mark.parametrize("num_workers", [0, pytest.param(2, marks=pytest.mark.processes)])
def test_an_iterable_of_whole_batches_is_decoded_and_transformed(num_workers):
    def make(workers: int = num_workers) -> td.DataLoader:
        source = td.IterableSource(batches_of_any_size, batch=True)
        return loader(source, workers, transform=td.transforms.Resize((6, 5)))

    with make() as one:
        for _ in range(2):
            got = list(one)
            assert [b["number"].tolist() for b in got] == [b["number"].tolist() for b in batches_of_any_size()]
            assert [len(b["image"]) for b in got] == [1, 2, 3, 1, 2, 3, 1] and got[0]["image"].shape[1:] == (3, 6, 5)
    assert_resumes_exactly(make, every=1 + 2 * num_workers)
    with pytest.raises(ValueError, match="puts its samples together itself: leave batch_size=None out"):
        loader(td.IterableSource(batches_of_any_size, batch=True), batch_size=None)
    with pytest.raises(ValueError, match="a batch must hold one array or list of samples"):
        next(iter(loader(td.IterableSource(lambda: iter([{"a": [1], "b": [1, 2]}]), batch=True))))


@pytest.mark.filterwarnings("ignore:.* samples are iterated again")
@pytest.mark.processes
def test_steps_are_counted_where_workers_end_at_different_times():
    """And functions see the same step after a resume."""
    seen: list[int] = []

    def note(sample: Any, rand: Any) -> Any:
        seen.append(rand.step)
        return dict(sample)

    def make() -> td.DataLoader:
        return loader(S.SharedStream(22), 2, batch_size=3, transform=note)

    with make() as one:
        states = []
        for step, batch in enumerate(one):
            states.append((one.state_dict(), one.step, [*numbers([batch])]))
            assert one.step == step + 1
        sizes = [len(batch) for _, _, (batch,) in states]
    assert any(size < 3 for size in sizes[:-1]) and sorted(set(seen)) == list(range(len(sizes)))
    for at, (state, step, _) in enumerate(states):
        with make() as other:
            other.load_state_dict(json.loads(json.dumps(state)))
            assert other.step == step == at + 1
            seen.clear()
            rest = [number for number, _ in enumerate(other, other.step)]
            assert rest == sorted(set(seen)) == list(range(at + 1, len(sizes)))
    whole = json.loads(states[-1][0]["iterable"])
    for wrong in (-1, "4", whole["steps"] + 1):
        changed = {**states[-1][0], "iterable": json.dumps({**whole, "steps": wrong})}
        with make() as other, pytest.raises(StateMismatchError, match="iterable: "):
            other.load_state_dict(changed)


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.processes)])
def test_torchdatas_nodes_go_on_where_they_stood(workers: int) -> None:
    """Their loader keeps the iterator of a question for its state, which then takes the place of what is loaded."""
    from torchdata import nodes

    def make() -> td.DataLoader:
        source = td.IterableSource(nodes.Loader(nodes.Batcher(nodes.IterableWrapper(range(20)), 4)))
        return td.DataLoader(source, batch_size=None, num_workers=workers)

    expected = [list(range(start, start + 4)) for start in range(0, 20, 4)]
    for taken in range(5):  # at the end they begin anew by themselves: restart_on_stop_iteration
        loader = make()
        iterator = iter(loader)
        assert [next(iterator) for _ in range(taken)] == expected[:taken]
        state = loader.state_dict()
        loader.close()
        other = make()
        other.load_state_dict(state)
        assert list(other) == expected[taken:] and list(other) == expected
        other.close()
