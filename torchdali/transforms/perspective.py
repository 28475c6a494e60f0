"""The image seen from another side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..moves import Fill, Sizes
from ..rand import Rand
from .affine import Mapped
from .arguments import is_number, probability
from .base import Params


@dataclass(frozen=True)
class RandomPerspective(Mapped):
    """The image's corners moved inwards at random, with probability p.

    Drawn as torchvision does, with its pixels; it has a form in torch only, which on a GPU makes whole batches.

    Args:
        distortion_scale: how far the corners may move, in halves of the image's width and height, from 0 to 1.
        p: how often.
        interpolation: "nearest" or "bilinear", or torchvision's InterpolationMode.
        fill: of what lies outside: a number or one for each channel, in the image's own units, or a dict of them by
            kind, such as {"image": 127, "mask": 255}.

    Raises:
        ValueError: an invalid argument.
    """

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: Any = "bilinear"
    fill: Fill = 0

    on_dali = False
    _matrix = np.eye(3)

    def __post_init__(self) -> None:
        if not is_number(self.distortion_scale) or not 0 <= self.distortion_scale <= 1:
            raise ValueError(f"distortion_scale must be in [0, 1], got {self.distortion_scale!r}")
        probability(self.p)
        self.check_mapped()

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        moved = rand.bernoulli(self.p) > 0
        width, height = sizes[:, 1], sizes[:, 0]
        bound = (self.distortion_scale * (sizes // 2)).astype(np.int64) + 1
        left, top = (np.zeros_like(width), bound[:, 1]), (np.zeros_like(height), bound[:, 0])
        right, bottom = (width - bound[:, 1], width), (height - bound[:, 0], height)
        low, high = np.array([left, top, right, top, right, bottom, left, bottom]).transpose(1, 2, 0)
        there = rand.integers(low, high, shape=8).reshape(-1, 4, 2)
        nothing = np.zeros_like(width)
        here = np.array([nothing, nothing, width - 1, nothing, width - 1, height - 1, nothing, height - 1])
        matrix = np.tile(np.eye(3), (len(sizes), 1, 1))
        matrix[moved] = np.linalg.inv(_source_matrix(here.T.reshape(-1, 4, 2)[moved], there[moved]))
        return {"matrix": matrix, "size": sizes.astype(np.float32)}, sizes


def _source_matrix(here: NDArray[np.int64], there: NDArray[np.int64]) -> NDArray[np.float64]:
    """Give matrices [N, 3, 3] that map the corners `there` [N, 4, 2] to those `here`: where pixels come from.

    As torchvision's `_get_perspective_coeffs`: by least squares, and rounded to float32.
    """
    x, y = there[..., 0], there[..., 1]
    nothing, one = np.zeros_like(x), np.ones_like(x)
    rows = [
        [x, y, one, nothing, nothing, nothing, -here[..., 0] * x, -here[..., 0] * y],
        [nothing, nothing, nothing, x, y, one, -here[..., 1] * x, -here[..., 1] * y],
    ]
    equations = np.array(rows, np.float64).transpose(2, 3, 0, 1).reshape(-1, 8, 8)  # torchvision's order of rows
    corners = torch.from_numpy(here.reshape(-1, 8, 1).astype(np.float64))
    found = torch.linalg.lstsq(torch.from_numpy(equations), corners, driver="gels").solution
    coefficients = found.to(torch.float32).to(torch.float64).numpy()[..., 0]
    return np.concatenate([coefficients, np.ones((len(coefficients), 1))], 1).reshape(-1, 3, 3)
