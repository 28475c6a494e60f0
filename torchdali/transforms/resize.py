"""Resizing, with and without a random window."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..moves import Crop, Move, Sizes
from ..moves import Resize as Resized
from ..rand import Rand
from .arguments import check_antialias, is_integer, mode_name, number_pair, size_pair
from .base import Mover, Params
from .geometry import window_params


class Resizing(Mover):
    """Base of the transforms that resize, by torchvision's interpolation and antialias."""

    interpolation: Any
    antialias: bool | None

    def check_resizing(self) -> None:
        """Raise unless both are values that torchvision takes.

        Raises:
            ValueError: one isn't.
        """
        mode_name(self.interpolation)
        check_antialias(self.antialias)

    def resize(self, size: Any) -> Move:
        """The move to a size [N, 2]."""
        return Resized(size, mode_name(self.interpolation), self.antialias)

    def moves(self, params: dict[str, Any]) -> list[Move]:
        return [self.resize(params["size"])]


def by_edge(sizes: Sizes, short: Any, long: int | None) -> Sizes:
    """Give the sizes [N, 2] of images whose shorter edge becomes `short`, as torchvision computes them.

    Args:
        sizes: [N, 2], as they are.
        short: the shorter edge, an int or [N]; None: the longer one becomes `long`.
        long: the longer edge is at most this, and the shorter one shrinks with it; None: no limit.

    No edge vanishes.
    """
    least, most = sizes.min(axis=1), sizes.max(axis=1)
    if short is None:
        assert long is not None
        new_short, new_long = long * least / most, np.full_like(most, long)
    else:
        new_short, new_long = np.broadcast_to(short, least.shape), (short * most / least).astype(np.int64)
        if long is not None:
            new_short = np.where(new_long > long, long * new_short / new_long, new_short)
            new_long = np.minimum(new_long, long)
    new_short = np.maximum(new_short.astype(np.int64), 1)
    upright = sizes[:, :1] >= sizes[:, 1:]
    return np.where(upright, np.stack([new_long, new_short], 1), np.stack([new_short, new_long], 1))


def size_params(sizes: Sizes) -> tuple[Params, Sizes]:
    """Make the params of new sizes [N, 2]: DALI takes floats."""
    return {"size": sizes.astype(np.float32)}, sizes


@dataclass(frozen=True)
class Resize(Resizing):
    """To a size: (height, width), or an int for the shorter edge.

    Args:
        size: in pixels: int, [int] or (height, width); None: `max_size` is the longer edge.
        interpolation: "bilinear", "bicubic", "nearest", "nearest-exact", or torchvision's InterpolationMode.
        max_size: with an int size: the longer edge is at most this, and the shorter one shrinks with it.
        antialias: low-pass filter when shrinking, for bilinear and bicubic; None: False.

    The CPU form is torchvision's, but that an edge never vanishes.  DALI's resampler differs in rounding, and its
    nearest neighbour is "nearest-exact" in both cases.

    Raises:
        ValueError: an invalid argument.
    """

    size: int | Sequence[int] | None
    interpolation: Any = "bilinear"
    max_size: int | None = None
    antialias: bool | None = True

    def __post_init__(self) -> None:
        self.check_resizing()
        if self.size is not None:
            size_pair(self.size)
        if self.max_size is None and self.size is not None:
            return
        if not is_integer(self.max_size, 1) or self._pair or (self._edge and self.max_size <= self._edge):  # type: ignore[operator]
            raise ValueError(
                "max_size must be an int, with an int size below it or size=None, "
                f"got size={self.size!r} max_size={self.max_size!r}"
            )

    @property
    def _edge(self) -> int | None:
        """The shorter edge, where it is given."""
        return None if self.size is None or self._pair else size_pair(self.size)[0]

    @property
    def _pair(self) -> tuple[int, int] | None:
        """The size, where it is given."""
        return size_pair(self.size) if isinstance(self.size, Sequence) and len(self.size) == 2 else None

    @property
    def needs_sizes(self) -> bool:
        return self._pair is None

    @property
    def fixes_size(self) -> bool:
        return self._pair is not None

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        if self._pair:
            out = np.broadcast_to(np.array(self._pair, np.int64), (len(rand), 2))
        else:
            assert sizes is not None
            out = by_edge(sizes, self._edge, self.max_size)
        return size_params(out)


