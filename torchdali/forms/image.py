"""The forms of images [H, W, C]: in DALI's operators for batches, and in torch, on the CPU, for one image [C, H, W].

Videos have the same forms, with a dimension of frames in front: all frames of a sample move alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch

from ..moves import Affine, Crop, Crop3d, Flip, Move, Resize, Warp, check_flat, fill_of, row_of
from .grid import move_sampled, sample, source_grids

if TYPE_CHECKING:
    from .._dali import Ops


Images: TypeAlias = "torch.Tensor | list[torch.Tensor]"
"""A batch of images in torch: [N, C, H, W], or where they differ in size a list of [C, H, W]."""


@functools.cache
def functional() -> ModuleType:
    """torchvision's kernels, imported when they are first needed."""
    from torchvision.transforms.v2 import functional

    module: ModuleType = functional
    return module


def has_dali_form(move: Move) -> bool:
    """Whether DALI has operators for a move.

    Its slice fills with constants only; its warp knows linear maps, and one number for all channels.
    """
    if isinstance(move, Flip):
        return move.axis != -1
    if isinstance(move, Affine):
        linear = np.shape(move.matrix)[-2:] == (2, 3)
        return linear and move.interpolation != "bicubic" and len(_numbers(move.fill)) == 1
    return not isinstance(move, (Warp, Crop3d)) and (not isinstance(move, Crop) or move.padding_mode == "constant")


def move_on_dali(ops: Ops, image: Any, move: Move) -> Any:
    """Move a batch (or a pipeline's node) of images [H, W, C], or of videos [F, H, W, C].

    Args:
        ops: DALI's operators; `ops.frames` says that these are videos.
        image: the batch.
        move: with batches or nodes of one row per sample.
    """
    return _ON_DALI[type(move)](ops, image, move)


def move_on_host(image: torch.Tensor, move: Move) -> torch.Tensor:
    """Move one image [C, H, W], or video [F, C, H, W], by torchvision's kernels; the result may be a view of it.

    Args:
        image: channels last in memory.
        move: with the plain numbers and lists of one sample.

    Raises:
        ValueError: the move goes into depths.
    """
    check_flat(move, "image" if image.ndim == 3 else "video")
    if isinstance(move, Crop):
        return _crop_host(image, move, move.start, move.shape)
    if isinstance(move, Resize):
        return _resize_host(image, move, move.size)
    return _flip_host(image, move, move.on) if isinstance(move, Flip) else _sampled_host(image, move)


def move_batch(images: Images, move: Move) -> Images:
    """Move a batch of images, in torch on their own device: what `move_on_host` does with each.

    Args:
        images: [N, C, H, W], or a list of [C, H, W].
        move: with arrays of one row per sample.
    """
    if isinstance(move, (Affine, Warp)) and isinstance(images, torch.Tensor):
        return _sampled_batch(images, move)
    return together([move_on_host(image, row_of(move, i)) for i, image in enumerate(images)])


def together(images: list[torch.Tensor]) -> Images:
    """Make one batch of images of one size; of others, the list."""
    return torch.stack(images) if len({image.shape for image in images}) == 1 else images


def has_rows(move: Move) -> bool:
    """Whether `move_row` takes a move."""
    return isinstance(move, (Crop, Resize, Flip))


def in_rows(move: Move) -> bool:
    """Whether the values of a crop, resize or flip are arrays of one row per sample, and none is one for all."""
    if isinstance(move, Flip):
        return isinstance(move.on, np.ndarray) and move.on.ndim == 1
    pairs = (
        (move.start, move.shape) if isinstance(move, Crop) else (move.size,) if isinstance(move, Resize) else (None,)
    )
    return all(isinstance(pair, np.ndarray) and pair.ndim == 2 for pair in pairs)


def move_row(move: Move) -> Callable[[torch.Tensor, int], torch.Tensor]:
    """Make a function of (image, i) that moves an image as row i says: `move_on_host` without a move for each sample.

    Args:
        move: a crop, resize or flip, with arrays of one row per sample.

    Raises:
        ValueError: the move goes into depths.
    """
    check_flat(move, "image")
    # As plain numbers and lists, once for the batch: an array's elements cost more one by one.
    if isinstance(move, Crop):
        starts, shapes = move.start.tolist(), move.shape.tolist()
        return lambda image, i: _crop_host(image, move, starts[i], shapes[i])
    if isinstance(move, Resize):
        sizes = move.size.tolist()
        return lambda image, i: _resize_host(image, move, sizes[i])
    assert isinstance(move, Flip)
    on = move.on.tolist()
    return lambda image, i: _flip_host(image, move, on[i])


# In DALI


def _crop(ops: Ops, image: Any, move: Crop) -> Any:
    fill = fill_values(move.fill, ops.dtype_of(image))
    axes = [1, 2] if ops.frames else [0, 1]
    return ops.slice(image, move.start, move.shape, axes=axes, out_of_bounds_policy="pad", fill_values=fill)


def _resize(ops: Ops, image: Any, move: Resize) -> Any:
    mode = ops.interpolation(move.interpolation)
    return ops.resize(image, size=move.size, interp_type=mode, antialias=bool(move.antialias))


def _flip(ops: Ops, image: Any, move: Flip) -> Any:
    if move.axis:
        return ops.flip(image, horizontal=move.on, vertical=0)
    return ops.flip(image, horizontal=0, vertical=move.on)


def _affine(ops: Ops, image: Any, move: Affine) -> Any:
    return ops.warp_affine(
        image,
        matrix=move.matrix,
        inverse_map=False,  # source to result
        size=move.size,
        interp_type=ops.interpolation(move.interpolation),
        fill_value=fill_values(move.fill, ops.dtype_of(image))[0],
    )


# In torch


