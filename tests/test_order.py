"""Orders: an epoch is cut into batches without loss, by any number of ranks, from any position."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from torchdali import order as orders
from torchdali.distributed import Shard
from torchdali.drawn import Drawn, drawn_order
from torchdali.ids import Taken
from torchdali.order import Batching, Cut, Order, Rows, Sequential, Shuffled
from torchdali.state import Position

# Cutting


class Epoch(NamedTuple):
    """How an epoch is cut."""

    n: int
    ranks: int
    batch_size: int
    drop_last: bool = False
    pad_last: bool = False

    def whole(self) -> orders.Epoch:
        return orders.Epoch(self.n, orders.own_rows)

    def batching(self, rank: int) -> Batching:
        return Batching(self.batch_size, Shard(rank, self.ranks), self.drop_last, self.pad_last)

    def next(self, position: int) -> list[Cut] | None:
        """The batches of all ranks at a position, or None at the end."""
        cuts = [self.whole().cut(position, self.batching(r)) for r in range(self.ranks)]
        if cuts[0] is None:
            assert cuts == [None] * self.ranks
            return None
        assert len({taken.end for taken in cuts}) == 1 and cuts[0].end > position
        return cuts

    def steps(self, position: int = 0) -> list[list[Cut]]:
        found = []
        while (cuts := self.next(position)) is not None:
            found.append(cuts)
            position = cuts[0].end
        return found

    def can_be(self) -> bool:
        if self.drop_last:
            return self.n >= self.batch_size * self.ranks
        return self.pad_last or self.n >= self.ranks

    def num_steps(self) -> int:
        return Sequential(self.n).num_steps(self.batching(0))


def real(cuts: list[Cut]) -> list[int]:
    """The positions of a step, over all ranks, without repeated rows."""
    return [int(p) for taken in cuts for p in taken.positions[taken.valid]]


ends = st.sampled_from([(False, False), (True, False), (False, True)])
epochs = st.builds(
    lambda n, ranks, batch_size, end: Epoch(n, ranks, batch_size, *end),
    st.integers(1, 200),
    st.integers(1, 9),
    st.integers(1, 9),
    ends,
).filter(Epoch.can_be)


@settings(max_examples=300, deadline=None)
@given(epochs)
@example(Epoch(9, 4, 2))  # one sample more than a global batch: the last two are split together
@example(Epoch(11, 4, 2))
@example(Epoch(5, 4, 1))  # and with one sample a rank they become one
@example(Epoch(7, 4, 1))
@example(Epoch(1, 4, 3, pad_last=True))
def test_ranks_partition_the_epoch(epoch: Epoch) -> None:
    steps = epoch.steps()
    seen = [p for cuts in steps for p in real(cuts)]
    assert seen == list(range(len(seen)))  # in order, each once
    if epoch.drop_last:
        assert epoch.n - epoch.batch_size * epoch.ranks < len(seen) <= epoch.n
    else:
        assert len(seen) == epoch.n


@settings(max_examples=300, deadline=None)
@given(epochs)
@example(Epoch(7, 4, 1))
@example(Epoch(9, 4, 2))
def test_no_batch_is_empty_or_too_large(epoch: Epoch) -> None:
    for cuts in epoch.steps():
        sizes = [len(taken.positions) for taken in cuts]
        assert min(sizes) >= 1 and max(sizes) - min(sizes) <= 1
        # The documented exception: no batch of one can be halved.
        assert max(sizes) <= epoch.batch_size + (epoch.batch_size == 1)
        assert all(len(taken.valid) == len(taken.positions) for taken in cuts)
        if not epoch.pad_last:
            assert all(taken.valid.all() for taken in cuts)


@settings(max_examples=300, deadline=None)
@given(epochs)
def test_all_but_the_last_two_steps_are_full(epoch: Epoch) -> None:
    for cuts in epoch.steps()[:-2]:
        assert all(len(taken.positions) == epoch.batch_size and taken.valid.all() for taken in cuts)


@settings(max_examples=300, deadline=None)
@given(epochs)
@example(Epoch(7, 4, 1))
@example(Epoch(8, 4, 1))
@example(Epoch(9, 4, 2))
@example(Epoch(4, 4, 2))
def test_num_steps_and_step_start(epoch: Epoch) -> None:
    steps = epoch.steps()
    assert epoch.num_steps() == len(steps)
    starts = [0, *(cuts[0].end for cuts in steps)]
    for k, start in enumerate(starts):
        for rank in {0, epoch.ranks - 1}:
            assert epoch.whole().start_of(k, epoch.batching(rank)) == start
    # A step after the end, however far, begins at the end.
    for k in (len(steps) + 1, 10**12):
        beyond = epoch.whole().start_of(k, epoch.batching(0))
        assert epoch.next(beyond) is None


@settings(max_examples=200, deadline=None)
@given(epochs, st.data())
def test_a_resume_is_the_suffix(epoch: Epoch, data: st.DataObject) -> None:
    steps = epoch.steps()
    k = data.draw(st.integers(0, len(steps)))
    resumed = epoch.steps(steps[k - 1][0].end if k else 0)
    assert len(resumed) == len(steps) - k
    for one, two in zip(resumed, steps[k:], strict=True):
        for a, b in zip(one, two, strict=True):
            assert np.array_equal(a.positions, b.positions) and np.array_equal(a.valid, b.valid) and a.end == b.end


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 300), st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(0, 4)), max_size=6))
def test_any_chain_of_worlds_loses_and_repeats_nothing(n: int, worlds: list[tuple[int, int, int]]) -> None:
    position, seen = 0, []
    for ranks, batch_size, count in [*worlds, (2, 3, n)]:
        for _ in range(count):
            cuts = Epoch(n, ranks, batch_size).next(position)
            if cuts is None:
                break
            seen += real(cuts)
            assert all(len(taken.positions) for taken in cuts)
            position = cuts[0].end
    assert seen == list(range(n))


@settings(max_examples=200, deadline=None)
@given(epochs, st.data())
def test_the_same_global_batch_on_other_ranks_holds_the_same_samples(epoch: Epoch, data: st.DataObject) -> None:
    size = epoch.ranks * epoch.batch_size
    ranks = data.draw(st.sampled_from([r for r in range(1, size + 1) if size % r == 0]))
    other = epoch._replace(ranks=ranks, batch_size=size // ranks)
    for one, two in zip(epoch.steps()[:-2], other.steps(), strict=False):
        assert real(one) == real(two)


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 100), st.integers(1, 9), st.integers(1, 9), st.integers(0, 100))
@example(2, 5, 3, 0)
def test_pad_last(n: int, ranks: int, batch_size: int, start: int) -> None:
    epoch = Epoch(n, ranks, batch_size, pad_last=True)
    seen = []
    for cuts in epoch.steps(start):
        for taken in cuts:
            assert len(taken.positions) == len(taken.valid) == batch_size
            assert np.all((taken.positions >= start) & (taken.positions < n))
            # Real rows come first, and the rows that fill up the batch are repeated from this step.
            assert np.array_equal(taken.valid, np.sort(taken.valid)[::-1])
        step = real(cuts)
        assert {int(p) for taken in cuts for p in taken.positions} <= set(step)
        seen += step
    assert seen == list(range(start, n))


def test_fewer_samples_left_than_ranks() -> None:
    """Only after a resume on more ranks: every rank still gets a row, and `valid` says which are real."""
    cuts = Epoch(10, 4, 2).next(7)
    assert cuts is not None
    assert [taken.positions.tolist() for taken in cuts] == [[7], [8], [9], [7]]
    assert [taken.valid.tolist() for taken in cuts] == [[True], [True], [True], [False]]
    assert cuts[0].end == 10
    cuts = Epoch(10, 4, 2).next(8)
    assert cuts is not None and [taken.positions.tolist() for taken in cuts] == [[8], [9], [8], [9]]


def test_the_end_of_an_epoch_in_pictures() -> None:
    def sizes(*epoch: Any) -> list[list[int]]:
        return [[len(taken.positions) for taken in cuts] for cuts in Epoch(*epoch).steps()]

    assert sizes(16, 2, 4) == [[4, 4], [4, 4]]
    assert sizes(13, 2, 4) == [[4, 4], [3, 2]]
    assert sizes(17, 2, 4) == [[4, 4], [3, 2], [2, 2]]  # one sample could not go to two ranks
    assert sizes(10, 4, 2) == [[2, 1, 1, 1], [2, 1, 1, 1]]
    assert sizes(5, 2, 1) == [[1, 1], [2, 1]]
    assert sizes(17, 2, 4, True) == [[4, 4], [4, 4]]
    assert sizes(17, 2, 4, False, True) == [[4, 4], [4, 4], [4, 4]]


@pytest.mark.parametrize(
    ("epoch", "steps"),
    [
        (Epoch(0, 1, 1), 0),
        (Epoch(0, 1, 1, pad_last=True), 0),
        (Epoch(7, 2, 4, drop_last=True), 0),
        (Epoch(3, 4, 2), 1),
        (Epoch(3, 4, 1), 1),
    ],
)
def test_small_epochs(epoch: Epoch, steps: int) -> None:
    assert epoch.num_steps() == steps == len(list(epoch.steps()))


def test_a_negative_step() -> None:
    with pytest.raises(ValueError, match="step must not be negative, got -1"):
        Epoch(10, 1, 2).whole().start_of(-1, Epoch(10, 1, 2).batching(0))


# Orders


@pytest.mark.parametrize("make", [Sequential, Shuffled])
def test_an_order_is_a_permutation_at_any_positions(make: Any) -> None:
    order: Order = make(101)
    at = order.epoch(4, Position(2)).at
    rows = at(np.arange(101))
    assert len(order) == 101 and np.array_equal(np.sort(rows.indices), np.arange(101))
    assert np.array_equal(rows.keys, rows.indices) and rows.keys.dtype == np.uint64
    positions = np.array([100, 3, 3, 57])
    assert np.array_equal(at(positions).indices, rows.indices[positions])


def at(epoch: int, key: int | None = None) -> Position:
    """The start of an epoch, or of the pass with this key."""
    return Position(epoch) if key is None else Position(key % 2**32, key >> 32)


def test_sequential() -> None:
    assert Sequential(9).epoch(0, Position(5)).at(np.arange(3, 7)).indices.tolist() == [3, 4, 5, 6]
    assert Sequential(9).fingerprint() == "sequential"


def test_shuffled_depends_on_seed_and_key_alone() -> None:
    def order(seed: int, key: int) -> tuple[int, ...]:
        return tuple(Shuffled(50).epoch(seed, at(0, key)).at(np.arange(50)).indices.tolist())

    assert order(1, 2) == order(1, 2)
    keys = (0, 1, 2, 2**32, 2**32 + 1)
    assert len({order(seed, key) for seed in (0, 1, 2**63 - 1) for key in keys}) == 3 * len(keys)


def drawn(sampler: Any, n: int = 20, seed: int = 3, epoch: int = 0, key: int | None = None) -> list[int]:
    order = Drawn(sampler, Taken(n))
    return order.epoch(seed, at(epoch, key)).at(np.arange(len(order))).indices.tolist()


class OwnSampler(Sampler[int]):
    """A sampler as users write it: it takes the epoch, and draws from any global generator."""

    def __init__(self, n: int) -> None:
        self.n, self.epoch = n, -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[int]:
        order = list(range(self.n))
        random.shuffle(order)
        np.random.shuffle(order)
        yield from (order[i] for i in torch.randperm(self.n).tolist())


class EveryEpochAnother(OwnSampler):
    """The epoch is all of its randomness."""

    def __iter__(self) -> Iterator[int]:
        yield from np.random.default_rng(self.epoch).permutation(self.n).tolist()


SAMPLERS: dict[str, Any] = {
    "SequentialSampler": lambda: SequentialSampler(range(20)),
    "RandomSampler": lambda: RandomSampler(range(20)),
    "RandomSampler, own generator": lambda: RandomSampler(range(20), generator=torch.Generator().manual_seed(8)),
    "RandomSampler, replacement": lambda: RandomSampler(range(20), replacement=True, num_samples=35),
    "SubsetRandomSampler": lambda: SubsetRandomSampler([3, 5, 7, 11, 13]),
    "WeightedRandomSampler": lambda: WeightedRandomSampler([0.1] * 10 + [5.0] * 10, 40),
    "WeightedRandomSampler, once": lambda: WeightedRandomSampler([1.0] * 20, 15, replacement=False),
    "own": lambda: OwnSampler(20),
    "own, by epoch": lambda: EveryEpochAnother(20),
    "list": lambda: [4, 4, 2, 19],
    "numpy array": lambda: np.array([4, 4, 2, 19], np.uint8),
    "tensor": lambda: torch.tensor([4, 4, 2, 19]),
    "range": lambda: range(5, 15),
}
samplers = pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS.keys())


@samplers
def test_a_torch_sampler_is_drawn_from_seed_and_epoch(make: Any) -> None:
    first = drawn(make(), epoch=2)
    assert drawn(make(), epoch=2) == first
    # Whatever happened to the sampler and to the global generators before.
    used = make()
    drawn(used, seed=9, epoch=7)
    list(used)
    torch.manual_seed(1), np.random.seed(1), random.seed(1)
    assert drawn(used, epoch=2) == first
    if "andom" in type(used).__name__ or type(used) is OwnSampler:
        others = [drawn(make(), seed=4, epoch=2), drawn(make(), epoch=3), drawn(make(), epoch=2, key=2**32 + 2)]
        assert all(sorted(other) != other for other in (first, *others))
        assert len({tuple(order) for order in (first, *others)}) == 4


@samplers
def test_generators_are_put_back(make: Any) -> None:
    sampler = make()
    own = getattr(sampler, "generator", None)
    states = [torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()]
    before = own.get_state() if own is not None else None
    order = Drawn(sampler, Taken(20))
    order.epoch(0, Position())
    order.fingerprint()
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])
    if own is not None:
        assert torch.equal(own.get_state(), before)


def test_generators_are_put_back_after_an_error() -> None:
    class Failing(OwnSampler):
        def __iter__(self) -> Iterator[int]:
            yield random.randrange(self.n) + int(torch.randint(2, ())) + np.random.randint(2)
            raise OSError("no such list")

    states = [torch.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()]
    with pytest.raises(OSError, match="no such list"):
        Drawn(Failing(20), Taken(20)).epoch(0, Position())
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert np.array_equal(np.random.get_state()[1], states[2])


def test_set_epoch_is_called() -> None:
    sampler = EveryEpochAnother(20)
    assert drawn(sampler, epoch=6) == np.random.default_rng(6).permutation(20).tolist()
    assert sampler.epoch == 6


def test_a_sample_that_comes_again_has_another_key() -> None:
    order = Drawn(WeightedRandomSampler([1.0, 1.0, 8.0], 500), Taken(3))
    rows = order.epoch(0, Position()).at(np.arange(500))
    assert len(np.unique(rows.keys)) == 500
    # Known from the sample and how often it came before, so that one position needs no other.
    for index in range(3):
        own = rows.keys[rows.indices == index]
        assert own.tolist() == [index + (k << 48) for k in range(len(own))]
    assert np.array_equal(order.epoch(0, Position()).at(np.array([400])).keys, rows.keys[[400]])


def test_a_sampler_keeps_its_length() -> None:
    assert len(Drawn(SubsetRandomSampler([3, 5, 7]), Taken(20))) == 3


def test_fingerprints() -> None:
    def fingerprint(sampler: Any, seed: int = 0) -> str:
        return Drawn(sampler, Taken(20)).fingerprint(seed)

    assert fingerprint(RandomSampler(range(20))) == fingerprint(RandomSampler(range(20)))
    assert fingerprint(RandomSampler(range(20))).startswith("RandomSampler (epoch 0: ")
    different = [RandomSampler(range(20)), OwnSampler(20), [1, 2, 3], [1, 3, 2], SubsetRandomSampler([1, 2, 3])]
    assert len({fingerprint(sampler) for sampler in different}) == len(different)
    assert len({fingerprint(RandomSampler(range(20)), seed) for seed in range(5)}) == 5
    assert Shuffled(20).fingerprint() == "shuffle"
    long = type("S" * 300, (OwnSampler,), {})(20)
    assert len(fingerprint(long)) <= 100


class Liar(OwnSampler):
    def __iter__(self) -> Iterator[int]:
        return iter(range(self.n - 1))


class Private(OwnSampler):
    """A sampler whose numbers are the system's, and can't be had again."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.rng = random.SystemRandom()

    def __iter__(self) -> Iterator[int]:
        return iter(self.rng.sample(range(self.n), self.n))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: DistributedSampler(range(20), 2, 0), TypeError, "DistributedSampler gives one rank's: leave it out"),
        (lambda: BatchSampler(range(20), 4, False), TypeError, "BatchSampler yields batches: write batch_sampler="),
        (lambda: iter([1, 2]), TypeError, "sampler must be an iterable of indices that can be .*, got list_iterator"),
        (lambda: 5, TypeError, "sampler must be an iterable of indices that can be iterated .*, got int"),
    ],
)
def test_refused_at_construction(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        drawn_order(make(), Taken(20))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: [[1, 2], [3, 4]], TypeError, r"list yielded \[1, 2\]: for batches write batch_sampler="),
        (lambda: [[1, 2], [3]], TypeError, r"list yielded \[1, 2\]: for batches write batch_sampler="),
        (
            lambda: torch.tensor([[1, 2]]),
            TypeError,
            r"Tensor yielded tensor\(\[1, 2\]\): for batches write batch_sampler=",
        ),
        (lambda: [1, 0.5], TypeError, "sampler must yield integers, list yielded 0.5$"),
        (lambda: ["1", "2"], TypeError, "sampler must yield integers, list yielded '1'$"),
        (lambda: [True, False], TypeError, "sampler must yield integers, list yielded True$"),
        (lambda: [None, 2], TypeError, "sampler must yield integers, list yielded None$"),
        (lambda: [1, 20], ValueError, r"list yielded indices 1\.\.20 for a dataset of 20 samples"),
        (lambda: [-1, 3], ValueError, r"-1\.\.3 for a dataset of 20 samples: count from the end by index % 20"),
        (lambda: Liar(20), ValueError, "Liar says len 20 and yielded 19 indices: return their number"),
        (lambda: Private(20), ValueError, "must give the same order from the same seeds, and Private gave two: take"),
    ],
)
def test_refused_at_the_first_draw(make: Any, error: type[Exception], message: str) -> None:
    for use in (lambda order: order.epoch(0, Position()), lambda order: order.fingerprint()):
        with pytest.raises(error, match=message):
            use(Drawn(make(), Taken(20)))


