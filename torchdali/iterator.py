"""One pass of a loader, as its user sees it."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from .batch import BadSample, Collated, map_leaves
from .clock import COPY, FORM, START, STEP, WAIT, Clock, Recorder, count, give_back, switch, take_over
from .engine.run import Run
from .engine.work import Work
from .errors import TooManyBadSamplesError, displaced, forget_frames, interruption, let_through
from .forming import Forming
from .order import Step
from .state import Position
from .summary import how_many
from .trainers.accelerate import ToldPass, tell_batch, tell_end, tell_pass

LAST = 5  # bad samples in the error of too many
STATE = "loader_state"
"""The key of a batch's state, where it is asked for."""


class Nothing:
    """Stands for the run of an epoch without a batch."""

    end = None

    def next(self, timeout: float | None) -> NoReturn:
        """Raise StopIteration."""
        raise StopIteration

    def close(self) -> None:
        """End nothing."""


NOTHING = Nothing()


class Undescribed:
    """Stands for the run of one step whose samples can't be made, nor any other that was tried: it gives the error.

    Args:
        step: the step.
        error: the error.
    """

    end = None

    def __init__(self, step: Step, error: Exception) -> None:
        self._works = [Work.of(step)]
        self._works[0].error = error

    def next(self, timeout: float | None) -> Work:
        """Give the step, once."""
        if not self._works:
            raise StopIteration
        return self._works.pop()

    def close(self) -> None:
        """End nothing."""


@dataclass(frozen=True)
class OpenPass:
    """A pass that has begun.

    Attributes:
        run: makes its batches.
        start: where it begins.
        move: tells the loader where the stream stands.
        stands: gives where the loader stands by this pass; None: another one, or a loaded state, counts.
        go_back: begins the next pass at a place.
        loaded: gives the place of a state that was loaded after the pass began; None: there is none.
        form: makes what the user gets of a batch's fields.
        state: gives the loader's state at a position, which goes into each batch; None: none does.
        bad_samples: the loader's list, to be continued.
        most_bad: the number of bad samples that the pass may meet; None: any number.
        timeout: seconds to wait for a batch; None: any time.
        pin: batches on the CPU are copied to pinned memory.
        ends_unseen: the last batch is not known before the source ends.
        padded: batches are filled up, so that all ranks have the same number of rows.
        ranks: the number of ranks that share a batch.
    """

    run: Run | Nothing | Undescribed
    start: Position
    move: Callable[[Position], None]
    stands: Callable[[], Position | None]
    loaded: Callable[[], Position | None]
    go_back: Callable[[Position], None]
    form: Forming
    state: Callable[[Position], dict[str, Any]] | None
    bad_samples: list[BadSample]
    most_bad: int | None
    timeout: float | None
    pin: bool
    ends_unseen: bool
    padded: bool
    ranks: int


_NOTHING = nullcontext()


def _as_in_threads() -> AbstractContextManager[Any]:
    """Let the caller's thread make what the loader's threads make: without the modes that count for one thread.

    `torch.set_default_device` would place orders, parameters and samples too, the buffers of `torch.inference_mode`
    can't be written outside, and `torch.autocast` would blur and turn images in bfloat16.
    """
    device, inference = torch.get_default_device().type != "cpu", torch.is_inference_mode_enabled()
    autocast = torch.is_autocast_enabled("cpu")
    if not (device or inference or autocast):
        return _NOTHING
    stack = ExitStack()
    if device:
        stack.enter_context(torch.device("cpu"))
    if inference:
        stack.enter_context(torch.inference_mode(False))
    if autocast:
        stack.enter_context(torch.autocast("cpu", enabled=False))
    return stack


