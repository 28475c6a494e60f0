"""The image as seen through water."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..forms.image import Images, move_batch
from ..moves import Fill, Move, Sizes, Warp, check_fill
from ..native import blur as native
from ..rand import Rand
from .affine import check_interpolation
from .arguments import is_number, mode_name
from .base import Mover, Params


@dataclass(frozen=True)
class ElasticTransform(Mover):
    """Each pixel displaced at random, smoothly.

    Simard, Steinkraus and Platt, "Best practices for convolutional neural networks applied to visual document
    analysis", 2003, as torchvision does it, with its pixels; it has a form in torch only, which on a GPU makes whole
    batches.  Boxes and points move by the displacement at their place, an approximation that is torchvision's too.

    Args:
        alpha: how strong the displacements are: a number, or one for x and one for y.
        sigma: how smooth they are, in pixels: a number, or one for x and one for y.
        interpolation: "nearest" or "bilinear", or torchvision's InterpolationMode.
        fill: of what lies outside: a number or one for each channel, in the image's own units, or a dict of them by
            kind, such as {"image": 127, "mask": 255}.

    Raises:
        ValueError: an invalid argument.
    """

    alpha: float | Sequence[float] = 50.0
    sigma: float | Sequence[float] = 5.0
    interpolation: Any = "bilinear"
    fill: Fill = 0

    on_dali = False
    needs_sizes = True

    def __post_init__(self) -> None:
        _two(self.alpha, "alpha")
        sigma = _two(self.sigma, "sigma")
        if min(sigma) < 0 or (min(sigma) == 0 < max(sigma)):
            raise ValueError(f"sigma must be positive, or 0 for no smoothing, got {self.sigma!r}")
        check_interpolation(self.interpolation)
        check_fill(self.fill)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        least = max(_kernel(sigma) // 2 for sigma in _two(self.sigma, "sigma"))
        if sizes.min(initial=least + 1) <= least:
            small = sizes[sizes.min(axis=1) <= least][0]
            raise ValueError(
                f"ElasticTransform with sigma={self.sigma!r} needs images of more than {least} pixels at each edge, "
                f"got {tuple(small.tolist())}"
            )
        # A seed: the displacements of a batch would fill its memory, and are made where they are needed.
        return {"seed": (rand.words() >> np.uint64(1)).astype(np.int64), "size": sizes}, sizes

    def moves(self, params: dict[str, Any]) -> list[Move]:
        seed, size = params["seed"], params["size"]
        field: Any = None
        if isinstance(seed, int):
            field = self._displacement(seed, *size)
        elif seed is not None:
            field = np.empty(len(seed), object)  # an array, so that rows can be taken
            for i, (one, (height, width)) in enumerate(zip(seed.tolist(), size.tolist(), strict=True)):
                field[i] = self._displacement(one, height, width)
        return [Warp(field, mode_name(self.interpolation), self.fill)]

    def transform_batch(self, images: torch.Tensor, params: Params) -> Images:
        ends = _two(self.alpha, "alpha"), _two(self.sigma, "sigma")
        height, width = images.shape[-2:]
        fields = displacements(params["seed"].tolist(), height, width, *ends, images.device)
        return move_batch(images, Warp(fields, mode_name(self.interpolation), self.fill))

    def _displacement(self, seed: int, height: int, width: int) -> NDArray[np.float32]:
        return displacement(seed, height, width, _two(self.alpha, "alpha"), _two(self.sigma, "sigma"))


def displacement(
    seed: int, height: int, width: int, alpha: tuple[float, float], sigma: tuple[float, float]
) -> NDArray[np.float32]:
    """Make a smooth field of displacements, as torchvision's `ElasticTransform.make_params` after `manual_seed(seed)`.

    Returns:
        [H, W, 2], (x, y), in halves of the image's width and height.
    """
    field: NDArray[np.float32] = displacements([seed], height, width, alpha, sigma, torch.device("cpu"))[0].numpy()
    return field


def displacements(
    seeds: Sequence[int],
    height: int,
    width: int,
    alpha: tuple[float, float],
    sigma: tuple[float, float],
    device: torch.device,
) -> torch.Tensor:
    """Make the fields of a batch, [N, H, W, 2]: drawn on the CPU, whose numbers masks move by too, and smoothed there.

    Args:
        seeds: one for each sample.
        height, width: of all images.
        alpha, sigma: as of `ElasticTransform`, for x and y.
        device: where they are smoothed.
    """
    from torchvision.transforms.v2.functional import gaussian_blur

    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    planes = []
    for axis, extent in enumerate((width, height)):
        drawn = [torch.rand(1, height, width, generator=generator, dtype=torch.float32) for generator in generators]
        plane = torch.stack(drawn).to(device, non_blocking=True) * 2 - 1
        if sigma[axis] > 0:
            size = _kernel(sigma[axis])
            smooth = native.smoothed(plane, size, sigma)
            plane = gaussian_blur(plane, [size] * 2, list(sigma)) if smooth is None else smooth
        planes.append(plane * alpha[axis] / extent)
    return torch.cat(planes, 1).permute(0, 2, 3, 1)


def _kernel(sigma: float) -> int:
    """Torchvision's size of a kernel, odd."""
    return int(8 * sigma + 1) // 2 * 2 + 1


def _two(value: Any, name: str) -> tuple[float, float]:
    """Make one number for x and one for y."""
    values = list(value) if isinstance(value, Sequence) else [value]
    if len(values) not in (1, 2) or not all(is_number(number) and np.isfinite(number) for number in values):
        raise ValueError(f"{name} must be a number, or one for x and one for y, got {value!r}")
    return float(values[0]), float(values[-1])
