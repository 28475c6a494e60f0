"""Transforms of values: colour, blur, normalisation, element type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..random import Rand
from .base import Params, Sizes, Transform, number_range, size_pair

if TYPE_CHECKING:
    from .._dali import Ops


@dataclass(frozen=True)
class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue changed at random, in a random order.

    Args:
        brightness, contrast, saturation: the factor is drawn from [max(0, 1 - x), 1 + x], or from (low, high).
        hue: the shift in turns is drawn from [-x, x] with x <= 0.5, or from (low, high).

    The CPU form is torchvision's.  The DALI form is one `color_twist`: always hue and saturation, then brightness and
    contrast; contrast is around mid-grey instead of the image's mean; hue turns linearly in YIQ instead of HSV.
    """

    brightness: Any = None
    contrast: Any = None
    saturation: Any = None
    hue: Any = None

    def __post_init__(self) -> None:
        self._ranges()

    def _ranges(self) -> dict[str, tuple[float, float]]:
        ranges = {
            name: number_range(getattr(self, name), name, center=1.0)
            for name in ("brightness", "contrast", "saturation")
            if getattr(self, name) is not None
        }
        if self.hue is not None:
            ranges["hue"] = (
                number_range(self.hue, "hue", center=0.0, limits=(-0.5, 0.5))
                if not isinstance(self.hue, (int, float))
                else number_range((-self.hue, self.hue), "hue", limits=(-0.5, 0.5))
            )
        return ranges

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        params: Params = {name: rand.uniform(low, high) for name, (low, high) in self._ranges().items()}
        params["order"] = rand.permutations(4).astype(np.int32)
        return params, sizes

    def transform(self, ops: Ops, image: Any, order: Any, **factors: Any) -> Any:
        if "hue" in factors:
            factors["hue"] = factors["hue"] * 360.0  # DALI counts in degrees
        return ops.color_twist(image, **factors) if factors else image

    def transform_host(
        self, image: torch.Tensor, out: torch.Tensor | None = None, *, order: Any, **factors: Any
    ) -> torch.Tensor:
        from torchvision.transforms.v2 import functional as F

        adjust = {
            "brightness": F.adjust_brightness_image,
            "contrast": F.adjust_contrast_image,
            "saturation": F.adjust_saturation_image,
            "hue": F.adjust_hue_image,
        }
        names = list(adjust)
        for i in order:
            if names[i] in factors:
                image = adjust[names[i]](image, float(factors[names[i]]))
        return image


@dataclass(frozen=True)
class GaussianBlur(Transform):
    """Blur with a standard deviation drawn from `sigma`.

    Args:
        kernel_size: odd int or (horizontal, vertical), as in torchvision.
        sigma: number or (low, high), in pixels.
    """

    kernel_size: Any
    sigma: Any = (0.1, 2.0)

    def __post_init__(self) -> None:
        if any(size % 2 == 0 for size in size_pair(self.kernel_size, "kernel_size")):
            raise ValueError(f"kernel_size must be odd, got {self.kernel_size!r}")
        if number_range(self.sigma, "sigma")[0] <= 0:
            raise ValueError(f"sigma must be positive, got {self.sigma!r}")

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        return {"sigma": rand.uniform(*number_range(self.sigma, "sigma"))}, sizes

    def transform(self, ops: Ops, image: Any, sigma: Any) -> Any:
        horizontal, vertical = size_pair(self.kernel_size)
        return ops.gaussian_blur(image, window_size=[vertical, horizontal], sigma=sigma)

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, *, sigma: Any) -> torch.Tensor:
        from torchvision.transforms.v2 import functional as F

        return F.gaussian_blur_image(image, list(size_pair(self.kernel_size)), [float(sigma)] * 2)


