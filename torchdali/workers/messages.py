"""The messages between the pool and a worker.  The first one, a pickled `Setup`, is in `worker`."""

from __future__ import annotations

from typing import NamedTuple

from .failure import Failure
from .slots import Written


class Compute(NamedTuple):
    """Pool to worker: compute a task.

    Attributes:
        run: the number of the run that the task belongs to.
        serial: the pool's own number of the task.
        task: the caller's number of the task, for messages.
        describe: call the job's `describe`, and not `read`.
        request: the argument of that call, pickled.
        freed: slots that the worker may write again.
    """

    run: int
    serial: int
    task: int
    describe: bool
    request: bytes
    freed: list[int]


class Stop(NamedTuple):
    """Pool to worker: end."""


class Done(NamedTuple):
    """Worker to pool: the outcome of a task.

    Attributes:
        run, serial: as in `Compute`.
        outcome: the slot with the answer, or what the job raised.
        begin, seconds: when the worker began, by `time.perf_counter`, and how long it took.
    """

    run: int
    serial: int
    outcome: Written | Failure
    begin: float
    seconds: float


class NotStarted(NamedTuple):
    """Worker to pool: it could not start, and ends.

    Attributes:
        failure: what was raised.
    """

    failure: Failure
