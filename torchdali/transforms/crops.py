"""Crops at fixed places, several of one image; and crops of random sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..moves import Crop, Move, Sizes
from ..rand import Rand
from .arguments import is_integer, size_pair
from .base import Mover, Params, Transform
from .geometry import RandomHorizontalFlip, RandomVerticalFlip, Window, window_params
from .views import Views


@dataclass(frozen=True)
class PlacedCrop(Window):
    """A window at a fixed place.

    Args:
        size: of the result in pixels, int or (height, width).
        place: where it lies, (vertical, horizontal), from 0, at the image's start, to 1, at its end.

    Raises:
        ValueError: an invalid size.
    """

    size: int | Sequence[int]
    place: tuple[float, float]

    draws = False

    def __post_init__(self) -> None:
        size_pair(self.size)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        """Place the windows.

        Raises:
            ValueError: an image is smaller than the window.
        """
        assert sizes is not None
        crop = np.array(size_pair(self.size))
        if np.any(sizes < crop):
            small = sizes[np.any(sizes < crop, axis=1)][0]
            raise ValueError(
                f"a crop of {tuple(crop.tolist())} needs an image of at least that size, got {tuple(small.tolist())}"
            )
        return window_params(np.rint((sizes - crop) * self.place), crop)  # a half is rounded to even, as in torchvision


_PLACES = ((0.0, 0.0), (0.0, 1.0), (1.0, 0.0), (1.0, 1.0), (0.5, 0.5))


def _five(size: int | Sequence[int]) -> list[Transform]:
    return [PlacedCrop(size, place) for place in _PLACES]


class FiveCrop(Views):
    """The four corners and the middle, as five views of each sample: `torch.stack(images, 1)` is [N, 5, C, H, W].

    Their order is torchvision's: top left, top right, bottom left, bottom right, middle.  It is the last step of a
    transform: write Normalize and the like before it.

    Args:
        size: of the results in pixels, int or (height, width).

    Raises:
        ValueError: an invalid size.
    """

    def __init__(self, size: int | Sequence[int]) -> None:
        self.size = size
        super().__init__(_five(size))

    def __repr__(self) -> str:
        return f"FiveCrop(size={self.size!r})"


class TenCrop(Views):
    """The five views of `FiveCrop`, and those of the mirrored image.

    Args:
        size: of the results in pixels, int or (height, width).
        vertical_flip: the image is mirrored upside down, instead of left and right.

    Raises:
        ValueError: an invalid argument.
    """

    def __init__(self, size: int | Sequence[int], vertical_flip: bool = False) -> None:
        if not isinstance(vertical_flip, bool):
            raise ValueError(f"vertical_flip must be True or False, got {vertical_flip!r}")
        self.size, self.vertical_flip = size, vertical_flip
        flip: Any = RandomVerticalFlip(1.0) if vertical_flip else RandomHorizontalFlip(1.0)
        super().__init__([*_five(size), *([flip, crop] for crop in _five(size))])

    def __repr__(self) -> str:
        return f"TenCrop(size={self.size!r}, vertical_flip={self.vertical_flip!r})"


@dataclass(frozen=True)
class RandomSizeCrop(Mover):
    """A window of a random size at a random place, as DETR's augmentation has it (`datasets/transforms.py`).

    Args:
        min_size, max_size: range of the window's height and of its width, in pixels, both included; an edge of
            the image that is shorter than `min_size` stays.

    Raises:
        ValueError: an invalid argument.
    """

    min_size: int
    max_size: int

    needs_sizes = True
    varies_size = True
    windowed = True

    def __post_init__(self) -> None:
        if not is_integer(self.min_size, 1) or not is_integer(self.max_size, 1) or self.min_size > self.max_size:
            raise ValueError(
                f"min_size and max_size must be ints with 0 < min_size <= max_size, got {self.min_size!r} and "
                f"{self.max_size!r}"
            )

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        most = np.minimum(sizes, self.max_size)
        shape = rand.integers(np.minimum(self.min_size, most), most + 1, shape=2)
        start = rand.integers(0, sizes - shape + 1, shape=2)
        return {"start": start.astype(np.int32), "shape": shape.astype(np.int32)}, shape.astype(np.int64)

    def moves(self, params: dict[str, Any]) -> list[Move]:
        return [Crop(params["start"], params["shape"])]
