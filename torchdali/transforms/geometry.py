"""Cropping and flipping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..moves import Crop, Fill, Flip, Move, Sizes, check_fill
from ..rand import Rand
from .arguments import is_integer, probability, size_pair
from .base import Mover, Params


class Window(Mover):
    """Base of the transforms that cut out a window; its parts outside the image are filled."""

    needs_sizes = True
    fixes_size = True
    fill: Fill = 0
    padding_mode: str = "constant"

    @property
    def windowed(self) -> bool:
        return self.padding_mode == "constant"  # any other padding looks at pixels outside the window

    def moves(self, params: dict[str, Any]) -> list[Move]:
        return [Crop(params["start"], params["shape"], self.fill, self.padding_mode)]


def window_params(start: NDArray[Any], shape: Any) -> tuple[Params, Sizes]:
    """Make the params of windows, [N, 2] each, and their sizes."""
    shapes = np.full(start.shape, shape, np.int32)
    return {"start": start.astype(np.int32), "shape": shapes}, shapes.astype(np.int64)


def padding_edges(padding: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Make the padding before and after the image, each (vertical, horizontal), of torchvision's 1, 2 or 4 integers.

    Raises:
        ValueError: it is something else.
    """
    values = list(padding) if isinstance(padding, Sequence) else [0 if padding is None else padding]
    if len(values) not in (1, 2, 4) or not all(is_integer(value, 0) for value in values):
        raise ValueError(f"padding must be 1, 2 or 4 integers, none negative, got {padding!r}")
    left, top, right, bottom = values * (4 // len(values))
    return np.array([top, left]), np.array([bottom, right])


def check_padding_mode(padding_mode: Any) -> None:
    """Raise unless it is one of torchvision's.

    Raises:
        ValueError: it isn't.
    """
    if padding_mode not in ("constant", "edge", "reflect", "symmetric"):
        raise ValueError(f"padding_mode must be constant, edge, reflect or symmetric, got {padding_mode!r}")


@dataclass(frozen=True)
class CenterCrop(Window):
    """The middle of the image; a smaller image is surrounded by zeros (torchvision's rounding).

    Args:
        size: of the result in pixels, int or (height, width).

    Raises:
        ValueError: an invalid size.
    """

    size: int | Sequence[int]

    def __post_init__(self) -> None:
        size_pair(self.size)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        crop = np.array(size_pair(self.size))
        # torchvision pads first, by floor and ceiling of a half, and then rounds a half to even.
        padding = np.maximum(crop - sizes, 0) // 2
        inside = np.rint((np.maximum(sizes, crop) - crop) / 2)
        return window_params(inside - padding, crop)


@dataclass(frozen=True)
class RandomCrop(Window):
    """A window at a random place.

    Args:
        size: of the result in pixels, int or (height, width).
        padding: pixels added around the image before the crop: int, (left/right, top/bottom) or (left, top, right,
            bottom).
        pad_if_needed: where the image is smaller than the crop, pad both sides by what is missing; otherwise that is
            an error of the sample.
        fill: value of constant padding, a number or one for each channel, in the image's own units.
        padding_mode: "constant"; "edge", "reflect" and "symmetric" have a CPU form only.

    Raises:
        ValueError: an invalid argument.
    """

    size: int | Sequence[int]
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: Fill = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        size_pair(self.size)
        padding_edges(self.padding)
        check_padding_mode(self.padding_mode)
        check_fill(self.fill)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        crop = np.array(size_pair(self.size))
        before, after = padding_edges(self.padding)
        padded = sizes + before + after
        if self.pad_if_needed:
            missing = np.maximum(crop - padded, 0)
            before, padded = before + missing, padded + 2 * missing
        elif np.any(padded < crop):
            small = padded[np.any(padded < crop, axis=1)][0]
            raise ValueError(
                f"RandomCrop needs an image of at least {tuple(crop.tolist())}, got {tuple(small.tolist())}"
            )
        return window_params(rand.integers(0, padded - crop + 1, shape=2) - before, crop)


class _Flip(Mover):
    p: float
    _axis: ClassVar[int]

    @property
    def draws(self) -> bool:
        return 0 < self.p < 1

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        return {"flip": rand.bernoulli(self.p)}, sizes

    def moves(self, params: dict[str, Any]) -> list[Move]:
        return [Flip(self._axis, params["flip"])]


@dataclass(frozen=True)
class RandomHorizontalFlip(_Flip):
    """Left and right exchanged with probability p.

    Raises:
        ValueError: p is no probability.
    """

    p: float = 0.5
    _axis: ClassVar[int] = 1

    def __post_init__(self) -> None:
        probability(self.p)


@dataclass(frozen=True)
class RandomVerticalFlip(_Flip):
    """Top and bottom exchanged with probability p.

    Raises:
        ValueError: p is no probability.
    """

    p: float = 0.5
    _axis: ClassVar[int] = 0

    def __post_init__(self) -> None:
        probability(self.p)
