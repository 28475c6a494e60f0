"""Calls of a job in the caller's own thread, and the failures of user code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import leave_frame, let_through
from ..seeding import preserved
from ..source import Failed

T = TypeVar("T")


def call(method: Callable[[Any, Callable[[int], None]], T], request: Any) -> T | Failed:
    """Call a job's `describe` or `read` in this thread, and put the global random generators back after it."""
    seen: list[int] = []
    try:
        with preserved():
            return method(request, seen.append)
    except Exception as error:
        let_through(error)
        return failed(_not_stopping(leave_frame(error)), seen[-1] if seen else None)


def failed(error: Exception, index: int | None, worker: int | None = None) -> Failed:
    """Make the failure of an error of user code, which gets a note with the sample and the worker."""
    where = "" if worker is None else f" in worker {worker}"
    note = f"torchdali: this was raised for sample {index}{where}"
    if note not in getattr(error, "__notes__", ()):  # an error may be one object that is raised again and again
        error.add_note(note)
    return Failed(error, index, worker)


def _not_stopping(error: Exception) -> Exception:
    """Replace a StopIteration, which would look like the end of a loop."""
    if not isinstance(error, StopIteration):
        return error
    stopped = RuntimeError("a dataset must not raise StopIteration, and this one did")
    stopped.__cause__ = error
    return stopped
