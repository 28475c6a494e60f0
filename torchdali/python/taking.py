"""Samples that are taken from an iterable, one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from ..errors import leave_frame
from ..generators import HeldGenerators
from ..held_state import HeldState
from ..seeding import seed_sample
from ..workers.info import worker_info
from .iterable_requests import IterablePass

NOTHING = object()
"""Stands for a sample, or a state, where there is none."""


class Raised(NamedTuple):
    """An error of the user's code, in the place of a sample."""

    error: Exception


_TRIES = 10  # samples, until one can be described


class Taking:
    """Takes samples from an iterable, each from generators that are seeded for its number.

    Args:
        shard: how workers and ranks share it, see `IterableSource`.
        dataset: the iterable, whose own generators are seeded for each pass, and whose lists that it shuffles in place
            are put back before it; None: it has a state, and answers for itself.

    Attributes:
        part: this worker's part of the pass; None: none has begun.
        iterator: the iterable's.
        waiting: samples that were drawn from it, and not taken yet.
        drawn, taken: the samples of the epoch that were drawn, and taken.
        failed: the items in whose places errors were taken, since the pass began or was resumed.
        asked: the dataset asked which worker this is; None: it may still.
        set_up: worker_init_fn did.
    """

    def __init__(self, shard: str, dataset: Any = None) -> None:
        self.shard = shard
        self._held = HeldGenerators(dataset)
        self._state = HeldState(dataset, numbers=False)
        self._held_states: list[tuple[Any, Any]] = []
        self.part: IterablePass | None = None
        self.iterator: Iterator[Any] = iter(())
        self.waiting: deque[Any] = deque()
        self.drawn = self.taken = self.failed = 0
        self.asked: bool | None = None
        self.set_up = False

    def restart(self, taken: int, asked: bool | None) -> None:
        """Begin at a number of samples, before `iter`."""
        self.waiting.clear()
        self.drawn, self.taken, self.failed = taken, taken, 0
        self.asked = True if self.set_up else asked

    def iterate(self, dataset: Any, number: int) -> None:
        """Begin the iteration of a dataset, with the generators seeded for a number of samples.

        The dataset's own generators have the same numbers in all workers and ranks, as copies of them have: they may
        draw what all must agree on.  Only where worker_init_fn has set each worker up, each has its own.
        """
        part = self.part
        assert part is not None
        own = seed_sample(part.seed, part.key, (part.worker if self.set_up else 0) << 40)
        self._state.begin(0)
        with self._held.preserved():
            self._held.seed(own)
            self.seed(number)
            self.iterator = iter(dataset)
            self._held_states = self._held.states()
        self._state.note()

    def peek(self, progress: Callable[[int], None]) -> Any:
        """Look at the next sample that can be made; the errors before it come where it is read."""
        for _ in range(_TRIES):
            progress(self.drawn)
            if not self.waiting or isinstance(self.waiting[-1], Raised):
                self.waiting.append(self.draw())
            if not isinstance(self.waiting[-1], Raised):
                return self.waiting[-1]
        raise self.waiting[-1].error

    def peek_more(self, most: int, progress: Callable[[int], None]) -> Iterator[Any]:
        """Look at the samples after that one, up to a number of them, as far as they can be made."""
        for _ in range(most):
            progress(self.drawn)
            self.waiting.append(self.draw())
            if self.waiting[-1] is NOTHING or isinstance(self.waiting[-1], Raised):
                return
            yield self.waiting[-1]

    def next(self) -> Any:
        """Take the next sample.

        Raises:
            StopIteration: there is none.
            Exception: of the user's code.
        """
        sample = self.waiting.popleft() if self.waiting else self.draw()
        if isinstance(sample, Raised):
            self.failed += 1
            raise sample.error
        if sample is NOTHING:
            raise StopIteration
        self.taken += 1
        return sample

    def draw(self) -> Any:
        """Draw a sample from the iterator, an error in its place, or nothing at the end."""
        self.seed(self.drawn + 1)
        try:
            if self._held.none:
                sample = next(self.iterator, NOTHING)
            else:
                with self._held.preserved():
                    self._held.go_on(self._held_states)
                    sample = next(self.iterator, NOTHING)
                    self._held_states = self._held.states()
        except Exception as error:
            return Raised(leave_frame(error))
        finally:
            self.asked = bool(self.asked)  # decided with the first sample
            self._watch(None)
        if not self.drawn or sample is NOTHING:
            self._state.note()  # most shuffle before their first sample
        self.drawn += sample is not NOTHING
        return sample

    def seed(self, number: int) -> None:
        """Seed the generators for a sample, counted from 1, or for `iter` with 0.

        Each sample has its own numbers, so that it is the same after a resume.  All who share the samples that are
        taken here have the same ones, and see the same samples in the same order.  Once the dataset asks which worker
        this is, each worker has its own.
        """
        part = self.part
        assert part is not None
        stream = 0
        if self.shard == "none":
            stream = part.rank * part.num_workers + part.worker if number else 0
        elif self.asked:
            stream = part.worker
        seed_sample(part.seed, part.key, stream << 40 | number)
        if self.asked is None:
            self._watch(partial(self._learn, number))

    def _learn(self, number: int) -> None:
        """Note that the dataset asked which worker this is."""
        self.asked = True
        self._watch(None)
        self.seed(number)

    @staticmethod
    def _watch(told: Callable[[], None] | None) -> None:
        info = worker_info()
        if info is not None:
            info.told = told

    def share(self) -> tuple[int, int]:
        """Count those who share the samples that are taken here, and give the number of this one among them."""
        part = self.part
        assert part is not None
        if self.shard == "none":
            return 1, 0
        if self.shard == "auto" and self.asked:
            return part.world_size, part.rank
        return part.num_workers * part.world_size, part.rank * part.num_workers + part.worker

    def mine(self) -> bool:
        """Whether the sample that was taken last is for this worker and this rank."""
        return self._is_mine(self.taken - 1)

    def next_is_mine(self) -> bool:
        """Whether the next sample is; an item that fails is its who would have had it."""
        return self._is_mine(self.taken)

    def _is_mine(self, place: int) -> bool:
        sharers, number = self.share()
        return place % sharers == number
