"""(epoch, position) -> the samples of this rank's next batch.

`Order` says which sample stands where in an epoch; `cut` says which positions a rank takes next.  Both are pure, so a
seek costs nothing and another number of ranks only cuts the same order differently.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import BatchSampler, DistributedSampler

from .distributed import Shard
from .permutation import Permutation
from .rand import derive
from .seeding import preserved

Indices = NDArray[np.int64]


class Rows(NamedTuple):
    """Some positions of an epoch: what stands there, and what its random numbers are keyed by."""

    indices: Indices
    keys: NDArray[np.uint64]


def rows_of(rows: Rows, size: int) -> Rows:
    """So many rows from the first one on: a source that ends by itself may give fewer than were asked for, or more."""
    start = rows.indices[0]
    return Rows(np.arange(start, start + size), np.arange(size, dtype=np.uint64) + rows.keys[0])


class EpochOrder(Protocol):
    """The order of one epoch."""

    def __call__(self, positions: Indices) -> Rows: ...


class Order(Protocol):
    """The order of every epoch.

    Attributes:
        strided: a rank takes every world_size-th position of a global batch, and not one slice of it.
    """

    strided: bool

    def __len__(self) -> int: ...

    def epoch(self, epoch: int, key: int, /) -> EpochOrder:
        """The order of an epoch; `key` tells apart the cycles of one epoch too (`state.Position.key`)."""
        ...

    def fingerprint(self, world_size: int = 1) -> str:
        """Equal for equal orders, at most 100 characters."""
        ...


class Sequential:
    """0, 1, 2, ..."""

    strided = False

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def epoch(self, _epoch: int, _key: int) -> EpochOrder:
        return lambda positions: Rows(positions, positions.astype(np.uint64))

    def fingerprint(self, world_size: int = 1) -> str:
        return "sequential"


class Endless:
    """0, 1, 2, ... for as long as the source goes on, or to a number of samples; each rank counts its own.

    Args:
        n: how many, if that is known.
        whole_batches: positions count batches, of any size.
    """

    strided = False

    def __init__(self, n: int | None, whole_batches: bool = False) -> None:
        self.n, self.whole_batches = n, whole_batches

    def __len__(self) -> int:
        if self.n is None:
            raise TypeError("this epoch has no known length: it ends where its source does")
        return self.n

    def epoch(self, _epoch: int, _key: int) -> EpochOrder:
        # Room for the keys of a batch's samples.
        shift = np.uint64(32 if self.whole_batches else 0)
        return lambda positions: Rows(positions, positions.astype(np.uint64) << shift)

    def fingerprint(self, world_size: int = 1) -> str:
        return "as it comes"


class Shuffled:
    """A fresh permutation for each epoch, evaluated where it is needed: O(1) memory and O(1) seek."""

    strided = False

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.seed = n, seed

    def __len__(self) -> int:
        return self.n

    def epoch(self, _epoch: int, key: int) -> EpochOrder:
        permutation = Permutation(self.n, derive(self.seed, 0x0DE5, key))

        def at(positions: Indices) -> Rows:
            indices = permutation(positions)
            return Rows(indices, indices.astype(np.uint64))

        return at

    def fingerprint(self, world_size: int = 1) -> str:
        return "shuffle"


class Drawn:
    """The order of a torch `Sampler` (or any sized iterable of indices), drawn once for an epoch from (seed, epoch).

    Every generator that a sampler may use is seeded for the draw and put back afterwards: the sampler's own
    `generator`, and the global ones of torch, numpy and Python.  `set_epoch` is called where the sampler has it.
    The first draw is made twice: randomness from elsewhere would lose samples silently, at a resume and between ranks.

    Raises:
        TypeError: the sampler has no length, shards by itself, or yields no integers.
        ValueError: it is empty, yields an index outside the dataset, more or fewer than its length, or another order
            from the same seeds.
    """

    strided = False

    def __init__(self, sampler: Iterable[int], dataset_size: int, seed: int) -> None:
        if isinstance(sampler, DistributedSampler):
            raise TypeError(
                "sampler must give the order of the whole dataset, and DistributedSampler gives one rank's: "
                "leave it out and write shuffle=True or False; every rank then takes its slice"
            )
        if isinstance(sampler, BatchSampler):
            raise TypeError(
                "sampler must yield indices, and BatchSampler yields batches: write its sampler, and batch_size="
            )
        if not hasattr(sampler, "__len__") or not hasattr(sampler, "__iter__"):
            raise TypeError(f"sampler must be a sized iterable of indices, got {type(sampler).__name__}")
        self.sampler: Any = sampler
        self.dataset_size, self.seed = dataset_size, seed
        self._fingerprint: str | None = None
        self._repeats = False  # it was seen to give the same order again
        if not len(self):
            raise ValueError(f"sampler must give at least one index, and len({type(sampler).__name__}) is 0")

    def __len__(self) -> int:
        return len(self.sampler)

    def epoch(self, epoch: int, key: int) -> EpochOrder:
        indices = self._draw(epoch, key)
        keys = indices.astype(np.uint64) + (_occurrences(indices).astype(np.uint64) << np.uint64(48))
        return lambda positions: Rows(indices[positions], keys[positions])

    def fingerprint(self, world_size: int = 1) -> str:
        if self._fingerprint is None:
            crc = zlib.crc32(self._draw(0, 0).tobytes())
            self._fingerprint = f"{type(self.sampler).__name__[:60]} (epoch 0: {crc:08x})"
        return self._fingerprint

    def _draw(self, epoch: int, key: int) -> Indices:
        indices = self._draw_once(epoch, key)
        if not self._repeats and not np.array_equal(indices, self._draw_once(epoch, key)):
            raise ValueError(
                f"sampler must give the same order from the same seeds, and {type(self.sampler).__name__} gave two: "
                "take its randomness from torch's, numpy's or Python's global generator, from a torch.Generator in "
                "its attribute `generator`, or from set_epoch"
            )
        self._repeats = True
        return indices

    def _draw_once(self, epoch: int, key: int) -> Indices:
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)
        name = type(self.sampler).__name__
        generator = getattr(self.sampler, "generator", None)
        own = [generator] if isinstance(generator, torch.Generator) else []
        with preserved(*own):
            _seed_all(derive(self.seed, 0xD4A3, key), *own)
            drawn = list(self.sampler)
        if len(drawn) != len(self):
            raise ValueError(f"{name} says len {len(self)} and yielded {len(drawn)} indices")
        try:
            indices = np.asarray(drawn)
        except ValueError:  # lists of different lengths
            indices = np.asarray(drawn, object)
        if indices.dtype.kind not in "iu" or indices.ndim != 1:
            no_index = (v for v in drawn if isinstance(v, bool) or not hasattr(v, "__index__") or np.ndim(v))
            wrong = next(no_index, drawn[0])
            batches = ": for batches write batch_size=" if isinstance(wrong, (list, tuple)) or np.ndim(wrong) else ""
            raise TypeError(f"sampler must yield integers, {name} yielded {wrong!r:.200}{batches}")
        if indices.min() < 0 or indices.max() >= self.dataset_size:
            raise ValueError(
                f"{name} yielded indices {indices.min()}..{indices.max()} for a dataset of {self.dataset_size} samples"
            )
        return indices.astype(np.int64, copy=False)


def _occurrences(indices: Indices) -> Indices:
    """How often each element stood before, so that a sample drawn twice is augmented in two ways."""
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    places = np.arange(len(indices))
    first = np.maximum.accumulate(np.where(np.r_[True, ordered[1:] != ordered[:-1]], places, 0))
    out = np.empty_like(indices)
    out[order] = places - first
    return out


def _seed_all(seed: int, *more: torch.Generator) -> None:
    """Start the global generators, and some of torch's, from a seed."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    for generator in (torch.default_generator, *more):
        generator.manual_seed(seed % 2**63)


