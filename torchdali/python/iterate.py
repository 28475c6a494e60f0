"""What runs in a worker for an iterable: one pass over it at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ..batch import Columns
from ..seeding import seeded
from ..workers.info import worker_info
from .sample import Structure

ENDED, STATE, TAKEN, SHARDS, UNEVEN = "__ended__", "__state__", "__taken__", "__shards__", "__uneven__"
"""Columns of one value beside the samples: whether it ended, its state, how many were taken, whether it asked which
worker it is, and whether others who share it may have had fewer samples."""


class Iterate:
    """What runs in a worker: one pass at a time, begun where the first task says."""

    def __init__(self, dataset: Any, shard: str) -> None:
        self.dataset = dataset
        self._shard = shard
        self._pass: Any = None
        # A pass that was begun to see a sample: its key, the sample, the iterator, and whether it asked who it is.
        self._peeked: tuple[Any, Any, Any, bool] | None = None
        self._set_up: bool | None = None  # worker_init_fn asked which worker this is
        self._ended = False
        self._failed: Exception | None = None  # behind the batch that was given last
        self._initial: Any = None  # the dataset's state before anything
        self._loaded: int | None = None  # the epoch of the state that was loaded last

    def __getstate__(self) -> dict[str, Any]:
        # A pass does not travel.
        return {**self.__dict__, "_pass": None, "_peeked": None, "_iterator": None, "_waiting": [], "_failed": None}

    def __call__(self, payload: Any, progress: Callable[[int], None]) -> Columns:
        if payload[0] == "describe":
            progress(0)
            return {"structure": self._describe(*payload[1:])}
        key, n, begin, structure = payload
        if self._pass is None or self._pass[0] != key:
            self._begin(key, begin, structure.restarts, progress)
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        rows: list[list[Any]] = []
        while len(rows) < n and not self._ended:
            progress(self._taken)
            try:
                sample = self._next()
            except StopIteration:
                self._ended = True  # whatever its next answer would be
            else:
                if self._mine():
                    rows.append(structure.values(sample))
        uneven = self._ended or self._pass_others(progress)
        self._ended = uneven
        # A copy: in this process it may be the dataset's own, which goes on.
        state = copy.deepcopy(self.dataset.state_dict()) if _has_state(self.dataset) else None
        columns: Columns = structure.columns(rows)
        beside = {ENDED: self._ended, STATE: state, TAKEN: self._taken, SHARDS: self._asked, UNEVEN: uneven}
        return {**columns, **{name: [value] for name, value in beside.items()}}

    def _pass_others(self, progress: Callable[[int], None]) -> bool:
        """Go on to where each rank and worker has had as many samples, so that all ranks' states are the same one.

        Returns:
            whether it ended there.
        """
        sharers, _ = self._share()
        try:
            while self._taken % sharers:
                progress(self._taken)
                self._next()
        except StopIteration:
            return True
        except Exception as error:  # it is the next batch's: this one is whole
            self._failed = error
        return False

    def _describe(self, names: Any, key: tuple[int, int]) -> list[Structure]:
        """The structure of the first sample; nothing where there is none.

        A dataset without a state is not disturbed: the pass that is begun here is the one that goes on.
        """
        self._remember()
        self._peeked = None
        sample = self._peek(*key)
        if sample is _NOTHING:
            return []
        structure = Structure.of(sample, names)
        structure.restarts = self._restarts(key)
        return [structure]

    def _peek(self, seed: int, key: int) -> Any:
        """The first sample of a pass."""
        self._asked = False
        self._tell_epoch(key)
        seeded(seed, key, 0)
        iterator = iter(self.dataset)
        seeded(seed, key, 1)
        sample = next(iterator, _NOTHING)
        if not _has_state(self.dataset):
            self._peeked = (seed, key), sample, iterator, self._asked
        return sample

    def _restarts(self, key: tuple[int, int]) -> bool:
        """Behind a peek: whether `iter` begins at the start by itself, and does not go on from the state."""
        if not _has_state(self.dataset):
            return True
        before = copy.deepcopy(self.dataset.state_dict())
        try:
            # Not where that was the only sample.
            return self._peek(*key) is not _NOTHING and bool(before == self.dataset.state_dict())
        except ValueError:  # arrays in the states
            return False

    def _remember(self) -> None:
        if self._initial is None and _has_state(self.dataset):
            self._initial = copy.deepcopy(self.dataset.state_dict())

    def _begin(self, key: Any, begin: dict[str, Any], restarts: bool, progress: Callable[[int], None]) -> None:
        self._pass, self._asked, self._ended, self._failed = (key,), False, False, None
        self._taken: int = 0
        epoch = key[1] % 2**32
        peeked, self._peeked = self._peeked, None
        if begin["state"] is not None:
            # In this order: a state may count in its own epoch alone, as those of Hugging Face do.
            self._tell_epoch(key[1])
            self.dataset.load_state_dict(copy.deepcopy(begin["state"]))
            self._loaded = epoch
        else:
            # It begins at the start, whatever became of the pass before.  Where `iter` does so by itself the first
            # state is best left alone: somebody may have iterated before us.
            self._remember()
            tellable = callable(getattr(self.dataset, "set_epoch", None))
            sticks = self._loaded is not None and (not tellable or self._loaded == epoch)
            if sticks or not restarts:
                self.dataset.load_state_dict(copy.deepcopy(self._initial))
            if peeked is None or peeked[0] != key[:2]:
                self._tell_epoch(key[1])
        # The same numbers for all who share it, so that they see the same order.
        if begin["state"] is None and peeked is not None and peeked[0] == key[:2]:
            _, sample, self._iterator, self._asked = peeked
            self._ended = sample is _NOTHING
            self._waiting = [sample]
        else:
            seeded(key[0], key[1], 0)
            self._iterator, self._waiting = iter(self.dataset), []
        if begin["state"] is not None:
            self._taken = begin["taken"]
            return
        while self._taken < begin["taken"] and not self._ended:
            progress(self._taken)
            try:
                self._next()
            except StopIteration:
                self._ended = True

    def _tell_epoch(self, key: int) -> None:
        set_epoch = getattr(self.dataset, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(key % 2**32)

    def _next(self) -> Any:
        # Each sample from its own numbers, so that it is the same after a resume; and from the same ones for all who
        # share the dataset, so that they see the same samples in the same order.
        seed, key, worker, workers, (rank, _), _ = self._pass[0]
        stream = worker if self._asked else rank * workers + worker if self._shard == "none" else 0
        seeded(seed, key, stream << 40 | self._taken + 1)
        sample = self._waiting.pop() if self._waiting else next(self._iterator)
        self._taken += 1
        return sample

    def _share(self) -> tuple[int, int]:
        """How many share the samples that are taken here, and the number of this one among them."""
        _, _, worker, workers, (rank, world_size), _ = self._pass[0]
        if self._shard == "none":
            return 1, 0
        if self._shard == "auto" and self._asked:
            return world_size, rank
        return workers * world_size, rank * workers + worker

    def _mine(self) -> bool:
        """Whether the sample that was taken last is this worker's and this rank's."""
        sharers, number = self._share()
        return (self._taken - 1) % sharers == number

    @property
    def _asked(self) -> bool:
        """Whether the dataset, or the function that set its worker up, asked which worker this is."""
        info = worker_info()
        return info is not None and info.asked

    @_asked.setter
    def _asked(self, asked: bool) -> None:
        info = worker_info()
        if info is not None:
            if self._set_up is None:
                self._set_up = info.asked  # by now, only worker_init_fn can have asked
            info.asked = asked or self._set_up


_NOTHING = object()


def _has_state(dataset: Any) -> bool:
    return callable(getattr(dataset, "state_dict", None)) and callable(getattr(dataset, "load_state_dict", None))
