"""The form of points: moved for a whole ragged batch in numpy, bit for bit as torchvision's v2 kernels move them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..moves import Affine, Crop, Flip, Move, Resize, Sizes, Warp, check_flat
from ..ragged import Ragged


def move_points(points: Ragged, sizes: Sizes, moves: Sequence[Move], swap: Sequence[tuple[int, int]] = ()) -> Ragged:
    """Move the points of a batch; those that leave the image are neither clamped nor dropped.

    A point whose visibility is 0 was never marked, and stays where it is (COCO has 0, 0 there).  Flips count the
    middles of pixels, as torchvision has it: x becomes width - 1 - x.

    Args:
        points: [T, 2], [T, k, 2], or [T, k, 3] with visibility, of all samples, in pixels, of any real dtype.
        sizes: [N, 2] of the images before the moves.
        moves: with one row per sample.
        swap: pairs of the k points that exchange places in a horizontal flip.

    Raises:
        ValueError: points of another shape, or `swap` names one that isn't there, or a move goes into depths.
    """
    shape, owner = points.data.shape, points.owner
    if len(shape) < 2 or shape[-1] not in (2, 3):
        raise ValueError(f"points must be [m, 2], [m, k, 2] or [m, k, 3], got {list(shape)} for all samples")
    rows = _rows(points).copy()
    exchange = _exchange(swap, rows.shape[1])
    for move in moves:
        check_flat(move, "point")
        here, sizes = sizes, move.sizes(sizes)
        data = rows[..., :2]
        if isinstance(move, Crop):
            moved = data - np.asarray(move.start)[owner, None, ::-1].astype(data.dtype)
        elif isinstance(move, Resize):
            moved = _resize(data, here, sizes, owner)
        elif isinstance(move, Flip):
            moved = _flip(data, move.axis, np.asarray(move.on, bool)[owner], here[owner])
        elif isinstance(move, Affine):
            matrix = np.asarray(move.matrix)
            real = data if data.dtype.kind == "f" else data.astype(np.float32)
            moved = apply_matrix(real, matrix[owner]).astype(data.dtype, copy=False)
            moved = np.where(untouched(matrix, here, sizes)[owner, None, None], data, moved)
        else:
            assert isinstance(move, Warp)
            parts = [
                part if field is None else warp_to(part, field, size).astype(part.dtype, copy=False)
                for part, field, size in zip(Ragged(data, points.counts).split(), move.displacement, sizes)
            ]
            moved = np.concatenate(parts)
        rows[..., :2] = moved if shape[-1] == 2 else np.where(rows[..., 2:] == 0, data, moved)
        if isinstance(move, Flip) and move.axis == 1 and len(swap):
            on = np.asarray(move.on, bool)[owner]
            rows[on] = rows[on][:, exchange]
    return Ragged(rows.reshape(shape), points.counts)


def keep_points(points: Ragged, sizes: Sizes) -> NDArray[np.bool_]:
    """Say which rows torchvision's SanitizeKeyPoints keeps, those that lie inside as a whole: bool [T].

    Points whose visibility is 0 are not asked.
    """
    data = _rows(points)
    x, y = data[..., 0], data[..., 1]
    height, width = sizes[points.owner].T[..., None]
    inside: NDArray[np.bool_] = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    if data.shape[-1] == 3:
        inside |= data[..., 2] == 0
    keep: NDArray[np.bool_] = np.logical_and.reduce(inside, 1)
    return keep


def clamp_points(points: Ragged, sizes: Sizes) -> Ragged:
    """Clamp points to the pixels of their images of `sizes` [N, 2], as torchvision's ClampKeyPoints does."""
    data = _rows(points).copy()
    most = sizes[points.owner, None, ::-1].astype(data.dtype) - data.dtype.type(1)
    data[..., :2] = np.minimum(np.maximum(data[..., :2], 0), most)
    return Ragged(data.reshape(points.data.shape), points.counts)


