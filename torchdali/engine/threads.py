"""Threads that work on several samples at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch

_setting_threads = threading.Lock()


class SampleThreads:
    """Calls functions for the samples of batches, several at a time; the threads start with the first call.

    Args:
        count: the number of threads; 0: functions run in the calling thread.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._threads: ThreadPoolExecutor | None = None
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
            futures = [] if threads is None else [threads.submit(run, part) for part in parts]
        if threads is None:  # no caller waits for it
            run(range(n))
        for future in futures:
            future.result()

    def close(self) -> None:
        """End the threads."""
        with self._lock:
            threads, self._threads, self._closed = self._threads, None, True
        if threads:
            threads.shutdown()


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


def _thread_pool(workers: int) -> ThreadPoolExecutor:
    """Start threads in which torch's own parallelism is off: they work on several samples at a time already.

    `torch.set_num_threads` holds for the calling thread, and for threads that start later: it is put back at once.
    """
    before = torch.get_num_threads()

    def begin() -> None:
        torch.get_num_threads()  # a thread's first look takes over the process's number, and must not come later
        with _setting_threads:
            torch.set_num_threads(1)

    pool = ThreadPoolExecutor(workers, thread_name_prefix="torchdali-host", initializer=begin)
    ready = threading.Barrier(workers)
    try:
        for future in [pool.submit(ready.wait, 10.0) for _ in range(workers)]:
            future.result()
    except BaseException:  # Ctrl-C
        ready.abort()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    finally:
        with _setting_threads:
            torch.set_num_threads(before)
    return pool
