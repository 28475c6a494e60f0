"""Calls a function in processes that may die or hang: it costs one item each time, and the item is named."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from ..errors import first_line
from ..workers.launch import start

STARTING = 120.0  # seconds until a process must be ready; imports take long on a busy machine


class Outcome(NamedTuple):
    """The outcome of a call.

    Attributes:
        number: the item's.
        value: what the function gave; None where there is a fault.
        fault: "" or "crashed" (the process died, or the function raised) or "stuck" (no answer in time).
        reason: the fault in words.
    """

    number: int
    value: Any = None
    fault: str = ""
    reason: str = ""


def run_isolated(
    make: Callable[[], Callable[[Any], Any]], items: Sequence[Any], jobs: int, timeout: float
) -> Iterator[Outcome]:
    """Call a function for each item, in several processes, and yield the outcomes as they come.

    Args:
        make: makes the function, in each process; it is pickled, so it is a function of a module or a `partial` of one.
        items: they and the function's results are pickled.
        jobs: the number of processes.
        timeout: seconds until the function must have answered; then its process is killed.

    Raises:
        RuntimeError: a process ended or hung before its first item.
    """
    todo = iter(enumerate(items))
    workers: list[_Worker] = []
    try:
        for _ in range(min(jobs, len(items))):
            workers.append(_Worker(make))
        while workers:
            wait([worker.connection for worker in workers], max(0.0, min(w.until for w in workers) - time.monotonic()))
            for worker in list(workers):
                outcome = worker.look()
                if outcome is not None:
                    yield outcome
                if worker.alive and not worker.idle:
                    continue
                following = next(todo, None)
                if worker.alive and following is not None:
                    worker.give(*following, timeout)
                    continue
                worker.end()
                workers.remove(worker)
                if following is not None:
                    workers.append(_Worker(make, (*following, timeout)))
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """One process, seen from the one that started it.

    Attributes:
        connection: to it.
        alive: it has not died.
        idle: it waits for an item.
        until: when it must have answered, by `time.monotonic`.
    """

    def __init__(self, make: Callable[[], Callable[[Any], Any]], first: tuple[int, Any, float] | None = None) -> None:
        self.connection, other = Pipe()
        with other:
            self._process = start("forkserver", _serve, (make, other), "torchdali-command", (), False, STARTING)
        self.alive, self.idle, self._ready = True, False, False
        self._number, self._first = -1, first
        self._limit, self.until = STARTING, time.monotonic() + STARTING

    def give(self, number: int, item: Any, timeout: float) -> None:
        """Send an item."""
        self._number, self.idle = number, False
        self._limit, self.until = timeout, time.monotonic() + timeout
        with suppress(OSError):  # it has died, and `look` sees it
            self.connection.send(item)

    def look(self) -> Outcome | None:
        """Receive an answer, if there is one; a process that died or is late is alive no more."""
        if not self.connection.poll():
            return (
                self._failed("stuck", f"no answer within {self._limit:g} s") if time.monotonic() > self.until else None
            )
        try:
            value, raised = self.connection.recv()
        except (EOFError, OSError):
            self._process.join(5)
            code = self._process.exitcode
            name = signal.Signals(-code).name if code and -code in set(signal.Signals) else f"exit code {code}"
            return self._failed("crashed", f"its process died of {name}")
        if not self._ready:
            if raised:
                raise RuntimeError(f"a process could not begin: {raised}")
            self._ready = self.idle = True
            if self._first is not None:
                self.give(*self._first)
            return None
        self.idle = True
        return Outcome(self._number, None, "crashed", raised) if raised else Outcome(self._number, value)

    def _failed(self, fault: str, reason: str) -> Outcome:
        if not self._ready:
            raise RuntimeError(f"a process could not begin: {reason}")
        self.alive = False
        return Outcome(self._number, None, fault, reason)

    def end(self) -> None:
        """Kill it: it holds nothing that is worth an end of its own."""
        self._process.kill()
        self._process.join(10)
        self.connection.close()


def _serve(make: Callable[[], Callable[[Any], Any]], connection: Connection) -> None:
    """Answer each item with (value, error in words), first a pair without value; run in a process of its own.

    Signals of the terminal stay blocked, as `start` left them: the command's own process decides.
    """
    try:
        function = make()
    except Exception as error:
        connection.send((None, f"{type(error).__name__}: {first_line(error)}"))
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)  # libraries print what they think of damaged files
    connection.send((None, ""))
    while True:
        try:
            item = connection.recv()
        except EOFError:
            return
        try:
            answer = (function(item), "")
        except Exception as error:
            answer = (None, f"{type(error).__name__}: {first_line(error)}")
        connection.send(answer)
