"""Transforms of values: colour, blur, normalisation, element type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..forms.image import functional
from ..moves import Sizes
from ..rand import Rand
from .base import Params, Transform, channel_numbers, check_channels, number_range, size_pair

if TYPE_CHECKING:
    from .._dali import Ops


@dataclass(frozen=True)
class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue changed at random, in a random order.

    Args:
        brightness, contrast, saturation: the factor is drawn from [max(0, 1 - x), 1 + x], or from (low, high).
        hue: the shift in turns is drawn from [-x, x] with x <= 0.5, or from (low, high).

    Images are uint8, or floats in [0, 1].  The CPU form is torchvision's.  The DALI form has one order: hue and
    saturation, which need three channels, then contrast and brightness.  It differs little but for hue, which turns
    linearly in YIQ instead of HSV; contrast is around the mean of all channels instead of the grey image's.

    Raises:
        ValueError: an invalid range.
    """

    brightness: float | Sequence[float] | None = None
    contrast: float | Sequence[float] | None = None
    saturation: float | Sequence[float] | None = None
    hue: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        _ = self._ranges

    @cached_property
    def _ranges(self) -> dict[str, tuple[float, float]]:
        """The ranges of the factors that change anything."""
        ranges = {}
        for name, center in {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0}.items():
            value = getattr(self, name)
            if value is not None:
                limits = (-0.5, 0.5) if name == "hue" else (0, np.inf)
                low, high = number_range(value, name, center, limits)
                if not low == high == center:
                    ranges[name] = low, high
        return ranges

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        params: Params = {name: rand.uniform(low, high) for name, (low, high) in self._ranges.items()}
        if params:
            params["order"] = rand.permutations(4).astype(np.int32)
        return params, sizes

    def dali_params(self, params: Params) -> list[str]:
        return [name for name in params if name != "order"]

    def transform(self, ops: Ops, image: Any, **factors: Any) -> Any:
        if not factors:
            return image
        floating = ops.dtype_of(image).is_floating_point
        twist: dict[str, Any] = {name: factors[name] for name in ("hue", "saturation") if name in factors}
        if twist:
            check_channels(image, 3, "ColorJitter's saturation and hue need")
            if "hue" in twist:
                twist["hue"] = twist["hue"] * 360.0  # DALI counts in degrees
            image = ops.color_twist(image, **twist)
        shift: dict[str, Any] = {name: factors[name] for name in ("brightness", "contrast") if name in factors}
        if "contrast" in shift:
            shift["contrast_center"] = ops.reductions.mean(image).cpu()  # where DALI wants arguments, on a GPU too
        if shift:
            image = ops.brightness_contrast(image, **shift)
        return ops.math.clamp(image, 0.0, 1.0) if floating else image

    def transform_host(
        self, image: torch.Tensor, out: torch.Tensor | None = None, *, order: Any = (), **factors: Any
    ) -> torch.Tensor:
        kernels = functional()
        adjust = (
            ("brightness", kernels.adjust_brightness_image),
            ("contrast", kernels.adjust_contrast_image),
            ("saturation", kernels.adjust_saturation_image),
            ("hue", kernels.adjust_hue_image),
        )
        for i in order:
            name, kernel = adjust[i]
            if name in factors:
                image = kernel(image, float(factors[name]))
        return image