class Cut(NamedTuple):
    """What one rank takes at one global position."""

    positions: Indices  # in the epoch's order, the rank's rows
    valid: NDArray[np.bool_]  # False where a row is repeated only to fill up
    end: int  # the global position behind this step


def cut(
    n: int, position: int, batch_size: int, shard: Shard, drop_last: bool, pad_last: bool, strided: bool = False
) -> Cut | None:
    """The rows of a rank's next batch, or None at the epoch's end.

    The epoch is cut into global batches of `batch_size * world_size`.  The last one is dropped, filled up by repeated
    rows (`pad_last`), or split evenly; where it would leave ranks without a sample, the last two are split together.
    It depends on what remains only, so any position of any other run can be continued.

    A rank's rows are one slice of the global batch; `strided`: those at positions of its rank modulo world_size.
    """
    ranks, left = shard.world_size, n - position
    size = batch_size * ranks
    if left <= 0 or (drop_last and left < size):
        return None
    if size < left < size + ranks and not drop_last and not pad_last:
        # Halves of the last two; with one sample a rank there are no halves, so the last step takes both.
        size = (left + 1) // 2 if batch_size > 1 else left
    taken = min(size, left)
    if strided:
        own = np.arange(position + (shard.rank - position) % ranks, position + taken, ranks)
    else:
        share, extra = divmod(taken, ranks)
        start = position + shard.rank * share + min(shard.rank, extra)
        own = np.arange(start, start + share + (shard.rank < extra))
    # A rank is left without a sample only where less than one for each is left to begin with.
    rows = batch_size if pad_last else max(len(own), 1)
    filling = own if len(own) else np.array([position + shard.rank % taken])
    positions = np.concatenate([own, np.resize(filling, rows - len(own))]) if rows > len(own) else own
    return Cut(positions, np.arange(rows) < len(own), position + taken)


