"""Large arrays on their way to workers: all workers map one copy of them, and pages are private once they are written.

An array that lies in a file, a `np.memmap` or a part of one, is mapped from the file again.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds
from numpy.typing import NDArray

from .memory import allocate

LARGE = 1 << 20  # bytes; smaller buffers are pickled
_REOPENED = {"r": "r", "r+": "r+", "w+": "r+"}  # modes of a memmap, and those in which workers map its file


class Block:
    """The large buffers of a value that is pickled, by protocol 5.

    Attributes:
        sizes: their sizes in bytes.
    """

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self._buffers: list[pickle.PickleBuffer] = []

    def take(self, buffer: pickle.PickleBuffer) -> bool:
        """Take a buffer out of the pickled data, if it is large; True: it stays there."""
        size = buffer.raw().nbytes
        if size < LARGE:
            return True
        self._buffers.append(buffer)
        self.sizes.append(size)
        return False

    def write(self) -> int:
        """Write the buffers to memory that other processes can map, and give its file descriptor.

        Raises:
            SharedMemoryError: there is too little.
        """
        fd = allocate("torchdali-arrays", sum(map(_padded, self.sizes)))
        with mmap.mmap(fd, 0) as memory, memoryview(memory) as view:
            at = 0
            for buffer, size in zip(self._buffers, self.sizes, strict=True):
                view[at : at + size] = buffer.raw()
                at += _padded(size)
        return fd


def read(fd: int, sizes: Sequence[int]) -> list[memoryview]:
    """Map the buffers that `Block.write` wrote; what is written to them stays in this process."""
    view = memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_COPY))
    buffers, at = [], 0
    for size in sizes:
        buffers.append(view[at : at + size])
        at += _padded(size)
    return buffers


def reduced(array: NDArray[Any]) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """Reduce a large array for `pickle` where its own way would copy it for each worker; None where it would not."""
    if array.nbytes < LARGE or array.dtype.hasobject:
        return None
    in_file = _in_file(array)
    if in_file is not None:
        return in_file
    if type(array) is np.memmap or (type(array) is np.ndarray and not array.flags.forc):
        # Other strides, and other types than numpy's own, are no buffers.
        return _viewed, (np.ascontiguousarray(array.view(np.ndarray)), type(array))
    return None


def _in_file(array: NDArray[Any]) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """Reduce an array that lies in a file: the file, and the place in it."""
    root: Any = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    mode, path = getattr(root, "mode", None), getattr(root, "filename", None)
    if type(array) not in (np.memmap, np.ndarray) or not isinstance(root, np.memmap) or mode not in _REOPENED:
        return None
    first, end = byte_bounds(array)
    begin = root.offset + first - byte_bounds(root)[0]
    try:
        there = path is not None and os.path.getsize(path) >= begin + end - first
    except OSError:
        there = False  # it was deleted: the memory alone has it
    if not there:
        return None
    place = array.ctypes.data - first, array.dtype, array.shape, array.strides, array.flags.writeable
    return _map_file, (type(array), str(path), _REOPENED[mode], begin, end - first, *place)


def _map_file(
    kind: type[NDArray[Any]],
    path: str,
    mode: Any,
    begin: int,
    size: int,
    offset: int,
    dtype: np.dtype[Any],
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    writeable: bool,
) -> NDArray[Any]:
    mapped = np.memmap(path, np.uint8, mode, begin, size)
    array: NDArray[Any] = np.ndarray(shape, dtype, mapped, offset, strides)
    array.flags.writeable = writeable
    return array.view(kind)


def _viewed(array: NDArray[Any], kind: type[NDArray[Any]]) -> NDArray[Any]:
    return array.view(kind)


def _padded(size: int) -> int:
    """Round a size up, so that the next buffer begins where any array may."""
    return -(-size // 64) * 64
