"""The form of boxes: moved for a whole ragged batch in numpy, bit for bit as torchvision's v2 kernels move them.

Boxes stay in their own format through all moves, since torchvision converts, and so rounds, inside each kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..moves import Affine, Crop, Flip, Move, Resize, Sizes, Warp, check_flat
from ..ragged import Ragged
from .points import apply_matrix, untouched, warp_to


def move_boxes(boxes: Ragged, format: str, sizes: Sizes, moves: Sequence[Move]) -> Ragged:
    """Move the boxes of a batch; those that leave the image are clamped to it, and never dropped.

    Args:
        boxes: [T, 4] of all samples, in pixels, of any real dtype.
        format: "xyxy", "xywh" or "cxcywh".
        sizes: [N, 2] of the images before the moves.
        moves: with one row per sample.

    Raises:
        ValueError: a move goes into depths.
    """
    data, owner = boxes.data.copy(), boxes.owner
    for move in moves:
        check_flat(move, "box")
        here, sizes = sizes, move.sizes(sizes)
        if isinstance(move, Crop):
            data = _crop(data, format, np.asarray(move.start), here, sizes, owner)
        elif isinstance(move, Resize):
            data = _resize(data, here, sizes, owner)
        elif isinstance(move, Flip):
            data = _flip(data, format, move.axis, np.asarray(move.on, bool)[owner], here[owner])
        elif isinstance(move, Affine):
            data = _affine(data, format, np.asarray(move.matrix), here, sizes, owner)
        else:
            assert isinstance(move, Warp)
            data = _warp(data, format, move.displacement, sizes, boxes.counts)
    return Ragged(data, boxes.counts)


def keep_boxes(
    boxes: Ragged, format: str, sizes: Sizes, min_size: float = 1.0, min_area: float = 1.0
) -> NDArray[np.bool_]:
    """Say which boxes torchvision's SanitizeBoundingBoxes keeps: bool [T].

    Args:
        boxes: [T, 4] of all samples, in pixels.
        format: "xyxy", "xywh" or "cxcywh".
        sizes: [N, 2] of the images.
        min_size: the smallest width and height.
        min_area: the smallest area.
    """
    data = as_xyxy(boxes.data, format)
    most = sizes[boxes.owner][:, [1, 0, 1, 0]]
    width, height = data[:, 2] - data[:, 0], data[:, 3] - data[:, 1]
    inside: NDArray[np.bool_] = np.logical_and.reduce((data >= 0) & (data <= most), 1)
    inside &= (width >= min_size) & (height >= min_size) & (width * height >= min_area)
    return inside


def clamp_boxes(boxes: Ragged, format: str, sizes: Sizes) -> Ragged:
    """Clamp boxes to their images of `sizes` [N, 2]."""
    return Ragged(_clamp(boxes.data, format, sizes[boxes.owner]), boxes.counts)


def convert_boxes(data: NDArray[Any], format: str, to: str) -> NDArray[Any]:
    """Give boxes [T, 4] in another format; integers are rounded as torchvision rounds them."""
    if format == to:
        return data
    if (format, to) == ("xywh", "cxcywh"):
        data = data.copy()
        data[:, :2] += data[:, 2:] // 2 if data.dtype.kind != "f" else data[:, 2:] / data.dtype.type(2)
        return data
    if (format, to) == ("cxcywh", "xywh") and data.dtype.kind == "f":
        data = data.copy()  # by way of xyxy the width would be rounded
        data[:, :2] -= data[:, 2:] / data.dtype.type(2)
        return data
    return from_xyxy(as_xyxy(data, format), to)


def as_xyxy(data: NDArray[Any], format: str) -> NDArray[Any]:
    """Give boxes [T, 4] of a format as left, top, right, bottom: a copy."""
    data = data.copy()
    if format == "xywh":
        data[:, 2:] += data[:, :2]
    elif format == "cxcywh":
        numbers = data if data.dtype.kind == "f" else data.astype(np.float32)
        numbers[:, :2] -= numbers[:, 2:] / numbers.dtype.type(2)
        numbers[:, 2:] += numbers[:, :2]
        data = numbers.astype(data.dtype, copy=False)
    return data


def from_xyxy(data: NDArray[Any], format: str) -> NDArray[Any]:
    """Give boxes [T, 4] of left, top, right, bottom in a format: a copy."""
    data = data.copy()
    if format == "xywh":
        data[:, 2:] -= data[:, :2]
    elif format == "cxcywh":
        two = data.dtype.type(2)
        data[:, 2:] -= data[:, :2]
        twice = data[:, :2] * two + data[:, 2:]
        data[:, :2] = twice / two if data.dtype.kind == "f" else twice // two
    return data


def _real(data: NDArray[Any]) -> NDArray[Any]:
    return data if data.dtype.kind == "f" else data.astype(np.float32)


def _clamp(data: NDArray[Any], format: str, sizes: NDArray[Any]) -> NDArray[Any]:
    """`sizes` [T, 2]."""
    numbers = as_xyxy(_real(data), format)
    most = sizes[:, [1, 0, 1, 0]].astype(numbers.dtype)
    np.minimum(np.maximum(numbers, 0, out=numbers), most, out=numbers)
    return from_xyxy(numbers, format).astype(data.dtype, copy=False)


def _crop(
    data: NDArray[Any], format: str, start: NDArray[Any], here: Sizes, sizes: Sizes, owner: NDArray[Any]
) -> NDArray[Any]:
    corner = start[owner, ::-1].astype(data.dtype)
    moved = data.copy()
    moved[:, :2] -= corner
    if format == "xyxy":
        moved[:, 2:] -= corner
    moved = _clamp(moved, format, sizes[owner])
    whole = ((start == 0) & (here == sizes)).all(1)
    return np.where(whole[owner, None], data, moved) if whole.any() else moved


def _resize(data: NDArray[Any], here: Sizes, sizes: Sizes, owner: NDArray[Any]) -> NDArray[Any]:
    ratio = (sizes / here).astype(np.float32)[:, [1, 0, 1, 0]][owner]  # float32 for every dtype, as torchvision has it
    scaled = (_real(data) * ratio).astype(data.dtype, copy=False)
    # A ratio of one is exact but for integers beyond 2**24.
    same = (sizes == here).all(1)[owner]
    return np.where(same[:, None], data, scaled) if data.dtype.kind != "f" else scaled


def _flip(data: NDArray[Any], format: str, axis: int, on: NDArray[np.bool_], here: NDArray[Any]) -> NDArray[Any]:
    x = 1 - axis
    part = data[on]
    extent = here[on, axis].astype(data.dtype)
    if format == "xyxy":
        part[:, [x, x + 2]] = extent[:, None] - part[:, [x + 2, x]]
    elif format == "xywh":
        part[:, x] = extent - (part[:, x] + part[:, x + 2])
    else:
        part[:, x] = extent - part[:, x]
    data[on] = part
    return data


def _affine(
    data: NDArray[Any], format: str, matrix: NDArray[Any], here: Sizes, sizes: Sizes, owner: NDArray[Any]
) -> NDArray[Any]:
    if matrix.shape[1] == 3:  # torchvision converts before it goes to floats here, and after it in an affine move
        xyxy = _real(as_xyxy(data, format))
    else:
        xyxy = as_xyxy(_real(data), format)
    corners = apply_matrix(xyxy[:, [[0, 1], [2, 1], [2, 3], [0, 3]]], matrix[owner])
    around = np.concatenate([corners.min(1), corners.max(1)], 1)
    moved = from_xyxy(_clamp(around, "xyxy", sizes[owner]), format).astype(data.dtype, copy=False)
    return np.where(untouched(matrix, here, sizes)[owner, None], data, moved)


def _warp(
    data: NDArray[Any], format: str, displacement: Sequence[Any], sizes: Sizes, counts: NDArray[Any]
) -> NDArray[Any]:
    parts = []
    for part, field, size in zip(Ragged(data, counts).split(), displacement, sizes):
        if field is not None and len(part):
            corners = as_xyxy(part, format)[:, [[0, 1], [2, 1], [2, 3], [0, 3]]]
            corners = warp_to(np.ceil(corners) if part.dtype.kind == "f" else corners, field, size)
            around = np.concatenate([corners.min(1), corners.max(1)], 1).astype(part.dtype, copy=False)
            part = from_xyxy(_clamp(around, "xyxy", np.broadcast_to(size, (len(part), 2))), format)
        parts.append(part)
    return np.concatenate(parts) if parts else data
