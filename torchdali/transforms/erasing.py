"""Erasing a random rectangle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..forms.image import Images, functional
from ..moves import Sizes
from ..rand import Rand
from .arguments import is_number, number_pair
from .base import Params
from .chance import Chance
from .noise import hashed_normal, normal, seeds

if TYPE_CHECKING:
    from .._dali import Ops


@dataclass(frozen=True)
class RandomErasing(Chance):
    """A rectangle of random area and aspect ratio erased, with probability p.

    Zhong et al., "Random Erasing Data Augmentation", 2020, as torchvision has it: ten tries for a rectangle that is
    smaller than the image in both directions, else the image stays as it is.

    Args:
        p: the probability.
        scale: range of the rectangle's part of the image's area.
        ratio: range of height / width.
        value: what the pixels become, in the image's own units: a number, one for each channel, or "random" for
            normally distributed numbers of mean 0 and deviation 1, which have a form in torch only: the numbers on a
            GPU are others than on the CPU.
        inplace: accepted as in torchvision; batches are always fresh.

    Both forms are equal to torchvision's.

    Raises:
        ValueError: an invalid argument.
    """

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: float | str | Sequence[float] = 0.0
    inplace: bool = False

    needs_sizes = True

    def __post_init__(self) -> None:
        super().__post_init__()
        number_pair(self.scale, "scale", (0, 1))
        if number_pair(self.ratio, "ratio")[0] == 0:
            raise ValueError(f"ratio must be positive, got {self.ratio!r}")
        values = self.value if isinstance(self.value, (list, tuple)) else [self.value]
        if self.value != "random" and not (values and all(is_number(value) for value in values)):
            raise ValueError(f'value must be a number, one for each channel, or "random", got {self.value!r}')

    @property
    def on_dali(self) -> bool:
        return self.value != "random"

    @property
    def _values(self) -> list[float]:
        values: Any = self.value
        return [float(value) for value in (values if isinstance(values, (list, tuple)) else [values])]

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        n, tries = len(sizes), 10
        (small, large), (low, high) = self.scale, self.ratio
        on = rand.bernoulli(self.p)
        area = sizes.prod(axis=1, dtype=np.float64)[:, None] * rand.uniform(small, large, shape=tries)
        ratio = np.exp(rand.uniform(math.log(low), math.log(high), shape=tries).astype(np.float64))
        shape = np.rint(np.sqrt(np.stack([area * ratio, area / ratio], 2))).astype(np.int64)
        fits = np.all(shape < sizes[:, None], axis=2)
        on &= fits.any(axis=1)
        shape = np.where(on[:, None], shape[np.arange(n), fits.argmax(axis=1)], 0)
        start = rand.integers(0, sizes - shape + 1, shape=2)
        params = {"start": start.astype(np.int32), "shape": shape.astype(np.int32)}
        return params if self.on_dali else {**params, "seed": seeds(rand)}, sizes

    def transform(self, ops: Ops, image: Any, start: Any, shape: Any) -> Any:
        values = self._channels(ops.channels_of(image))
        f32 = ops.as_dtype(torch.float32)
        start, shape = ops.cast(start, dtype=f32), ops.cast(shape, dtype=f32)
        return ops.erase(image, anchor=start, shape=shape, axis_names="HW", fill_value=values)

    def _channels(self, channels: int) -> list[float]:
        values = self._values
        if len(values) not in (1, channels):
            raise ValueError(f"RandomErasing has {len(values)} values, and the image {channels} channels")
        return values

    def transform_host(
        self, image: torch.Tensor, out: torch.Tensor | None = None, *, start: Any, shape: Any, seed: Any = 0
    ) -> torch.Tensor:
        values = None if self.value == "random" else self._channels(len(image))
        (top, left), (height, width) = start, shape
        if not height or not width:
            return image
        if values is None:
            fill = normal((len(image), height, width), seed).to(image.device, non_blocking=True)
        else:
            fill = torch.tensor(values).to(image.device, non_blocking=True)[:, None, None]
        erased: torch.Tensor = functional().erase_image(image, top, left, height, width, fill)
        return erased

    def transform_batch(self, images: torch.Tensor, params: Params) -> Images:
        if self.value != "random":
            return super().transform_batch(images, params)
        inside = torch.ones((), dtype=torch.bool, device=images.device)
        for axis, extent in enumerate(images.shape[2:]):
            start, shape = (
                torch.from_numpy(params[name][:, axis]).to(images.device, non_blocking=True)
                for name in ("start", "shape")
            )
            place = torch.arange(extent, device=images.device)
            within = (place >= start[:, None]) & (place < (start + shape)[:, None])
            inside = inside & (within[:, None, None] if axis else within[:, None, :, None])
        noise = hashed_normal(images.shape[1:], params["seed"], images.device)
        return torch.where(inside, noise.to(images.dtype), images)