def _sampled_batch(images: torch.Tensor, move: Affine | Warp) -> Images:
    size = (images.shape[-2], images.shape[-1])
    if isinstance(move, Warp):
        moved = [i for i, field in enumerate(move.displacement) if field is not None]
        result, maps = None, move.displacement
        maps = maps[moved] if isinstance(maps, torch.Tensor) else [maps[i] for i in moved]
    else:
        ends = np.asarray(move.size).astype(np.int64)
        if (ends != ends[0]).any():
            return together([move_on_host(image, row_of(move, i)) for i, image in enumerate(images)])
        result = (int(ends[0, 0]), int(ends[0, 1]))
        maps = np.asarray(move.matrix, np.float64)
        still = (maps == np.eye(3)[: maps.shape[1]]).all(axis=(1, 2)) & (result == size)
        moved = np.flatnonzero(~still).tolist()
        maps = maps[moved]
    if not moved:
        return images
    dtype = images.dtype if images.is_floating_point() else torch.float32
    fill = None if move.fill is None else fill_values(move.fill, images.dtype)
    grids = source_grids(maps, size, result, dtype, images.device)
    rows = torch.tensor(moved).to(images.device, non_blocking=True)
    made = sample(images[rows], grids, move.interpolation, fill)
    return made if len(moved) == len(images) else images.index_copy(0, rows, made)


def _crop_host(image: torch.Tensor, move: Crop, start: Sequence[int], shape: Sequence[int]) -> torch.Tensor:
    (top, left), (height, width) = start, shape
    bottom, right = top + height, left + width
    *frames, channels, rows, columns = image.shape
    if top >= 0 and left >= 0 and bottom <= rows and right <= columns:
        return image[..., top:bottom, left:right]
    if move.padding_mode == "constant":
        fill = fill_values(move.fill, image.dtype)
        window = image.new_empty(*frames, height, width, channels).movedim(-1, -3)
        if len(fill) == 1:
            window.fill_(fill[0])
        else:
            window.copy_(torch.tensor(fill).to(image.dtype)[:, None, None], non_blocking=True)
        inside = image[..., max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
        above, before = max(-top, 0), max(-left, 0)
        window[..., above : above + inside.shape[-2], before : before + inside.shape[-1]] = inside
        return window
    edges = [max(-left, 0), max(-top, 0), max(right - columns, 0), max(bottom - rows, 0)]
    padded: torch.Tensor = functional().pad_image(image, edges, padding_mode=move.padding_mode)
    top, left = max(top, 0), max(left, 0)
    return padded[..., top : top + height, left : left + width]


def fill_values(fill: Any, dtype: torch.dtype) -> list[float]:
    """Give the fill of images or videos: one number, or one for each channel.

    Raises:
        ValueError: uint8 can't hold it.
    """
    numbers = _numbers(fill)
    if dtype == torch.uint8 and not all(0 <= number < 256 for number in numbers):
        raise ValueError(f"fill must be in [0, 255] for uint8 images, got {fill!r}")
    return numbers


def _numbers(fill: Any) -> list[float]:
    value = fill_of(fill, "image")
    return [float(number) for number in (value if isinstance(value, (list, tuple)) else [value])]


def _resize_host(image: torch.Tensor, move: Resize, size: Sequence[float]) -> torch.Tensor:
    height, width = int(size[0]), int(size[1])
    channels, rows, columns = image.shape[-3:]
    if (height, width) == (rows, columns):
        return image
    if width == 1:
        # torch takes a column of planar or of grey pixels for one whose channels are last, and mixes the pixels up.
        twice = image.new_empty((*image.shape[:-3], rows, columns, max(channels, 2))).movedim(-1, -3)
        return _resize_by_torch(twice.copy_(image), move, height, width)[..., :channels, :, :]
    return _resize_by_torch(image, move, height, width)


def _resize_by_torch(image: torch.Tensor, move: Resize, height: int, width: int) -> torch.Tensor:
    mode = move.interpolation
    if image.dtype == torch.uint8 and mode in ("bilinear", "bicubic") and image.device.type == "cpu" and image.numel():
        return _resize_uint8(image, move, height, width)
    from torchvision.transforms import InterpolationMode

    resized: torch.Tensor = functional().resize_image(
        image, [height, width], interpolation=InterpolationMode(mode), antialias=move.antialias
    )
    return resized


def _resize_uint8(image: torch.Tensor, move: Resize, height: int, width: int) -> torch.Tensor:
    """Resize an image or a video of uint8 by torch's own kernels for uint8, whose bits are the same on all CPUs.

    torchvision does so too, after 15 us of Python, on the CPUs that its version knows.  On others it goes through
    float32, whose results differ by one here and there.
    """
    *frames, channels, rows, columns = image.shape
    if frames:
        whole = image.reshape(-1, channels, rows, columns)
    elif image.stride(0) == 1:
        row, column = image.stride()[1:]  # the first stride of all tells torch's kernel to keep the layout
        whole = image.as_strided((1, channels, rows, columns), (rows * row, 1, row, column))
    else:
        whole = image[None]
    resized = torch.nn.functional.interpolate(
        whole, (height, width), mode=move.interpolation, align_corners=False, antialias=bool(move.antialias)
    )
    return resized.reshape(*frames, channels, height, width) if frames else resized[0]


def _flip_host(image: torch.Tensor, move: Flip, on: bool) -> torch.Tensor:
    return image.flip(-1 if move.axis else -2) if on else image


def _sampled_host(image: torch.Tensor, move: Any) -> torch.Tensor:
    return move_sampled(image, move, None if move.fill is None else fill_values(move.fill, image.dtype))


_ON_DALI: dict[type, Callable[[Any, Any, Any], Any]] = {Crop: _crop, Resize: _resize, Flip: _flip, Affine: _affine}
