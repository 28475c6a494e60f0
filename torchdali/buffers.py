"""Memory for batches that is used again."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray


class Pool:
    """Host memory for batches: a batch owns its memory, which is used again when its last view is gone.

    Fresh memory costs a page fault for every 4 KiB: ten times the work of writing it.  A buffer is lent as a new array
    (the lease) that only the tensor's storage keeps alive: every view, `detach`, `numpy()`, DLPack capsule and autograd
    graph holds the storage, so the lease ends exactly when nothing can reach the memory.

    Args:
        keep: the number of free buffers to keep at most.
    """

    def __init__(self, keep: int = 8) -> None:
        self._keep = keep
        self._free: list[NDArray[np.uint8]] = []
        self._lock = threading.RLock()  # a garbage collection may end a lease anywhere, in `_take` too

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """Make a contiguous tensor, not initialised."""
        size = math.prod(shape) * dtype.itemsize
        base = self._take(size)
        lease = base[:size]
        # Not at exit: the end of the process frees the memory.
        weakref.finalize(lease, self._give, base).atexit = False
        return torch.from_numpy(lease).view(dtype).view(*shape)

    def rest(self) -> bool:
        """Keep the free buffers for another pass; those that are lent come back when their batches are gone."""
        return True

    def _take(self, size: int) -> NDArray[np.uint8]:
        with self._lock:
            fitting = [i for i, base in enumerate(self._free) if size <= len(base) <= 2 * size + 4096]
            if fitting:
                return self._free.pop(min(fitting, key=lambda i: len(self._free[i])))
        return np.empty(max(size, 1), np.uint8)

    def _give(self, base: NDArray[np.uint8]) -> None:
        with self._lock:
            self._free.append(base)
            if len(self._free) > self._keep:
                del self._free[0]
