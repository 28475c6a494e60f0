"""What runs in a worker for an iterable: one pass over it at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch.utils.data._utils import worker as torch_worker

from ..batch import Columns
from ..seeding import seeded
from .structure import Structure

ENDED, STATE, TAKEN, SHARDS = "__ended__", "__state__", "__taken__", "__shards__"
"""Columns of one value beside the samples: whether it ended, its state, how many were taken, and whether it asked which
worker it is."""


class Iterate:
    """What runs in a worker: one pass at a time, begun where the first task says."""

    def __init__(self, dataset: Any, shard: str) -> None:
        self.dataset = dataset
        self._shard = shard
        self._pass: Any = None
        self._asked = False
        self._failed: Exception | None = None  # behind the batch that was given last
        self._initial: Any = None  # the dataset's state before anything
        self._loaded: int | None = None  # the epoch of the state that was loaded last

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pass": None, "_iterator": None, "_failed": None}  # a pass does not travel

    def __call__(self, payload: Any, progress: Callable[[int], None]) -> Columns:
        if payload[0] == "describe":
            progress(0)
            self._remember()
            structure = Structure.of(self._peek(), payload[1])
            structure.restarts = self._restarts()
            return {"structure": [structure]}
        key, n, begin, structure = payload
        if self._pass is None or self._pass[0] != key:
            self._begin(key, begin, structure.restarts, progress)
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        rows: list[list[Any]] = []
        ended = False
        while len(rows) < n and not ended:
            progress(self._taken)
            try:
                sample = self._next()
            except StopIteration:
                ended = True
            else:
                if self._mine():
                    rows.append(structure.values(sample))
        ended = ended or self._pass_others(progress)
        state = self.dataset.state_dict() if _has_state(self.dataset) else None
        columns: Columns = structure.columns(rows)
        return {**columns, ENDED: [ended], STATE: [state], TAKEN: [self._taken], SHARDS: [self._asked]}

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

    def _peek(self) -> Any:
        """The first sample."""
        seeded(0, 0, 0)
        try:
            return next(iter(self.dataset))
        except StopIteration:
            raise ValueError("the iterable is empty") from None

    def _restarts(self) -> bool:
        """Behind a peek: whether `iter` begins at the start by itself, and does not go on from the state."""
        if not _has_state(self.dataset):
            return True
        before = copy.deepcopy(self.dataset.state_dict())
        try:
            self._peek()
            return bool(before == self.dataset.state_dict())
        except ValueError:  # that was the only sample, or arrays in the states
            return False

    def _remember(self) -> None:
        if self._initial is None and _has_state(self.dataset):
            self._initial = copy.deepcopy(self.dataset.state_dict())

    def _begin(self, key: Any, begin: dict[str, Any], restarts: bool, progress: Callable[[int], None]) -> None:
        self._pass, self._asked, self._failed = (key,), False, None
        self._taken: int = 0
        self._watch_worker_info()
        epoch = key[1] % 2**32
        set_epoch = getattr(self.dataset, "set_epoch", None)
        if begin["state"] is not None:
            # In this order: a state may count in its own epoch alone, as those of Hugging Face do.
            if callable(set_epoch):
                set_epoch(epoch)
            self.dataset.load_state_dict(copy.deepcopy(begin["state"]))
            self._loaded = epoch
        else:
            # It begins at the start, whatever became of the pass before.  Where `iter` does so by itself the first
            # state is best left alone: somebody may have iterated before us.
            self._remember()
            sticks = self._loaded is not None and (set_epoch is None or self._loaded == epoch)
            if sticks or not restarts:
                self.dataset.load_state_dict(copy.deepcopy(self._initial))
            if callable(set_epoch):
                set_epoch(epoch)
        seeded(key[0], key[1], key[2] << 40)
        self._iterator = iter(self.dataset)
        if begin["state"] is not None:
            self._taken = begin["taken"]
            return
        while self._taken < begin["taken"]:
            progress(self._taken)
            try:
                self._next()
            except StopIteration:
                return

    def _next(self) -> Any:
        # Each sample from its own numbers, so that it is the same after a resume.
        seed, key, worker, *_ = self._pass[0]
        seeded(seed, key, worker << 40 | self._taken + 1)
        sample = next(self._iterator)
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

    def _watch_worker_info(self) -> None:
        info = torch_worker._worker_info
        if info is not None and not isinstance(info, _Watched):
            info = torch_worker._worker_info = _Watched(**{name: getattr(info, name) for name in _INFO})
        if info is not None:
            info.__dict__["asked"] = self._note

    def _note(self) -> None:
        self._asked = True


_INFO = ("id", "num_workers", "seed", "dataset")


class _Watched(torch_worker.WorkerInfo):
    """torch's WorkerInfo that tells when somebody asks which worker this is."""

    def __getattribute__(self, name: str) -> Any:
        if name == "id":
            note = object.__getattribute__(self, "__dict__").get("asked")
            if note is not None:
                note()
        return object.__getattribute__(self, name)


def _has_state(dataset: Any) -> bool:
    return callable(getattr(dataset, "state_dict", None)) and callable(getattr(dataset, "load_state_dict", None))
