"""The job of an iterable: one pass over it at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ..batch import Columns
from ..errors import let_through
from ..seeding import seeded
from ..workers import Answer
from ..workers.info import worker_info
from .collating import WHOLE, Collating
from .sample import Description, Structure
from .snapshot import Standing


class IterablePass(NamedTuple):
    """One worker's part of a pass.

    Attributes:
        seed: the loader's.
        key: the pass, `state.Position.key`.
        worker, num_workers: the worker's number, and the number of workers.
        rank, world_size: this process among the data-parallel ones.
        number: tells passes with the same key apart.
    """

    seed: int
    key: int
    worker: int
    num_workers: int
    rank: int
    world_size: int
    number: int


class IterableDescribe(NamedTuple):
    """The request to describe the first sample of a pass.

    Attributes:
        fields: as the user named them; None: names that the sample suggests.
        seed: the loader's.
        key: the pass, `state.Position.key`.
    """

    fields: tuple[str, ...] | None
    seed: int
    key: int


class IterableRead(NamedTuple):
    """The request to read the next batch of a pass.

    Attributes:
        part: this worker's part of the pass.
        batch_size: the number of samples.
        begin: where the part begins, if it has not begun.
        description: the description that the samples must have.
    """

    part: IterablePass
    batch_size: int
    begin: Standing
    description: Description


class IterableNote(NamedTuple):
    """The note of an answer.

    Attributes:
        standing: where this worker stands after the batch.
        asked: the dataset asked which worker this is.
        uneven: it ended, and others who share it may have had fewer samples.
    """

    standing: Standing
    asked: bool
    uneven: bool


class _Peeked(NamedTuple):
    """A pass that was begun to see its first sample."""

    seed: int
    key: int
    sample: Any
    iterator: Iterator[Any]
    asked: bool


class IterableJob:
    """Iterates a dataset, one pass at a time, begun where the pass's first request says.

    Args:
        dataset: the iterable.
        shard: how workers and ranks share it, see `IterableSource`.
    """

    collating: Collating | None = None  # puts a batch together, where the user's function does

    def __init__(self, dataset: Any, shard: str) -> None:
        self.dataset = dataset
        self._shard = shard
        self._part: IterablePass | None = None
        self._iterator: Iterator[Any] = iter(())
        self._waiting: list[Any] = []  # samples that were taken from the iterator and not yet given
        self._taken = 0
        self._ended = False
        self._failed: Exception | None = None  # raised after the batch that was given last
        self._peeked: _Peeked | None = None
        self._set_up: bool | None = None  # worker_init_fn asked which worker this is
        self._initial: Any = None  # the dataset's state before anything
        self._loaded: int | None = None  # the epoch of the state that was loaded last

    def __getstate__(self) -> dict[str, Any]:
        # A pass does not travel.
        return {**self.__dict__, "_part": None, "_peeked": None, "_iterator": None, "_waiting": [], "_failed": None}

    def describe(self, request: IterableDescribe, progress: Callable[[int], None]) -> Description | None:
        """Describe the first sample of a pass; None where there is no sample.

        A dataset without a state is not disturbed: the pass that is begun here is the one that goes on.
        """
        progress(0)
        fields, seed, key = request
        self._remember()
        self._peeked = None
        sample = self._peek(seed, key)
        if sample is _NOTHING:
            return None
        structure = WHOLE if self.collating is not None else Structure.of(sample, fields)
        return Description(structure, self._restarts(seed, key))

    def read(self, request: IterableRead, progress: Callable[[int], None]) -> Answer:
        """Read the next batch."""
        if self._part != request.part:
            self._begin(request, progress)
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        structure = request.description.structure
        rows: list[Any] = []
        while len(rows) < request.batch_size and not self._ended:
            progress(self._taken)
            try:
                sample = self._next()
            except StopIteration:
                self._ended = True  # whatever its next answer would be
            else:
                if self._mine():
                    rows.append(sample if self.collating is not None else structure.values(sample))
        columns = self._columns(structure, rows)
        uneven = self._ended or self._pass_others(progress)
        self._ended = uneven
        # A copy: in this process it may be the dataset's own, which goes on.
        state = copy.deepcopy(self.dataset.state_dict()) if _has_state(self.dataset) else None
        note = IterableNote(Standing(self._taken, state, self._ended), self._asked, uneven)
        return Answer(columns, note)

    def _columns(self, structure: Structure, rows: list[Any]) -> Columns:
        if self.collating is None:
            return structure.columns(rows)
        assert self._part is not None
        part = self._part
        alone = part.rank * part.num_workers + part.worker
        return self.collating.columns(rows, part.seed, part.key, alone, self._taken)

    def _pass_others(self, progress: Callable[[int], None]) -> bool:
        """Go on to where each rank and worker has had as many samples, so that all ranks have the same state.

        Returns:
            Whether it ended there.
        """
        sharers, _ = self._share()
        try:
            while self._taken % sharers:
                progress(self._taken)
                self._next()
        except StopIteration:
            return True
        except Exception as error:  # it belongs to the next batch: this one is whole
            let_through(error)
            self._failed = error
        return False

    def _peek(self, seed: int, key: int) -> Any:
        """Take the first sample of a pass."""
        self._asked = False
        self._tell_epoch(key)
        seeded(seed, key, 0)
        iterator = iter(self.dataset)
        seeded(seed, key, 1)
        sample = next(iterator, _NOTHING)
        if not _has_state(self.dataset):
            self._peeked = _Peeked(seed, key, sample, iterator, self._asked)
        return sample

    def _restarts(self, seed: int, key: int) -> bool:
        """After a peek: whether `iter` begins at the start by itself, and does not go on from the state."""
        if not _has_state(self.dataset):
            return True
        before = copy.deepcopy(self.dataset.state_dict())
        try:
            # Not where that was the only sample.
            return self._peek(seed, key) is not _NOTHING and bool(before == self.dataset.state_dict())
        except ValueError:  # arrays in the states
            return False

    def _remember(self) -> None:
        if self._initial is None and _has_state(self.dataset):
            self._initial = copy.deepcopy(self.dataset.state_dict())

    def _begin(self, request: IterableRead, progress: Callable[[int], None]) -> None:
        part, begin = request.part, request.begin
        self._part, self._taken = part, 0
        self._asked, self._ended, self._failed = False, False, None
        epoch = part.key % 2**32
        peeked, self._peeked = self._peeked, None
        if peeked is not None and (peeked.seed, peeked.key) != (part.seed, part.key):
            peeked = None
        if begin.state is not None:
            # In this order: a state may count in its own epoch alone, as those of Hugging Face do.
            self._tell_epoch(part.key)
            self.dataset.load_state_dict(copy.deepcopy(begin.state))
            self._loaded, peeked = epoch, None
        else:
            # It begins at the start, whatever became of the pass before.  Where `iter` does so by itself the first
            # state is best left alone: the dataset may have been iterated before.
            self._remember()
            tellable = callable(getattr(self.dataset, "set_epoch", None))
            sticks = self._loaded is not None and (not tellable or self._loaded == epoch)
            if sticks or not request.description.restarts:
                self.dataset.load_state_dict(copy.deepcopy(self._initial))
            if peeked is None:
                self._tell_epoch(part.key)
        # The same numbers for all who share it, so that they see the same order.
        if peeked is not None:
            self._iterator, self._waiting = peeked.iterator, [peeked.sample]
            self._asked, self._ended = peeked.asked, peeked.sample is _NOTHING
        else:
            seeded(part.seed, part.key, 0)
            self._iterator, self._waiting = iter(self.dataset), []
        if begin.state is not None:
            self._taken = begin.taken
            return
        while self._taken < begin.taken and not self._ended:
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
        part = self._part
        assert part is not None
        alone = part.rank * part.num_workers + part.worker
        stream = part.worker if self._asked else alone if self._shard == "none" else 0
        seeded(part.seed, part.key, stream << 40 | self._taken + 1)
        sample = self._waiting.pop() if self._waiting else next(self._iterator)
        self._taken += 1
        return sample

    def _share(self) -> tuple[int, int]:
        """Count those who share the samples that are taken here, and give the number of this one among them."""
        part = self._part
        assert part is not None
        if self._shard == "none":
            return 1, 0
        if self._shard == "auto" and self._asked:
            return part.world_size, part.rank
        return part.num_workers * part.world_size, part.rank * part.num_workers + part.worker

    def _mine(self) -> bool:
        """Whether the sample that was taken last belongs to this worker and this rank."""
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
