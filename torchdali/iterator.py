"""One pass of a loader, as its user sees it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from .batch import BadSample, Collated, Padded
from .engine.run import Run
from .errors import forget_frames
from .state import Position
from .trainers.accelerate import ToldPass, tell_end, tell_pass


class Nothing:
    """Stands for the run of an epoch without a batch."""

    def next(self, timeout: float | None) -> NoReturn:
        """Raise StopIteration."""
        raise StopIteration

    def close(self) -> None:
        """End nothing."""


NOTHING = Nothing()


@dataclass(frozen=True)
class OpenPass:
    """A pass that has begun.

    Attributes:
        run: makes its batches.
        start: where it begins.
        move: tells the loader where the stream stands.
        form: puts a batch's fields into the user's form.
        bad_samples: the loader's list, to be continued.
        timeout: seconds to wait for a batch; None: any time.
        pin: batches on the CPU are copied to pinned memory.
        ends_unseen: the last batch is not known before the source ends.
    """

    run: Run | Nothing
    start: Position
    move: Callable[[Position], None]
    form: Callable[[dict[str, Any]], Any]
    bad_samples: list[BadSample]
    timeout: float | None
    pin: bool
    ends_unseen: bool


class LoaderIterator:
    """Iterates over one pass.  It owns the run: when it is dropped, or at exit, the run's threads end.

    Args:
        begin: begins the pass, at the first `next`.
        length: counts the batches of a whole epoch.
    """

    def __init__(self, begin: Callable[[], OpenPass], length: Callable[[], int]) -> None:
        self._begin, self._length = begin, length
        self._pass: OpenPass | None = None
        self._ended = False
        self._told: ToldPass | None = None
        self._ahead: Any = None  # the work after the last one, or what came instead
        self._pid = os.getpid()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        """Batches of a whole epoch, as the loader's."""
        return self._length()

    def __next__(self) -> Any:
        try:
            return self._next()
        except Exception as error:
            # An error that the caller keeps must not keep this iterator, and so the threads: neither by the frames in
            # its traceback, nor by those that called them.
            forget_frames(error)
            while error.__traceback__ and error.__traceback__.tb_frame.f_globals is globals():
                error.__traceback__ = error.__traceback__.tb_next
            caught = error
        del self
        try:
            raise caught
        finally:
            del caught  # the error would hold this frame, and this frame the error

    def _next(self) -> Any:
        if self._ended:
            raise StopIteration
        if self._pid != os.getpid():
            raise RuntimeError(
                "this iterator was made in another process, and its threads did not come along: call iter(loader) here"
            )
        if self._pass is None:
            self._pass = self._begin()
            self._position = self._pass.start
            self._finalizer = weakref.finalize(self, self._pass.run.close)
            self._told = tell_pass()
        opened = self._pass
        try:
            work = self._take(opened)
        except StopIteration:
            self._end()
            opened.move(self._position._replace(finished=True, snapshot=None))
            raise
        opened.bad_samples.extend(work.bad)
        self._position = work.step.end._replace(snapshot=work.snapshot)
        if work.error is not None:
            raise work.error
        batch, work.batch = work.batch, {}  # the stages still know the work, and shall not keep its batch
        if opened.pin:
            batch = {name: _pinned(value) for name, value in batch.items()}
        _hand_over(batch)
        opened.move(self._position)
        if self._told is not None:
            self._told.end_of_dataloader = work.step.last or isinstance(self._ahead, StopIteration)
        return opened.form(batch)

    def _take(self, opened: OpenPass) -> Any:
        """Take the next work; where the last one is not known and accelerate asks, one more is taken ahead."""
        work, self._ahead = self._ahead, None
        work = _pull(opened) if work is None else work
        if isinstance(work, Exception):
            raise work
        if self._told is not None and opened.ends_unseen:
            self._ahead = _pull(opened)
        return work

    def _end(self) -> None:
        self._ended = True
        tell_end(self._told)
        self._finalizer()


def _pull(opened: OpenPass) -> Any:
    """The next work, or the exception that came instead."""
    try:
        return opened.run.next(opened.timeout)
    except Exception as error:
        return error


def _pinned(value: Any) -> Any:
    if isinstance(value, Padded):
        return Padded(*map(_pinned, value))
    if isinstance(value, Collated):
        return value.map(_pinned)
    pin = isinstance(value, torch.Tensor) and not value.is_cuda and torch.cuda.is_available()
    return value.pin_memory() if pin else value


def _hand_over(batch: dict[str, Any]) -> None:
    """On a GPU, tell the allocator that the consumer's stream uses the tensors.  Their data is complete already."""
    for value in batch.values():
        if isinstance(value, Collated):
            if torch.cuda.is_available():
                value.map(_record)
            continue
        for tensor in value if isinstance(value, Padded) else (value,):
            _record(tensor)


def _record(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_cuda:
        value.record_stream(torch.cuda.current_stream(value.device))
    return value