# Scale


def test_a_billion_samples_on_a_thousand_ranks() -> None:
    order, batching = Shuffled(10**9), Batching(256, Shard(777, 1024))
    tracemalloc.start()
    try:
        epoch = order.epoch(1, Position(3))
        steps = order.num_steps(batching)
        assert steps == -(-(10**9) // (1024 * 256))
        for k in (0, 1, steps // 2, steps - 1):
            taken = epoch.cut(epoch.start_of(k, batching), batching)
            assert taken is not None
            rows = epoch.at(taken.positions)
            assert len(np.unique(rows.indices)) == len(taken.positions) == 256 or k == steps - 1
        assert tracemalloc.get_traced_memory()[1] < 10 * 2**20
    finally:
        tracemalloc.stop()


def test_a_seek_costs_as_little_at_any_position() -> None:
    """The work for a step does not grow with its number; it is counted, since seconds depend on the machine."""
    counted: list[int] = []

    def at(positions: orders.Indices) -> Rows:
        counted.append(len(positions))
        return orders.own_rows(positions)

    class Counted(orders.Epoch):
        def cut(self, position: int, batching: Batching) -> Cut | None:
            counted.append(1)
            return super().cut(position, batching)

    batching = Batching(256, Shard(777, 1024))
    for k in (1, 3000, 3800):
        epoch = Counted(10**9, at)
        counted.clear()
        next(epoch.steps(Position(3, 0, epoch.start_of(k, batching)), batching))
        assert sum(counted) <= 256 + 4


@pytest.mark.parametrize("end", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("make", [Shuffled, Sequential])
def test_rows_that_are_drawn_together_are_those_of_each_step(make: Any, end: tuple[bool, bool]) -> None:
    epoch, batching = make(1000).epoch(7, Position(2)), Batching(7, Shard(1, 3), *end)
    asked = []
    epoch.at = lambda positions, at=epoch.at: asked.append(len(positions)) or at(positions)
    steps = list(epoch.steps(Position(2, 0, 42), batching))
    for step in steps:
        rows = epoch.at(step.positions)
        assert np.array_equal(step.rows.indices, rows.indices) and np.array_equal(step.rows.keys, rows.keys)
    assert asked[0] == 7 and len(asked) < 8 + len(steps)  # the first alone, then ever more
    assert [step.number for step in steps] == list(range(2, 2 + len(steps)))
    assert [step.last for step in steps] == [False] * (len(steps) - 1) + [True]