def untouched(matrix: NDArray[Any], here: Sizes, sizes: Sizes) -> NDArray[np.bool_]:
    """Say for which samples an affine move is none: bool [N]."""
    same: NDArray[np.bool_] = (matrix == np.eye(3)[: matrix.shape[1]]).all((1, 2)) & (here == sizes).all(1)
    return same


def apply_matrix(points: NDArray[Any], matrix: NDArray[Any]) -> NDArray[Any]:
    """Move points [T, K, 2] of a float dtype by matrices [T, 2, 3] or [T, 3, 3]."""
    perspective = matrix.shape[1] == 3
    matrix = (matrix / matrix[:, 2:, 2:] if perspective else matrix).astype(points.dtype)[:, None]
    x, y = points[..., :1], points[..., 1:]
    if points.dtype == np.float32:
        # The products of torch's matmul are fused: x * m0, then one rounding for + y * m1.
        first = (x * matrix[..., 0]).astype(np.float64)
        moved = (y.astype(np.float64) * matrix[..., 1] + first).astype(np.float32) + matrix[..., 2]
    else:
        moved = x * matrix[..., 0] + y * matrix[..., 1] + matrix[..., 2]
    if perspective:
        with np.errstate(divide="ignore", invalid="ignore"):  # a point on the horizon goes to infinity
            moved = moved[..., :2] / moved[..., 2:]
    result: NDArray[Any] = moved
    return result


def warp_to(points: NDArray[Any], field: NDArray[Any], size: NDArray[Any]) -> NDArray[Any]:
    """Give where points [..., 2] of one sample go in a field of displacements [H, W, 2], about, as torchvision does.

    The inverse of a field is not known: the displacement at the point is taken from it.
    """
    dtype = points.dtype.type if points.dtype.kind == "f" else np.float32
    height, width = int(size[0]), int(size[1])
    with np.errstate(invalid="ignore"):
        x = np.clip(points[..., 0].astype(np.int64), 0, width - 1)
        y = np.clip(points[..., 1].astype(np.int64), 0, height - 1)
    grid = np.stack([middles(width, dtype)[x], middles(height, dtype)[y]], -1) - np.asarray(field)[y, x].astype(dtype)
    half = dtype(0.5) * np.array([width, height], dtype)
    result: NDArray[Any] = (grid + dtype(1)) * half - dtype(0.5)
    return result


def middles(n: int, dtype: Any) -> NDArray[Any]:
    """Give the middles of n pixels, from -1 to 1: torch's linspace, whose rounding numpy's hasn't."""
    import torch

    real = torch.float64 if dtype == np.float64 else torch.float32
    row: NDArray[Any] = torch.linspace((1 - n) / n, (n - 1) / n, n, dtype=real).numpy()
    return row


def _rows(points: Ragged) -> NDArray[Any]:
    """[T, k, 2 or 3], a view."""
    data = points.data
    return data if data.ndim > 2 else data[:, None]


def _exchange(swap: Sequence[tuple[int, int]], k: int) -> NDArray[np.int64]:
    order = np.arange(k)
    for a, b in swap:
        if not (0 <= a < k and 0 <= b < k):
            raise ValueError(f"swap must name pairs of the {k} points of each row, from 0 to {k - 1}, got {(a, b)}")
        order[[a, b]] = order[[b, a]]
    return order


def _resize(data: NDArray[Any], here: Sizes, sizes: Sizes, owner: NDArray[Any]) -> NDArray[Any]:
    ratio = (sizes / here).astype(np.float32)[owner, None, ::-1]
    if data.dtype.kind == "f":
        return (data * ratio).astype(data.dtype, copy=False)
    same = (sizes == here).all(1)[owner, None, None]  # float32 would round integers beyond 2**24
    return np.where(same, data, (data.astype(np.float32) * ratio).astype(data.dtype))


def _flip(data: NDArray[Any], axis: int, on: NDArray[np.bool_], here: NDArray[Any]) -> NDArray[Any]:
    moved = data.copy()
    last = here[on, axis, None].astype(data.dtype) - data.dtype.type(1)
    moved[on, :, 1 - axis] = last - data[on, :, 1 - axis]
    return moved
