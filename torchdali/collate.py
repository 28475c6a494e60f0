"""Samples to batches: output memory that comes back, dense and padded tensors."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .batch import Column, Padded


class Pool:
    """Host memory for batches, owned by whoever holds a batch and reused when its last view is gone.

    Fresh memory costs a page fault for every 4 KiB: ten times the work of writing it.  A buffer is lent as a new array
    (the lease) that only the tensor's storage keeps alive: every view, `detach`, `numpy()`, DLPack capsule and autograd
    graph holds the storage, so the lease ends exactly when nothing can reach the memory.

    Args:
        keep: how many free buffers are kept.
    """

    def __init__(self, keep: int = 8) -> None:
        self._keep = keep
        self._free: list[NDArray[np.uint8]] = []
        self._lock = threading.RLock()  # a lease may end in a garbage collection, that is anywhere

    def empty(self, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        """A contiguous tensor with any values in it."""
        size = math.prod(shape) * dtype.itemsize
        base = self._take(size)
        lease = base[:size]
        # Without atexit: at the end of the process there is nobody to give the memory back to.
        weakref.finalize(lease, self._give, base).atexit = False
        return torch.from_numpy(lease).view(dtype).view(*shape)

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


def padded_extent(sizes: NDArray[np.int64], multiple: int) -> tuple[int, ...]:
    """The smallest extent that holds all sizes, rounded up to a multiple."""
    largest = sizes.max(axis=0)
    return tuple(int(-(-extent // multiple) * multiple) for extent in largest)


def pad_rows(rows: Sequence[torch.Tensor], out: torch.Tensor, value: float) -> torch.Tensor:
    """Copy rows of any sizes into `out` [N, *extent] and fill the rest."""
    for i, row in enumerate(rows):
        if row.shape != out.shape[1:]:
            out[i].fill_(value)
        out[i][tuple(slice(0, extent) for extent in row.shape)].copy_(row)
    return out


def collate_numbers(column: Column, device: torch.device) -> torch.Tensor:
    """[N] of a column of numbers."""
    return torch.from_numpy(np.array(column)).to(device, non_blocking=True)


def collate_arrays(
    column: Column, uniform: bool | None, device: torch.device, value: float, multiple: int
) -> torch.Tensor | Padded:
    """[N, ...] of uniform arrays, else all of their dimensions padded; None: uniform where these ones are."""
    if len(column) and isinstance(column[0], torch.Tensor):
        return _collate_tensors(list(column), device, value, multiple)  # those that a reader made on a GPU
    if isinstance(column, list) and len({(row.dtype, row.ndim) for row in column}) > 1:
        seen = sorted({(str(row.dtype), row.ndim) for row in column})
        raise TypeError(f"arrays of a batch must have one dtype and number of dimensions, got {seen}")
    if uniform is None:
        uniform = len({row.shape for row in column}) == 1
    if uniform:
        return torch.from_numpy(np.array(column)).to(device, non_blocking=True)
    sizes = np.array([row.shape for row in column], np.int64)
    shape = (len(column), *padded_extent(sizes, multiple))
    out = np.full(shape, value, column[0].dtype) if value else np.zeros(shape, column[0].dtype)
    for i, row in enumerate(column):
        inside: tuple[slice, ...] = tuple(map(slice, row.shape))
        out[i][inside] = row
    return Padded(torch.from_numpy(out).to(device), torch.from_numpy(sizes).to(device))


def _collate_tensors(
    column: Sequence[torch.Tensor], device: torch.device, value: float, multiple: int
) -> torch.Tensor | Padded:
    sizes = np.array([row.shape for row in column], np.int64)
    if (sizes == sizes[0]).all():
        return torch.stack(list(column)).to(device)
    out = column[0].new_empty((len(column), *padded_extent(sizes, multiple)))
    return Padded(pad_rows(column, out, value).to(device), torch.from_numpy(sizes).to(device))


def as_dict(fields: dict[str, Any]) -> dict[str, Any]:
    """The batch as plain values: a padded field `x` becomes `x` and `x_sizes`."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Padded):
            flat[name], flat[f"{name}_sizes"] = value
        else:
            flat[name] = value
    return flat
