"""Threads that work on several samples at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from ..threads import DaemonThreads

BEGINNING = 60.0  # seconds until all threads must have begun; a busy machine takes some

_setting_threads = threading.Lock()


class SampleThreads:
    """Calls functions for the samples of batches, several at a time; the threads start with the first call.

    Args:
        count: the number of threads; 0: functions run in the calling thread.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._threads: DaemonThreads | None = None
        self._lock, self._closed = threading.Lock(), False

    def each(self, run: Callable[[range], None], n: int) -> None:
        """Call a function for parts of a range, several at a time; from any thread, until `close`."""
        if not self._count:
            with _one_thread():  # BLAS sums in another order with more
                run(range(n))
            return
        workers = min(self._count, n)
        # Neighbours in one thread: two that touch a fresh page at the same time both clear it.
        parts = [range(n * k // workers, n * (k + 1) // workers) for k in range(workers)]
        with self._lock:
            if self._threads is None and not self._closed:
                self._threads = _thread_pool(self._count)
            threads = self._threads
        if threads is None:  # closed: no caller waits for it
            run(range(n))
        else:
            threads.map(run, parts)

    def close(self) -> None:
        """End the threads; one whose function never returns is left to itself."""
        with self._lock:
            threads, self._threads, self._closed = self._threads, None, True
        if threads:
            threads.close()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Switch torch's own parallelism off in a block, in the calling thread."""
    before = torch.get_num_threads()
    with _setting_threads:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        with _setting_threads:
            torch.set_num_threads(before)


def _thread_pool(workers: int) -> DaemonThreads:
    """Start threads in which torch's own parallelism is off: they work on several samples at a time already.

    `torch.set_num_threads` holds for the calling thread, and for threads that start later: it is put back at once.
    """
    before = torch.get_num_threads()
    ready = threading.Barrier(workers)

    def begin(_: int) -> None:
        torch.get_num_threads()  # a thread's first look takes over the process's number, and must not come later
        with _setting_threads:
            torch.set_num_threads(1)
        ready.wait(BEGINNING)  # each in a thread of its own

    pool = DaemonThreads(workers, "torchdali-host")
    try:
        pool.map(begin, range(workers))
    except BaseException:  # Ctrl-C, or the system gives no thread
        ready.abort()
        pool.close()
        raise
    finally:
        with _setting_threads:
            torch.set_num_threads(before)
    return pool
