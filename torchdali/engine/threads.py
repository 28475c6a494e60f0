"""Threads that work on several samples at a time."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

_setting_threads = threading.Lock()


def thread_pool(workers: int) -> ThreadPoolExecutor:
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
    for future in [pool.submit(ready.wait, 10.0) for _ in range(workers)]:
        future.result()
    with _setting_threads:
        torch.set_num_threads(before)
    return pool
