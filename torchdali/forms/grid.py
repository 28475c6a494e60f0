"""Where each pixel of an affine move or a warp comes from: the grids of torch's `grid_sample`.

The arithmetic is torchvision's (`_affine_grid`, `_perspective_grid`, `_apply_grid_transform` of its v2 functional), bit
for bit, but starts from a matrix, which may have any source and result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..moves import Affine, Warp
from .points import middles


def source_grid(move: Affine | Warp, size: tuple[int, int], dtype: torch.dtype) -> torch.Tensor | None:
    """Give the grid [1, h, w, 2] of one sample's move: (x, y) in its source, from -1 to 1; None: it is not touched.

    Args:
        move: with one sample's values.
        size: height and width of the source.
        dtype: float32 or float64, of the grid.
    """
    if isinstance(move, Warp):
        if move.displacement is None:
            return None
        height, width = size
        field = torch.as_tensor(move.displacement)
        if field.shape != (height, width, 2):
            raise ValueError(f"displacement must be [{height}, {width}, 2], got {list(field.shape)}")
        grid = torch.empty(1, height, width, 2, dtype=dtype)
        number = np.float64 if dtype == torch.float64 else np.float32
        grid[..., 0] = torch.from_numpy(middles(width, number))
        grid[..., 1] = torch.from_numpy(middles(height, number))[:, None]
        return grid.add_(field.to(dtype))
    matrix = np.asarray(move.matrix, np.float64)
    result = (int(move.size[0]), int(move.size[1]))
    if result == tuple(size) and (matrix == np.eye(3)[: len(matrix)]).all():
        return None
    return (
        _perspective_grid(matrix, size, result, dtype)
        if len(matrix) == 3
        else _affine_grid(matrix, size, result, dtype)
    )


def sample(image: torch.Tensor, grid: torch.Tensor, mode: str, fill: Any) -> torch.Tensor:
    """Take the pixels [..., C, h, w] of an image [..., C, H, W] at a grid [1, h, w, 2].

    Args:
        image: of any real dtype.
        grid: of the image's dtype if that is a float, else float32.
        mode: "nearest", "bilinear" or "bicubic".
        fill: a number, or one for each channel; None: zeros.  (At the edges torchvision weighs even zeros twice where
            they are given, and once for None.)
    """
    *batch, channels, height, width = image.shape
    shape = (*batch, channels, *grid.shape[1:3])
    if not image.numel():
        return image.new_zeros(shape)
    images = image.reshape(-1, channels, height, width)
    grid = grid.expand(len(images), -1, -1, -1)
    numbers = images.to(grid.dtype)
    if fill is not None:
        numbers = torch.cat([numbers, numbers.new_ones(len(images), 1, height, width)], 1)
    moved = torch.nn.functional.grid_sample(numbers, grid, mode=mode, padding_mode="zeros", align_corners=False)
    if fill is not None:
        moved, inside = moved[:, :-1], moved[:, -1:]
        values = moved.new_tensor(fill if isinstance(fill, (list, tuple)) else [fill]).view(1, -1, 1, 1)
        if mode == "nearest":
            moved = torch.where(inside < 0.5, values, moved)
        else:
            moved = (moved - values) * inside + values
    if not image.is_floating_point():
        moved = moved.round_()
        if mode == "bicubic":  # overshoots
            limits = torch.iinfo(image.dtype)
            moved = moved.clamp_(limits.min, limits.max)
    return moved.to(image.dtype).reshape(shape)


def _affine_grid(
    matrix: NDArray[np.float64], size: tuple[int, int], result: tuple[int, int], dtype: torch.dtype
) -> torch.Tensor:
    (height, width), (rows, columns) = size, result
    linear = np.linalg.inv(matrix[:, :2])
    # torchvision counts from the middles of source and result.
    shift = linear @ (np.array([columns, rows]) / 2 - matrix[:, 2]) - np.array([width, height]) / 2
    shift[np.abs(shift) < 1e-9] = 0
    theta = torch.tensor(np.column_stack([linear, shift]), dtype=dtype)
    base = torch.empty(rows, columns, 3, dtype=dtype)
    base[..., 0] = torch.linspace((1.0 - columns) * 0.5, (columns - 1.0) * 0.5, columns)
    base[..., 1] = torch.linspace((1.0 - rows) * 0.5, (rows - 1.0) * 0.5, rows)[:, None]
    base[..., 2] = 1
    theta = theta.T[None] / torch.tensor([0.5 * width, 0.5 * height], dtype=dtype)
    return base.view(1, -1, 3).bmm(theta).view(1, rows, columns, 2)


def _perspective_grid(
    matrix: NDArray[np.float64], size: tuple[int, int], result: tuple[int, int], dtype: torch.dtype
) -> torch.Tensor:
    (height, width), (rows, columns) = size, result
    inverse = np.linalg.inv(matrix)
    inverse /= inverse[2, 2]
    above = torch.tensor(inverse[:2], dtype=dtype)
    below = torch.tensor(inverse[[2, 2]], dtype=dtype)
    base = torch.empty(rows, columns, 3, dtype=dtype)
    base[..., 0] = torch.linspace(0.5, columns - 0.5, columns, dtype=dtype)
    base[..., 1] = torch.linspace(0.5, rows - 0.5, rows, dtype=dtype)[:, None]
    base[..., 2] = 1
    flat = base.view(1, -1, 3)
    above = above.T[None] / torch.tensor([0.5 * width, 0.5 * height], dtype=dtype)
    grid = flat.bmm(above) / flat.bmm(below.T[None])
    return grid.sub_(1.0).view(1, rows, columns, 2)
