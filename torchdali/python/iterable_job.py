"""The job of an iterable: one pass over it at a time."""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple

from ..batch import Columns
from ..errors import StateMismatchError, leave_frame, let_through
from ..kinds import Kind
from ..listeners import own_epoch
from ..seeding import seeded
from ..workers import Answer
from ..workers.info import worker_info
from .collating import WHOLE, Collating
from .digest import digest_of
from .sample import Description, Structure
from .snapshot import Carried, Standing

_TRIES = 10  # samples, until one can be described
_LAST = 16  # samples whose digest verifies a replay
_MOST_FAILURES = 1000  # errors of samples in a replay: an iterator may raise for ever
DESCRIBED = -1  # the number of a pass that is begun to describe it
_NOTHING = object()


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
    """The request to begin a pass, and to describe its first sample.

    Attributes:
        part: this worker's part of the pass; its `number` is not known yet.
        begin: where the part begins.
        fields: as the user named them; None: names that the sample suggests.
        kinds: kinds of fields, as the user named them.
    """

    part: IterablePass
    begin: Standing
    fields: tuple[str, ...] | None
    kinds: Mapping[str, Kind]


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


class _Raised(NamedTuple):
    """An error of the user's code, in the place of a sample."""

    error: Exception


class IterableJob:
    """Iterates a dataset, one pass at a time, begun where the pass's first request says.

    The dataset is iterated once for each pass, also where its first sample is described before.

    Args:
        dataset: the iterable.
        shard: how workers and ranks share it, see `IterableSource`.
    """

    collating: Collating | None = None  # puts a batch together, where the user's function does

    def __init__(self, dataset: Any, shard: str) -> None:
        self.dataset = dataset
        self._shard = shard
        self._reset()

    def _reset(self) -> None:
        """Forget all passes: the dataset is new in this process."""
        self._home = os.getpid()
        self._met = False
        self._part: IterablePass | None = None
        self._untouched = False  # it was begun to describe its first sample, and nothing was read
        self._open = False  # it was begun, and has not ended
        self._iterator: Iterator[Any] = iter(())
        self._waiting: deque[Any] = deque()  # taken from the iterator, and not given yet
        self._drawn = self._taken = 0  # samples of the epoch taken from the iterator, and given
        self._asked: bool | None = None  # the dataset asked which worker this is; None: it may still
        self._set_up = False  # worker_init_fn did
        self._ended = False
        self._failed: Exception | None = None  # raised after the batch that was given last
        self._begun = Standing()  # where the part began
        self._initial: Any = _NOTHING  # the dataset's state before anything
        self._origin: Any = _NOTHING  # and before this pass
        self._first: Any = _NOTHING  # and after the first sample of this pass, if it began with the epoch
        self._loaded: int | None = None  # the epoch of the state that was loaded last
        self._created: dict[str, int] = {}  # the dataset's integers before anything
        self._before: dict[str, int] = {}  # and before this pass
        self._counting: set[str] = set()  # those that the dataset changes by itself

    def __getstate__(self) -> dict[str, Any]:
        # A pass does not travel.
        return {"dataset": self.dataset, "_shard": self._shard, "collating": self.collating}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    # Requests

    def describe(self, request: IterableDescribe, progress: Callable[[int], None]) -> Description | None:
        """Describe the first sample of a pass; None where there is no sample.

        The pass that is begun here is the one that goes on.
        """
        progress(0)
        sample = _NOTHING
        if not request.begin.ended:
            self._begin(request.part, request.begin, progress)
            sample = self._peek(progress)
            self._untouched = True
        if sample is _NOTHING and not request.begin.at_start:
            # The rest of the epoch is empty: its first sample shows the structure, in a pass that counts for nothing.
            dataset = self.dataset
            with suppress(Exception):
                dataset = copy.deepcopy(dataset)
            aside = IterableJob(dataset, self._shard)
            aside._met, aside._initial = self._met, self._initial
            aside._begin(request.part, Standing(), progress)
            sample = aside._peek(progress)
        if sample is _NOTHING:
            return None
        return Description(WHOLE if self.collating is not None else Structure.of(sample, request.fields, request.kinds))

    def _peek(self, progress: Callable[[int], None]) -> Any:
        """Look at the next sample that can be made; the errors before it come where it is read."""
        for _ in range(_TRIES):
            progress(self._drawn)
            if not self._waiting or isinstance(self._waiting[-1], _Raised):
                self._waiting.append(self._draw())
            if not isinstance(self._waiting[-1], _Raised):
                return self._waiting[-1]
        raise self._waiting[-1].error

    def read(self, request: IterableRead, progress: Callable[[int], None]) -> Answer:
        """Read the next batch."""
        if self._described(request):
            self._part = request.part
        if self._part != request.part:
            self._begin(request.part, request.begin, progress)
        self._untouched = False
        if self._failed is not None:
            failed, self._failed = self._failed, None
            raise failed
        structure = request.description.structure
        rows: list[Any] = []
        last: deque[Any] = deque(maxlen=_LAST)
        while len(rows) < request.batch_size and not self._ended:
            progress(self._taken)
            try:
                sample = self._next()
            except StopIteration:
                self._ended = True  # whatever its next answer would be
            else:
                last.append(sample)
                if self._mine():
                    rows.append(sample if self.collating is not None else structure.values(sample))
        columns = self._columns(structure, rows)
        uneven = self._ended or self._pass_others(progress, last)
        self._ended = uneven
        self._open = not self._ended
        return Answer(columns, IterableNote(self._standing(last), bool(self._asked), uneven))

    def _columns(self, structure: Structure, rows: list[Any]) -> Columns:
        if self.collating is None:
            return structure.columns(rows)
        assert self._part is not None
        part = self._part
        alone = part.rank * part.num_workers + part.worker
        return self.collating.columns(rows, part.seed, part.key, alone, self._taken)

    def _described(self, request: IterableRead) -> bool:
        """Whether the pass was begun to describe its first sample."""
        begun, begin = self._begun, request.begin
        return (
            self._untouched
            and os.getpid() == self._home
            and self._part == request.part._replace(number=DESCRIBED)
            and begun.taken == begin.taken
            and (begun.loaded == begin.loaded or begin.at_start)
            and _same(begun.state, begin.state)
        )

    def _standing(self, last: deque[Any]) -> Standing:
        """Tell where this worker stands."""
        state, iterator = self._state(), None
        if self._iterator is not self.dataset and has_state(self._iterator):
            # A copy, as of the dataset's: in this process it may be its own, which goes on.
            iterator = copy.deepcopy(self._iterator.state_dict())  # type: ignore[attr-defined]
        stateful = state is not None or iterator is not None
        now = {} if stateful else _integers(vars(self.dataset)) if hasattr(self.dataset, "__dict__") else {}
        self._counting |= {name for name in now if now[name] != self._before.get(name)}
        after = {name: now[name] for name in self._counting if name in now} or None
        before = {name: self._before[name] for name in self._counting if name in self._before} or None
        start = state if self._ended else None if self._origin is _NOTHING else self._origin
        told = callable(getattr(self.dataset, "set_epoch", None))  # it needs no counter of its own
        carried = Carried(None if told or _same(start, self._initial) else start, after)
        done = self._begun.done if self._taken < max(self._begun.done, default=0) else ()
        return Standing(
            taken=self._taken,
            state=state,
            ended=self._ended,
            asked=self._asked,
            iterator=iterator,
            digest="" if stateful or self._ended else f"{len(last)} {digest_of(last)}",
            counts=after if self._ended else before,
            done=done,
            carried=carried,
        )

    def _pass_others(self, progress: Callable[[int], None], last: deque[Any]) -> bool:
        """Go on to where each rank and worker has had as many samples, so that all ranks have the same state.

        Returns:
            Whether it ended there.
        """
        sharers, _ = self._share()
        try:
            while self._taken % sharers:
                progress(self._taken)
                last.append(self._next())
        except StopIteration:
            return True
        except Exception as error:  # it belongs to the next batch: this one is whole
            let_through(error)
            self._failed = error
        return False

    # The beginning of a pass

    def _begin(self, part: IterablePass, begin: Standing, progress: Callable[[int], None]) -> None:
        if os.getpid() != self._home:
            self._reset()  # a forked process
        fresh = not self._met
        if fresh:
            self._meet()
        self._part, self._untouched = part, False
        self._ended, self._failed, self._begun = False, None, begin
        try:
            self._restore_counts(begin, fresh)
            self._before = _all_integers(self.dataset)
            epoch = part.key % 2**32
            # In this order: a state may count in its own epoch alone, as those of Hugging Face do.
            self._tell_epoch(epoch)
            if begin.taken and (begin.state is not None or begin.iterator is not None):
                self._resume(begin, epoch)
            else:
                self._start(begin, fresh, epoch)
                self._replay(begin, progress)
        except BaseException:
            self._part = None
            raise

    def _meet(self) -> None:
        """Remember the dataset as it is before anything."""
        self._met = True
        info = worker_info()
        self._set_up = info is not None and info.asked  # by now, only worker_init_fn can have asked
        own_epoch(self.dataset)
        self._created = _all_integers(self.dataset)
        self._initial = self._state_or_nothing()

    def _resume(self, begin: Standing, epoch: int) -> None:
        """Go on in the middle of an epoch, by torchdata's protocol: dataset, `iter`, iterator."""
        self._open, self._loaded = True, epoch
        self._origin, self._first = self._initial, _NOTHING
        self._asked = True if self._set_up else begin.asked
        self._waiting.clear()
        self._drawn = self._taken = begin.taken
        failed: Exception | None = None
        if begin.state is not None:
            try:
                self.dataset.load_state_dict(copy.deepcopy(begin.state))
            except Exception as error:  # some can be told only after `iter`
                let_through(error)
                failed = error
        self._seed(begin.taken)
        self._iterator = iter(self.dataset)
        if begin.iterator is not None:
            if not has_state(self._iterator):
                name = type(self._iterator).__name__
                raise StateMismatchError(f"iterable: the state holds the iterator's own, and {name} takes none")
            _load(self._iterator, begin.iterator)
        own = self._iterator is self.dataset and not _same(self._state_or_nothing(), begin.state)
        if begin.state is not None and (failed is not None or own):
            # It begins anew with `iter`.
            _load(self.dataset, begin.state, failed)

    def _start(self, begin: Standing, fresh: bool, epoch: int) -> None:
        """Begin at the start of the epoch, whatever became of the pass before.

        A dataset without a state is iterated once.  One that has a state and gives nothing is exhausted: it is told to
        begin where it began at first.
        """
        broken, self._open = self._open, True
        first, self._first = self._first, _NOTHING
        if not has_state(self.dataset):
            self._iterate()
            return
        tellable = callable(getattr(self.dataset, "set_epoch", None))
        tries = [_NOTHING, self._initial]
        # A state that is there only after `iter` can't be told before it; a dataset that is told the epoch needs none.
        told = self._initial is _NOTHING or tellable
        if begin.state is not None and not told and (begin.loaded or fresh):
            tries = [begin.state, *tries]
            self._origin = copy.deepcopy(begin.state)
        elif begin.loaded and not fresh:
            tries = [self._initial, _NOTHING]
            self._origin = self._initial
        elif broken:
            # It may begin at the start by itself; but not where that gives another sample than before.
            self._iterate()
            if first is not _NOTHING and _same(first, self._state_or_nothing()):
                self._first = first
                return
            tries = [self._origin, *tries]
        elif tellable and self._loaded == epoch:
            tries = [self._initial, _NOTHING]  # the state that was loaded in this epoch may still count
        else:
            self._origin = self._state_or_nothing()
        for number, state in enumerate(tries):
            if number and state is _NOTHING and tries[number - 1] is _NOTHING:
                continue
            if number and fresh and tries[0] is _NOTHING:
                return  # it is empty
            self._iterate(state)
            if state is not _NOTHING:
                self._loaded = epoch if begin.state is state else self._loaded
            if self._waiting[0] is not _NOTHING:
                self._first = self._state_or_nothing()
                return

    def _iterate(self, state: Any = _NOTHING) -> None:
        """Iterate from the start, perhaps after a state was loaded, and take the first sample."""
        self._waiting.clear()
        self._drawn = self._taken = 0
        self._asked = True if self._set_up else None
        if state is not _NOTHING:
            # Before its first iteration it may say None, and not take it.
            with suppress(StateMismatchError) if state is None else nullcontext():
                _load(self.dataset, state)
        # The same numbers for all who share it, so that they see the same order.
        self._seed(0)
        self._iterator = iter(self.dataset)
        self._waiting.append(self._draw())

    def _replay(self, begin: Standing, progress: Callable[[int], None]) -> None:
        """Iterate the samples that were taken before again, and make sure that they are the same.

        Raises:
            StateMismatchError: they are not.
        """
        count, _, digest = begin.digest.partition(" ")
        last: deque[Any] = deque(maxlen=int(count or 0))
        failed: Exception | None = None
        failures = 0
        while self._taken < begin.taken:
            progress(self._taken)
            try:
                last.append(self._next())
            except StopIteration:
                raise StateMismatchError(self._other_samples(f"it ended after {self._taken}", begin)) from failed
            except Exception as error:  # it came before the state, too
                failed, failures = error, failures + 1
                if failures > _MOST_FAILURES:
                    raise
        if digest and digest_of(last) != digest:
            raise StateMismatchError(self._other_samples("those before the state are others", begin))

    def _other_samples(self, what: str, begin: Standing) -> str:
        return (
            f"iterable: expected {type(self.dataset).__name__} to give the same {begin.taken} samples again, since it "
            f"has no state_dict, and {what}: take its randomness from Python's, numpy's or torch's global generator, "
            "or from a generator that __iter__ seeds; or give it state_dict and load_state_dict; or accept that "
            "samples of this epoch come twice or never, by load_state_dict(state, strict=False)"
        )

    def _restore_counts(self, begin: Standing, fresh: bool) -> None:
        """Set the integers that the dataset counts by itself, where this process has not counted them."""
        if has_state(self.dataset) or not (fresh or begin.loaded):
            return
        known = begin.counts or {}
        for name in {*known, *self._counting}:
            value = known.get(name, self._created.get(name))
            if value is not None and hasattr(self.dataset, name):
                setattr(self.dataset, name, value)

    def _tell_epoch(self, epoch: int) -> None:
        set_epoch = getattr(self.dataset, "set_epoch", None)
        if callable(set_epoch):
            set_epoch(epoch)

    def _state(self) -> Any:
        """The dataset's state; None: it has none."""
        return copy.deepcopy(self.dataset.state_dict()) if has_state(self.dataset) else None

    def _state_or_nothing(self) -> Any:
        """The same, where it may not be there before `iter`."""
        try:
            return self._state() if has_state(self.dataset) else _NOTHING
        except Exception:
            return _NOTHING

    # Samples

    def _next(self) -> Any:
        """Take the next sample.

        Raises:
            StopIteration: there is none.
            Exception: of the user's code.
        """
        sample = self._waiting.popleft() if self._waiting else self._draw()
        if isinstance(sample, _Raised):
            raise sample.error
        if sample is _NOTHING:
            raise StopIteration
        self._taken += 1
        return sample

    def _draw(self) -> Any:
        """Draw a sample from the iterator, an error in its place, or nothing at the end."""
        self._seed(self._drawn + 1)
        try:
            sample = next(self._iterator, _NOTHING)
        except Exception as error:
            return _Raised(leave_frame(error))
        finally:
            self._asked = bool(self._asked)  # decided with the first sample
            self._watch(None)
        self._drawn += sample is not _NOTHING
        return sample

    def _seed(self, number: int) -> None:
        """Seed the generators for a sample, counted from 1, or for `iter` with 0.

        Each sample has its own numbers, so that it is the same after a resume.  All who share the samples that are
        taken here have the same ones, and see the same samples in the same order.  Once the dataset asks which worker
        this is, each worker has its own.
        """
        part = self._part
        assert part is not None
        stream = 0
        if self._shard == "none":
            stream = part.rank * part.num_workers + part.worker if number else 0
        elif self._asked:
            stream = part.worker
        seeded(part.seed, part.key, stream << 40 | number)
        if self._asked is None:
            self._watch(partial(self._learn, number))

    def _learn(self, number: int) -> None:
        """Note that the dataset asked which worker this is."""
        self._asked = True
        self._watch(None)
        self._seed(number)

    @staticmethod
    def _watch(told: Callable[[], None] | None) -> None:
        info = worker_info()
        if info is not None:
            info.told = told

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
        return (self._taken - 1) % sharers == number and not self._begun.passed(self._taken - 1)


