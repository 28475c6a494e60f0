"""Noise of each pixel's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..moves import Sizes
from ..rand import Rand
from .base import Params, Transform, is_number


def seeds(rand: Rand) -> NDArray[np.int64]:
    """[N] int64, a seed for each sample's own generator: its noise is drawn where the image is, and not before."""
    return (rand.words() >> np.uint64(1)).astype(np.int64)


def normal(shape: Sequence[int], seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normally distributed numbers on the CPU: torch's own after `torch.manual_seed(seed)`."""
    return torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed), dtype=dtype)


@dataclass(frozen=True)
class GaussianNoise(Transform):
    """Normally distributed noise added to each value.

    Args:
        mean, sigma: of the noise, in units of [0, 1] for floats, and of 255 for uint8 images.
        clip: keep floats within [0, 1], and uint8 within [0, 255]; False lets uint8 wrap around.

    The CPU form is torchvision's, with numbers of each sample's own; DALI has no such generator, so there is no other.

    Raises:
        ValueError: an invalid argument.
    """

    mean: float = 0.0
    sigma: float = 0.1
    clip: bool = True

    def __post_init__(self) -> None:
        if not is_number(self.mean):
            raise ValueError(f"mean must be a number, got {self.mean!r}")
        if not is_number(self.sigma) or not self.sigma >= 0:
            raise ValueError(f"sigma must not be negative, got {self.sigma!r}")

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        return {"seed": seeds(rand)}, sizes

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, *, seed: Any) -> torch.Tensor:
        floating = image.is_floating_point()
        noise = normal(image.shape, seed, image.dtype if floating else torch.float32).to(image.device)
        if not floating:
            # torchvision's steps, but for the generator.
            changed = image + ((self.mean * 255) + noise * (self.sigma * 255)).to(torch.int16)
            return (changed.clamp_(0, 255) if self.clip else changed).to(torch.uint8)
        changed = image + (self.mean + noise * self.sigma)
        return changed.clamp_(0, 1) if self.clip else changed
