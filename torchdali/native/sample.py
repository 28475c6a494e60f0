"""Pixels at any places of an image, by the kernel in C, which gives the bits of torch's `grid_sample`."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .library import library

MOST_CHANNELS = 4
COUNTABLE = 1 << 31
"""Pixels that 32 bits count."""
LARGEST = 1 << 22
"""Rows or columns whose halves float32 still counts."""


class _Sampling(ctypes.Structure):
    _fields_ = (
        ("pixels", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("channels", ctypes.c_int64),
        ("out", ctypes.c_void_p),
        ("out_rows", ctypes.c_int64),
        ("out_columns", ctypes.c_int64),
        ("grid", ctypes.c_void_p),
        ("matrix", ctypes.c_void_p),
        ("divisor", ctypes.c_void_p),
        ("first_column", ctypes.c_float),
        ("first_row", ctypes.c_float),
        ("bilinear", ctypes.c_int64),
        ("fill", ctypes.c_void_p),
        ("places", ctypes.c_void_p),
        ("exact", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Matrix:
    """Where pixels of a result come from: (x, y), from -1 to 1 over the source.

    Attributes:
        above: float32 [2, 3], of (column, row, 1).
        below: [3]; both are divided by what it makes, less one; None: not.  Columns and rows are then counted from the
            upper left corner, and else from the middle.
    """

    above: NDArray[np.float32]
    below: NDArray[np.float64] | None = None


def takes(image: torch.Tensor, mode: str) -> bool:
    """Whether the kernel samples such an image, [..., C, H, W]."""
    return (
        image.dtype == torch.uint8
        and image.device.type == "cpu"
        and mode in ("nearest", "bilinear")
        and type(image) is torch.Tensor
        and image.ndim >= 3
        and 0 < image.shape[-3] <= MOST_CHANNELS
        and image.numel() > 0
        and max(image.shape[-2:]) < LARGEST
        and _kernel() is not None
    )


def sampled(
    image: torch.Tensor, where: Matrix | torch.Tensor, result: tuple[int, int], mode: str, fill: Any
) -> torch.Tensor | None:
    """Take pixels of an image that the kernel `takes`; the interpreter is free meanwhile.

    Args:
        image: uint8 [..., C, H, W]; fastest where the channels lie last in memory.
        where: the pixels come from; or a grid [1, h, w, 2], float32.
        result: height and width of the result.
        mode: "nearest" or "bilinear".
        fill: a number, or one for each channel; None: zeros, which are weighed once at the edges.

    Returns:
        uint8 [..., C, h, w], with the channels last in memory; None: the kernel does not give torch's bits here.
    """
    call = _kernel()
    if call is None or (isinstance(where, Matrix) and not _multiplies_plainly()):
        return None
    pixels = image.movedim(-3, -1).contiguous()
    *batch, rows, columns, channels = pixels.shape
    made = torch.empty((*batch, *result, channels), dtype=torch.uint8)
    to = _Sampling(rows=rows, columns=columns, channels=channels, out_rows=result[0], out_columns=result[1])
    to.bilinear = mode == "bilinear"
    kept: list[Any] = []  # the memory that the kernel reads
    if fill is not None:
        kept.append(np.ascontiguousarray(np.broadcast_to(np.asarray(fill, np.float32).reshape(-1), (channels,))))
        to.fill = kept[-1].ctypes.data
    if isinstance(where, Matrix):
        kept += _set_matrix(to, where)
    else:
        kept.append(where.contiguous())
        to.grid = kept[-1].data_ptr()
    size, out_size = rows * columns * channels, result[0] * result[1] * channels
    for k in range(image.numel() // size):
        to.pixels, to.out = pixels.data_ptr() + k * size, made.data_ptr() + k * out_size
        call(ctypes.byref(to))
    return made.movedim(-1, -3)


def nearest(where: Matrix, result: tuple[int, int], size: tuple[int, int]) -> NDArray[np.int64] | None:
    """Give the numbers of the nearest pixels of an image, row by row; -1 is outside.

    Args:
        where: the pixels come from.
        result: height and width of the result.
        size: of the image, of less than `COUNTABLE` pixels.

    Returns:
        [h, w]; None: there is no kernel, or it does not give torch's bits here.
    """
    call = _kernel()
    if call is None or not _multiplies_plainly() or max(size) >= LARGEST:
        return None
    places = np.empty(result, np.int32)
    to = _Sampling(rows=size[0], columns=size[1], channels=1, out_rows=result[0], out_columns=result[1])
    to.places = places.ctypes.data
    kept = _set_matrix(to, where)
    call(ctypes.byref(to))
    del kept
    return places.astype(np.int64)


def _set_matrix(to: _Sampling, where: Matrix) -> list[Any]:
    """Let the kernel compute where pixels come from; gives the memory that it reads."""
    kept = [np.ascontiguousarray(where.above, np.float32)]
    to.first_column, to.first_row = (1 - to.out_columns) / 2, (1 - to.out_rows) / 2
    if where.below is not None:
        kept.append(np.ascontiguousarray(where.below, np.float32))
        to.divisor, to.first_column, to.first_row = kept[1].ctypes.data, 0.5, 0.5
    to.matrix = kept[0].ctypes.data
    return kept


@functools.cache
def _kernel() -> Any:
    """Give the kernel; None: there is none, or torch's own does not fuse products and sums like it on this CPU."""
    loaded = library()
    if loaded is None or not loaded.torchdali_samples():
        return None
    call = loaded.torchdali_sample
    call.argtypes, call.restype = [ctypes.POINTER(_Sampling)], None
    return call if _agrees(call) else None


def _agrees(call: Any) -> bool:
    """Compare some thousand numbers with torch's before they are rounded.

    A torch that was compiled otherwise, or takes its plain kernels (`ATEN_CPU_CAPABILITY=default`), fuses otherwise.
    """
    generator, (rows, columns), (height, width) = torch.Generator().manual_seed(0), (37, 53), (60, 70)
    image = torch.randint(0, 256, (1, 1, rows, columns), generator=generator, dtype=torch.uint8)
    grid = torch.rand((1, height, width, 2), generator=generator, dtype=torch.float32) * 2.4 - 1.2
    expected = torch.nn.functional.grid_sample(image.float(), grid, padding_mode="zeros", align_corners=False)
    made, exact = torch.empty(height, width, dtype=torch.uint8), torch.empty(height, width, dtype=torch.float32)
    to = _Sampling(image.data_ptr(), rows, columns, 1, made.data_ptr(), height, width, grid.data_ptr())
    to.bilinear, to.exact = True, exact.data_ptr()
    call(ctypes.byref(to))
    return torch.equal(exact, expected[0, 0])


@functools.cache
def _multiplies_plainly() -> bool:
    """Whether torch's matrix product rounds each product and each sum here, as the kernel's does."""
    generator = torch.Generator().manual_seed(0)
    for rows, columns in ((1, 1), (5, 7), (48, 64), (224, 224)):
        base = torch.empty(rows, columns, 3, dtype=torch.float32)
        base[..., 0], base[..., 1] = torch.arange(columns) - 3.5, (torch.arange(rows) - 2.5)[:, None]
        base[..., 2] = 1
        theta = torch.rand((1, 3, 2), generator=generator, dtype=torch.float32) - 0.5
        a, b, c = theta[0]
        plain = base[..., :1] * a + base[..., 1:2] * b + c
        if not torch.equal(base.view(1, -1, 3).bmm(theta)[0], plain.view(-1, 2)):
            return False
    return True
