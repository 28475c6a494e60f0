"""Adding a border."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..moves import Fill, Sizes, check_fill
from ..rand import Rand
from .arguments import number_pair, probability
from .base import Params
from .geometry import Window, check_padding_mode, padding_edges, window_params


@dataclass(frozen=True)
class Pad(Window):
    """A border around the image.

    Args:
        padding: pixels: int, (left/right, top/bottom) or (left, top, right, bottom).
        fill: of constant padding: a number or one for each channel, in the image's own units, or a dict of them by
            kind, such as {"image": 127, "mask": 255}.
        padding_mode: "constant"; "edge", "reflect" and "symmetric" have a CPU form only.

    Raises:
        ValueError: an invalid argument.
    """

    padding: int | Sequence[int]
    fill: Fill = 0
    padding_mode: str = "constant"

    draws = False
    windowed = False
    fixes_size = False

    def __post_init__(self) -> None:
        if self.padding is None:
            raise ValueError("padding must be 1, 2 or 4 integers, none negative, got None")
        padding_edges(self.padding)
        check_fill(self.fill)
        check_padding_mode(self.padding_mode)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        before, after = padding_edges(self.padding)
        return window_params(np.broadcast_to(-before, sizes.shape), sizes + before + after)


@dataclass(frozen=True)
class RandomZoomOut(Window):
    """The image somewhere in a larger canvas, with probability p: objects become small in it.

    Liu et al., "SSD: Single Shot MultiBox Detector", 2016, drawn as torchvision does.

    Args:
        fill: of the canvas: a number or one for each channel, in the image's own units, or a dict of them by kind.
        side_range: range of the canvas's size, in sizes of the image, at least 1.
        p: how often.

    Raises:
        ValueError: an invalid argument.
    """

    fill: Fill = 0
    side_range: Sequence[float] = (1.0, 4.0)
    p: float = 0.5

    windowed = False
    fixes_size = False
    varies_size = True

    def __post_init__(self) -> None:
        check_fill(self.fill)
        number_pair(self.side_range, "side_range", (1, np.inf))
        probability(self.p)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        low, high = self.side_range
        zoomed = rand.bernoulli(self.p)[:, None] > 0
        # In float32, as torchvision's tensors.
        ratio = np.float32(low) + rand.uniform(shape=1) * np.float32(high - low)
        canvas = (sizes.astype(np.float32) * ratio).astype(np.int64)
        place = rand.uniform(shape=2)[:, ::-1]  # torchvision draws left, then top
        before = ((canvas - sizes).astype(np.float32) * place).astype(np.int64)
        return window_params(np.where(zoomed, -before, 0), np.where(zoomed, canvas, sizes))
