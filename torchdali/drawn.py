"""The orders of torch's samplers and batch samplers, which are iterated for each epoch."""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import BatchSampler, DistributedSampler

from .batches import BatchEpoch
from .distributed import Shard
from .order import UNKNOWN, Batching, Cut, Epoch, Indices, Order, Rows
from .rand import Key, derive
from .seeding import get_states, preserved, restore_states, set_seeds
from .state import Position

KEPT = 1 << 16  # indices that an order without a length keeps, of those that are handed over


class Batches(NamedTuple):
    """A batch sampler, where a sampler is expected.

    Attributes:
        sampler: yields the indices of whole batches.
    """

    sampler: Any


def drawn_order(sampler: Any, dataset_size: int) -> Order:
    """Make the order of a torch `Sampler`, of any iterable of indices, or of `Batches`.

    Raises:
        TypeError: it can't be iterated, or only once; it gives one rank's share.
    """
    batches = isinstance(sampler, Batches)
    inner = sampler.sampler if batches else sampler
    check_unsharded(inner, "batch_sampler" if batches else "sampler")
    if not batches and isinstance(inner, BatchSampler):
        raise TypeError("sampler must yield indices, and BatchSampler yields batches: write batch_sampler=")
    if not hasattr(inner, "__iter__") or isinstance(inner, Iterator):
        what = "batch_sampler must be an iterable of lists" if batches else "sampler must be an iterable"
        raise TypeError(f"{what} of indices that can be iterated for each epoch, got {type(inner).__name__}")
    if not hasattr(inner, "__len__"):
        return DrawnAhead(inner, dataset_size, batches)
    return DrawnBatches(inner, dataset_size) if batches else Drawn(inner, dataset_size)


class Drawn(Order):
    """The order of a torch `Sampler`, or any sized iterable of indices: drawn once per epoch from (seed, epoch).

    Every generator that a sampler may use is seeded for the draw and restored after it: the sampler's own
    `generator`, and the global ones of torch, numpy and Python.  `set_epoch` is called where the sampler has it.
    The first draw is made twice: randomness from elsewhere would lose samples silently, at a resume and between ranks.

    Raises:
        TypeError: it yields no integers.
        ValueError: it yields an index outside the dataset, more or fewer than its length, or another order from the
            same seeds.
    """

    _word = "sampler"

    def __init__(self, sampler: Any, dataset_size: int) -> None:
        self.sampler, self.dataset_size = sampler, dataset_size
        self._fingerprints: dict[int, str] = {}  # by seed
        self._repeats = False  # it was seen to give the same order again

    def __len__(self) -> int:
        return len(self.sampler)

    def epoch(self, seed: int, at: Position) -> Epoch:
        indices, _ = self._draw(seed, at)
        return Epoch(len(indices), _rows(indices))

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        if seed not in self._fingerprints:
            crc = 0
            for drawn in self._draw(seed, Position()):
                crc = zlib.crc32(drawn.tobytes(), crc)
            self._fingerprints[seed] = f"{type(self.sampler).__name__[:60]} (epoch 0: {crc:08x})"
        return self._fingerprints[seed]

    def _draw(self, seed: int, at: Position) -> tuple[Indices, Indices]:
        """Draw the indices of an epoch, and where its batches end."""
        drawn = self._draw_once(seed, at)
        if not self._repeats and not all(map(np.array_equal, drawn, self._draw_once(seed, at))):
            raise ValueError(
                f"{self._word} must give the same order from the same seeds, and {type(self.sampler).__name__} gave "
                "two: take its randomness from torch's, numpy's or Python's global generator, from a torch.Generator "
                "in its attribute `generator`, or from set_epoch"
            )
        self._repeats = True
        return drawn

    def _draw_once(self, seed: int, at: Position) -> tuple[Indices, Indices]:
        own = _own_generators(self.sampler)
        _tell_epoch(self.sampler, at)
        with preserved(*own):
            _seed(derive(seed, Key.DRAWN, at.key), own)
            drawn = list(self.sampler)
        if len(drawn) != len(self.sampler):
            name = type(self.sampler).__name__
            raise ValueError(f"{name} says len {len(self.sampler)} and yielded {len(drawn)} {self._items}")
        return self._split(drawn)

    _items = "indices"

    def _split(self, drawn: list[Any]) -> tuple[Indices, Indices]:
        return _as_indices(type(self.sampler).__name__, drawn, self.dataset_size), np.zeros(0, np.int64)


