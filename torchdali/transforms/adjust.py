"""torchvision's colour formulas in DALI's operators, truncation included.

DALI's own operators round, and turn hue in YIQ instead of HSV.
Arithmetic on uint8 images is in float32, as in torchvision's kernels.  Factors are numbers, or one for each sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from .._dali import Ops

_GREY = [0.2989, 0.587, 0.114]  # torchvision's weights


def axes(ops: Ops, letters: str) -> list[int]:
    """The dimensions of "H", "W" and "C"; clips have frames in front of them."""
    return [("FHWC" if ops.frames else "HWC").index(letter) for letter in letters]


def mean_of(ops: Ops, image: Any) -> Any:
    """[1, 1, 1] float32, the mean; of each frame of a clip."""
    return ops.reductions.mean(image, axes=axes(ops, "HWC"), keep_dims=True)


def wide(ops: Ops, image: Any, dtype: torch.dtype) -> Any:
    """The image for arithmetic: DALI computes neither in float16 nor, in all operators, in float64."""
    return image if dtype == torch.uint8 else ops.cast(image, dtype=ops.as_dtype(torch.float32))


def settled(ops: Ops, values: Any, dtype: torch.dtype) -> Any:
    """Values as an image again: clamped, and cut off to whole numbers for uint8, as torch's `.to(torch.uint8)` does."""
    if dtype == torch.uint8:
        values = ops.math.floor(ops.math.clamp(values, 0.0, 255.0))
    else:
        values = ops.math.clamp(values, 0.0, 1.0)
    return ops.cast(values, dtype=ops.as_dtype(dtype))


def unchanged(ops: Ops, image: Any, value: Any, dtype: torch.dtype) -> Any:
    """The image itself; `value` is used for nothing, since DALI warns of inputs of a pipeline that are not used."""
    return image + ops.beside(ops.cast(ops.reductions.max(value) * 0, dtype=ops.as_dtype(dtype)))


def grey_of(ops: Ops, image: Any, dtype: torch.dtype) -> Any:
    """[H, W, 1] float32, the grey image; whole numbers for uint8."""
    grey = ops.coord_transform(image, M=ops.matrix([_GREY]), dtype=ops.as_dtype(torch.float32))
    return ops.math.floor(grey) if dtype == torch.uint8 else grey


def brightness(ops: Ops, image: Any, factor: Any, dtype: torch.dtype) -> Any:
    """As `adjust_brightness`."""
    return settled(ops, wide(ops, image, dtype) * ops.beside(factor), dtype)


def contrast(ops: Ops, image: Any, factor: Any, dtype: torch.dtype, channels: int) -> Any:
    """As `adjust_contrast`: around the mean of the grey image."""
    image = wide(ops, image, dtype)
    factor = ops.beside(factor)
    grey = grey_of(ops, image, dtype) if channels == 3 else image
    return settled(ops, image * factor + mean_of(ops, grey) * (1.0 - factor), dtype)


def saturation(ops: Ops, image: Any, factor: Any, dtype: torch.dtype) -> Any:
    """As `adjust_saturation`, for three channels."""
    image = wide(ops, image, dtype)
    factor = ops.beside(factor)
    return settled(ops, image * factor + grey_of(ops, image, dtype) * (1.0 - factor), dtype)


def hue(ops: Ops, image: Any, shift: Any, dtype: torch.dtype) -> Any:
    """As `adjust_hue`: in HSV, for three channels; the shift is in turns.

    A channel's new value is max - range * clamp(min(k, 4 - k), 0, 1) with k = (n + 6 h) mod 6 and n = 5, 3, 1 for red,
    green and blue, which is the usual way back from HSV without its cases.
    """
    f32 = ops.as_dtype(torch.float32)
    unit = 255.0 if dtype == torch.uint8 else 1.0
    image = ops.cast(image, dtype=f32) * (1.0 / unit)
    colours = axes(ops, "C")
    high = ops.reductions.max(image, axes=colours, keep_dims=True)
    span = high - ops.reductions.min(image, axes=colours, keep_dims=True)
    below = (high - image) / (span + (span == 0.0) * 1.0)
    # The hue in sixths, if red, green or blue is the largest; the first of them counts.
    differences = ops.matrix([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    sixths = ops.coord_transform(below, M=differences, T=[0.0, 2.0, 4.0], dtype=f32)
    first = ops.coord_transform((image == high) * 1.0, M=ops.matrix([[1, 0, 0], [-1, 1, 0], [-1, -1, 1]]), dtype=f32)
    first = ops.math.clamp(first, 0.0, 1.0)
    turned = ops.reductions.sum(sixths * first, axes=colours, keep_dims=True) + ops.beside(shift) * 6.0
    k = ops.coord_transform(turned, M=ops.matrix([[1], [1], [1]]), T=[5.0, 3.0, 1.0], dtype=f32)
    k = k - ops.math.floor(k * (1 / 6)) * 6.0
    values = high - span * ops.math.clamp(ops.math.min(k, 4.0 - k), 0.0, 1.0)
    return settled(ops, values * (255.999 if dtype == torch.uint8 else 1.0), dtype)
