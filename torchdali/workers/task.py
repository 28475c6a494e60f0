"""A task for a worker, and its result."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..batch import Columns
from ..errors import let_through
from .failure import Failure
from .process import WorkerProcess
from .slots import Written


class Task(NamedTuple):
    """One request to a worker process.

    Attributes:
        number: the task's number, for messages.
        request: the argument of the job's method.
        worker: the only worker that may compute it; None: any.
        describe: call the job's `describe`, and not `read`.
    """

    number: int
    request: Any
    worker: int | None = None
    describe: bool = False


class Result:
    """The result of a task.

    Attributes:
        task: the task.
        columns: the columns of the job's answer, tensors as arrays.  Arrays are views of shared memory, valid until
            `release`.
        note: the note of the job's answer, or its description.
        error: the exception that the job raised, with the worker's traceback as a note; None: it returned.
        index: the sample that the job was on when it raised, or None.
        worker: the number of the worker that computed the task.
    """

    def __init__(self, task: Task, process: WorkerProcess, outcome: Written | Failure) -> None:
        self.task, self.worker = task, process.number
        self.columns: Columns = {}
        self.note: Any = None
        self.error: Exception | None = None
        self.index: int | None = None
        self._freed, self._slot = process.freed, None
        if isinstance(outcome, Failure):
            self.error, self.index = outcome.revive(), outcome.index
            return
        self._slot = outcome.slot
        try:
            self.columns, self.note = process.slots.read(outcome)
        except Exception as error:  # such as a class that only the worker can import
            let_through(error)
            self.error = error
            self.release()

    def release(self) -> None:
        """Give the memory back: later results overwrite the arrays.  Any thread may call it, once or more."""
        slot, self._slot = self._slot, None
        if slot is not None:
            self._freed.append(slot)
