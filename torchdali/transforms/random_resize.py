"""Resizing to random sizes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..moves import Sizes
from ..rand import Rand
from .arguments import is_integer, is_number, number_pair, size_pair
from .base import Params
from .resize import Resizing, by_edge, size_params


@dataclass(frozen=True)
class RandomResize(Resizing):
    """The shorter edge becomes a random one: segmentation's augmentation, with a `RandomCrop` after it.

    Args:
        min_size, max_size: range of the shorter edge, in pixels, `max_size` not included, as in torchvision.
        interpolation, antialias: as in Resize.

    Raises:
        ValueError: an invalid argument.
    """

    min_size: int
    max_size: int
    interpolation: Any = "bilinear"
    antialias: bool | None = True

    needs_sizes = True
    varies_size = True

    def __post_init__(self) -> None:
        if not is_integer(self.min_size, 1) or not is_integer(self.max_size, 1) or self.min_size >= self.max_size:
            raise ValueError(
                f"min_size and max_size must be ints with 0 < min_size < max_size, got {self.min_size!r} and "
                f"{self.max_size!r}"
            )
        self.check_resizing()

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        return size_params(by_edge(sizes, rand.integers(self.min_size, self.max_size), None))


@dataclass(frozen=True)
class RandomShortestSize(Resizing):
    """The shorter edge becomes one of several: detection's multi-scale training.

    Args:
        min_size: the shorter edge in pixels, or a list of such.
        max_size: the longer edge is at most this, and the shorter one shrinks with it.
        interpolation, antialias: as in Resize.

    Raises:
        ValueError: an invalid argument.
    """

    min_size: int | Sequence[int]
    max_size: int | None = None
    interpolation: Any = "bilinear"
    antialias: bool | None = True

    needs_sizes = True

    def __post_init__(self) -> None:
        if not self._edges or not all(is_integer(edge, 1) for edge in self._edges):
            raise ValueError(f"min_size must be a positive int, or a list of such, got {self.min_size!r}")
        if self.max_size is not None and not is_integer(self.max_size, 1):
            raise ValueError(f"max_size must be a positive int or None, got {self.max_size!r}")
        self.check_resizing()

    @property
    def varies_size(self) -> bool:
        return len(set(self._edges)) > 1

    @property
    def _edges(self) -> Sequence[int]:
        given = self.min_size
        return given if isinstance(given, Sequence) and not isinstance(given, str) else [given]

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        ratio = rand.choice(self._edges) / sizes.min(axis=1)
        if self.max_size is not None:
            ratio = np.minimum(ratio, self.max_size / sizes.max(axis=1))
        return size_params(np.maximum((sizes * ratio[:, None]).astype(np.int64), 1))


@dataclass(frozen=True)
class ScaleJitter(Resizing):
    """A random scale, of the image that fits into a target size: "large scale jitter".

    Ghiasi et al., "Simple Copy-Paste is a Strong Data Augmentation Method for Instance Segmentation", 2021, drawn as
    torchvision does: there `target_size` is (width, height), whatever it is called, and so it is here.

    Args:
        target_size: two ints; the scale 1 is the image that fits into it.
        scale_range: range of the scale.
        interpolation, antialias: as in Resize.

    An edge never vanishes, as it does in torchvision.

    Raises:
        ValueError: an invalid argument.
    """

    target_size: Sequence[int]
    scale_range: Sequence[float] = (0.1, 2.0)
    interpolation: Any = "bilinear"
    antialias: bool | None = True

    needs_sizes = True
    varies_size = True

    def __post_init__(self) -> None:
        given = self.target_size
        if not isinstance(given, Sequence) or len(given) != 2 or not all(is_integer(edge, 1) for edge in given):
            raise ValueError(f"target_size must be two positive ints, got {given!r}")
        number_pair(self.scale_range, "scale_range")
        self.check_resizing()

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        low, high = self.scale_range
        # In float32, as torchvision's tensors.
        scale = np.float32(low) + rand.uniform() * np.float32(high - low)
        fits = (np.array([self.target_size[1], self.target_size[0]]) / sizes).min(axis=1)
        ratio = fits.astype(np.float32) * scale
        return size_params(np.maximum((sizes.astype(np.float32) * ratio[:, None]).astype(np.int64), 1))


@dataclass(frozen=True)
class ResizeKeepRatio(Resizing):
    """To the smallest size of the image's ratio that covers a size, or the largest within it, with jitter; as timm.

    Args:
        size: in pixels, int or (height, width).
        longest: 0: the image covers `size`; 1: it lies within; between them, in between.
        interpolation: as in Resize.
        random_scale_prob: probability of a random scale.
        random_scale_range: of it; larger ones give larger images, but of areas smaller ones.
        random_scale_area: the scale is of the area that a crop of `size` keeps.
        random_aspect_prob: probability of a random change of the ratio.
        random_aspect_range: of the factor.
        antialias: as in Resize.

    Raises:
        ValueError: an invalid argument.
    """

    size: int | Sequence[int]
    longest: float = 0.0
    interpolation: Any = "bilinear"
    random_scale_prob: float = 0.0
    random_scale_range: Sequence[float] = (0.85, 1.05)
    random_scale_area: bool = False
    random_aspect_prob: float = 0.0
    random_aspect_range: Sequence[float] = (0.9, 1.11)
    antialias: bool | None = True

    needs_sizes = True

    def __post_init__(self) -> None:
        size_pair(self.size)
        for name in ("longest", "random_scale_prob", "random_aspect_prob"):
            if not is_number(value := getattr(self, name)) or not 0 <= value <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {value!r}")
        for name in ("random_scale_range", "random_aspect_range"):
            if number_pair(getattr(self, name), name)[0] == 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)!r}")
        self.check_resizing()

    @property
    def draws(self) -> bool:
        return self.varies_size

    @property
    def varies_size(self) -> bool:
        return bool(self.random_scale_prob or self.random_aspect_prob)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        ratios = sizes / np.array(size_pair(self.size))
        ratio = ratios.max(axis=1) * self.longest + ratios.min(axis=1) * (1.0 - self.longest)
        smallest, largest = self.random_scale_range
        scale = rand.uniform(smallest, largest).astype(np.float64)
        scale = 1.0 / np.sqrt(scale) if self.random_scale_area else scale
        scale = np.where(rand.bernoulli(self.random_scale_prob) == 1, scale, 1.0)
        low, high = (math.log(end) for end in self.random_aspect_range)
        aspect = np.sqrt(np.exp(rand.uniform(low, high).astype(np.float64)))
        aspect = np.where(rand.bernoulli(self.random_aspect_prob) == 1, aspect, 1.0)
        factors = np.stack([scale / aspect, scale * aspect], 1)
        return size_params(np.maximum(np.rint(sizes * factors / ratio[:, None]).astype(np.int64), 1))
