"""The status of each worker, in memory that the pool and its workers share."""

from __future__ import annotations

import mmap
import time
from dataclasses import dataclass

from .memory import allocate

_ROW = 8  # int64 numbers per row: one cache line
_STAGE, _TASK, _SAMPLE, _SINCE = range(4)
STARTING, IDLE, COMPUTING, HANDING_OVER = range(4)
WORDS = ("started", "was idle", "computed", "handed over")
NONE = -(2**63)  # no sample yet


@dataclass(frozen=True)
class Status:
    """The status of one worker.

    Attributes:
        stage: STARTING, IDLE, COMPUTING or HANDING_OVER.
        task: the number of its task, or None.
        index: the index of the sample that it is on, or None.
        seconds: the time since that sample, or the stage, began.
    """

    stage: int
    task: int | None
    index: int | None
    seconds: float


class StatusTable:
    """A row of numbers per worker, and the number of the run that counts now.

    Workers write their status, so that a death or a timeout can name the sample; the pool writes the run, so that
    workers drop the tasks of earlier runs.

    Args:
        fd: the memory, made by `create`.
    """

    def __init__(self, fd: int) -> None:
        self._cells = memoryview(mmap.mmap(fd, 0)).cast("q")

    @staticmethod
    def create(num_workers: int) -> int:
        """Reserve memory for a table, as a file descriptor."""
        return allocate("torchdali-status", 8 * _ROW * (1 + num_workers))

    @property
    def run(self) -> int:
        """The number of the run whose tasks count."""
        return self._cells[0]

    @run.setter
    def run(self, number: int) -> None:
        self._cells[0] = number

    def enter(self, worker: int, stage: int, task: int = 0) -> None:
        """Note that a worker enters a stage, without a sample; handing over keeps the last sample."""
        row = _ROW * (1 + worker)
        self._cells[row + _SINCE] = time.monotonic_ns()
        self._cells[row + _TASK] = task
        if stage != HANDING_OVER:
            self._cells[row + _SAMPLE] = NONE
        self._cells[row + _STAGE] = stage

    def sample(self, worker: int, index: int) -> None:
        """Note that a worker begins a sample."""
        row = _ROW * (1 + worker)
        # The time first: a sample must never be seen with the time of the one before.
        self._cells[row + _SINCE] = time.monotonic_ns()
        self._cells[row + _SAMPLE] = index

    def status(self, worker: int) -> Status:
        """Read the status of a worker."""
        row = _ROW * (1 + worker)
        stage, task, index, since = self._cells[row : row + 4].tolist()
        busy = stage in (COMPUTING, HANDING_OVER)
        seconds = (time.monotonic_ns() - since) * 1e-9
        return Status(stage, task if busy else None, index if busy and index != NONE else None, seconds)