@dataclass(frozen=True)
class GaussianBlur(Transform):
    """Blur with a standard deviation drawn from `sigma`; the borders are reflected.

    Args:
        kernel_size: odd int or (horizontal, vertical), in pixels, as in torchvision.
        sigma: number or (low, high), in pixels.

    The CPU form is torchvision's; it also takes images smaller than half the kernel, as DALI does.  The DALI form
    rounds at another place: uint8 images differ by 1 at most.

    Raises:
        ValueError: an invalid argument.
    """

    kernel_size: int | Sequence[int]
    sigma: float | Sequence[float] = (0.1, 2.0)

    def __post_init__(self) -> None:
        if any(size % 2 == 0 for size in size_pair(self.kernel_size, "kernel_size")):
            raise ValueError(f"kernel_size must be odd, got {self.kernel_size!r}")
        if self._sigma[0] <= 0:
            raise ValueError(f"sigma must be positive, got {self.sigma!r}")

    @cached_property
    def _sigma(self) -> tuple[float, float]:
        return number_range(self.sigma, "sigma")

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        return {"sigma": rand.uniform(*self._sigma)}, sizes

    def transform(self, ops: Ops, image: Any, sigma: Any) -> Any:
        horizontal, vertical = size_pair(self.kernel_size)
        return ops.gaussian_blur(image, window_size=[vertical, horizontal], sigma=sigma)

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, *, sigma: Any) -> torch.Tensor:
        horizontal, vertical = size_pair(self.kernel_size)
        _, height, width = image.shape
        small = height <= vertical // 2 or width <= horizontal // 2
        if small:  # torch reflects once only
            rows, columns = _reflected(height, vertical // 2), _reflected(width, horizontal // 2)
            image = image[:, rows][:, :, columns]
        blurred: torch.Tensor = functional().gaussian_blur_image(image, [horizontal, vertical], [float(sigma)] * 2)
        if small:
            blurred = blurred[:, vertical // 2 :, horizontal // 2 :][:, :height, :width]
        return blurred


def _reflected(n: int, border: int) -> NDArray[np.int64]:
    """The origins of the pixels of a row of n and a border on both sides: 3 2 1 | 0 1 2 3 | 2 1 0."""
    period = max(2 * n - 2, 1)
    places = np.arange(-border, n + border) % period
    return np.minimum(places, period - places) if n > 1 else np.zeros_like(places)


@dataclass(frozen=True)
class Normalize(Transform):
    """(x - mean) / std for each channel, as float32.

    uint8 images are scaled to [0, 1] first, so `ToDtype(torch.float32, scale=True)` before it may be left out.

    Args:
        mean, std: one number for each channel, or one for all, in units of [0, 1] for uint8 images, else in the
            image's own.
        inplace: accepted as in torchvision; batches are always fresh.

    Raises:
        ValueError: no numbers, of different lengths, or a zero in std.
    """

    mean: Sequence[float]
    std: Sequence[float]
    inplace: bool = False

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            object.__setattr__(self, name, channel_numbers(getattr(self, name), name))
        if len(self.mean) != len(self.std):
            raise ValueError(f"mean and std must be of one length, got {len(self.mean)} and {len(self.std)}")
        if 0 in self.std:
            raise ValueError(f"std must not be zero, got {self.std!r}")

    @cached_property
    def _rows(self) -> dict[tuple[int, bool], tuple[torch.Tensor, torch.Tensor]]:
        return {}

    def _affine(self, numbers: int, deep: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Make the rows of x * scale + bias, of `numbers` numbers (pixels times channels); once for each length."""
        found = self._rows.get((numbers, deep))
        if found is None:
            mean, std = (torch.tensor(values, dtype=torch.float64) for values in (self.mean, self.std))
            scale, bias = (1 / (std * (255 if deep else 1))).float(), (-mean / std).float()
            found = scale.repeat(numbers // len(scale)), bias.repeat(numbers // len(bias))
            if len(self._rows) < 100:  # images may have any widths
                self._rows[numbers, deep] = found
        return found

    def out_dtype(self, dtype: torch.dtype) -> torch.dtype:
        return torch.float32

    def transform(self, ops: Ops, image: Any) -> Any:
        source = ops.dtype_of(image)
        if len(self.mean) > 1:
            check_channels(image, len(self.mean), "Normalize has")
        if source == torch.float64:
            image = ops.cast(image, dtype=ops.as_dtype(torch.float32))
        unit = 255.0 if source == torch.uint8 else 1.0
        return ops.crop_mirror_normalize(
            image,
            mean=[value * unit for value in self.mean],
            std=[value * unit for value in self.std],
            dtype=ops.as_dtype(torch.float32),
            output_layout="HWC",
        )

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        channels, height, width = image.shape
        if len(self.mean) not in (1, channels):
            raise ValueError(f"Normalize has {len(self.mean)} channels, and the image {channels}")
        if out is None or out.stride(0) != 1 or out.stride(2) != channels:
            out = torch.empty(height, width, channels).permute(2, 0, 1)
        scale, bias = self._affine(width * channels, image.dtype == torch.uint8)
        # Rows of width * channels numbers: with a last dimension of three, torch's loops are ten times as slow.  Three
        # separate steps, which round alike however a loop is cut.
        rows = out.permute(1, 2, 0).flatten(1)
        rows.copy_(image.permute(1, 2, 0).flatten(1)).mul_(scale).add_(bias)
        return out


_FLOATS = (torch.float32, torch.float16, torch.float64)


@dataclass(frozen=True)
class ToDtype(Transform):
    """Another element type.

    Args:
        dtype: torch.uint8, float16, float32 or float64.
        scale: map the range of uint8 to [0, 1] and back.

    Raises:
        ValueError: another dtype.
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
        if source == self.dtype:
            return image
        # DALI computes in float32, and not in float16 at all.
        if source == torch.float16 and self.dtype == torch.uint8:
            image = ops.cast(image, dtype=ops.as_dtype(torch.float32))
        if factor != 1.0:
            image = image * factor
        if self.dtype == torch.uint8:
            image = ops.math.floor(image)  # torch truncates, DALI's cast rounds
        return ops.cast(image, dtype=ops.as_dtype(self.dtype))

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        factor = self._factor(image.dtype)
        if self.dtype == torch.uint8:
            return (image if factor == 1.0 else image.mul(factor)).to(self.dtype)
        converted = image.to(self.dtype)
        return converted if factor == 1.0 else converted.mul_(factor)
