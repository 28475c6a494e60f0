"""Says which samples come next: an `Order` gives an `Epoch`, and an epoch cuts itself into the batches of each rank.

An epoch follows from (seed, position), and knows which sample stands where.  Order and epoch are pure, so a seek costs
nothing, and another number of ranks only cuts the same epoch differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .distributed import Shard
from .permutation import Permutation
from .rand import Key, Words, derive
from .state import Position
from .summary import how_many, never_raises

Indices = NDArray[np.int64]

UNKNOWN = 2**62  # the size of an epoch that ends where its source does: more samples than any source has


class Rows(NamedTuple):
    """Some samples of an epoch.

    Attributes:
        indices: [N] int64, the samples.
        keys: [N] uint64, the key of each sample's random numbers.
    """

    indices: Indices
    keys: Words

    def resized(self, size: int) -> Rows:
        """Give `size` rows from the first one on: an endless source may give more or fewer than were asked for."""
        start = self.indices[0]
        return Rows(np.arange(start, start + size), np.arange(size, dtype=np.uint64) + self.keys[0])


def own_rows(indices: Indices) -> Rows:
    """Make the rows of samples that each come once in an epoch: their indices key their random numbers."""
    return Rows(indices, indices.astype(np.uint64))


class Batching(NamedTuple):
    """The rules by which an epoch is cut into batches.

    Attributes:
        batch_size: samples per batch on each rank.
        shard: this rank among all ranks.
        drop_last: leave out the samples that do not fill a global batch.
        pad_last: fill the last global batch with repeated rows.
    """

    batch_size: int
    shard: Shard
    drop_last: bool = False
    pad_last: bool = False

    @property
    def global_size(self) -> int:
        """Samples per step, over all ranks."""
        return self.batch_size * self.shard.world_size


class Cut(NamedTuple):
    """The share of one rank in one step.

    Attributes:
        positions: [N] positions in the epoch.
        valid: [N] False where a row is repeated only to fill the batch.
        end: the global position after this step.
    """

    positions: Indices
    valid: NDArray[np.bool_]
    end: int


@dataclass(frozen=True)
class Step:
    """A batch of one rank, decided before anything is read.

    Attributes:
        start: where it begins in the stream.
        end: where the stream stands after it.
        rows: the samples.
        valid: [N] False where a row is repeated only to fill the batch.
        positions: [N] the rows' positions in the epoch; of a source that makes whole batches, the rows' numbers.
        last: it is known to be the epoch's last step.
        counts: for a source that decides how many samples a batch has, what positions count; None: the size is fixed.
        number: the whole steps of the epoch before it.
    """

    start: Position
    end: Position
    rows: Rows
    valid: NDArray[np.bool_]
    positions: Indices
    last: bool = False
    counts: Literal["samples", "batches"] | None = None
    number: int = 0

    def resized(self, size: int) -> Step:
        """Resize the step to the number of samples that came for it."""
        if self.counts is None or (self.counts == "samples" and size == len(self.valid)):
            return self
        end = self.end
        positions = np.arange(size)
        if self.counts == "samples":
            end = end._replace(samples_seen=self.start.samples_seen + size)
            positions += self.start.samples_seen
        rows, valid = self.rows.resized(size), np.ones(size, np.bool_)
        return replace(self, end=end, rows=rows, valid=valid, positions=positions)


class Epoch:
    """The order of one epoch, and its cut into batches.

    Args:
        n: samples of the epoch, over all ranks.
        at: gives the rows at some positions.
        strided: each rank takes every world_size-th position of a step, instead of one slice.

    Attributes:
        ids: what a sampler yielded for the samples, by their indices, where it yields no indices.
        chunk: the rows that `steps` asks for together, since a call for a few costs as much as one for a thousand; 1:
            it never asks for more than a step's.
    """

    counts: Literal["samples", "batches"] | None = None  # see `Step`
    chunk = 4096
    ids: Mapping[int, Any] = {}  # never changed

    def __init__(self, n: int, at: Callable[[Indices], Rows], strided: bool = False) -> None:
        self.n, self.at, self.strided = n, at, strided

    def cut(self, position: int, batching: Batching) -> Cut | None:
        """Cut this rank's next batch at a position; None at the epoch's end.

        Each step takes a global batch of `batch_size * world_size` samples.  The last global batch is dropped, filled
        with repeated rows, or split evenly; where it would leave ranks without a sample, the last two are split
        together.  The cut depends only on what remains, so any position of any other run can be continued.
        """
        rank, ranks = batching.shard
        left, size = self.n - position, batching.global_size
        if left <= 0 or (batching.drop_last and left < size):
            return None
        if size < left < size + ranks and not batching.drop_last and not batching.pad_last:
            # Two halves of the last two; with one sample per rank there are no halves, so the last step takes both.
            size = (left + 1) // 2 if batching.batch_size > 1 else left
        taken = min(size, left)
        if self.strided:
            own = np.arange(position + (rank - position) % ranks, position + taken, ranks)
        else:
            share, extra = divmod(taken, ranks)
            start = position + rank * share + min(rank, extra)
            own = np.arange(start, start + share + (rank < extra))
        # A rank gets no sample of its own only where fewer samples are left than there are ranks.
        rows = batching.batch_size if batching.pad_last else max(len(own), 1)
        filling = own if len(own) else np.array([position + rank % taken])
        positions = np.concatenate([own, np.resize(filling, rows - len(own))]) if rows > len(own) else own
        return Cut(positions, np.arange(rows) < len(own), position + taken)

    def some(self, position: int, most: int) -> Rows:
        """Give the rows from a position on, as many as there are, up to a number of them."""
        return self.at(np.arange(position, min(position + most, self.n)))

    def whole_steps(self, batching: Batching) -> int:
        """Count the steps that are certain to be whole: all but the last two."""
        return self.n // batching.global_size - 1

    def whole_end(self, steps: int, batching: Batching) -> int:
        """Give the position after a number of whole steps."""
        return steps * batching.global_size

    def start_of(self, step: int, batching: Batching) -> int:
        """Give the position at which a step begins; after the last step, the position at which the epoch ends.

        Raises:
            ValueError: a negative step.
        """
        if step < 0:
            raise ValueError(f"step must not be negative, got {step}")
        whole = max(0, min(step, self.whole_steps(batching)))
        position = self.whole_end(whole, batching)
        for _ in range(step - whole):
            cut = self.cut(position, batching)
            if cut is None:
                break
            position = cut.end
        return position

    def step_at(self, position: int, batching: Batching) -> int:
        """Count the whole steps before a position, from the epoch's start; the inverse of `start_of`."""
        low, high = 0, max(0, min(self.whole_steps(batching), position))
        while low < high:  # the last whole step that ends there
            middle = (low + high + 1) // 2
            low, high = (middle, high) if self.whole_end(middle, batching) <= position else (low, middle - 1)
        at, step = self.whole_end(low, batching), low
        while at < position and (cut := self.cut(at, batching)) is not None and cut.end <= position:
            at, step = cut.end, step + 1
        return step

    def steps(self, start: Position, batching: Batching, before: int | None = None) -> Iterator[Step]:
        """Yield a rank's steps from a position to the end of the epoch.

        Args:
            start: the position.
            batching: the rules of the cut.
            before: the number of steps before it; None: those of `step_at`.
        """
        number = self.step_at(start.samples_seen, batching) if before is None else before
        at, cuts, most = start._replace(snapshot=None), self._cuts(start.samples_seen, batching), 1
        while some := list(islice(cuts, most)):
            rows = self.at(np.concatenate([cut.positions for cut, _ in some]))
            begin = 0
            for cut, last in some:
                end, own = at._replace(samples_seen=cut.end), slice(begin, begin + len(cut.positions))
                part = Rows(rows.indices[own], rows.keys[own])
                yield Step(at, end, part, cut.valid, cut.positions, last, self.counts, number)
                at, begin, number = end, own.stop, number + 1
            # The first batch shall not wait for the rows of many.
            most = max(min(2 * most, self.chunk // batching.batch_size), 1)

    def _cuts(self, position: int, batching: Batching) -> Iterator[tuple[Cut, bool]]:
        """Yield a rank's cuts from a position on, and whether each is known to be the last."""
        cut = self.cut(position, batching)
        while cut is not None:
            following = self.cut(cut.end, batching)
            yield cut, following is None and self.counts is None
            cut = following


class EndlessEpoch(Epoch):
    """An epoch that ends where its source does; each rank counts its own samples, or its own batches of any size."""

    chunk = 1

    def __init__(self, n: int, at: Callable[[Indices], Rows], counts: Literal["samples", "batches"]) -> None:
        super().__init__(n, at)
        self.counts = counts

    def cut(self, position: int, batching: Batching) -> Cut | None:
        end = min(position + batching.batch_size, self.n)
        return Cut(np.arange(position, end), np.ones(end - position, np.bool_), end) if position < end else None

    def whole_steps(self, batching: Batching) -> int:
        return UNKNOWN


class Order:
    """The order of every epoch: a pure function of (seed, epoch, cycle, position).

    A subclass sets `dataset_size` and defines `epoch` and `fingerprint`, and `__len__` where an epoch is not as long as
    the dataset.  A subclass that makes its own batches overrides `batching` and `num_steps`, and returns an `Epoch`
    with its own `cut`.

    Attributes:
        dataset_size: number of samples in the dataset that it orders.
        strided: see `Epoch`.
        in_order: samples come in the source's order, so trainers take the loader for an unshuffled one.
        sized: every epoch has `len` samples.
        any_size: no batch size is known to hold for all batches.
        ahead: steps are decided in the caller's thread, while it iterates.
    """

    dataset_size: int
    strided = False
    in_order = False
    sized = True
    any_size = ahead = False

    def __len__(self) -> int:
        """Count the samples of an epoch, over all ranks."""
        return self.dataset_size

    if not TYPE_CHECKING:  # a subclass may have a method of this name

        @property
        def set_epoch(self) -> Any:
            name = type(self).__name__
            raise AttributeError(f"{name} has no set_epoch: a loader counts epochs, write loader.set_epoch(epoch)")

    @never_raises
    def __repr__(self) -> str:
        return f"{type(self).__name__}({how_many(len(self) if self.sized else None, 'sample')} per epoch)"

    def epoch(self, seed: int, at: Position) -> Epoch:
        """Give the epoch that a position lies in.

        Args:
            seed: the loader's.
            at: `at.epoch` and `at.cycle` say which epoch; `at.key` holds both in one number.
        """
        raise NotImplementedError

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        """Give a string of at most 100 characters, equal for equal orders only."""
        raise NotImplementedError

    def check_dataset(self, size: int) -> None:
        """Raise unless it orders a dataset of this size.

        Raises:
            ValueError: it was made for another size.
        """
        if size != self.dataset_size:
            raise ValueError(
                f"{type(self).__name__} was made for {self.dataset_size} samples, and the dataset has {size}"
            )

    def batching(self, batch_size: int, shard: Shard, drop_last: bool, pad_last: bool) -> Batching:
        """Make the batching of this order from a loader's options.

        Raises:
            ValueError: the order can't use one of them.
        """
        return Batching(batch_size, shard, drop_last, pad_last)

    def num_steps(self, batching: Batching) -> int:
        """Count the steps of a whole epoch; they are the same on every rank, and none where nothing is left."""
        n, size = len(self), batching.global_size
        whole, rest = divmod(n, size)
        joined = batching.batch_size == 1 and not batching.pad_last and whole > 0  # see `Epoch.cut`
        return whole + (0 if batching.drop_last or rest == 0 or joined else 1)


class Sequential(Order):
    """The dataset's own order: 0, 1, 2, ..."""

    in_order = True

    def __init__(self, n: int) -> None:
        self.dataset_size = n

    def epoch(self, seed: int, at: Position) -> Epoch:
        return Epoch(len(self), own_rows, self.strided)

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        return "sequential"


class Shuffled(Order):
    """A fresh permutation for each epoch, evaluated where it is needed: O(1) memory and O(1) seek."""

    def __init__(self, n: int) -> None:
        self.dataset_size = n

    def epoch(self, seed: int, at: Position) -> Epoch:
        permutation = Permutation(len(self), derive(seed, Key.SHUFFLE, at.key))
        return Epoch(len(self), lambda positions: own_rows(permutation(positions)), self.strided)

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        return "shuffle"


class Endless(Order):
    """The order 0, 1, 2, ... for as long as the source goes on, or up to `n` samples; each rank counts its own.

    Args:
        n: samples per epoch on each rank, if that is known.
        whole_batches: positions count batches, of any size.
    """

    in_order = True

    def __init__(self, n: int | None, whole_batches: bool = False) -> None:
        self.n, self.whole_batches = n, whole_batches

    def __len__(self) -> int:
        if self.n is None:
            raise TypeError("this epoch has no known length: it ends where its source does")
        return self.n

    def epoch(self, seed: int, at: Position) -> Epoch:
        n = UNKNOWN if self.n is None else self.n
        if not self.whole_batches:
            return EndlessEpoch(n, own_rows, "samples")
        # This leaves room for the keys of a batch's samples.
        return EndlessEpoch(n, lambda p: Rows(p, p.astype(np.uint64) << np.uint64(32)), "batches")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({how_many(self.n, 'sample')} per epoch)"

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        return "as it comes"

    def batching(self, batch_size: int, shard: Shard, drop_last: bool, pad_last: bool) -> Batching:
        return Batching(1 if self.whole_batches else batch_size, Shard(0, 1), drop_last)

    def num_steps(self, batching: Batching) -> int:
        whole, rest = divmod(len(self), batching.batch_size)
        return whole + (rest > 0 and not batching.drop_last)
