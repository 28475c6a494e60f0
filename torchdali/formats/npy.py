"""Arrays in NumPy's .npy files."""

from __future__ import annotations

import functools
import io
import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..storage import Bytes, Storage


def as_npy(data: Bytes) -> NDArray[Any]:
    """Read the array of a .npy file, in this machine's byte order and in C order.

    Raises:
        ValueError: it is not a .npy file, has a dtype without a tensor, or another number of bytes than its header
            says: surplus bytes before the data would shift the data.
    """
    start = data[:12].tobytes()
    if len(start) < 12 or start[:6] != b"\x93NUMPY":
        raise ValueError(f"a .npy file was expected, got {start!r}")
    size = 10 + int.from_bytes(start[8:10], "little") if start[6] == 1 else 12 + int.from_bytes(start[8:12], "little")
    if size > len(data):
        raise ValueError(f"a .npy header of {size} bytes was expected, got {len(data)} bytes")
    shape, fortran, dtype = _npy_header(data[:size].tobytes())
    count = math.prod(shape)
    if len(data) - size != count * dtype.itemsize:
        raise ValueError(
            f"{count * dtype.itemsize} bytes of {dtype} {list(shape)} were expected at offset {size}, "
            f"got {len(data) - size}"
        )
    array = np.frombuffer(data, dtype, count, size).reshape(shape, order="F" if fortran else "C")
    return np.require(array, dtype.newbyteorder("="), ["C", "A"])


def npy_layout(file: Storage) -> tuple[int, np.dtype[Any], int] | None:
    """Read from a .npy file's header where its elements begin, their dtype and number; None for any other file.

    Raises:
        ValueError: it is cut off, holds no 1-d array of numbers, or only its name is that of a .npy file.
    """
    start = file.read(0, min(12, file.size)).tobytes()
    if start[:6] != b"\x93NUMPY" and not file.path.endswith(".npy"):
        return None
    if len(start) < 12 or start[:6] != b"\x93NUMPY":
        raise ValueError(f"{file.path}: a .npy file was expected, got {start!r}")
    size = 10 + int.from_bytes(start[8:10], "little") if start[6] == 1 else 12 + int.from_bytes(start[8:12], "little")
    if size > file.size:
        raise ValueError(f"{file.path}: a .npy header of {size} bytes was expected, got {file.size} bytes")
    try:
        shape, _, dtype = _npy_header(file.read(0, size).tobytes())
    except ValueError as error:
        raise ValueError(f"{file.path}: {error}") from None
    whole = size + math.prod(shape) * dtype.itemsize
    if len(shape) != 1 or file.size != whole:
        raise ValueError(
            f"{file.path}: an array of one dimension, in {whole} bytes, was expected, got {dtype} {list(shape)} in "
            f"{file.size} bytes"
        )
    return size, dtype, shape[0]


@functools.lru_cache(64)
def _npy_header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Parse a header to (shape, Fortran order, dtype); cached, since most files of a dataset have equal headers."""
    file = io.BytesIO(header)
    version = np.lib.format.read_magic(file)
    try:
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        elif version in ((2, 0), (3, 0)):  # for numbers, both are the same; 3.0 is for field names that are not ASCII
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
        else:
            raise ValueError(f"the version {version[0]}.{version[1]} is unknown")
    except Exception as error:  # numpy parses it as Python code, so any error of Python's parser may be raised
        raise ValueError(f"a .npy header of numbers was expected: {error}") from None
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise ValueError(f"an array of bools, integers or floats was expected, got {dtype}")
    if any(extent < 0 for extent in shape):
        raise ValueError(f"extents of at least 0 were expected, got the shape {list(shape)}")
    return shape, fortran, dtype


def npy_header(path: str) -> tuple[np.dtype[Any], int]:
    """Read the dtype and the number of dimensions of a .npy file, and check that it is whole.

    Raises:
        ValueError: it is cut off, or is not a .npy file.
    """
    with open(path, "rb") as file:
        if file.read(6) != np.lib.format.MAGIC_PREFIX:
            raise ValueError(f"{path} is not a .npy file")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        size = array.offset + array.nbytes if isinstance(array, np.memmap) else 0
        if size and size != os.path.getsize(path):
            raise ValueError(f"{size} bytes were expected, got {os.path.getsize(path)}")
    except OSError:
        raise
    except Exception as error:  # numpy parses the header as Python code: any of its parser's errors may be raised
        raise ValueError(f"{path} is not a .npy file that DALI can read: {error}") from error
    return array.dtype, array.ndim
