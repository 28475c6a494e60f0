"""Windows of one size from images of any size: cut where these are larger, padded where they are smaller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..moves import Fill, Sizes, check_fill
from ..rand import Rand
from .arguments import is_integer, size_pair
from .base import Params
from .geometry import CenterCrop, Window, check_padding_mode, window_params


@dataclass(frozen=True)
class CenterCropOrPad(CenterCrop):
    """The middle of the image; a smaller image is surrounded by a fill: `CenterCrop` with timm's arguments.

    Args:
        size: of the result in pixels, int or (height, width).
        fill: value of constant padding, a number or one for each channel, in the image's own units.
        padding_mode: "constant"; "edge", "reflect" and "symmetric" have a form in torch only.

    Raises:
        ValueError: an invalid argument.
    """

    fill: Fill = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_padding_mode(self.padding_mode)
        check_fill(self.fill)


@dataclass(frozen=True)
class RandomCropOrPad(Window):
    """A window at a random place, as timm has it: a smaller image lies at a random place in it.

    Args:
        size, fill, padding_mode: as in CenterCropOrPad.

    Raises:
        ValueError: an invalid argument.
    """

    size: int | Sequence[int]
    fill: Fill = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        size_pair(self.size)
        check_padding_mode(self.padding_mode)
        check_fill(self.fill)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        crop = np.array(size_pair(self.size))
        room = sizes - crop
        return window_params(np.sign(room) * rand.integers(0, np.abs(room) + 1, shape=2), crop)


@dataclass(frozen=True)
class TrimBorder(Window):
    """The image without a border, as timm has it.

    Args:
        border_size: pixels cut off at each side.

    Raises:
        ValueError: border_size is no positive integer; or nothing is left of an image, which is an error of the sample.
    """

    border_size: int

    fixes_size = False
    draws = False

    def __post_init__(self) -> None:
        if not is_integer(self.border_size, 0):
            raise ValueError(f"border_size must be an integer, not negative, got {self.border_size!r}")

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        inside = sizes - 2 * int(self.border_size)
        if np.any(inside < 1):
            small = tuple(sizes[np.any(inside < 1, axis=1)][0].tolist())
            raise ValueError(f"TrimBorder({self.border_size}) leaves nothing of an image of {small}")
        return window_params(np.full(sizes.shape, int(self.border_size)), inside)
