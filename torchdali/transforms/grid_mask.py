"""A grid of erased squares."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..moves import Sizes
from ..rand import Rand
from . import adjust
from .arguments import is_integer, number_pair, number_range
from .base import Params
from .chance import Chance

if TYPE_CHECKING:
    from .._dali import Ops


@dataclass(frozen=True)
class GridMask(Chance):
    """A turned grid of squares erased, with probability p.

    Chen et al., "GridMask Data Augmentation", 2020, as DALI's `grid_mask` has it: the image is covered with tiles, and
    the first `ratio` of each, in both directions, becomes zero.

    Args:
        tile: side of a tile in pixels, or (lowest, highest), both included.
        ratio: the erased square's part of the side, or (low, high), in [0, 1].
        degrees: the angle is drawn from [-x, x], or from (low, high).
        p: the probability.

    The tiles' offset is drawn as well.  torchvision has no such transform; the forms are equal but where an edge falls
    onto a pixel's place.

    Raises:
        ValueError: an invalid argument.
    """

    tile: int | Sequence[int] = (32, 96)
    ratio: float | Sequence[float] = 0.5
    degrees: float | Sequence[float] = 0.0
    p: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._tiles, self._angles
        number_pair(number_range(self.ratio, "ratio"), "ratio", (0, 1))

    @property
    def _tiles(self) -> tuple[int, int]:
        values = tuple(self.tile) if isinstance(self.tile, Sequence) else (self.tile, self.tile)
        if len(values) != 2 or not all(is_integer(value, 1) for value in values) or values[0] > values[1]:
            raise ValueError(f"tile must be a positive integer or (lowest, highest), got {self.tile!r}")
        return int(values[0]), int(values[1])

    @property
    def _angles(self) -> tuple[float, float]:
        return number_range(self.degrees, "degrees", 0.0, (-360, 360))

    @property
    def draws(self) -> bool:
        return self.p > 0

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        params, _ = super().make_params(rand, sizes)
        low, high = self._tiles
        tile = rand.integers(low, high + 1).astype(np.int32)
        # A square of no size leaves a sample as it is.
        ratio = rand.uniform(*number_range(self.ratio, "ratio")) * params["on"].astype(np.float32)
        angle = (rand.uniform(*self._angles) * np.float32(math.pi / 180)).astype(np.float32)
        shift = (rand.uniform(shape=2) * tile[:, None]).astype(np.float32)
        return {"tile": tile, "ratio": ratio, "angle": angle, "x": shift[:, 0].copy(), "y": shift[:, 1].copy()}, sizes

    def transform(self, ops: Ops, image: Any, tile: Any, ratio: Any, angle: Any, x: Any, y: Any) -> Any:
        if ops.frames:
            raise ValueError("GridMask has no form in DALI for clips: on the CPU, put it after the last function")
        dtype = ops.dtype_of(image)
        image = adjust.wide(ops, image, dtype)
        masked = ops.grid_mask(image, tile=tile, ratio=ratio, angle=angle, shift_x=x, shift_y=y)
        return masked if dtype in (torch.uint8, torch.float32) else ops.cast(masked, dtype=ops.as_dtype(dtype))

    def transform_host(
        self,
        image: torch.Tensor,
        out: torch.Tensor | None = None,
        *,
        tile: Any,
        ratio: Any,
        angle: Any,
        x: Any,
        y: Any,
    ) -> torch.Tensor:
        if not ratio:
            return image
        _, height, width = image.shape
        numbers = (math.cos(angle), math.sin(angle), x, y, tile)
        cos, sin, x, y, side = (torch.tensor(number, dtype=torch.float32) for number in numbers)
        cos, sin = cos / side, sin / side
        rows = torch.arange(height, dtype=torch.float32)[:, None]
        columns = torch.arange(width, dtype=torch.float32)
        across, down = rows * -sin - x / side + columns * cos, rows * cos - y / side + columns * sin
        kept = (across - across.floor() >= ratio) | (down - down.floor() >= ratio)
        masked: torch.Tensor = image * kept.to(image.device, non_blocking=True)
        return masked
