"""The processes of a pool, and their end."""

from __future__ import annotations

import os
import selectors
import time
from contextlib import suppress
from multiprocessing.connection import wait

from .messages import Stop
from .process import WorkerProcess
from .protocol import Packet
from .status import StatusTable


class Processes:
    """All worker processes of a pool.

    It does not know the pool, so that it can end them when the pool is garbage.

    Attributes:
        all: the processes, by their numbers.
        selector: watches their connections, their ends, and the bell.
        table: their status, in memory whose file descriptor is `table_fd`.
    """

    def __init__(self, num_workers: int) -> None:
        self.owner = os.getpid()
        self.all: list[WorkerProcess] = []
        self.selector = selectors.DefaultSelector()
        self.table_fd = StatusTable.create(num_workers)
        self.table = StatusTable(self.table_fd)
        # A file object: its descriptor may be another file's once it is closed.
        self._bell = open(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK), "wb", buffering=0)
        self.selector.register(self._bell, selectors.EVENT_READ, None)
        self._ended = False

    def add(self, process: WorkerProcess) -> None:
        """Add a process that was started."""
        self.all.append(process)
        self.selector.register(process.sock, selectors.EVENT_READ, process)
        self.selector.register(process.watch, selectors.EVENT_READ, process)

    def ring(self) -> None:
        """Wake the thread that waits for the workers; any thread may call it."""
        with suppress(ValueError, BlockingIOError):
            self._bell.write((1).to_bytes(8, "little"))

    def halt(self, grace: float = 0.0) -> None:
        """End all processes.

        Args:
            grace: seconds in which a worker may end by itself.
        """
        if os.getpid() != self.owner or self._ended:
            return
        self.ring()
        self.table.run = -1
        if grace:
            for process in self.all:
                with suppress(OSError):
                    Packet(Stop()).send(process.sock)
        deadline = time.monotonic() + grace
        alive = {process.watch: process for process in self.all}
        while alive and (left := deadline - time.monotonic()) > 0:
            for watch in wait(list(alive), left):
                alive.pop(watch)  # type: ignore[arg-type]
        for process in alive.values():
            process.kill()

    def end(self) -> None:
        """End all processes and give everything back; it cannot be used after that."""
        self.halt()
        if os.getpid() != self.owner or self._ended:
            return
        self._ended = True
        self.selector.close()
        for process in self.all:
            process.close()
        os.close(self.table_fd)
        self._bell.close()
