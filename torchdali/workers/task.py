"""What goes to the workers, and what comes back."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..batch import Columns
from .failure import Failure
from .processes import Member
from .slots import Written

Answer = Written | tuple[Failure, int | None]  # a worker's: a result, or what was raised and on which sample


class Task(NamedTuple):
    """What a worker shall compute.

    Attributes:
        number: for messages.
        payload: what the source is called with.
        worker: the only worker that may compute it; None: any.
    """

    number: int
    payload: Any
    worker: int | None = None


class Result:
    """What came of a task.

    Attributes:
        task: it.
        columns: what the source returned, tensors as arrays.  Arrays are views of shared memory, valid until `release`.
        error: what the source raised, with the worker's traceback as a note; None: it returned.
        index: the sample that it was on when it raised, or None.
        worker: the number of the worker that computed it.
    """

    def __init__(self, task: Task, member: Member, answer: Answer) -> None:
        self.task, self.worker = task, member.number
        self.columns: Columns = {}
        self.error: Exception | None = None
        self.index: int | None = None
        self._freed, self._slot = member.freed, None
        if isinstance(answer, Written):
            self._slot = answer.slot
            try:
                self.columns = member.slots.read(answer)
            except Exception as error:  # such as a class that only the worker can import
                self.error = error
                self.release()
        else:
            failure, self.index = answer
            self.error = failure.revive()

    def release(self) -> None:
        """Give the memory back: later results overwrite the arrays.  Any thread may call it, once or more."""
        slot, self._slot = self._slot, None
        if slot is not None:
            self._freed.append(slot)