@dataclass(frozen=True)
class Normalize(Transform):
    """(x - mean) / std for each channel, as float32.

    uint8 images are scaled to [0, 1] first, so that `ToDtype(torch.float32, scale=True)` in front may be left out.

    Args:
        mean, std: one number for each channel, in units of [0, 1].
        inplace: accepted for torchvision's sake; batches are always fresh.
    """

    mean: Sequence[float]
    std: Sequence[float]
    inplace: bool = False

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            values = getattr(self, name)
            if isinstance(values, (int, float)) or not len(values):
                raise ValueError(f"{name} must be one number for each channel, got {values!r}")
        if len(self.mean) != len(self.std):
            raise ValueError(f"mean and std must be of one length, got {len(self.mean)} and {len(self.std)}")
        if any(value == 0 for value in self.std):
            raise ValueError(f"std must not be zero, got {self.std!r}")

    @cached_property
    def _affine(self) -> dict[bool, tuple[torch.Tensor, torch.Tensor]]:
        """For uint8 or not: x * scale + bias, in [C]."""
        mean, std = (torch.tensor([float(v) for v in values], dtype=torch.float64) for values in (self.mean, self.std))
        return {deep: ((1 / (std * (255 if deep else 1))).float(), (-mean / std).float()) for deep in (True, False)}

    def out_dtype(self, dtype: torch.dtype) -> torch.dtype:
        return torch.float32

    def transform(self, ops: Ops, image: Any) -> Any:
        unit = 255.0 if ops.dtype_of(image) == torch.uint8 else 1.0
        return ops.crop_mirror_normalize(
            image,
            mean=[float(value) * unit for value in self.mean],
            std=[float(value) * unit for value in self.std],
            dtype=ops.as_dtype(torch.float32),
            output_layout="HWC",
        )

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        channels, height, width = image.shape
        if channels != len(self.mean):
            raise ValueError(f"Normalize has {len(self.mean)} channels, and the image {channels}")
        if out is None:
            out = torch.empty(height, width, channels).permute(2, 0, 1)
        scale, bias = self._affine[image.dtype == torch.uint8]
        # Rows of width * channels numbers: with a last dimension of three, torch's loops are ten times as slow.  Three
        # separate steps, which round alike however a loop is cut.
        rows = out.permute(1, 2, 0).flatten(1)
        if rows.data_ptr() != out.data_ptr():
            return out.copy_(image.mul(scale[:, None, None]).add_(bias[:, None, None]))
        rows.copy_(image.permute(1, 2, 0).flatten(1)).mul_(scale.repeat(width)).add_(bias.repeat(width))
        return out


_FLOATS = (torch.float32, torch.float16, torch.float64)


@dataclass(frozen=True)
class ToDtype(Transform):
    """Another element type.

    Args:
        dtype: torch.uint8, float16, float32 or float64.
        scale: map the range of uint8 to [0, 1] and back.
    """

    dtype: torch.dtype
    scale: bool = False

    def __post_init__(self) -> None:
        if self.dtype not in (torch.uint8, *_FLOATS):
            raise ValueError(f"dtype must be torch.uint8, float16, float32 or float64, got {self.dtype!r}")

    def out_dtype(self, dtype: torch.dtype) -> torch.dtype:
        return self.dtype

    def _factor(self, source: torch.dtype) -> float:
        if not self.scale or (source == torch.uint8) == (self.dtype == torch.uint8):
            return 1.0
        # torchvision's, which reaches 255 and never 256.
        return 255 + 1.0 - 1e-3 if self.dtype == torch.uint8 else 1 / 255

    def transform(self, ops: Ops, image: Any) -> Any:
        source = ops.dtype_of(image)
        factor = self._factor(source)
        if factor == 1.0:
            return image if source == self.dtype else ops.cast(image, dtype=ops.as_dtype(self.dtype))
        if self.dtype != torch.uint8:
            return ops.cast(image, dtype=ops.as_dtype(self.dtype)) * factor
        return ops.cast(ops.math.floor(image * factor), dtype=ops.as_dtype(self.dtype))  # torch truncates, DALI rounds

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        factor = self._factor(image.dtype)
        if self.dtype == torch.uint8:
            return (image if factor == 1.0 else image.mul(factor)).to(self.dtype)
        image = image.to(self.dtype)
        return image if factor == 1.0 else image.mul_(factor)