class DrawnBatches(Drawn):
    """The order of a torch batch sampler with a length, drawn as `Drawn` is: ranks take whole batches in turn.

    The number of samples may differ from epoch to epoch.
    """

    _word, _items = "batch_sampler", "batches"
    sized = False
    any_size = True

    def __len__(self) -> int:
        return len(self._draw(0, Position())[0])

    def epoch(self, seed: int, at: Position) -> BatchEpoch:
        indices, ends = self._draw(seed, at)
        return BatchEpoch(ends, _rows(indices))

    def batching(self, batch_size: int, shard: Shard, drop_last: bool, pad_last: bool) -> Batching:
        return Batching(1, shard)

    def num_steps(self, batching: Batching) -> int:
        return -(-len(self.sampler) // batching.shard.world_size)

    def _split(self, drawn: list[Any]) -> tuple[Indices, Indices]:
        name = type(self.sampler).__name__
        batches = [_as_batch(name, batch, self.dataset_size) for batch in drawn]
        indices = np.concatenate(batches) if batches else np.zeros(0, np.int64)
        return indices, np.cumsum([len(batch) for batch in batches], dtype=np.int64)


class DrawnAhead(Order):
    """The order of a sampler or batch sampler without a length, which may have no end: drawn as steps need it.

    A position is reached by drawing all indices before it again.

    Args:
        sampler: the sampler.
        dataset_size: samples of the dataset.
        batches: it yields the indices of whole batches.
    """

    sized = False
    ahead = True

    def __init__(self, sampler: Any, dataset_size: int, batches: bool) -> None:
        self.sampler, self.dataset_size = sampler, dataset_size
        self.any_size = self._batches = batches

    def __len__(self) -> int:
        raise TypeError(f"{type(self.sampler).__name__} has no length: give it a __len__ where it is known")

    def epoch(self, seed: int, at: Position) -> Epoch:
        draw = _Draw(self.sampler, seed, at, self.dataset_size, self._batches)
        return _BatchesAhead(draw) if self._batches else _Ahead(draw)

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        return f"{type(self.sampler).__name__[:60]} (without a length)"

    def batching(self, batch_size: int, shard: Shard, drop_last: bool, pad_last: bool) -> Batching:
        return Batching(1, shard) if self._batches else super().batching(batch_size, shard, drop_last, pad_last)

    def num_steps(self, batching: Batching) -> int:
        return len(self)


class _Draw:
    """A sampler that is iterated piece by piece; between the pieces its generators are as their owners left them.

    Attributes:
        count: indices drawn so far.
        ended: there are no more.
        first: the position of the first one that is kept.
        ends: of batches, the positions after those that are kept.
    """

    def __init__(self, sampler: Any, seed: int, at: Position, dataset_size: int, batches: bool) -> None:
        self._name, self._size, self._batches = type(sampler).__name__, dataset_size, batches
        self._own = _own_generators(sampler)
        self._seen: Counter[int] = Counter()
        self._indices, self._keys = array("q"), array("Q")
        self.count, self.first, self.ended = 0, 0, False
        self.ends: list[int] = []
        _tell_epoch(sampler, at)
        with preserved(*self._own):
            _seed(derive(seed, Key.DRAWN, at.key), self._own)
            self._iterator = iter(sampler)
            self._states = get_states(self._own)

    def reach(self, position: int, batches: int = 0) -> None:
        """Draw up to a position and some batches after it, if there are as many."""
        with preserved(*self._own):
            restore_states(self._states, self._own)
            while not self.ended and (self.count <= position or sum(end > position for end in self.ends) < batches):
                item = next(self._iterator, None)
                if item is None:
                    self.ended = True
                    break
                some = _as_batch(self._name, item, self._size) if self._batches else None
                for index in (_as_indices(self._name, [item], self._size) if some is None else some).tolist():
                    self._indices.append(index)
                    self._keys.append(index + (self._seen[index] << 48))
                    self._seen[index] += 1
                self.count = self.first + len(self._indices)
                self.ends.append(self.count) if self._batches else None
            self._states = get_states(self._own)

    def forget(self, position: int) -> None:
        """Drop what lies before a position, once it is much."""
        if position - self.first > KEPT:
            del self._indices[: position - self.first], self._keys[: position - self.first]
            self.first = position
        if self._batches:
            self.ends = [end for end in self.ends if end > position]

    def rows(self, positions: Indices) -> Rows:
        places = (positions - self.first).tolist()
        keys = np.array([self._keys[place] for place in places], np.uint64)
        return Rows(np.array([self._indices[place] for place in places], np.int64), keys)


class _Ahead(Epoch):
    def __init__(self, draw: _Draw) -> None:
        super().__init__(UNKNOWN, draw.rows)
        self._draw, self._last = draw, 0

    def cut(self, position: int, batching: Batching) -> Cut | None:
        self._draw.reach(position + batching.global_size + batching.shard.world_size)
        self.n = self._draw.count if self._draw.ended else UNKNOWN
        # The rows of the step before are asked for after this cut is made.
        self._draw.forget(self._last)
        self._last = position
        return super().cut(position, batching)


class _BatchesAhead(BatchEpoch):
    def __init__(self, draw: _Draw) -> None:
        super().__init__(np.zeros(0, np.int64), draw.rows)
        self._draw, self._last = draw, 0

    def cut(self, position: int, batching: Batching) -> Cut | None:
        self._draw.reach(position, 2 * batching.shard.world_size)
        self._draw.forget(self._last)
        self._last = position
        self.ends = np.array(self._draw.ends, np.int64)
        return super().cut(position, batching)

    def whole_steps(self, batching: Batching) -> int:
        return 0


def _own_generators(sampler: Any) -> list[torch.Generator]:
    """The generators of a sampler, and of the sampler that a batch sampler is made of."""
    found = [getattr(one, "generator", None) for one in (sampler, getattr(sampler, "sampler", None))]
    return [one for one in found if isinstance(one, torch.Generator)]


def _tell_epoch(sampler: Any, at: Position) -> None:
    for one in (sampler, getattr(sampler, "sampler", None)):
        if callable(set_epoch := getattr(one, "set_epoch", None)):
            set_epoch(at.epoch)


def _as_batch(name: str, batch: Any, size: int) -> Indices:
    if not isinstance(batch, Iterable) or isinstance(batch, (str, bytes)):
        raise TypeError(f"batch_sampler must yield lists of indices, {name} yielded {batch!r:.200}")
    indices = _as_indices(name, list(batch), size, "lists of integers")
    if not len(indices):
        raise ValueError(f"batch_sampler must yield lists of at least one index, {name} yielded an empty one")
    return indices


def _as_indices(name: str, drawn: list[Any], size: int, what: str = "integers") -> Indices:
    """Check the indices that a sampler yielded."""
    if not drawn:
        return np.zeros(0, np.int64)
    try:
        indices = np.asarray(drawn)
    except ValueError:  # lists of different lengths
        indices = np.asarray(drawn, object)
    if indices.dtype.kind not in "iu" or indices.ndim != 1:
        no_index = (v for v in drawn if isinstance(v, bool) or not hasattr(v, "__index__") or np.ndim(v))
        wrong = next(no_index, drawn[0])
        batches = ": for batches write batch_sampler=" if isinstance(wrong, (list, tuple)) or np.ndim(wrong) else ""
        word = "sampler" if what == "integers" else "batch_sampler"
        raise TypeError(f"{word} must yield {what}, {name} yielded {wrong!r:.200}{batches}")
    if indices.min() < 0 or indices.max() >= size:
        raise ValueError(f"{name} yielded indices {indices.min()}..{indices.max()} for a dataset of {size} samples")
    return indices.astype(np.int64, copy=False)


def _rows(indices: Indices) -> Any:
    keys = indices.astype(np.uint64) + (_occurrences(indices).astype(np.uint64) << np.uint64(48))
    return lambda positions: Rows(indices[positions], keys[positions])


def check_unsharded(sampler: Any, word: str) -> None:
    """Refuse a sampler that gives one rank's share, or is around such a one: every rank would slice it once more.

    Raises:
        TypeError: it says so by `num_replicas`, as torchvision's RASampler, timm's and others do.
    """
    part, seen = sampler, 0
    while part is not None and seen < _DEEPEST:
        replicas = getattr(part, "num_replicas", None)
        if isinstance(part, DistributedSampler):
            raise TypeError(
                f"{word} must give the order of the whole dataset, and DistributedSampler gives one rank's: leave it "
                "out and write shuffle=True or False; every rank then takes its slice"
            )
        if isinstance(replicas, int) and replicas > 1:
            repeats = next((getattr(part, name) for name in _REPEATS if hasattr(part, name)), None)
            inner = getattr(part, "sampler", None)
            if repeats is not None:
                instead = f"torchdali.samplers.RepeatedAugmentationSampler(dataset, repeats={repeats})"
            elif inner is not None:
                instead = f"its plain sampler, the {type(inner).__name__}"
            else:
                instead = "the plain sampler, or leave it out and write shuffle=True or False"
            raise TypeError(
                f"{word} must give the order of the whole dataset, and {type(part).__name__} gives one rank's of "
                f"{replicas} (num_replicas), in which every rank would take its slice once more: write {instead}"
            )
        part, seen = getattr(part, "sampler", None) or getattr(part, "batch_sampler", None), seen + 1


_DEEPEST = 8  # samplers around samplers
_REPEATS = ("repetitions", "num_repeats", "repeats")  # in torchvision's references, timm, and others


def _occurrences(indices: Indices) -> Indices:
    """Count how often each element stood before, so that a sample drawn twice is augmented in two ways."""
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    places = np.arange(len(indices))
    first = np.maximum.accumulate(np.where(np.r_[True, ordered[1:] != ordered[:-1]][: len(indices)], places, 0))
    out = np.empty_like(indices)
    out[order] = places - first
    return out


def _seed(seed: int, own: Sequence[torch.Generator]) -> None:
    set_seeds(seed, seed % 2**32, seed % 2**63, own)
