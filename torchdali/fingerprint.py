"""Short fingerprints of data: of values, and of files by their names."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

LARGE = 64 << 20  # bytes; of a larger array a sample counts
_PIECE = 1 << 20  # bytes that are copied at a time
_BLOCKS, _BLOCK = 256, 1 << 16  # the number of a sample's blocks, and their bytes


def digest(*values: Any) -> str:
    """Give a short fingerprint of plain values, the same in every process: anything else counts by its type alone.

    An array over 64 MiB counts by its dtype, its shape and 256 blocks of 64 KiB, evenly spread from its first element
    to its last, so that a dataset in memory or a memmap of any size costs little.  No array is copied as a whole.
    """
    hasher = hashlib.blake2b(digest_size=8)

    def add(data: bytes) -> None:
        hasher.update(_sized(data))

    def feed(value: Any) -> None:
        kind: Any = type(value)
        if kind is list and value and all(type(item) is int for item in value):  # tokens, of which there are many
            hasher.update(_head(list) + _sized(str(len(value)).encode()) + b"".join(map(_integer, value)))
            return
        hasher.update(_head(kind))
        if isinstance(value, str):
            add(value.encode("utf-8", "surrogatepass"))  # paths may hold any bytes
        elif isinstance(value, (bytes, bytearray, memoryview)):
            add(bytes(value))
        elif isinstance(value, (np.ndarray, np.generic, torch.Tensor)):
            array = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
            add(f"{_name_of(array.dtype)} {np.shape(value)}".encode())
            if array.dtype.hasobject:
                feed(array.tolist() if array.ndim else [array.item()])
            elif array.nbytes > LARGE:
                for block in _sample(array):
                    add(block)
            else:
                hasher.update(array.nbytes.to_bytes(8, "little"))
                for piece in _pieces(array):
                    hasher.update(piece.view(np.uint8).data)
        elif isinstance(value, (int, float, complex)):
            add(repr(value).encode())
        elif isinstance(value, Mapping):
            feed(list(value.items()))
        elif isinstance(value, (list, tuple)):
            add(str(len(value)).encode())
            for item in value:
                feed(item)

    feed(values)
    return hasher.hexdigest()


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data


@functools.lru_cache(256)
def _head(kind: Any) -> bytes:
    return _sized(kind.__qualname__.encode())


def _integer(number: int) -> bytes:
    return _INTEGER + _sized(repr(number).encode())


_INTEGER = _head(int)
_name_of = functools.lru_cache(64)(str)  # a dtype's: numpy puts it together each time


def _pieces(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Give an array's elements in C order, in contiguous pieces."""
    if array.flags.c_contiguous or array.nbytes <= _PIECE:
        yield np.ascontiguousarray(array).reshape(-1)
        return
    rows = max(1, _PIECE * len(array) // array.nbytes)
    for first in range(0, len(array), rows):
        part = array[first : first + rows]
        yield from _pieces(part[0] if len(part) == 1 and part.ndim > 1 else part)


def _sample(array: NDArray[Any]) -> Iterator[bytes]:
    """Give blocks of a large array's elements in C order, evenly spread."""
    length = max(1, _BLOCK // array.itemsize)
    last = array.size - length
    for block in range(_BLOCKS):
        first = block * last // (_BLOCKS - 1)
        yield array.flat[first : first + length].tobytes()


def below_common_folder(paths: Sequence[str]) -> list[str]:
    """Give the paths without the folder that all of them are in, so that it may move."""
    # The beginning that the first and the last name share, all share.
    first, last = min(paths), max(paths)
    shared = next((i for i, (a, b) in enumerate(zip(first, last)) if a != b), len(first))
    start = first.rfind("/", 0, shared) + 1
    return [path[start:] for path in paths]


def files_digest(paths: Sequence[str], *more: Any) -> str:
    """Give the digest of files by their names below their common folder, in order, and of other values."""
    return digest("\0".join(below_common_folder(paths)), *more)


def portable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Give options, sorted by name, in which paths count without their common folder, which may move."""

    def strip(value: Any) -> Any:
        if isinstance(value, str) and os.sep in value:
            return os.path.basename(value.rstrip(os.sep))
        if isinstance(value, list) and value and all(isinstance(item, str) and os.sep in item for item in value):
            shared = os.path.commonpath([os.path.dirname(item) for item in value])
            return [os.path.relpath(item, shared) for item in value]
        return value

    return {name: strip(value) for name, value in sorted(options.items())}
