"""What the pool and its workers see of each other at any time, in shared memory."""

from __future__ import annotations

import mmap
import time
from dataclasses import dataclass

from .memory import allocate

_ROW = 8  # int64 numbers a row: one cache line
_STAGE, _TASK, _SAMPLE, _SINCE = range(4)
STARTING, IDLE, COMPUTING, HANDING_OVER = range(4)
WORDS = ("started", "was idle", "computed", "handed over")
NONE = -(2**63)  # no sample yet


@dataclass(frozen=True)
class Place:
    """Where a worker is: a stage, the task's number, the sample's index, and seconds since that sample began."""

    stage: int
    task: int | None
    index: int | None
    seconds: float


class Board:
    """A row of numbers for each worker, and the run that counts now.

    Workers write where they are, so that a death or a timeout can name the sample; the pool writes the run, so that
    workers drop what nobody waits for.

    Args:
        fd: the memory, made by `create`.
    """

    def __init__(self, fd: int) -> None:
        self._cells = memoryview(mmap.mmap(fd, 0)).cast("q")

    @staticmethod
    def create(num_workers: int) -> int:
        """Memory for a board, as a file descriptor."""
        return allocate("torchdali-board", 8 * _ROW * (1 + num_workers))

    @property
    def run(self) -> int:
        """The run whose tasks count."""
        return self._cells[0]

    @run.setter
    def run(self, number: int) -> None:
        self._cells[0] = number

    def enter(self, worker: int, stage: int, task: int = 0) -> None:
        """A worker enters a stage, without a sample; handing over keeps the last one."""
        row = _ROW * (1 + worker)
        self._cells[row + _SINCE] = time.monotonic_ns()
        self._cells[row + _TASK] = task
        if stage != HANDING_OVER:
            self._cells[row + _SAMPLE] = NONE
        self._cells[row + _STAGE] = stage

    def sample(self, worker: int, index: int) -> None:
        """A worker begins a sample."""
        row = _ROW * (1 + worker)
        # The time first: a sample must never be seen with the time of the one before.
        self._cells[row + _SINCE] = time.monotonic_ns()
        self._cells[row + _SAMPLE] = index

    def place(self, worker: int) -> Place:
        """Where a worker is."""
        row = _ROW * (1 + worker)
        stage, task, index, since = self._cells[row : row + 4].tolist()
        busy = stage in (COMPUTING, HANDING_OVER)
        seconds = (time.monotonic_ns() - since) * 1e-9
        return Place(stage, task if busy else None, index if busy and index != NONE else None, seconds)