@runtime_checkable
class BatchedEpoch(EpochOrder, Protocol):
    """The order of an epoch that also says where batches begin and end."""

    def cut(self, position: int, shard: Shard, drop_last: bool) -> Cut | None:
        """The rows of a rank's next batch, or None at the epoch's end; as `sampler.cut`."""
        ...

    def step_start(self, k: int, shard: Shard, drop_last: bool) -> int:
        """The position at which step k begins; as `sampler.step_start`."""
        ...


def num_steps(n: int, batch_size: int, shard: Shard, drop_last: bool, pad_last: bool) -> int:
    """How many steps a whole epoch has, the same on every rank.

    Raises:
        ValueError: there would be none, or a rank would get no sample.
    """
    size = batch_size * shard.world_size
    if n < 1:
        raise ValueError("the epoch is empty: there are no samples")
    if drop_last and n < size:
        raise ValueError(
            f"drop_last=True leaves no batch of the {n} samples: "
            f"batch_size {batch_size} x {shard.world_size} ranks is {size}"
        )
    if n < shard.world_size and not pad_last:
        raise ValueError(
            f"{n} samples cannot give each of {shard.world_size} ranks one: write pad_last=True, or use fewer ranks"
        )
    whole, rest = divmod(n, size)
    joined = batch_size == 1 and not pad_last  # see `cut`
    return whole + (0 if drop_last or rest == 0 or joined else 1)


def step_start(n: int, k: int, batch_size: int, shard: Shard, drop_last: bool, pad_last: bool) -> int:
    """The global position at which step k of an epoch begins; behind its last step, where the epoch ends.

    Raises:
        ValueError: a negative step.
    """
    if k < 0:
        raise ValueError(f"step must not be negative, got {k}")
    size = batch_size * shard.world_size
    # All but the last two steps are whole.
    whole = max(0, min(k, n // size - 1))
    position = whole * size
    for _ in range(k - whole):
        step = cut(n, position, batch_size, shard, drop_last, pad_last)
        if step is None:
            break
        position = step.end
    return position