def has_state(dataset: Any) -> bool:
    """Whether a dataset, or an iterator, has a state of its own that it takes back."""
    return callable(getattr(dataset, "state_dict", None)) and callable(getattr(dataset, "load_state_dict", None))


def _load(owner: Any, state: Any, before: Exception | None = None) -> None:
    """Give a dataset, or its iterator, its own state back.

    Args:
        owner: takes it.
        state: a copy of it is given.
        before: why it was refused before; None: it was not.

    Raises:
        StateMismatchError: it is refused.
    """
    try:
        owner.load_state_dict(copy.deepcopy(state))
    except Exception as error:
        let_through(error)
        cause = before or error
        raise StateMismatchError(
            f"iterable: {type(owner).__name__}.load_state_dict refuses the state: {type(cause).__name__}: {cause}"
        ) from cause


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except (ValueError, RuntimeError):  # arrays in them
        return False


def _integers(attributes: Mapping[str, Any]) -> dict[str, int]:
    return {name: value for name, value in attributes.items() if type(value) is int and not name.startswith("__")}


def _all_integers(dataset: Any) -> dict[str, int]:
    """The integer attributes of an object, those included that its class gives it."""
    levels = [*(vars(cls) for cls in reversed(type(dataset).__mro__)), getattr(dataset, "__dict__", {})]
    return {name: value for level in levels for name, value in _integers(level).items()}
