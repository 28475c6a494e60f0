"""Threads that no one waits for at the end: a read from slow storage, or a user's function, may never return."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

PATIENCE = 1.0  # seconds to wait for threads at the end; one may never return

T = TypeVar("T")
R = TypeVar("R")
Task = tuple[int, Callable[[], Any], "SimpleQueue[tuple[int, Any, BaseException | None]]"]


class DaemonThreads:
    """Some threads that call functions, each result in its place.

    Those of `concurrent.futures` are joined at the interpreter's exit, which a read that never returns would stop.

    Args:
        count: the number of threads.
        name: the start of their names.
    """

    def __init__(self, count: int, name: str) -> None:
        self._count, self._name = count, name
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)  # threads that wait for a task
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()
        # Where Ctrl-C comes before anyone knows these threads, or before they are closed, they end with this object.
        weakref.finalize(self, _end, self._tasks, self._threads)

    def map(self, function: Callable[[T], R], values: Iterable[T]) -> list[R]:
        """Call a function with each value, several at a time; the first error of the results rises.

        Any thread may call it, several at a time.
        """
        answers: SimpleQueue[tuple[int, Any, BaseException | None]] = SimpleQueue()
        count = 0
        for count, value in enumerate(values, 1):
            self._tasks.put((count - 1, lambda value=value: function(value), answers))  # type: ignore[misc]
            if not self._idle.acquire(blocking=False):
                self._start()
        found = sorted((answers.get() for _ in range(count)), key=lambda answer: answer[0])
        for _, _, error in found:
            if error is not None:
                raise error
        return [result for _, result, _ in found]

    def _start(self) -> None:
        """Start one more thread, up to their number: a thread costs fresh memory, and fast reads need few."""
        with self._starting:
            if len(self._threads) < self._count:
                name = f"{self._name}_{len(self._threads)}"
                thread = threading.Thread(target=_work, args=(self._tasks, self._idle), name=name, daemon=True)
                self._threads.append(thread)  # before it starts: Ctrl-C may come in there
                try:
                    thread.start()
                except RuntimeError:  # the system gives no thread
                    self._threads.remove(thread)
                    raise

    def close(self) -> None:
        """Let the threads end, each after what it does now; those that wait have ended when this returns."""
        _end(self._tasks, self._threads)
        until = time.monotonic() + PATIENCE
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(until - time.monotonic(), 0))


def map_in_threads(function: Callable[[T], R], values: Sequence[T], count: int, name: str) -> list[R]:
    """Call a function with each value, in up to `count` threads; in the caller's where there is one value or thread.

    Ctrl-C ends it at once, also beside calls that never return.
    """
    if min(count, len(values)) < 2:
        return [function(value) for value in values]
    threads = DaemonThreads(count, name)
    try:
        return threads.map(function, values)
    finally:
        threads.close()


def _end(tasks: SimpleQueue[Task | None], threads: list[threading.Thread]) -> None:
    for _ in threads:
        tasks.put(None)


def _work(tasks: SimpleQueue[Task | None], idle: threading.Semaphore) -> None:
    while (task := tasks.get()) is not None:
        number, function, answers = task
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:
            error = raised
        idle.release()
        answers.put((number, result, error))
        del task, function, answers, result, error  # not kept while it waits
