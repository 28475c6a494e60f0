"""The job of an iterable: one pass over it at a time."""

from __future__ import annotations

import copy
import os
from collections import deque
from collections.abc import Callable, Generator
from contextlib import nullcontext, suppress
from typing import Any

from ..batch import Columns
from ..errors import StateMismatchError, first_line, let_through
from ..listeners import own_epoch
from ..workers import Answer
from ..workers.info import worker_info
from .collating import WHOLE, Collating
from .digest import digest_of
from .iterable_requests import DESCRIBED, BadItem, IterableDescribe, IterableNote, IterablePass, IterableRead
from .own_state import all_integers, has_state, holds_buffer, integers, load, same, takes_state
from .sample import Description, Structure, common_lists
from .snapshot import Carried, Standing
from .taking import NOTHING, Taking
from .whole_batches import rows_of

_LAST = 16  # samples whose digest verifies a replay
_MOST_FAILURES = 1000  # errors in a row, or in a replay: an iterator may raise for ever


class IterableJob:
    """Iterates a dataset, one pass at a time, begun where the pass's first request says.

    The dataset is iterated once for each pass, also where its first sample is described before.

    Args:
        dataset: the iterable.
        shard: how workers and ranks share it, see `IterableSource`.
        batch: it gives whole batches.
    """

    collating: Collating | None = None  # puts a batch together, where the user's function does
    transformed = True  # samples go through transforms
    whole = False  # see `Structure.of`

    def __init__(self, dataset: Any, shard: str, batch: bool = False) -> None:
        self.dataset = dataset
        self._shard, self._batch = shard, batch
        self._reset()

    def _reset(self) -> None:
        """Forget all passes: the dataset is new in this process."""
        self._home = os.getpid()
        self._met = False
        self._taking = Taking(self._shard, None if takes_state(self.dataset) else self.dataset)
        self._untouched = False  # it was begun to describe its first sample, and nothing was read
        self._open = False  # it was begun, and has not ended
        self._ended = False
        self._failed: Exception | None = None  # raised after the batch that was given last
        self._rows: list[Any] = []  # of the next batch, which an error came before
        self._last: deque[Any] = deque(maxlen=_LAST)  # samples that were taken since the batch that was given last
        self._bad: list[BadItem] = []  # that were left out since then
        self._begun = Standing()  # where the part began
        self._initial: Any = NOTHING  # the dataset's state before anything
        self._origin: Any = NOTHING  # and before this pass
        self._first: Any = NOTHING  # and after the first sample of this pass, if it began with the epoch
        self._loaded: int | None = None  # the epoch of the state that was loaded last
        self._created: dict[str, int] = {}  # the dataset's integers before anything
        self._before: dict[str, int] = {}  # and before this pass
        self._counting: set[str] = set()  # those that the dataset changes by itself

    def __getstate__(self) -> dict[str, Any]:
        # A pass does not travel.
        kept = ("dataset", "_shard", "_batch", "collating", "transformed", "whole")
        return {name: getattr(self, name) for name in kept}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._reset()

    @property
    def _part(self) -> IterablePass | None:
        return self._taking.part

    @_part.setter
    def _part(self, part: IterablePass | None) -> None:
        self._taking.part = part

    # Requests

    def describe(self, request: IterableDescribe, progress: Callable[[int], None]) -> Description | None:
        """Describe the first sample of a pass; None where there is no sample.

        The pass that is begun here is the one that goes on.
        """
        progress(0)
        sample, taking = NOTHING, self._taking
        if not request.begin.ended:
            self._begin(request.part, request.begin, progress)
            taking = self._taking
            sample = taking.peek(progress)
            self._untouched = True
        if sample is NOTHING and not request.begin.at_start:
            # The rest of the epoch is empty: its first sample shows the structure, in a pass that counts for nothing.
            dataset = self.dataset
            with suppress(Exception):
                dataset = copy.deepcopy(dataset)
            aside = IterableJob(dataset, self._shard, self._batch)
            aside._met, aside._initial = self._met, self._initial
            aside._begin(request.part, Standing(), progress)
            taking = aside._taking
            sample = taking.peek(progress)
        if sample is NOTHING:
            return None
        if self.collating is not None:
            return Description(WHOLE)
        # Lists may be containers: the first batch shows it, and is read next, so that the dataset is not ahead then.
        if self._batch:
            sample, *others = rows_of(sample)
        lists = common_lists(sample, others if self._batch else taking.peek_more(request.batch_size - 1, progress))
        return Description(Structure.of(sample, request.fields, request.kinds, lists, self.transformed, self.whole))

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
        structure, rows, last = request.description.structure, self._rows, self._last
        while len(rows) < request.batch_size and not self._ended:
            progress(self._taking.taken)
            try:
                sample = self._next(request.skip)
            except StopIteration:
                self._ended = True  # whatever its next answer would be
            else:
                last.append(sample)
                if self._taking.mine() and not self._begun.passed(self._taking.taken - 1):
                    rows += self._values(structure, sample)
        columns = self._columns(structure, rows)
        uneven = self._ended or self._pass_others(request.skip, progress, last)
        self._ended = uneven
        self._open = not self._ended
        note = IterableNote(self._standing(last), bool(self._taking.asked), uneven, self._bad)
        self._clear()
        return Answer(columns, note)

    def _clear(self) -> None:
        """Forget what belongs to the batch that was given last."""
        self._rows, self._last, self._bad = [], deque(maxlen=_LAST), []

    def _next(self, skip: bool) -> Any:
        """Take the next sample, and pass over items that fail where they are another's, or are left out.

        Raises:
            StopIteration: there is none.
            Exception: of the user's code.
        """
        for left in reversed(range(_MOST_FAILURES)):
            try:
                return self._taking.next()
            except StopIteration:
                raise
            except Exception as error:
                let_through(error)
                ended = isinstance(self._taking.iterator, Generator)
                if ended and skip:
                    error.add_note(
                        "torchdali: a generator ends with its first error, so on_bad_sample='skip' can't go on after "
                        "it: catch the error in the generator, or write a class with __iter__ and __next__"
                    )
                mine = self._taking.next_is_mine()
                if ended or not left or (mine and not skip):
                    raise
                if mine:
                    number = self._taking.taken + self._taking.failed - 1
                    self._bad.append(BadItem(number, first_line(error)))
        raise AssertionError("the last try returns or raises")

    def _values(self, structure: Structure, sample: Any) -> list[Any]:
        """The values of a sample; of a whole batch, those of each of its samples."""
        if self.collating is not None:
            return [sample]
        return [structure.values(one) for one in (rows_of(sample) if self._batch else [sample])]

    def _columns(self, structure: Structure, rows: list[Any]) -> Columns:
        if self.collating is None:
            return structure.columns(rows)
        assert self._part is not None
        part = self._part
        alone = part.rank * part.num_workers + part.worker
        return self.collating.columns(rows, part.seed, part.key, alone, self._taking.taken)

    def _described(self, request: IterableRead) -> bool:
        """Whether the pass was begun to describe its first sample."""
        begun, begin = self._begun, request.begin
        return (
            self._untouched
            and os.getpid() == self._home
            and self._part == request.part._replace(number=DESCRIBED)
            and begun.taken == begin.taken
            and (begun.loaded == begin.loaded or begin.at_start)
            and same(begun.state, begin.state)
        )

    def _standing(self, last: deque[Any]) -> Standing:
        """Tell where this worker stands."""
        state, iterator = self._state(), None
        if self._taking.iterator is not self.dataset and has_state(self._taking.iterator):
            # A copy, as of the dataset's: in this process it may be its own, which goes on.
            iterator = copy.deepcopy(self._taking.iterator.state_dict())  # type: ignore[attr-defined]
        stateful = state is not None or iterator is not None
        now = {} if stateful else integers(vars(self.dataset)) if hasattr(self.dataset, "__dict__") else {}
        self._counting |= {name for name in now if now[name] != self._before.get(name)}
        after = {name: now[name] for name in self._counting if name in now} or None
        before = {name: self._before[name] for name in self._counting if name in self._before} or None
        start = state if self._ended else None if self._origin is NOTHING else self._origin
        told = callable(getattr(self.dataset, "set_epoch", None))  # it needs no counter of its own
        carried = Carried(None if told or same(start, self._initial) else start, after)
        done = self._begun.done if self._taking.taken < max(self._begun.done, default=0) else ()
        return Standing(
            taken=self._taking.taken,
            state=state,
            ended=self._ended,
            asked=self._taking.asked,
            iterator=iterator,
            digest="" if stateful or self._ended else f"{len(last)} {digest_of(last)}",
            counts=after if self._ended else before,
            done=done,
            carried=carried,
        )

    def _pass_others(self, skip: bool, progress: Callable[[int], None], last: deque[Any]) -> bool:
        """Go on to where each rank and worker has had as many samples, so that all ranks have the same state.

        Returns:
            Whether it ended there.
        """
        sharers, _ = self._taking.share()
        try:
            while self._taking.taken % sharers:
                progress(self._taking.taken)
                last.append(self._next(skip))
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
        self._clear()
        try:
            self._restore_counts(begin, fresh)
            self._before = all_integers(self.dataset)
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
        self._taking.set_up = info is not None and info.asked  # by now, only worker_init_fn can have asked
        own_epoch(self.dataset)
        self._created = all_integers(self.dataset)
        self._initial = self._state_or_nothing()

    def _resume(self, begin: Standing, epoch: int) -> None:
        """Go on in the middle of an epoch, by torchdata's protocol: dataset, `iter`, iterator."""
        self._open, self._loaded = True, epoch
        self._origin, self._first = self._initial, NOTHING
        self._taking.restart(begin.taken, begin.asked)
        failed: Exception | None = None
        if begin.state is not None:
            try:
                self.dataset.load_state_dict(copy.deepcopy(begin.state))
            except Exception as error:  # some can be told only after `iter`
                let_through(error)
                failed = error
        self._taking.iterate(self.dataset, begin.taken)
        if begin.iterator is not None:
            if not has_state(self._taking.iterator):
                name = type(self._taking.iterator).__name__
                raise StateMismatchError(f"iterable: the state holds the iterator's own, and {name} takes none")
            load(self._taking.iterator, begin.iterator)
        if begin.state is None:
            return
        other = not same(self._state_or_nothing(), begin.state)
        if failed is not None or (other and self._taking.iterator is self.dataset):
            # It begins anew with `iter`.
            load(self.dataset, begin.state, failed)
        elif other and begin.iterator is None:
            # It kept an iterator from an earlier question for its state, as torchdata's `nodes.Loader` does, and that
            # one has taken the place of what was loaded.
            load(self.dataset, begin.state)
            self._taking.iterate(self.dataset, begin.taken)

    def _start(self, begin: Standing, fresh: bool, epoch: int) -> None:
        """Begin at the start of the epoch, whatever became of the pass before.

        A dataset without a state is iterated once.  One that has a state and gives nothing is exhausted: it is told to
        begin where it began at first.
        """
        broken, self._open = self._open, True
        first, self._first = self._first, NOTHING
        if not has_state(self.dataset):
            self._iterate()
            return
        tellable = callable(getattr(self.dataset, "set_epoch", None))
        tries = [NOTHING, self._initial]
        # A state that is there only after `iter` can't be told before it; a dataset that is told the epoch needs none.
        told = self._initial is NOTHING or tellable
        if begin.state is not None and not told and (begin.loaded or fresh):
            tries = [begin.state, *tries]
            self._origin = copy.deepcopy(begin.state)
        elif begin.loaded and not fresh:
            tries = [self._initial, NOTHING]
            self._origin = self._initial
        elif broken:
            # It may begin at the start by itself; but not where that gives another sample than before.
            self._iterate()
            if first is not NOTHING and same(first, self._state_or_nothing()):
                self._first = first
                return
            tries = [self._origin, *tries]
        elif tellable and self._loaded == epoch:
            tries = [self._initial, NOTHING]  # the state that was loaded in this epoch may still count
        else:
            self._origin = self._state_or_nothing()
        for number, state in enumerate(tries):
            if number and state is NOTHING and tries[number - 1] is NOTHING:
                continue
            if number and fresh and tries[0] is NOTHING:
                return  # it is empty
            self._iterate(state)
            if state is not NOTHING:
                self._loaded = epoch if begin.state is state else self._loaded
            if self._taking.waiting[0] is not NOTHING:
                self._first = self._state_or_nothing()
                return

    def _iterate(self, state: Any = NOTHING) -> None:
        """Iterate from the start, perhaps after a state was loaded, and take the first sample."""
        self._taking.restart(0, None)
        if state is not NOTHING:
            # Before its first iteration it may say None, and not take it.
            with suppress(StateMismatchError) if state is None else nullcontext():
                load(self.dataset, state)
        # The same numbers for all who share it, so that they see the same order.
        self._taking.iterate(self.dataset, 0)
        self._taking.waiting.append(self._taking.draw())

    def _replay(self, begin: Standing, progress: Callable[[int], None]) -> None:
        """Iterate the samples that were taken before again, and make sure that they are the same.

        Raises:
            StateMismatchError: they are not.
        """
        count, _, digest = begin.digest.partition(" ")
        last: deque[Any] = deque(maxlen=int(count or 0))
        failed: Exception | None = None
        failures = 0
        while self._taking.taken < begin.taken:
            progress(self._taking.taken)
            try:
                last.append(self._taking.next())
            except StopIteration:
                raise StateMismatchError(self._other_samples(f"it ended after {self._taking.taken}", begin)) from failed
            except Exception as error:  # it came before the state, too
                failed, failures = error, failures + 1
                if failures > _MOST_FAILURES:
                    raise
        if digest and digest_of(last) != digest:
            raise StateMismatchError(self._other_samples("those before the state are others", begin))

    def _other_samples(self, what: str, begin: Standing) -> str:
        if holds_buffer(self.dataset):
            return (
                f"iterable: expected {type(self.dataset).__name__} to give the same {begin.taken} samples again, since "
                f"its state_dict leaves out the buffer of shuffle(), and {what}: write shuffle(seed=...), or accept "
                "that samples of this epoch come twice or never, by load_state_dict(state, strict=False)"
            )
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
            return self._state() if has_state(self.dataset) else NOTHING
        except Exception:
            return NOTHING