class LoaderIterator:
    """Iterates over one pass.  It owns the run: when it is dropped, or at exit, the run's threads end.

    Where a state is loaded meanwhile, it goes on there with its next batch, by a new run.

    Args:
        begin: begins the pass, at the first `next`; where its samples could not be made, it begins it again at a place.
        length: counts the batches of a whole epoch.
        recorder: of the loader's clocks.
    """

    def __init__(
        self, begin: Callable[[Position | None], OpenPass], length: Callable[[], int], recorder: Recorder
    ) -> None:
        self._begin, self._length, self._recorder = begin, length, recorder
        self._clock: Clock | None = None
        self._pass: OpenPass | None = None
        self._ended = False
        self._told: ToldPass | None = None
        self._ahead: Any = None  # the work after the last one, or what came instead
        self._position = Position()
        self._again: Position | None = None  # where the pass begins again
        self._handing: tuple[Position, Position] | None = None  # from where to where the batch at hand moves the pass
        self._bad: dict[int, BadSample] = {}  # that this pass has met
        self._finalizer: weakref.finalize[..., Any] | None = None  # closes the run
        self._pid = os.getpid()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        """Batches of a whole epoch, as the loader's."""
        return self._length()

    def __repr__(self) -> str:
        if self._ended or self._pass is None:
            return f"<a pass that has {'ended' if self._ended else 'not begun'}>"
        return f"<a pass over epoch {self._position.epoch}, after {how_many(self._position.samples_seen, 'sample')}>"

    def __next__(self) -> Any:
        first = self._pass is None
        before = take_over(self._clock or self._begin_clock(), START if first else WAIT, hold=first)
        try:
            with _as_in_threads():
                return self._next()
        except Exception as error:
            # An error that the caller keeps must not keep this iterator, and so the threads: neither by the frames in
            # its traceback, nor by those that called them.
            forget_frames(error)
            while error.__traceback__ and error.__traceback__.tb_frame.f_globals is globals():
                error.__traceback__ = error.__traceback__.tb_next
            caught = displaced(error) or error
        finally:
            give_back(before, STEP)
        del self
        try:
            raise caught
        finally:
            del caught  # the error would hold this frame, and this frame the error

    def _begin_clock(self) -> Clock:
        self._clock = clock = self._recorder.begin("caller")
        weakref.finalize(self, self._recorder.end, clock).atexit = False
        return clock

    def _next(self) -> Any:
        if self._ended:
            raise StopIteration
        if self._pid != os.getpid():
            raise RuntimeError(
                "this iterator was made in another process, and its threads did not come along: call iter(loader) here"
            )
        if self._pass is not None and (loaded := self._pass.loaded()) is not None:
            if loaded.finished:
                self._end()
                raise StopIteration
            self._close()  # what was made ahead belongs to the old place
            self._pass = self._ahead = self._again = self._handing = None
        opened = self._opened()
        if self._handing is not None:  # an interrupt came while a batch was handed over: had the loader moved on?
            before, end = self._handing
            self._position, self._handing = end if opened.stands() is end else before, None
        try:
            work = self._take(opened)
            if work.step.counts is None and work.step.start.samples_seen != self._position.samples_seen:
                # An interrupt came after a work had left its queue, and before it was handed over: it is made again.
                self._close()
                opened.go_back(self._position)
                self._pass = None
                opened = self._opened()
                work = self._take(opened)
        except StopIteration:
            self._end()
            opened.move(self._position._replace(finished=True, snapshot=opened.run.end))
            raise
        switch(FORM)
        opened.bad_samples.extend(work.bad)
        self._count_bad(opened, work.bad)
        end = work.step.end._replace(snapshot=work.snapshot)
        if work.error is not None:
            self._position = end
            if isinstance(opened.run, Undescribed) and not work.step.last:
                self._pass, self._again = None, end
            # The stages, and DALI's pipeline, still know the work: by its traceback the error would hold the caller.
            error, work.error, work.failed = work.error, None, None
            raise error
        batch, work.batch = work.batch, {}  # the stages still know the work, and shall not keep its batch
        if opened.pin and not opened.form.calls:
            switch(COPY)
            batch = _mapped(batch, _pinned)
            switch(FORM)
        _hand_over(batch)
        marked = "valid" in batch
        try:
            # Before the loader's position moves: where a function of the user raises, the batch was not handed over.
            formed = opened.form(batch, work)
            if opened.pin and opened.form.calls:
                switch(COPY)
                formed = map_leaves(formed, _pinned)
                switch(FORM)
            if opened.state is not None:
                self._put_state(formed, opened.state(end))
        except Exception as error:
            if interruption(error) is None:
                self._position = end  # the next batch is the one after it
            raise
        self._handing = self._position, end
        self._position = end
        opened.move(end)
        self._handing = None
        self._count(work)
        if self._told is not None:
            last, step = work.step.last or isinstance(self._ahead, StopIteration), work.step
            unmarked = not marked and not work.valid.all()
            rows = 0 if opened.ends_unseen or opened.padded else step.end.samples_seen - step.start.samples_seen
            tell_batch(self._told, last, unmarked, rows, opened.ranks)
        for text in work.warnings:
            warnings.warn(text, RuntimeWarning, stacklevel=3)
        return formed

    @staticmethod
    def _count(work: Any) -> None:
        count("batches")
        count("samples", len(work))
        for bad in work.bad:
            count("skipped" if bad.substitute is None else "substitutes")

    @staticmethod
    def _put_state(formed: Any, state: dict[str, Any]) -> None:
        """Put the state that belongs to a batch beside it."""
        if not isinstance(formed, MutableMapping):
            raise TypeError(f"with_state=True needs a batch that is a dict, got {type(formed).__name__}")
        if STATE in formed:
            raise ValueError(f"with_state=True needs the key {STATE!r} for the state: give the field another name")
        formed[STATE] = state

    def _count_bad(self, opened: OpenPass, bad: list[BadSample]) -> None:
        """Count bad samples, each once.

        Raises:
            TooManyBadSamplesError: there are more than the pass may meet; it has ended.
        """
        if opened.most_bad is None or not bad:
            return
        self._bad |= {one.index: one for one in bad}
        if len(self._bad) <= opened.most_bad:
            return
        self._close()
        last = list(self._bad.values())[-LAST:]
        reasons = "".join(f"\n  {one.stage} failed for {_name(one)}: {one.reason:.200}" for one in last)
        raise TooManyBadSamplesError(
            f"this pass has met {len(self._bad)} bad samples, and max_bad_samples allows {opened.most_bad}; the last "
            f"are:{reasons}\n"
            "is a disk or a part of the dataset damaged?  `torchdali check PATH` names all bad files, and exclude= "
            "leaves them out.  The loader's state stands before this batch: to go on with it, load the state "
            "into a loader with a larger max_bad_samples= (None: no limit)"
        )

    def _opened(self) -> OpenPass:
        """Get the pass, which begins with the first batch, and with the first one at another place."""
        if self._pass is None:
            self._pass = self._begin(self._again)
            self._position, self._again = self._pass.start, None
            count("passes")
            self._finalizer = weakref.finalize(self, self._pass.run.close)
            self._told = self._told or tell_pass()
        return self._pass

    def _take(self, opened: OpenPass) -> Any:
        """Take the next work; where the last one is not known and accelerate asks, one more is taken ahead."""
        work, self._ahead = self._ahead, None
        work = _pull(opened) if work is None else work
        if isinstance(work, Exception):
            raise work
        if self._told is not None and opened.ends_unseen:
            try:
                self._ahead = _pull(opened)
            except BaseException:
                self._ahead = work  # not lost
                raise
        return work

    def _end(self) -> None:
        self._ended = True
        if self._clock is not None:
            self._recorder.end(self._clock)
        tell_end(self._told)
        self._close()

    def _close(self) -> None:
        if self._finalizer is not None:
            self._finalizer()


def _name(bad: BadSample) -> str:
    return f"sample {bad.index}" + (f" ({bad.path})" if bad.path else "")


def _pull(opened: OpenPass) -> Any:
    """The next work, or the exception that came instead."""
    try:
        return opened.run.next(opened.timeout)
    except Exception as error:
        let_through(error)
        return error


def _mapped(batch: dict[str, Any], function: Callable[[Any], Any]) -> dict[str, Any]:
    """Apply a function to all tensors of a batch, wherever they are in it."""
    return {
        name: value.map(function) if isinstance(value, Collated) else map_leaves(value, function)
        for name, value in batch.items()
    }


def _pinned(value: Any) -> Any:
    pin = isinstance(value, torch.Tensor) and not value.is_cuda and torch.cuda.is_available()
    return value.pin_memory() if pin else value


def _hand_over(batch: dict[str, Any]) -> None:
    """On a GPU, tell the allocator that the consumer's stream uses the tensors.  Their data is complete already."""
    if torch.cuda.is_available():
        _mapped(batch, _record)


def _record(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_cuda:
        value.record_stream(torch.cuda.current_stream(value.device))
    return value