@dataclass(frozen=True)
class RandomResizedCrop(Resizing):
    """A window of random area and aspect ratio, resized: the usual augmentation of ImageNet training.

    Windows are drawn as torchvision does (Szegedy et al., "Going deeper with convolutions", 2015): ten tries for an
    area and a log-uniform ratio, then the largest central crop of a permitted ratio.

    Args:
        size: of the result in pixels, int or (height, width).
        scale: range of the window's part of the image's area.
        ratio: range of width / height.
        interpolation, antialias: as in Resize.

    Raises:
        ValueError: an invalid argument.
    """

    size: int | Sequence[int]
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (3 / 4, 4 / 3)
    interpolation: Any = "bilinear"
    antialias: bool | None = True

    needs_sizes = True
    windowed = True
    fixes_size = True

    def __post_init__(self) -> None:
        size_pair(self.size)
        number_pair(self.scale, "scale")
        if number_pair(self.ratio, "ratio")[0] == 0:
            raise ValueError(f"ratio must be positive, got {self.ratio!r}")
        self.check_resizing()

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        start, shape = self.windows(rand, sizes)
        params, _ = window_params(start, shape)
        size = np.full(start.shape, size_pair(self.size), np.int64)
        return {**params, "size": size.astype(np.float32)}, size

    def windows(self, rand: Rand, sizes: Sizes) -> tuple[Sizes, Sizes]:
        """Draw the windows: (start, shape), each [N, 2] int64."""
        again = rand.rows(slice(None))
        shape, found = self._tries(rand, sizes, 2)
        left = np.flatnonzero(~found)
        if not len(left):
            return rand.integers(0, sizes - shape + 1, shape=2), shape
        # Few need all ten tries; the first two are the same ones.
        rest, found_later = self._tries(again.rows(left), sizes[left], 10)
        shape[left] = np.where(found_later[:, None], rest, self._central(sizes[left]))
        found[left] = found_later
        random = rand.integers(0, sizes - shape + 1, shape=2)
        return np.where(found[:, None], random, (sizes - shape) // 2), shape

    def _tries(self, rand: Rand, sizes: Sizes, tries: int) -> tuple[Sizes, NDArray[np.bool_]]:
        """Give for each sample the first of some shapes [N, 2] that fits into the image, and whether one does."""
        (small, large), (low, high) = self.scale, self.ratio
        heights, widths = sizes[:, :1], sizes[:, 1:]
        area = heights.astype(np.float64) * widths * rand.uniform(small, large, shape=tries)
        ratio = np.exp(rand.uniform(math.log(low), math.log(high), shape=tries).astype(np.float64))
        # Each edge alone: numpy reduces an axis of two as slowly as a long one.
        height, width = np.rint(np.sqrt(area / ratio)), np.rint(np.sqrt(area * ratio))
        fits = (height > 0) & (height <= heights) & (width > 0) & (width <= widths)
        first = np.arange(len(sizes)), fits.argmax(axis=1)
        shape = np.empty((len(sizes), 2), np.int64)
        shape[:, 0], shape[:, 1] = height[first], width[first]
        return shape, fits[first]

    def _central(self, sizes: Sizes) -> Sizes:
        height, width = sizes[:, 0], sizes[:, 1]
        ratio = width / height
        low, high = self.ratio
        shape = np.stack(
            [
                np.where(ratio < low, np.rint(width / low), height),
                np.where(ratio > high, np.rint(height * high), width),
            ],
            axis=1,
        )
        return np.maximum(shape.astype(np.int64), 1)

    def moves(self, params: dict[str, Any]) -> list[Move]:
        # Not one resize with a region in DALI: its filter reads pixels outside the window.
        return [Crop(params["start"], params["shape"]), self.resize(params["size"])]
