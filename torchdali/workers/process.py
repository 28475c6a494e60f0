"""One worker process, seen from its pool."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import time
from collections import deque
from contextlib import suppress
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

from ..errors import WorkerDiedError, WorkerTimeoutError
from .protocol import Packet
from .slots import MappedSlots
from .status import WORDS, StatusTable

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
ENDING = 10.0
"""Seconds for a process that has closed its connection to end: an interpreter takes some, on a busy machine."""


class WorkerProcess:
    """One worker process, seen from its pool.

    Attributes:
        number: its number.
        process: the process.
        sock: the connection to it, which does not block.
        watch: a file descriptor that gets readable when the process ends.
        slots: its memory.
        freed: slots that it may write again and has not been told about; any thread may add to them.
        pending: the number of its tasks in this run whose results the consumer does not have yet.
        since: when it was started, by `time.monotonic`.
    """

    def __init__(self, number: int, process: BaseProcess, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.number, self.process, self.sock = number, process, sock
        self.slots = MappedSlots()
        self.freed: deque[int] = deque()
        self.pending, self.since = 0, time.monotonic()
        self._outbox: deque[Packet] = deque()
        assert process.pid is not None
        self.pid = process.pid
        self._pidfd: int | None = None
        with suppress(OSError):  # it is gone already, or the kernel is old
            self._pidfd = os.pidfd_open(self.pid)
        self.watch = process.sentinel if self._pidfd is None else self._pidfd

    def post(self, packet: Packet, selector: selectors.BaseSelector) -> None:
        """Send a packet as soon as there is room."""
        self._outbox.append(packet)
        self.flush(selector)

    def flush(self, selector: selectors.BaseSelector) -> None:
        """Send the packets that wait, as far as there is room."""
        try:
            while self._outbox:
                self._outbox[0].send(self.sock)
                self._outbox.popleft().close()
        except BlockingIOError:
            pass
        except ConnectionError:
            return  # it is dead; its end is noticed elsewhere
        selector.modify(self.sock, _READ | _WRITE if self._outbox else _READ, self)

    def kill(self) -> None:
        """End the process at once."""
        if self._pidfd is not None:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        else:
            self.process.kill()

    def exitcode(self, seconds: float) -> int | None:
        """Get the process's exit code, if it ends within some seconds."""
        # Not by `join`, which waits for ever for a process that has only closed its descriptors.
        if self._pidfd is not None and wait([self._pidfd], seconds):
            self.process.join(seconds)
        deadline = time.monotonic() + (0 if self._pidfd is not None else seconds)
        while self.process.exitcode is None and time.monotonic() < deadline:
            time.sleep(0.005)
        return self.process.exitcode

    def close(self) -> None:
        """Give back the resources of a process that was killed."""
        if self.exitcode(1.0) is not None:
            self.process.close()
        self.sock.close()
        while self._outbox:
            self._outbox.popleft().close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def death(self, table: StatusTable) -> WorkerDiedError:
        """Make the error for a process that has ended, or has closed its connection and will be ended."""
        code, at = self.exitcode(ENDING), table.status(self.number)
        return WorkerDiedError(self.number, self.pid, code, at.task, at.index, WORDS[at.stage])

    def late(self, table: StatusTable, timeout: float) -> WorkerTimeoutError:
        """Make the error for a process that takes too long."""
        at = table.status(self.number)
        error = WorkerTimeoutError(self.number, self.pid, timeout, at.task, at.index, WORDS[at.stage])
        if type(self.process).__name__ == "ForkProcess":
            error.add_note(
                "torchdali: it was forked, and a library with threads of its own, such as polars, zarr or gRPC, may "
                "wait for ever after a fork: leave multiprocessing_context out, and workers start anew"
            )
        return error
