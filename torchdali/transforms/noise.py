"""Noise of each pixel's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..forms.image import Images
from ..moves import Sizes
from ..rand import Rand
from .arguments import is_number
from .base import Params, Transform


def seeds(rand: Rand) -> NDArray[np.int64]:
    """[N] int64, a seed for each sample's own generator: its noise is drawn where the image is, and not before."""
    return (rand.words() >> np.uint64(1)).astype(np.int64)


def normal(shape: Sequence[int], seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Normally distributed numbers on the CPU: torch's own after `torch.manual_seed(seed)`."""
    return torch.randn(tuple(shape), generator=torch.Generator().manual_seed(seed), dtype=dtype)


def hashed_normal(shape: Sequence[int], seeds: NDArray[np.int64], device: torch.device) -> torch.Tensor:
    """Normally distributed numbers on any device, float32 [N, *shape]: a sample's follow from its seed alone.

    They are hashes of (seed, place), by SplitMix64's finaliser, and then Box and Muller's.  A generator's numbers would
    take a call for each sample, and depend on the model of the GPU.
    """
    count = math.prod(shape)
    words = torch.from_numpy(np.asarray(seeds, np.int64)).to(device, non_blocking=True)[:, None] * _GAMMA
    words = words + torch.arange(1, count + 1, device=device) * _STEP
    for shift, factor in ((30, _M1), (27, _M2)):
        words = (words ^ _shifted(words, shift)) * factor
    words = words ^ _shifted(words, 31)
    radius = (-2 * ((_shifted(words, 40) + 1).float() * 2.0**-24).log()).sqrt()
    angle = (words & 0xFFFFFF).float() * (2 * math.pi * 2.0**-24)
    return (radius * angle.cos()).view(len(seeds), *shape)


def _shifted(words: torch.Tensor, shift: int) -> torch.Tensor:
    """Shift int64 to the right, as if it had no sign."""
    return (words >> shift) & ((1 << (64 - shift)) - 1)


# Of SplitMix64, as int64, which wraps.
_GAMMA, _STEP = 0x9E3779B97F4A7C15 - 2**64, 0xD1342543DE82EF95 - 2**64
_M1, _M2 = 0xBF58476D1CE4E5B9 - 2**64, 0x94D049BB133111EB - 2**64


@dataclass(frozen=True)
class GaussianNoise(Transform):
    """Normally distributed noise added to each value.

    Args:
        mean, sigma: of the noise, in units of [0, 1] for floats, and of 255 for uint8 images.
        clip: keep floats within [0, 1], and uint8 within [0, 255]; False lets uint8 wrap around.

    The form on the CPU is torchvision's, with numbers of each sample's own; on a GPU, torch makes the whole batch, with
    other numbers of the same distribution.  DALI has no such generator, so there is no other.

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
        noise = normal(image.shape, seed, image.dtype if floating else torch.float32)
        return self._added(image, noise)

    def transform_batch(self, images: torch.Tensor, params: Params) -> Images:
        noise = hashed_normal(images.shape[1:], params["seed"], images.device)
        return self._added(images, noise.to(images.dtype) if images.is_floating_point() else noise)

    def _added(self, image: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        if not image.is_floating_point():
            # torchvision's steps, but for the generator.
            changed = image + ((self.mean * 255) + noise * (self.sigma * 255)).to(torch.int16)
            return (changed.clamp_(0, 255) if self.clip else changed).to(torch.uint8)
        changed = image + (self.mean + noise * self.sigma)
        return changed.clamp_(0, 1) if self.clip else changed
