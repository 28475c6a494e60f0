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
    """The dimensions of "H", "W" and "C"; clips have frames before them."""
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
        values = ops.math.floor(values)  # a cast rounds, and clamps
    else:
        values = ops.math.clamp(values, 0.0, 1.0)
    return values if dtype == torch.float32 else ops.cast(values, dtype=ops.as_dtype(dtype))


def unchanged(ops: Ops, image: Any, value: Any, dtype: torch.dtype) -> Any:
    """The image itself; `value` is used for nothing, since DALI warns of inputs of a pipeline that are not used."""
    return image + ops.beside(ops.cast(ops.reductions.max(value) * 0, dtype=ops.as_dtype(dtype)))


def scaled(ops: Ops, image: Any, factor: Any) -> Any:
    """Give float32 values, multiplied by one number for each sample.

    An operator's argument, which stays on the CPU: an input would be copied to the GPU by itself.
    """
    return ops.coord_transform(image, M=factor, dtype=ops.as_dtype(torch.float32))


def grey_of(ops: Ops, image: Any, dtype: torch.dtype) -> Any:
    """[H, W, 1] float32, the grey image; whole numbers for uint8."""
    grey = ops.coord_transform(image, M=ops.matrix([_GREY]), dtype=ops.as_dtype(torch.float32))
    return ops.math.floor(grey) if dtype == torch.uint8 else grey


def toned(ops: Ops, image: Any, own: Any, grey: Any, mean: Any, dtype: torch.dtype, channels: int) -> Any:
    """Mix images of 1 or 3 channels with their grey images, and with the means of these; the rest is black.

    So brightness, saturation and contrast of torchvision are one formula, and samples of a batch may each have another
    one; one in which nothing is mixed stays as it is.

    Args:
        ops: DALI's operators.
        image: a batch of images.
        own, grey, mean: the weights, one for each sample, float32 on the CPU; None: zeros.
        dtype: of the images.
        channels: of the images; one that has only a grey level has no saturation, and stays.
    """
    image = wide(ops, image, dtype)
    if channels == 1 and grey is not None:
        own = own * (grey == 0.0) + (grey != 0.0) * 1.0
    level, others = image, []
    if channels == 3 and (grey is not None or mean is not None):
        level = grey_of(ops, image, dtype)
        others += [] if grey is None else [scaled(ops, level, grey)]
    if mean is not None:
        others.append(scaled(ops, mean_of(ops, level), mean))
    values = scaled(ops, image, own)
    if others:
        values = values + (others[0] if len(others) == 1 else others[0] + others[1])
    return settled(ops, values, dtype)


def hue(ops: Ops, image: Any, shift: Any, dtype: torch.dtype) -> Any:
    """As `adjust_hue`: in HSV, for three channels; the shift is in turns.

    A channel's new value is max - range * clamp(min(k, 4 - k), 0, 1) with k = (n + 6 h) mod 6 and n = 5, 3, 1 for red,
    green and blue, which is the usual way back from HSV without its cases.
    """
    f32 = ops.as_dtype(torch.float32)
    image = scaled(ops, image, 1.0 / 255.0) if dtype == torch.uint8 else wide(ops, image, dtype)
    colours = axes(ops, "C")
    high = ops.reductions.max(image, axes=colours, keep_dims=True)
    span = high - ops.reductions.min(image, axes=colours, keep_dims=True)
    below = (high - image) / ops.math.max(span, 1e-30)  # zero where there is no colour
    # The hue in sixths, if red, green or blue is the largest; the first of them counts.
    differences = ops.matrix([[0, -1, 1], [1, 0, -1], [-1, 1, 0]])
    sixths = ops.coord_transform(below, M=differences, T=[0.0, 2.0, 4.0], dtype=f32)
    first = ops.coord_transform((image == high) * 1.0, M=ops.matrix([[1, 0, 0], [-1, 1, 0], [-1, -1, 1]]), dtype=f32)
    first = ops.math.clamp(first, 0.0, 1.0)
    turned = ops.coord_transform(sixths * first, M=ops.matrix([[1, 1, 1]]), T=shift * 6.0, dtype=f32)
    k = ops.coord_transform(turned, M=ops.matrix([[1], [1], [1]]), T=[5.0, 3.0, 1.0], dtype=f32)
    k = k - ops.math.floor(k * (1 / 6)) * 6.0
    values = high - span * ops.math.clamp(ops.math.min(k, 4.0 - k), 0.0, 1.0)
    return settled(ops, values * 255.999 if dtype == torch.uint8 else values, dtype)
