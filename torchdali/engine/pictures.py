"""The host part of a batch in one pass: its steps, put together into what the kernel in C does, if it can do them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import Column
from ..forms.image import fill_values, in_rows
from ..moves import Crop, Flip, Move, Resize, Sizes
from ..native.images import PICTURE, Kernel, Values, kernel
from ..transforms.base import Mover, Params, Transform
from ..transforms.values import Normalize, ToDtype


@dataclass
class _Way:
    """The way of a batch's images, as far as it is known: a window, a resize, a window of that, flips, values."""

    sizes: Sizes
    window: tuple[NDArray[Any], NDArray[Any]] | None = None
    fill: Any = 0
    resize: Resize | None = None
    cut: tuple[NDArray[Any], NDArray[Any]] | None = None
    flips: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    values: Values | None = None

    def move(self, move: Move) -> bool:
        """Take a move; False: the kernel can't do it here."""
        if self.values is not None:
            return False
        if isinstance(move, Flip) and move.axis in (0, 1):
            on = np.asarray(move.on, bool)
            self.flips[move.axis] = on ^ self.flips.get(move.axis, np.zeros(len(on), bool))
            return True
        if self.flips:
            return False
        if isinstance(move, Crop):
            return self._crop(move)
        if not isinstance(move, Resize) or self.resize or self.cut or not move.antialias:
            return False  # the second window is of what was resized
        self.resize = move
        self.sizes = move.sizes(self.sizes)
        return move.interpolation in ("bilinear", "bicubic")

    def _crop(self, move: Crop) -> bool:
        start, shape = np.asarray(move.start, np.int64), np.asarray(move.shape, np.int64)
        inside = bool(((start >= 0) & (start + shape <= self.sizes)).all())
        if self.resize is None and self.window is None:
            self.window, self.fill = (start, shape), move.fill
            if not inside and move.padding_mode != "constant":
                return False
        elif self.cut is None and inside:
            self.cut = (start, shape)
        else:
            return False
        self.sizes = shape
        return True

    def change(self, step: Transform, channels: int) -> bool:
        """Take a step of values; False: the kernel can't do it here."""
        if type(step) is ToDtype:
            if step.dtype is None or (step.dtype == torch.uint8 and self.values is None):
                return True
            if step.dtype != torch.float32 or self.values is not None:
                return False
            zero = np.zeros(channels, np.float32)
            self.values = Values(1 / 255 if step.scale else 1.0, zero + 1, zero)
            return True
        if type(step) is not Normalize or len(step.mean) not in (1, channels):
            return False
        if self.values is not None and (self.values.scale != 1).any():
            return False
        unit = 1.0 if self.values is None else self.values.unit
        scale, bias = (one.numpy() for one in step.affine(channels, self.values is None))
        self.values = Values(unit, scale, bias)
        return True


@dataclass(frozen=True)
class Pictures:
    """A batch's images, and how the kernel makes them.

    Attributes:
        kernel: makes them.
        images: kept alive while it does.
        rows: `PICTURE` [N].
        values: what becomes of the numbers.
        fill: uint8 [C], of what lies outside an image.
        bicubic: resized so, else bilinear.
    """

    kernel: Kernel
    images: Column
    rows: NDArray[np.void]
    values: Values | None
    fill: NDArray[np.uint8]
    bicubic: bool

    def write(self, part: range, batch: torch.Tensor) -> None:
        """Write some images into their rows of a contiguous batch [N, H, W, C]."""
        self.kernel.write(self.rows, part, batch, self.values, self.fill, self.bicubic)


def make_pictures(images: Column, steps: Sequence[tuple[Transform, Params]]) -> Pictures | None:
    """Put the steps of a batch together; None: the kernel can't do them, or is not there.

    Args:
        images: uint8 arrays [H, W, C], rows contiguous, or one array [N, H, W, C]; others are not for the kernel.
        steps: with the params of all samples.
    """
    found = kernel()
    placed = None if found is None else _place(images)
    if found is None or placed is None:
        return None
    pixels, strides, shapes, channels = placed
    way = _Way(shapes)
    for step, params in steps:
        if isinstance(step, Mover) and type(step).transform_host is Mover.transform_host:
            if not step.rowwise or not all(in_rows(move) and way.move(move) for move in step.moves(params)):
                return None
        elif not way.change(step, channels):
            return None
    try:
        fill = fill_values(way.fill, torch.uint8)
    except ValueError:
        return None  # torch's form says it
    if len(fill) not in (1, channels):
        return None
    rows = np.empty(len(images), PICTURE)
    rows["pixels"], rows["stride"] = pixels, strides
    start, shape = (0 * shapes, shapes) if way.window is None else way.window
    full = shape if way.resize is None else way.resize.sizes(shape)
    corner, out = (0 * full, full) if way.cut is None else way.cut
    if way.resize is None and way.cut is not None:
        if ((start < 0) | (start + shape > shapes)).any():
            return None  # the fill of the first window would have to stay
        start, shape, full, corner = start + corner, out, out, 0 * corner
    if (shape != full).any() or (out != full).any():
        inside = bool(((start >= 0) & (start + shape <= shapes)).all())
        if channels not in (1, 3) or not inside or not found.resizes:
            return None
    if min(shape.min(), full.min(), out.min()) < 1:
        return None
    for names, pairs in (
        (("rows", "columns"), shapes),
        (("top", "left"), start),
        (("height", "width"), shape),
        (("full_height", "full_width"), full),
        (("out_top", "out_left"), corner),
        (("out_height", "out_width"), out),
    ):
        for k, name in enumerate(names):
            rows[name] = pairs[:, k]
    rows["flip_rows"], rows["flip_columns"] = way.flips.get(0, 0), way.flips.get(1, 0)
    bicubic = way.resize is not None and way.resize.interpolation == "bicubic"
    filled = np.broadcast_to(np.array(fill).astype(np.uint8), channels).copy()
    return Pictures(found, images, rows, way.values, filled, bicubic)


def _place(images: Column) -> tuple[Any, Any, Sizes, int] | None:
    """Find where images lie: their addresses, the bytes from row to row, their sizes, and the number of channels.

    None: they are not uint8 arrays [H, W, C] of one number of channels, with rows that lie in one piece.
    """
    first = images[0]
    if not isinstance(first, np.ndarray) or first.ndim != 3:
        return None
    channels = first.shape[2]
    if isinstance(images, np.ndarray):
        if images.dtype != np.uint8 or images.strides[2:] != (channels, 1):
            return None
        begin = images.__array_interface__["data"][0]
        shapes = np.array([first.shape[:2]], np.int64).repeat(len(images), 0)
        return begin + images.strides[0] * np.arange(len(images)), images.strides[1], shapes, channels
    if not all(
        image.dtype == np.uint8 and image.strides[1:] == (channels, 1) and image.shape[2] == channels
        for image in images
    ):
        return None
    pixels = [image.__array_interface__["data"][0] for image in images]
    shapes = np.array([image.shape[:2] for image in images], np.int64)
    return pixels, [image.strides[0] for image in images], shapes, channels
