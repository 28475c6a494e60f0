"""The worker processes of a pool, and their end."""

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
from .status import WORDS, Board

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class Member:
    """One worker process, seen from the pool.

    Attributes:
        number: its number.
        process: it.
        sock: the connection to it, which does not block.
        watch: a file descriptor that gets readable when the process ends.
        slots: its memory.
        freed: slots that it may write again and has not been told about; any thread may add to them.
        pending: its tasks in this run that the consumer has not got.
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
        """Send what waits."""
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
        """The process's exit code, if it ends within some seconds."""
        # Not by `join`, which waits for ever for a process that has only closed its descriptors.
        if self._pidfd is not None and wait([self._pidfd], seconds):
            self.process.join(seconds)
        deadline = time.monotonic() + (0 if self._pidfd is not None else seconds)
        while self.process.exitcode is None and time.monotonic() < deadline:
            time.sleep(0.005)
        return self.process.exitcode

    def close(self) -> None:
        """Let go of a process that was killed."""
        if self.exitcode(1.0) is not None:
            self.process.close()
        self.sock.close()
        while self._outbox:
            self._outbox.popleft().close()
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def death(self, board: Board) -> WorkerDiedError:
        """The error for a process that has ended, or has closed its connection and shall."""
        code, place = self.exitcode(0.5), board.place(self.number)
        return WorkerDiedError(self.number, self.pid, code, place.task, place.index, WORDS[place.stage])

    def late(self, board: Board, timeout: float) -> WorkerTimeoutError:
        """The error for a process that takes too long."""
        place = board.place(self.number)
        return WorkerTimeoutError(self.number, self.pid, timeout, place.task, place.index, WORDS[place.stage])


class Crew:
    """All workers of a pool.  It does not know the pool, so that it can end when the pool is forgotten."""

    def __init__(self, num_workers: int) -> None:
        self.owner = os.getpid()
        self.members: list[Member] = []
        self.selector = selectors.DefaultSelector()
        self.board_fd = Board.create(num_workers)
        self.board = Board(self.board_fd)
        # A file object: closed, it rings nobody else's.
        self._bell = open(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK), "wb", buffering=0)
        self.selector.register(self._bell, _READ, None)
        self._ended = False

    def add(self, member: Member) -> None:
        """A process that was started."""
        self.members.append(member)
        self.selector.register(member.sock, _READ, member)
        self.selector.register(member.watch, _READ, member)

    def ring(self) -> None:
        """Wake the thread that waits for the workers; any thread may."""
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
        self.board.run = -1
        if grace:
            for member in self.members:
                with suppress(OSError):
                    Packet(("stop",)).send(member.sock)
        deadline = time.monotonic() + grace
        alive = {member.watch: member for member in self.members}
        while alive and (left := deadline - time.monotonic()) > 0:
            for watch in wait(list(alive), left):
                alive.pop(watch)  # type: ignore[arg-type]
        for member in alive.values():
            member.kill()

    def end(self) -> None:
        """End all processes and let go of everything; nobody else may use the crew any more."""
        self.halt()
        if os.getpid() != self.owner or self._ended:
            return
        self._ended = True
        self.selector.close()
        for member in self.members:
            member.close()
        os.close(self.board_fd)
        self._bell.close()
