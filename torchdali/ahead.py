"""The orders of samplers without a length: drawn while a pass needs them."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from .batches import BatchEpoch
from .distributed import Shard
from .generators import HeldGenerators
from .held_state import HeldState
from .ids import Taken, keys_of, read, read_batch
from .order import UNKNOWN, Batching, Cut, Epoch, Indices, Order, Rows
from .rand import Key, derive
from .seeding import get_states, preserved, restore_states
from .state import Position
from .torch_samplers import own_generators, seed_draw, tell_epoch

KEPT = 1 << 16  # indices that an order without a length keeps, of those that are handed over


class DrawnAhead(Order):
    """The order of a sampler or batch sampler without a length, which may have no end: drawn as steps need it.

    A position is reached by drawing all indices before it again.

    Args:
        sampler: the sampler.
        taken: what the dataset takes from it.
        batches: it yields the indices of whole batches.
    """

    sized = False
    ahead = True

    def __init__(self, sampler: Any, taken: Taken, batches: bool) -> None:
        self.sampler, self._taken, self.dataset_size = sampler, taken, taken.size or 0
        self.any_size = self._batches = batches
        self._held, self._state = HeldGenerators(sampler), HeldState(sampler, numbers=False)

    def __len__(self) -> int:
        raise TypeError(f"{type(self.sampler).__name__} has no length: give it a __len__ where it is known")

    def epoch(self, seed: int, at: Position) -> Epoch:
        draw = _Draw(self.sampler, seed, at, self._taken, self._batches, self._held, self._state)
        return _BatchesAhead(draw) if self._batches else _Ahead(draw)

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        return f"{type(self.sampler).__name__[:60]} (without a length)"

    def batching(self, batch_size: int, shard: Shard, drop_last: bool, pad_last: bool) -> Batching:
        return Batching(1, shard) if self._batches else super().batching(batch_size, shard, drop_last, pad_last)

    def num_steps(self, batching: Batching) -> int:
        return len(self)


_END = object()


class _Draw:
    """A sampler that is iterated piece by piece; between the pieces its generators are as their owners left them.

    Attributes:
        count: indices drawn so far.
        ended: there are no more.
        first: the position of the first one that is kept.
        ends: of batches, the positions after those that are kept.
        ids: see `order.Epoch`.
    """

    def __init__(
        self,
        sampler: Any,
        seed: int,
        at: Position,
        taken: Taken,
        batches: bool,
        held: HeldGenerators,
        state: HeldState,
    ) -> None:
        self._name, self._takes, self._batches = type(sampler).__name__, taken, batches
        self._own = own_generators(sampler)
        self._seen: Counter[int] = Counter()
        self._indices, self._keys = array("q"), array("Q")
        self.count, self.first, self.ended = 0, 0, False
        self.ends: list[int] = []
        self.ids: dict[int, Any] = {}
        self._held, self._state = held, state
        tell_epoch(sampler, at)
        state.begin(at.epoch)
        with preserved(*self._own), held.preserved():
            held.seed(derive(seed, Key.DRAWN, at.key))
            seed_draw(seed, at, self._own)
            self._iterator = iter(sampler)
            self._states, self._held_states = get_states(self._own), held.states()
        state.note()

    def reach(self, position: int, batches: int = 0) -> None:
        """Draw up to a position and some batches after it, if there are as many."""
        first = not self.count
        with preserved(*self._own), self._held.preserved():
            self._held.go_on(self._held_states)
            restore_states(self._states, self._own)
            while not self.ended and (self.count <= position or sum(end > position for end in self.ends) < batches):
                item = next(self._iterator, _END)
                if item is _END:
                    self.ended = True
                    break
                drawn = (
                    read_batch(self._name, item, self._takes) if self._batches
                    else read(self._name, [item], self._takes)
                )  # fmt: skip
                self.ids |= drawn.ids
                for number in drawn.numbers.tolist():
                    times = np.array([self._seen[number]])
                    self._indices.append(number)
                    self._keys.append(int(keys_of(np.array([number]), times, bool(drawn.ids))[0]))
                    self._seen[number] += 1
                self.count = self.first + len(self._indices)
                self.ends.append(self.count) if self._batches else None
            self._states, self._held_states = get_states(self._own), self._held.states()
        if first or self.ended:
            self._state.note()  # most shuffle before their first index

    def forget(self, position: int) -> None:
        """Drop what lies before a position, once it is much."""
        if position - self.first > KEPT:
            del self._indices[: position - self.first], self._keys[: position - self.first]
            self.first = position
            if self.ids:
                self.ids = {number: self.ids[number] for number in set(self._indices)}
        if self._batches:
            self.ends = [end for end in self.ends if end > position]

    def rows(self, positions: Indices) -> Rows:
        places = (positions - self.first).tolist()
        keys = np.array([self._keys[place] for place in places], np.uint64)
        return Rows(np.array([self._indices[place] for place in places], np.int64), keys)


class _Ahead(Epoch):
    chunk = 1

    def __init__(self, draw: _Draw) -> None:
        super().__init__(UNKNOWN, draw.rows)
        self._draw, self._last = draw, 0

    @property
    def ids(self) -> Mapping[int, Any]:  # type: ignore[override]  # it grows
        return self._draw.ids

    def some(self, position: int, most: int) -> Rows:
        self._draw.reach(position + most)
        return self.at(np.arange(position, min(position + most, self._draw.count)))

    def cut(self, position: int, batching: Batching) -> Cut | None:
        self._draw.reach(position + batching.global_size + batching.shard.world_size)
        self.n = self._draw.count if self._draw.ended else UNKNOWN
        # The rows of the step before are asked for after this cut is made.
        self._draw.forget(self._last)
        self._last = position
        return super().cut(position, batching)


class _BatchesAhead(BatchEpoch):
    chunk = 1

    def __init__(self, draw: _Draw) -> None:
        super().__init__(np.zeros(0, np.int64), draw.rows)
        self._draw, self._last = draw, 0

    ids, some = _Ahead.ids, _Ahead.some

    def cut(self, position: int, batching: Batching) -> Cut | None:
        self._draw.reach(position, 2 * batching.shard.world_size)
        self._draw.forget(self._last)
        self._last = position
        self.ends = np.array(self._draw.ends, np.int64)
        return super().cut(position, batching)

    def whole_steps(self, batching: Batching) -> int:
        return 0
