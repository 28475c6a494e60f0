"""Says what a wait that was too long has waited for."""

from __future__ import annotations

import functools
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .state import Position
from .waits import part_of

OURS = "torchdali"
"""The start of the names of all threads of loaders."""


class Busy(dict[str, Position]):
    """The step that each stage was given last, and since when, by `time.monotonic`.

    A stage that says when it is done with a step can be told from one that waits for the stage before it.

    Args:
        good: where the pass begins.

    Attributes:
        good: where the last batch ended.
    """

    def __init__(self, good: Position) -> None:
        super().__init__()
        self.good = good
        self._since: dict[str, float] = {}
        self._works: set[str] = set()

    def __setitem__(self, stage: str, at: Position) -> None:
        super().__setitem__(stage, at)
        self._since[stage] = time.monotonic()

    def begin(self, stage: str, at: Position) -> None:
        """Note that a stage works on a step, until `done`."""
        self[stage] = at
        self._works.add(stage)

    def done(self, stage: str) -> None:
        """Note that a stage waits for its next step."""
        self._works.discard(stage)

    def stuck(self, seconds: float) -> bool:
        """Whether a stage has worked on one step for so long."""
        now = time.monotonic()
        return any(now - self._since[stage] > seconds for stage in list(self._works))

    def late(self, seconds: float) -> str:
        """Say that no batch came within some seconds, and where the stages stand."""
        return (
            f"no batch within {seconds:g} s; the stages stand at: {self}.  The last batch ended at epoch "
            f"{self.good.epoch}, sample {self.good.samples_seen}"
        )

    def __str__(self) -> str:
        now = time.monotonic()
        stages = [
            f"{stage} at epoch {at.epoch}, sample {at.samples_seen}, for {now - self._since[stage]:.0f} s"
            for stage, at in list(self.items())
        ]
        return "; ".join(stages) or "nothing begun"


def stacks(threads: list[threading.Thread] | None = None) -> str:
    """Show where threads stand: those of loaders in this process, or some."""
    frames = sys._current_frames()
    shown = []
    for thread in threading.enumerate() if threads is None else threads:
        frame = frames.get(thread.ident or 0)
        if frame is not None and (threads is not None or thread.name.startswith(OURS)):
            shown.append(f"thread {thread.name}:\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(shown) or "no thread of a loader runs\n"


def report(reason: str, threads: list[threading.Thread] | None = None) -> None:
    """Write to standard error where threads stand, before an error is raised that can only say it in short."""
    with suppress(Exception):  # there may be none, or it is closed
        sys.stderr.write(f"torchdali: {reason}\n\n{stacks(threads)}\n")
        sys.stderr.flush()


class Watch:
    """Reports calls in threads of the caller's own that take too long, each once: nothing can end them from outside.

    A block of it is a call.  It has one thread for all calls, which looks each second, or eight times in the allowed
    time, and ends with `close`, or with this object.

    Args:
        seconds: that a call may take.
        reason: says, after so many seconds, what is waited for.
    """

    def __init__(self, seconds: float, reason: Callable[[], str]) -> None:
        self._call, self._ended = _Call(), threading.Event()
        self.close = weakref.finalize(self, self._ended.set)
        self.close.atexit = False
        self._thread = threading.Thread(
            target=_watch, args=(self._call, self._ended, seconds, reason), name=f"{OURS}-watch", daemon=True
        )
        with suppress(RuntimeError):  # the system gives no thread: the call goes on unwatched
            self._thread.start()

    def join(self) -> None:
        """End the thread, and wait for that."""
        self.close()
        with suppress(RuntimeError):  # there is none
            self._thread.join()

    def __enter__(self) -> None:
        self._call.thread = threading.current_thread()
        self._call.since = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._call.since = None


class _Call:
    since: float | None = None
    thread: threading.Thread | None = None


def _watch(call: _Call, ended: threading.Event, seconds: float, reason: Callable[[], str]) -> None:
    part = part_of(seconds)
    watched, waited, told = None, 0.0, False
    while not ended.wait(part):
        since, thread = call.since, call.thread
        if since is None or thread is None:
            continue
        if since != watched:
            watched, waited, told = since, 0.0, False
        waited += part  # by no clock, see `waits`
        if told or waited < seconds or time.monotonic() - since < seconds:
            continue
        told = True
        report(f"{reason()}.  The call goes on, since nothing can end it; its thread stands here:", [thread])


SLOW = 120.0  # seconds that may pass before the first batch, in the making of a dataset say, without a word


@contextmanager
def watching(words: str) -> Iterator[None]:
    """Report where the calling thread stands, if the block takes as long as the first batch seldom does.

    Args:
        words: the block's, "the making of a dataset".
    """
    watch = Watch(SLOW, lambda: f"{words} has taken {SLOW:g} s so far")
    try:
        with watch:
            yield
    finally:
        watch.join()


_making = threading.local()


def watch_making(cls: type) -> None:
    """Wrap the `__init__` of a class that reads files: where it takes long, it is reported what it waits for."""
    init = vars(cls).get("__init__")
    if init is None:
        return  # that of a base

    @functools.wraps(init)
    def watched(self: Any, *args: Any, **kwargs: Any) -> None:
        if getattr(_making, "inside", False):  # of a subclass, or of a whole of which this is a part
            init(self, *args, **kwargs)
            return
        _making.inside = True
        try:
            with watching(f"the making of {type(self).__name__}"):
                init(self, *args, **kwargs)
        finally:
            _making.inside = False

    setattr(cls, "__init__", watched)  # noqa: B010  # mypy forbids the assignment
