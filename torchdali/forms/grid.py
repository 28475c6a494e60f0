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
from ..native import sample as native
from .points import middles

COUNTABLE = 2**24
"""Pixels that float32 counts."""
_CPU = torch.device("cpu")
_NUMBERS = {torch.float32: np.float32, torch.float64: np.float64}


def source_grid(
    move: Affine | Warp, size: tuple[int, int], dtype: torch.dtype, device: torch.device = _CPU
) -> torch.Tensor | None:
    """Give the grid [1, h, w, 2] of one sample's move: (x, y) in its source, from -1 to 1; None: it is not touched.

    Args:
        move: with one sample's values.
        size: height and width of the source.
        dtype: float32 or float64, of the grid.
        device: of the grid.
    """
    if isinstance(move, Warp):
        return None if move.displacement is None else source_grids([move.displacement], size, None, dtype, device)
    matrix = np.asarray(move.matrix, np.float64)
    result = (int(move.size[0]), int(move.size[1]))
    if result == tuple(size) and (matrix == np.eye(3)[: len(matrix)]).all():
        return None
    return source_grids(matrix[None], size, result, dtype, device)


def source_grids(
    maps: Any, size: tuple[int, int], result: tuple[int, int] | None, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """Give the grids [N, h, w, 2] of samples of one size that come out with one size.

    Args:
        maps: matrices [N, 2, 3] or [N, 3, 3] of affine moves; or for warps displacements, N of [H, W, 2].
        size: height and width of the sources.
        result: of the results; None: of warps, which keep the size.
        dtype: float32 or float64, of the grids.
        device: of the grids.
    """
    if result is not None:
        grid = _perspective_grid if maps.shape[1] == 3 else _affine_grid
        return grid(maps, size, result, dtype, device)
    height, width = size
    if isinstance(maps, torch.Tensor):
        fields = maps.to(device, dtype, non_blocking=True)
    else:
        fields = torch.stack([torch.as_tensor(field) for field in maps]).to(device, dtype, non_blocking=True)
    if fields.shape[1:] != (height, width, 2):
        raise ValueError(f"displacement must be [{height}, {width}, 2], got {list(fields.shape[1:])}")
    grids = torch.empty(height, width, 2, dtype=dtype)
    grids[..., 0] = torch.from_numpy(middles(width, _NUMBERS[dtype]))
    grids[..., 1] = torch.from_numpy(middles(height, _NUMBERS[dtype]))[:, None]
    return fields + grids.to(device, non_blocking=True)


def sample(image: torch.Tensor, grid: torch.Tensor, mode: str, fill: Any) -> torch.Tensor:
    """Take the pixels [..., C, h, w] of an image [..., C, H, W] at a grid [1, h, w, 2].

    Args:
        image: of any real dtype; or a batch [N, C, H, W], with a grid for each, [N, h, w, 2].
        grid: of the image's dtype if that is a float, else float32.
        mode: "nearest", "bilinear" or "bicubic".
        fill: a number, or one for each channel; None: zeros.  (At the edges torchvision weighs even zeros twice where
            they are given, and once for None.)
    """
    *batch, channels, height, width = image.shape
    shape = (*batch, channels, *grid.shape[1:3])
    if not image.numel():
        return image.new_zeros(shape)
    if len(grid) == 1 and grid.numel() and native.takes(image, mode):
        made = native.sampled(image, grid, (grid.shape[1], grid.shape[2]), mode, fill)
        if made is not None:
            return made
    images = image.reshape(-1, channels, height, width)
    grid = grid.expand(len(images), -1, -1, -1)
    numbers = images.to(grid.dtype)
    if fill is not None:
        numbers = torch.cat([numbers, numbers.new_ones(len(images), 1, height, width)], 1)
    moved = torch.nn.functional.grid_sample(numbers, grid, mode=mode, padding_mode="zeros", align_corners=False)
    if fill is not None:
        moved, inside = moved[:, :-1], moved[:, -1:]
        numbers = torch.tensor(fill if isinstance(fill, (list, tuple)) else [fill], dtype=moved.dtype)
        values = numbers.to(moved.device, non_blocking=True).view(1, -1, 1, 1)
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


def sample_affine(image: torch.Tensor, back: Any, mode: str, fill: Any) -> torch.Tensor | None:
    """Take the pixels of an image by a matrix from result to source, as torchvision's `affine_image` does.

    None: the kernels in C do not take the image.

    Args:
        image: [..., C, H, W].
        back: [2, 3], between pixels (x, y, 1) that are counted from the middles of image and result.
        mode: "nearest" or "bilinear".
        fill: as `sample` takes it.

    Raises:
        ValueError: fill has another number of values than the image channels.
    """
    check_channels(fill, image.shape[-3])
    if not native.takes(image, mode):
        return None
    size = (image.shape[-2], image.shape[-1])
    matrix = native.Matrix(_thetas(np.asarray(back, np.float64), size, np.float32))
    return native.sampled(image, matrix, size, mode, fill)


def check_channels(fill: Any, channels: int) -> None:
    """Raise unless a fill is one number, or has one for each channel.

    Raises:
        ValueError: it has another number of them.
    """
    if isinstance(fill, (list, tuple)) and len(fill) not in (1, channels):
        raise ValueError(f"fill has {len(fill)} values, and the image {channels} channels")


def move_sampled(image: torch.Tensor, move: Affine | Warp, fill: Any) -> torch.Tensor:
    """Take the pixels of one image [..., C, H, W] that a move wants: `sample` at its `source_grid`.

    Args:
        image: of any real dtype; it comes back itself where the move does not touch it.
        move: with one sample's values.
        fill: as `sample` takes it.

    Raises:
        ValueError: fill has another number of values than the image channels.
    """
    check_channels(fill, image.shape[-3])
    size = (image.shape[-2], image.shape[-1])
    if isinstance(move, Affine) and native.takes(image, move.interpolation):
        given = _matrix_of(move, size)
        if given is None:
            return image
        made = native.sampled(image, *given, move.interpolation, fill)
        if made is not None:
            return made
    grid = source_grid(move, size, image.dtype if image.is_floating_point() else torch.float32, image.device)
    return image if grid is None else sample(image, grid, move.interpolation, fill)


def nearest_pixels(move: Affine | Warp, size: tuple[int, int]) -> NDArray[np.int64] | None:
    """Give the pixels [h, w] of a flat image that are nearest to where a move looks; -1 is outside.

    None: the image is not touched.

    Args:
        move: with one sample's values; its interpolation does not count.
        size: height and width of the image.
    """
    height, width = size
    if isinstance(move, Affine) and height * width < native.COUNTABLE:
        given = _matrix_of(move, size)
        if given is None:
            return None
        found = native.nearest(*given, size)
        if found is not None:
            return found
    grid = source_grid(move, size, torch.float32)
    if grid is None:
        return None
    # `grid_sample` itself says which are nearest: it is asked for their numbers, from 1.
    if height * width < COUNTABLE:
        numbers = torch.arange(1.0, height * width + 1, dtype=torch.float32).view(1, height, width)
        return sample(numbers, grid, "nearest", None)[0].to(torch.int64).sub_(1).numpy()
    numbers = torch.stack(
        [
            torch.arange(1.0, height + 1, dtype=torch.float32)[:, None].expand(height, width),
            torch.arange(1.0, width + 1, dtype=torch.float32)[None].expand(height, width),
        ]
    )
    row, column = sample(numbers, grid, "nearest", None).to(torch.int64).sub_(1)
    return torch.where(row < 0, row, row * width + column).numpy()


def _matrix_of(move: Affine, size: tuple[int, int]) -> tuple[native.Matrix, tuple[int, int]] | None:
    """Give where the pixels of a move of one sample come from, and the result's size; None: it is not touched."""
    matrix, result = np.asarray(move.matrix, np.float64)[None], (int(move.size[0]), int(move.size[1]))
    if result == size and (matrix == np.eye(3)[: matrix.shape[1]]).all():
        return None
    if matrix.shape[1] == 3:
        back, below = _inverted(matrix)
        return native.Matrix(_thetas(back[0], size, np.float32), below[0]), result
    return native.Matrix(_thetas(_from_middles(matrix, size, result)[0], size, np.float32)), result


def _thetas(back: NDArray[np.float64], size: tuple[int, int], number: Any) -> NDArray[Any]:
    """[..., 2, 3] of a dtype, matrices to places from -1 to 1 in sources of a size."""
    height, width = size
    thetas: NDArray[Any] = back.astype(number) / np.array([[0.5 * width], [0.5 * height]], number)
    return thetas


def _on_side(thetas: NDArray[Any]) -> torch.Tensor:
    """[N, 3, 2], as a product with rows of (x, y, 1) takes them."""
    return torch.from_numpy(thetas).transpose(1, 2)


def _from_middles(matrices: NDArray[np.float64], size: tuple[int, int], result: tuple[int, int]) -> NDArray[np.float64]:
    """[N, 2, 3], from result to source, in pixels that are counted from the middles of both, as torchvision does."""
    linear: NDArray[Any] = np.linalg.inv(matrices[:, :, :2])
    ends = (np.array([result[1], result[0]]) / 2 - matrices[:, :, 2])[..., None]
    shift: NDArray[Any] = linear @ ends - np.array([[size[1]], [size[0]]]) / 2
    shift[np.abs(shift) < 1e-9] = 0
    back: NDArray[np.float64] = np.concatenate([linear, shift], 2)
    return back


def _inverted(matrices: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """From result to source: [N, 2, 3], and [N, 3], by whose product the others' are divided."""
    inverse: NDArray[Any] = np.linalg.inv(matrices)
    inverse /= inverse[:, 2:, 2:]
    return inverse[:, :2], inverse[:, 2]


def _affine_grid(
    matrices: NDArray[np.float64],
    size: tuple[int, int],
    result: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    rows, columns = result
    theta = _on_side(_thetas(_from_middles(matrices, size, result), size, _NUMBERS[dtype]))
    base = torch.empty(rows, columns, 3, dtype=dtype)
    base[..., 0] = torch.linspace((1.0 - columns) * 0.5, (columns - 1.0) * 0.5, columns, dtype=torch.float32)
    base[..., 1] = torch.linspace((1.0 - rows) * 0.5, (rows - 1.0) * 0.5, rows, dtype=torch.float32)[:, None]
    base[..., 2] = 1
    flat = base.view(1, -1, 3).to(device, non_blocking=True).expand(len(theta), -1, -1)
    return flat.bmm(theta.to(device, non_blocking=True)).view(-1, rows, columns, 2)


def _perspective_grid(
    matrices: NDArray[np.float64],
    size: tuple[int, int],
    result: tuple[int, int],
    dtype: torch.dtype,
    device: torch.device,
) -> torch.Tensor:
    rows, columns = result
    back, divisor = _inverted(matrices)
    below = torch.tensor(np.stack([divisor, divisor], 1), dtype=dtype).to(device, non_blocking=True)
    base = torch.empty(rows, columns, 3, dtype=dtype)
    base[..., 0] = torch.linspace(0.5, columns - 0.5, columns, dtype=dtype)
    base[..., 1] = torch.linspace(0.5, rows - 0.5, rows, dtype=dtype)[:, None]
    base[..., 2] = 1
    above = _on_side(_thetas(back, size, _NUMBERS[dtype]))
    flat = base.view(1, -1, 3).to(device, non_blocking=True).expand(len(above), -1, -1)
    grid = flat.bmm(above.to(device, non_blocking=True)) / flat.bmm(below.transpose(1, 2))
    return grid.sub_(1.0).view(-1, rows, columns, 2)
