"""The form of masks: any number of moves is one gather of ids, in numpy, on the host.

Crops, nearest resizes and flips take whole rows and columns, so a chain of them is one index vector of rows and one of
columns.  An affine move or a warp makes it an index per pixel.  Ids are copied and never computed with, so they stay
exact (torchvision's go through float32, which has 24 bits).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..moves import Affine, Crop, Crop3d, Flip, Move, Resize, Warp, check_flat, fill_of
from .grid import nearest_pixels

Index = NDArray[np.int64]


@dataclass(frozen=True)
class Gather:
    """Where the pixels of a moved mask come from.

    A negative entry -1 - k stands for what move k let in from outside.

    Attributes:
        rows: int64 [h], columns: int64 [w], of the mask, or of `pixels`.
        pixels: int64 [h', w'] of the flat mask [H * W]; None: rows and columns are the mask's.
    """

    rows: Index
    columns: Index
    pixels: Index | None = None


def move_mask(mask: NDArray[Any], moves: Sequence[Move], i: int, fill: Any = 0) -> NDArray[Any]:
    """Move one sample's mask [..., H, W] of any dtype; the result may be a view of it.

    Args:
        mask: ids per pixel.
        moves: of the batch, with one row per sample.
        i: the sample's row.
        fill: of what comes in from outside, where a move's own `fill` doesn't name masks.

    Raises:
        ValueError: a move goes into depths.
    """
    moved: NDArray[Any] = mask
    gather = gather_of(mask.shape[-2:], moves, i)
    rows, columns = gather.rows, gather.columns
    pixels = gather.pixels
    if pixels is not None:
        pixels = take_axis(take_axis(pixels, rows, -2), columns, -1)
        moved = mask.reshape(*mask.shape[:-2], mask.shape[-2] * mask.shape[-1]).take(pixels, -1, mode="clip")
    else:
        for index, axis in sorted(((rows, -2), (columns, -1)), key=lambda entry: len(entry[0]) / mask.shape[entry[1]]):
            moved = take_axis(moved, index, axis)  # first what takes least
    last = min(int(index.min(initial=0)) for index in (rows, columns, *([] if pixels is None else [pixels])))
    if last < 0 and np.may_share_memory(moved, mask):
        moved = moved.copy()
    for code in range(-1, last - 1, -1):  # a later move covers an earlier one
        value = fill_of(getattr(moves[-1 - code], "fill", None), "mask", fill)
        if pixels is not None:
            moved[..., pixels == code] = value
        moved[..., rows == code, :] = value
        moved[..., columns == code] = value
    return moved


def gather_of(size: Sequence[int], moves: Sequence[Move], i: int) -> Gather:
    """Give where the pixels of a mask of a size (height, width) come from after the moves of sample i."""
    gather = Gather(np.arange(size[0]), np.arange(size[1]))
    for k, move in enumerate(moves):
        check_flat(move, "mask")
        if isinstance(move, (Affine, Warp)):
            gather = _sampled(gather, int(size[1]), one(move, i), -1 - k)
        else:
            assert not isinstance(move, Crop3d)
            rows, columns = (
                move_axis(index, move, axis, i, -1 - k) for axis, index in enumerate((gather.rows, gather.columns))
            )
            gather = Gather(rows, columns, gather.pixels)
    return gather


def one(move: Affine | Warp, i: int) -> Affine | Warp:
    """Give the values of sample i."""
    if isinstance(move, Warp):
        return Warp(move.displacement[i], move.interpolation, move.fill)
    return Affine(move.matrix[i], move.size[i], move.interpolation, move.fill)


def move_axis(index: Index, move: Crop | Resize | Flip, axis: int, i: int, code: int) -> Index:
    """Give the entries of an axis after a move of sample i: those of `index`, or `code` for what lies outside."""
    n = len(index)
    if isinstance(move, Flip):
        return np.flip(index) if move.axis == axis and move.on[i] else index
    if isinstance(move, Resize):
        return index.take(_nearest(n, int(move.size[i][axis]), exact=move.interpolation == "nearest-exact"))
    start = int(move.start[i][axis])
    at = np.arange(start, start + int(move.shape[i][axis]))
    if move.padding_mode == "reflect":
        at = n - 1 - np.abs(n - 1 - at % max(2 * n - 2, 1))
    elif move.padding_mode == "symmetric":
        at = n - 1 - np.abs(n - 1 - at % (2 * n) + 0.5).astype(np.int64)
    elif move.padding_mode == "constant":
        return np.where((at >= 0) & (at < n), index.take(at, mode="clip"), code)
    return index.take(at, mode="clip")


def _nearest(n: int, size: int, exact: bool) -> Index:
    """Give the pixels of n that torch's `interpolate` takes for `size`: it counts in float32."""
    if n == size:
        return np.arange(n)
    at = np.arange(size, dtype=np.float32) + np.float32(0.5 if exact else 0)
    taken: Index = np.minimum((at * (np.float32(n) / np.float32(size))).astype(np.int64), n - 1)
    return taken


def _sampled(gather: Gather, width: int, move: Affine | Warp, code: int) -> Gather:
    height_here, width_here = len(gather.rows), len(gather.columns)
    pixels = nearest_pixels(move, (height_here, width_here))
    if pixels is None:
        return gather
    if gather.pixels is not None:
        source = take_axis(take_axis(gather.pixels, gather.rows, -2), gather.columns, -1)
    else:
        source = gather.rows[:, None] * width + gather.columns
    if min(gather.rows.min(), gather.columns.min()) < 0:
        outside = np.minimum(gather.rows, 0)[:, None]
        outside = np.minimum(outside, gather.columns)
        source = np.where(outside < 0, outside, source)
    pixels = np.where(pixels < 0, code, source.reshape(-1).take(pixels, mode="clip"))
    return Gather(np.arange(pixels.shape[0]), np.arange(pixels.shape[1]), pixels)


def take_axis(array: NDArray[Any], index: Index, axis: int) -> NDArray[Any]:
    """Take entries along one of the last axes, -1, -2, ...; a view if they are neighbours."""
    first, last = int(index[0]), int(index[-1])
    step = 1 if last >= first else -1
    if min(first, last) >= 0 and abs(last - first) == len(index) - 1 and (np.diff(index) == step).all():
        window = slice(first, last + step if last + step >= 0 else None, step)
        return array[(..., window, *[slice(None)] * (-1 - axis))]
    return array.take(index, axis, mode="clip")
