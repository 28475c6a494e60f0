"""Blurring."""

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
from ..native import blur as native
from ..rand import Rand
from .arguments import number_range, size_pair
from .base import Params, Transform

if TYPE_CHECKING:
    from .._dali import Ops


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
        blurred = blurred_host(image, (horizontal, vertical), float(sigma))
        if small:
            blurred = blurred[:, vertical // 2 :, horizontal // 2 :][:, :height, :width]
        return blurred


def blurred_host(image: torch.Tensor, size: tuple[int, int], sigma: float) -> torch.Tensor:
    """Blur an image [C, H, W], to the bits of torchvision's kernel: by the one in C where it takes the image.

    Args:
        image: half the filter is smaller than it.
        size: of the filter, odd, horizontal and vertical.
        sigma: the standard deviation in pixels.
    """
    made = native.blurred(image, size, sigma)
    if made is None:
        made = functional().gaussian_blur_image(image, list(size), [sigma] * 2)
    return made


def _reflected(n: int, border: int) -> NDArray[np.int64]:
    """The origins of the pixels of a row of n and a border on both sides: 3 2 1 | 0 1 2 3 | 2 1 0."""
    period = max(2 * n - 2, 1)
    places = np.arange(-border, n + border) % period
    return np.minimum(places, period - places) if n > 1 else np.zeros_like(places)
