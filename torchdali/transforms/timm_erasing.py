"""Erasing random rectangles, as timm has it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..forms.image import Images
from ..moves import Sizes
from ..rand import Rand
from .arguments import is_integer, is_number, probability
from .base import Params, Transform
from .noise import hashed_normal, normal, seeds

if TYPE_CHECKING:
    from .._dali import Ops


@dataclass(frozen=True)
class TimmRandomErasing(Transform):
    """Some rectangles of random area and aspect ratio erased, with a probability, as timm's RandomErasing.

    Zhong et al., "Random Erasing Data Augmentation", 2020, as timm has it: ten tries for each rectangle, which share
    the area.  It follows Normalize: colours and noise have mean 0 and deviation 1.

    Args:
        probability: of a sample to be erased.
        min_area, max_area: range of the part of the image's area that all rectangles have.
        min_aspect, max_aspect: range of height / width; None: 1 / min_aspect.
        mode: "const" for zeros, "rand" for one colour for each rectangle, "pixel" for noise, which has a form in torch
            only: the numbers on a GPU are others than on the CPU.
        min_count, max_count: range of the number of rectangles; None: min_count.

    Raises:
        ValueError: an invalid argument.
    """

    probability: float = 0.5
    min_area: float = 0.02
    max_area: float = 1 / 3
    min_aspect: float = 0.3
    max_aspect: float | None = None
    mode: str = "const"
    min_count: int = 1
    max_count: int | None = None

    needs_sizes = True

    def __post_init__(self) -> None:
        probability(self.probability)
        if not all(map(is_number, (self.min_area, self.max_area))) or not 0 <= self.min_area <= self.max_area <= 1:
            raise ValueError(
                f"min_area and max_area must be in [0, 1], low before high, got {self.min_area!r}, {self.max_area!r}"
            )
        if not all(map(is_number, self._aspect)) or not 0 < self._aspect[0] <= self._aspect[1]:
            raise ValueError(
                "min_aspect and max_aspect must be positive, low before high, got "
                f"{self.min_aspect!r}, {self.max_aspect!r}"
            )
        if self.mode not in ("const", "rand", "pixel"):
            raise ValueError(f'mode must be "const", "rand" or "pixel", got {self.mode!r}')
        if not is_integer(self.min_count, 1) or not is_integer(self._count, int(self.min_count)):
            raise ValueError(
                "min_count and max_count must be positive integers, low before high, got "
                f"{self.min_count!r}, {self.max_count!r}"
            )

    @property
    def _aspect(self) -> tuple[float, float]:
        return self.min_aspect, self.max_aspect or 1 / self.min_aspect

    @property
    def _count(self) -> int:
        return self.max_count or self.min_count

    @property
    def draws(self) -> bool:
        return self.probability > 0

    @property
    def on_dali(self) -> bool:
        return self.mode != "pixel"

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        n, most, tries = len(sizes), self._count, 10
        on = rand.bernoulli(self.probability) == 1
        count = rand.integers(self.min_count, most + 1)
        whole = sizes.prod(axis=1, dtype=np.float64) / count
        area = whole[:, None, None] * rand.uniform(self.min_area, self.max_area, shape=(most, tries))
        low, high = map(math.log, self._aspect)
        ratio = np.exp(rand.uniform(low, high, shape=(most, tries)).astype(np.float64))
        shapes = np.rint(np.sqrt(np.stack([area * ratio, area / ratio], 3))).astype(np.int64)
        fits = np.all(shapes < sizes[:, None, None], axis=3)
        first = fits.argmax(axis=2)
        params: Params = {} if self.on_dali else {"seed": seeds(rand)}
        for k in range(most):
            taken = on & (k < count) & fits[:, k].any(axis=1)
            shape = np.where(taken[:, None], shapes[np.arange(n), k, first[:, k]], 0)
            start = rand.integers(0, sizes - shape + 1, shape=2)
            params |= {f"start{k}": start.astype(np.int32), f"shape{k}": shape.astype(np.int32)}
            if self.mode == "rand":
                params[f"colour{k}"] = rand.normal(shape=3)
        return params, sizes

    def _colour(self, values: Sequence[float] | None, channels: int) -> list[float]:
        if values is None:
            return [0.0] * channels
        if channels not in (1, 3):
            raise ValueError(f'TimmRandomErasing(mode="rand") takes images of 1 or 3 channels, got {channels}')
        return list(values[:channels])

    def transform(self, ops: Ops, image: Any, **params: Any) -> Any:
        f32, channels = ops.as_dtype(torch.float32), ops.channels_of(image)
        for k in range(self._count):
            start, shape = (ops.cast(params[f"{name}{k}"], dtype=f32) for name in ("start", "shape"))
            fill: Any = self._colour(None, channels)
            if self.mode == "rand":
                self._colour([0.0] * 3, channels)
                fill = params[f"colour{k}"]
                fill = fill if channels == 3 else ops.slice(fill, 0, 1, axes=[0])
            image = ops.erase(image, anchor=start, shape=shape, axis_names="HW", fill_value=fill)
        return image

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, **params: Any) -> torch.Tensor:
        if not any(params[f"shape{k}"][0] for k in range(self._count)):
            return image
        image = image.clone()
        for k in range(self._count):
            (top, left), (height, width) = params[f"start{k}"], params[f"shape{k}"]
            if self.mode == "pixel":
                fill = normal((len(image), height, width), (params["seed"] + k) % 2**63)
            else:
                fill = torch.tensor(self._colour(params.get(f"colour{k}"), len(image)))[:, None, None]
            image[:, top : top + height, left : left + width] = fill.to(image)
        return image

    def transform_batch(self, images: torch.Tensor, params: Params) -> Images:
        made = images
        noise = hashed_normal(images.shape[1:], params["seed"], images.device).to(images.dtype) if self.noisy else None
        for k in range(self._count):
            inside = torch.ones((), dtype=torch.bool, device=images.device)
            for axis, extent in enumerate(images.shape[2:]):
                start, shape = (
                    torch.from_numpy(params[f"{n}{k}"][:, axis]).to(made.device) for n in ("start", "shape")
                )
                place = torch.arange(extent, device=images.device)
                within = (place >= start[:, None]) & (place < (start + shape)[:, None])
                inside = inside & (within[:, None, None] if axis else within[:, None, :, None])
            if noise is not None:
                fill = noise
            else:
                rows = params.get(f"colour{k}", np.zeros((len(images), 3), np.float32)).tolist()
                colours = [self._colour(row if self.mode == "rand" else None, images.shape[1]) for row in rows]
                fill = torch.tensor(colours, dtype=images.dtype)[..., None, None].to(images.device)
            made = torch.where(inside, fill, made)
        return made

    @property
    def noisy(self) -> bool:
        """Each pixel has a number of its own."""
        return self.mode == "pixel"
