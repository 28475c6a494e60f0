"""One pass of a loader, as its user sees it."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from .batch import Padded
from .collate import as_output
from .engine.run import Run
from .errors import forget_frames
from .python.source import PythonSource
from .trainers.accelerate import ToldPass, tell_end, tell_pass

if TYPE_CHECKING:
    from .loader import DataLoader


class LoaderIterator:
    """One pass.  It owns the run: when it is dropped, or the interpreter exits, the run's threads end."""

    def __init__(self, loader: DataLoader) -> None:
        self._loader = loader
        self._run: Run | None = None
        self._ended = False
        self._told: ToldPass | None = None
        self._ahead: Any = None  # the work behind the last one, or what came instead
        self._pid = os.getpid()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return self._next()
        except Exception as error:
            # An error that the caller keeps must not keep this iterator, and so the threads, by its traceback.
            while (traceback := error.__traceback__) and traceback.tb_frame.f_globals is globals():
                error.__traceback__ = traceback.tb_next
            forget_frames(error)
            caught = error
        del self
        raise caught

    def _next(self) -> Any:
        loader = self._loader
        if self._ended:
            raise StopIteration
        if self._pid != os.getpid():
            raise RuntimeError(
                "this iterator was made in another process, and its threads did not come along: call iter(loader) here"
            )
        if self._run is None:
            self._number, self._position, self._run = loader._begin()
            self._finalizer = weakref.finalize(self, self._run.close)
            self._told = tell_pass()
        try:
            work = self._take()
        except StopIteration:
            self._end()
            loader._progress.move(self._number, self._position._replace(finished=True))
            raise
        loader.bad_samples += work.bad
        self._position = work.step.end
        if work.error is not None:
            raise work.error
        batch, work.batch = work.batch, {}  # the stages still know the work, and shall not keep its batch
        if loader._pin:
            batch = {name: _pinned(value) for name, value in batch.items()}
        _hand_over(batch)
        loader._progress.move(self._number, self._position)
        loader._snapshot = self._position, work.snapshot
        if self._told is not None:
            self._told.end_of_dataloader = work.step.last or isinstance(self._ahead, StopIteration)
        if loader.output == "tuple" and isinstance(loader.source, PythonSource):
            return loader.source.rebuild(batch)
        return as_output(batch, loader.output)

    def _take(self) -> Any:
        """The next work; where nobody knows which one is the last and accelerate asks, one is taken ahead."""
        work, self._ahead = self._ahead, None
        work = self._pull() if work is None else work
        if isinstance(work, Exception):
            raise work
        if self._told is not None and self._loader.source.endless:
            self._ahead = self._pull()
        return work

    def _pull(self) -> Any:
        assert self._run is not None
        # With workers, the pool watches the time of each sample.
        pooled = not self._loader.source.inline and isinstance(self._loader.source, PythonSource)
        try:
            return self._run.next(None if pooled else self._loader._timeout or None)
        except Exception as error:
            return error

    def _end(self) -> None:
        self._ended = True
        tell_end(self._told)
        self._finalizer()


def _pinned(value: Any) -> Any:
    if isinstance(value, Padded):
        return Padded(*map(_pinned, value))
    pin = isinstance(value, torch.Tensor) and not value.is_cuda and torch.cuda.is_available()
    return value.pin_memory() if pin else value


def _hand_over(batch: dict[str, Any]) -> None:
    """On a GPU: the consumer's stream uses memory of ours.  The data is complete already."""
    for value in batch.values():
        for tensor in value if isinstance(value, Padded) else (value,):
            if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
                tensor.record_stream(torch.cuda.current_stream(tensor.device))
