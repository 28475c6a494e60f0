"""Images into the rows of a batch, by the kernel in C: window, resize, flip and normalise in one pass."""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from .library import library

FIELDS = (
    *("pixels", "stride", "rows", "columns"),
    *("top", "left", "height", "width"),
    *("full_height", "full_width", "out_top", "out_left", "out_height", "out_width"),
    *("flip_rows", "flip_columns"),
)
PICTURE = np.dtype([(name, np.int64) for name in FIELDS])
"""One image and its way into its row, as `Picture` in images.c."""


class _Batch(ctypes.Structure):
    _fields_ = (
        ("batch", ctypes.c_void_p),
        ("image_bytes", ctypes.c_int64),
        ("row_bytes", ctypes.c_int64),
        ("channels", ctypes.c_int64),
        ("bicubic", ctypes.c_int64),
        ("normalise", ctypes.c_int64),
        ("unit", ctypes.c_float),
        ("scale", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("fill", ctypes.c_void_p),
    )


@dataclass(frozen=True)
class Values:
    """What becomes of a number x of channel c: (x * unit) * scale[c] + bias[c], each step rounded to float32.

    Attributes:
        unit: for all channels.
        scale, bias: float32 [C].
    """

    unit: float
    scale: NDArray[np.float32]
    bias: NDArray[np.float32]


class Kernel:
    """The compiled kernels.

    Args:
        library: as ctypes loaded it.

    Attributes:
        resizes: this CPU can resize.
    """

    def __init__(self, library: ctypes.CDLL) -> None:
        self._write = library.torchdali_write_images
        number = ctypes.c_int64
        self._write.argtypes = [ctypes.c_void_p, number, number, number, ctypes.POINTER(_Batch)]
        self.resizes = bool(library.torchdali_resizes())

    def write(
        self,
        pictures: NDArray[np.void],
        part: range,
        batch: torch.Tensor,
        values: Values | None,
        fill: NDArray[np.uint8],
        bicubic: bool,
    ) -> None:
        """Write images into their rows; the interpreter is free meanwhile.

        Args:
            pictures: `PICTURE` [N]; the images that they point to are alive.
            part: the numbers of those to write.
            batch: contiguous [N, H, W, C], float32, or uint8 where `values` is None; smaller images fill its rows from
                the top left.
            values: what becomes of the numbers.
            fill: [C], of what lies outside an image.
            bicubic: resized so, else bilinear.

        Raises:
            MemoryError: there is not enough.
        """
        _, _, width, channels = batch.shape
        item = batch.element_size()
        plain = np.zeros(channels, np.float32)
        scale, bias = (plain, plain) if values is None else (values.scale, values.bias)
        to = _Batch(
            batch.data_ptr(),
            batch.stride(0) * item,
            width * channels * item,
            channels,
            bicubic,
            values is not None,
            1.0 if values is None else values.unit,
            scale.ctypes.data,
            bias.ctypes.data,
            fill.ctypes.data,
        )
        if self._write(pictures.ctypes.data, part.start, part.stop, part.step, ctypes.byref(to)):
            raise MemoryError("not enough memory to resize an image")


@functools.cache
def kernel() -> Kernel | None:
    """Give the kernels that write images; None: there are none here, and torch's give the same bits."""
    loaded = library()
    return Kernel(loaded) if loaded is not None and loaded.torchdali_runs() else None
