"""Transforms of levels: what an image's value becomes depends on the value, or on the histogram of its channel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..forms.image import Images, functional
from . import adjust
from .arguments import is_integer, is_number
from .base import Params
from .chance import Chance, bits, chosen
from .recolor import recolored
from .switch import switch

if TYPE_CHECKING:
    from .._dali import Ops


def threshold_for(threshold: float, dtype: torch.dtype) -> float:
    """The threshold itself, if it is one for this element type.

    Raises:
        ValueError: it is larger than the largest value of such an image.
    """
    largest = 255 if dtype == torch.uint8 else 1
    if threshold > largest:
        raise ValueError(f"threshold must be at most {largest} for {dtype} images, got {threshold!r}")
    return threshold


def inverted(ops: Ops, image: Any, on: Any, dtype: torch.dtype) -> Any:
    """The negative where `on` is 1."""
    if dtype == torch.uint8:
        return image ^ bits(ops, on)
    image = adjust.wide(ops, image, dtype)
    return ops.cast(chosen(ops.beside(on), 1.0 - image, image), dtype=ops.as_dtype(dtype))


def solarized(ops: Ops, image: Any, threshold: Any, dtype: torch.dtype) -> Any:
    """The negative of values from `threshold` on, a number or one for each sample; infinity: of none."""
    image = adjust.wide(ops, image, dtype)
    bright = image >= ops.beside(threshold)
    if dtype == torch.uint8:
        return image ^ bits(ops, bright * 1)
    return ops.cast(chosen(bright * 1.0, 1.0 - image, image), dtype=ops.as_dtype(dtype))


def solarized_host(image: torch.Tensor, threshold: float) -> torch.Tensor:
    """As torchvision's kernel; a threshold of bytes is a whole number, which is the same in any default dtype."""
    least = int(np.ceil(np.float32(threshold)))
    if image.dtype == torch.uint8 and 0 <= least <= 255:
        # Whole numbers, which take a sixth of the time of a choice between two images.
        return image ^ (image >= least).view(torch.uint8).neg()
    changed: torch.Tensor = functional().solarize_image(image, threshold)
    return changed


def stretched(ops: Ops, image: Any, dtype: torch.dtype) -> Any:
    """As `autocontrast`: each channel between its smallest and largest value; one of a single value stays."""
    f32 = ops.as_dtype(torch.float32)
    image = adjust.wide(ops, image, dtype)
    low = ops.cast(ops.reductions.min(image, axes=adjust.axes(ops, "HW"), keep_dims=True), dtype=f32)
    high = ops.cast(ops.reductions.max(image, axes=adjust.axes(ops, "HW"), keep_dims=True), dtype=f32)
    flat = (low == high) * 1.0
    scale = (high - low) * (1 / 255 if dtype == torch.uint8 else 1.0) + flat
    return adjust.settled(ops, (image - low * (1.0 - flat)) / scale, dtype)


def equalized(ops: Ops, image: Any, dtype: torch.dtype) -> Any:
    """By DALI's operator, which has OpenCV's rule."""
    if dtype == torch.uint8:
        return ops.equalize(image)
    u8 = ops.as_dtype(torch.uint8)
    levels = ops.cast(ops.math.floor(adjust.wide(ops, image, dtype) * 255.999), dtype=u8)
    return ops.cast(ops.equalize(levels) * (1 / 255), dtype=ops.as_dtype(dtype))


@dataclass(frozen=True)
class RandomInvert(Chance):
    """The negative, with probability p.

    Images are uint8, or floats in [0, 1].  Both forms are equal to torchvision's.

    Raises:
        ValueError: p is no probability.
    """

    p: float = 0.5

    def transform(self, ops: Ops, image: Any, on: Any) -> Any:
        return inverted(ops, image, on, ops.dtype_of(image))

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, *, on: Any) -> torch.Tensor:
        return functional().invert_image(image) if on else image


