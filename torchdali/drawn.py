"""The orders of torch's samplers and batch samplers, which are iterated for each epoch."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import BatchSampler

from . import ids
from .ahead import DrawnAhead
from .batches import BatchEpoch
from .checks import has_length
from .distributed import Shard
from .generators import HeldGenerators
from .held_state import HeldState
from .ids import Taken
from .order import Batching, Epoch, Indices, Order, Rows
from .rand import Key, derive
from .seeding import preserved
from .state import Position
from .torch_samplers import check_unsharded, own_generators, seed_draw, tell_epoch

_BEYOND = 1000  # indices beyond twice a sampler's length, after which it is taken to have no end


class Batches(NamedTuple):
    """A batch sampler, where a sampler is expected.

    Attributes:
        sampler: yields the indices of whole batches.
    """

    sampler: Any


def drawn_order(sampler: Any, taken: Taken) -> Order:
    """Make the order of a torch `Sampler`, of any iterable of indices or ids, or of `Batches`.

    Raises:
        TypeError: it can't be iterated, or only once; it gives one rank's share.
    """
    batches = isinstance(sampler, Batches)
    inner = sampler.sampler if batches else sampler
    check_unsharded(inner, "batch_sampler" if batches else "sampler")
    if not batches and isinstance(inner, BatchSampler) and not taken.lists:
        raise TypeError("sampler must yield indices, and BatchSampler yields batches: write batch_sampler=")
    if not hasattr(inner, "__iter__") or isinstance(inner, Iterator):
        what = "batch_sampler must be an iterable of lists" if batches else "sampler must be an iterable"
        raise TypeError(f"{what} of indices that can be iterated for each epoch, got {type(inner).__name__}")
    with preserved():  # some draw an epoch to count it
        sized = has_length(inner)
    if not sized:  # nor has PyG's DynamicBatchSampler, though it has a method for it
        return DrawnAhead(inner, taken, batches)
    return (DrawnBatches if batches else Drawn)(inner, taken)


class _Draw(NamedTuple):
    """The draw of an epoch.

    Attributes:
        numbers, ids: see `ids.Drawn`.
        ends: where its batches end.
        whole: it consists of batches.
    """

    numbers: Indices
    ids: dict[int, Any]
    ends: Indices = np.zeros(0, np.int64)  # never changed
    whole: bool = False

    def same(self, other: _Draw) -> bool:
        return np.array_equal(self.numbers, other.numbers) and np.array_equal(self.ends, other.ends)

    def epoch(self) -> Epoch:
        rows = ids.rows_of(ids.Drawn(self.numbers, self.ids))

        def at(positions: Indices) -> Rows:
            return Rows(rows.indices[positions], rows.keys[positions])

        epoch = BatchEpoch(self.ends, at) if self.whole else Epoch(len(rows.indices), at)
        epoch.ids = self.ids
        return epoch


class Drawn(Order):
    """The order of a torch `Sampler`, or any sized iterable of indices: drawn once per epoch from (seed, epoch).

    Every generator that a sampler may use is seeded for the draw and restored after it: those that it holds, and the
    global ones of torch, numpy and Python.  `set_epoch` is called where the sampler has it.  Lists that it shuffles in
    place begin each draw as they were at first, and epochs that it counts by itself follow the loader's.
    The first draw is made twice: randomness from elsewhere would lose samples silently, at a resume and between ranks.

    Raises:
        TypeError: it yields what the dataset does not take.
        ValueError: it yields an index outside the dataset, more or fewer than its length, or another order from the
            same seeds.
    """

    _word = "sampler"

    def __init__(self, sampler: Any, taken: Taken) -> None:
        self.sampler, self._taken, self.dataset_size = sampler, taken, taken.size or 0
        self._held, self._state = HeldGenerators(sampler), HeldState(sampler, numbers=True)
        self._fingerprints: dict[int, str] = {}  # by seed
        self._repeats = False  # it was seen to give the same order again

    def __len__(self) -> int:
        return len(self.sampler)

    def epoch(self, seed: int, at: Position) -> Epoch:
        return self._draw(seed, at).epoch()

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        if seed not in self._fingerprints:
            drawn = self._draw(seed, Position())
            crc = zlib.crc32(drawn.ends.tobytes(), zlib.crc32(drawn.numbers.tobytes()))
            self._fingerprints[seed] = f"{type(self.sampler).__name__[:60]} (epoch 0: {crc:08x})"
        return self._fingerprints[seed]

    def _draw(self, seed: int, at: Position) -> _Draw:
        """Draw an epoch."""
        drawn = self._draw_once(seed, at)
        if not self._repeats and self._state.counts:
            drawn = self._draw_once(seed, at)  # its counters are known by now
        if not self._repeats and not drawn.same(self._draw_once(seed, at)):
            raise ValueError(
                f"{self._word} must give the same order from the same seeds, and {type(self.sampler).__name__} gave "
                "two: take its randomness from torch's, numpy's or Python's global generator, from one of theirs in "
                "an attribute, or from set_epoch"
            )
        self._repeats = True
        return drawn

    def _draw_once(self, seed: int, at: Position) -> _Draw:
        own = own_generators(self.sampler)
        tell_epoch(self.sampler, at)
        self._state.begin(at.epoch)
        with preserved(*own), self._held.preserved():
            self._held.seed(derive(seed, Key.DRAWN, at.key))
            seed_draw(seed, at, own)
            size = len(self.sampler)
            most = 2 * size + _BEYOND
            drawn = list(itertools.islice(self.sampler, most))
        self._state.note()
        if len(drawn) != size:
            name = type(self.sampler).__name__
            if len(drawn) == most:  # as InfiniteSampler of mmengine and YOLOX
                raise ValueError(
                    f"{name} says len {size} and yielded {most} {self._items} without an end: leave it out and write "
                    "shuffle=True or False, since each iter(loader) begins a new epoch; or leave out its __len__, and "
                    "the loader has no end"
                )
            raise ValueError(
                f"{name} says len {size} and yielded {len(drawn)} {self._items}: return their number from "
                "__len__, or leave it out"
            )
        return self._split(drawn)

    _items = "indices"

    def _split(self, drawn: list[Any]) -> _Draw:
        return _Draw(*ids.read(type(self.sampler).__name__, drawn, self._taken))


class DrawnBatches(Drawn):
    """The order of a torch batch sampler with a length, drawn as `Drawn` is: ranks take whole batches in turn.

    The number of samples may differ from epoch to epoch.
    """

    _word, _items = "batch_sampler", "batches"
    sized = False
    any_size = True

    def __len__(self) -> int:
        return len(self._draw(0, Position()).numbers)

    def batching(self, batch_size: int, shard: Shard, drop_last: bool, pad_last: bool) -> Batching:
        return Batching(1, shard)

    def num_steps(self, batching: Batching) -> int:
        return -(-len(self.sampler) // batching.shard.world_size)

    def _split(self, drawn: list[Any]) -> _Draw:
        batches = [ids.read_batch(type(self.sampler).__name__, batch, self._taken) for batch in drawn]
        numbers = [batch.numbers for batch in batches]
        return _Draw(
            np.concatenate(numbers) if numbers else np.zeros(0, np.int64),
            {number: one for batch in batches for number, one in batch.ids.items()},
            np.cumsum([len(batch) for batch in numbers], dtype=np.int64),
            whole=True,
        )