@dataclass(frozen=True)
class RandomPosterize(Chance):
    """Only the highest bits of each value kept, with probability p.

    Args:
        bits: how many to keep, 0 to 8.
        p: the probability.

    Images are uint8, or floats in [0, 1], which get 2**bits levels.  Both forms are equal to torchvision's.

    Raises:
        ValueError: an invalid argument.
    """

    bits: int
    p: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_integer(self.bits, 0) or self.bits > 8:
            raise ValueError(f"bits must be an integer from 0 to 8, got {self.bits!r}")

    def transform(self, ops: Ops, image: Any, on: Any) -> Any:
        dtype = ops.dtype_of(image)
        if dtype == torch.uint8:
            return image & ops.beside(ops.cast(255 - on * (2 ** (8 - self.bits) - 1), dtype=ops.as_dtype(dtype)))
        image, levels = adjust.wide(ops, image, dtype), 2.0**self.bits
        cut = ops.math.clamp(ops.math.floor(image * levels), 0.0, levels - 1) * (1 / levels)
        return ops.cast(chosen(ops.beside(on), cut, image), dtype=ops.as_dtype(dtype))

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, *, on: Any) -> torch.Tensor:
        return functional().posterize_image(image, int(self.bits)) if on else image


@dataclass(frozen=True)
class RandomSolarize(Chance):
    """The negative of all values at a threshold or above it, with probability p.

    Args:
        threshold: in the image's own units, at most 255 for uint8 images and 1 for floats.
        p: the probability.

    Both forms are equal to torchvision's.

    Raises:
        ValueError: an invalid argument.
    """

    threshold: float
    p: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.threshold) or self.threshold > 255:
            raise ValueError(f"threshold must be a number of at most 255, got {self.threshold!r}")

    def transform(self, ops: Ops, image: Any, on: Any) -> Any:
        dtype = ops.dtype_of(image)
        # Beyond all values for those that stay as they are.
        return solarized(ops, image, threshold_for(float(self.threshold), dtype) + (1 - on) * 1e6, dtype)

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, *, on: Any) -> torch.Tensor:
        threshold = threshold_for(float(self.threshold), image.dtype)
        return solarized_host(image, threshold) if on else image


@dataclass(frozen=True)
class RandomAutocontrast(Chance):
    """Each channel stretched between its smallest and its largest value, with probability p.

    Images are uint8, or floats in [0, 1], of 1 or 3 channels.  The CPU form is torchvision's; the DALI form has its
    formula: uint8 images differ by 1 at most.

    Raises:
        ValueError: p is no probability.
    """

    p: float = 0.5

    def transform(self, ops: Ops, image: Any, on: Any) -> Any:
        dtype = ops.dtype_of(image)
        return switch(ops, on, [lambda ops, part: stretched(ops, part, dtype)], image, [{}])

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, *, on: Any) -> torch.Tensor:
        return recolored(image, "autocontrast") if on else image


@dataclass(frozen=True)
class RandomEqualize(Chance):
    """The histogram of each channel made flat, with probability p.

    Images are uint8, or floats in [0, 1].  The torch form is torchvision's, which follows Pillow's rule; it runs on a
    GPU too, unless a step that only DALI has follows.  The DALI form follows OpenCV's: on photographs they differ by 7
    levels on average, and by 51 at most.

    Raises:
        ValueError: p is no probability.
    """

    p: float = 0.5

    truer_in_torch = True

    def transform(self, ops: Ops, image: Any, on: Any) -> Any:
        dtype = ops.dtype_of(image)
        return switch(ops, on, [lambda ops, part: equalized(ops, part, dtype)], image, [{}])

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, *, on: Any) -> torch.Tensor:
        return recolored(image, "equalize") if on else image

    def transform_batch(self, images: torch.Tensor, params: Params) -> Images:
        (rows,) = np.nonzero(params["on"])
        chosen = torch.from_numpy(rows).to(images.device, non_blocking=True)
        return images.index_copy(0, chosen, recolored(images[chosen], "equalize")) if len(rows) else images
