"""Sharpening and softening."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..moves import Sizes
from ..rand import Rand
from . import adjust
from .arguments import is_number
from .base import Params
from .chance import Chance, chosen
from .recolor import recolored
from .switch import switch

if TYPE_CHECKING:
    from .._dali import Ops


def kernels(n: int) -> NDArray[np.float32]:
    """[N, 3, 3], torchvision's soft kernel for each sample: inside a branch, DALI takes no constant array."""
    kernel = np.full((n, 3, 3), 1 / 13, np.float32)
    kernel[:, 1, 1] = 5 / 13
    return kernel


def sharpened(ops: Ops, image: Any, factor: Any, kernel: Any, dtype: torch.dtype) -> Any:
    """As `adjust_sharpness`: between the image and a soft one; the outermost pixels stay."""
    kernel, factor = ops.beside(kernel), ops.beside(factor)
    image = adjust.wide(ops, image, dtype)
    soft = ops.filter(image, kernel)  # rounds, as torchvision does
    soft = ops.cast(soft, dtype=ops.as_dtype(torch.float32))
    changed = image + (soft - image) * (1.0 - factor)
    # Less than one where the kernel reaches beyond the image.
    inner = ops.filter(ops.cast(image * 0 + 1, dtype=ops.as_dtype(torch.float32)), kernel, border="constant") > 0.999
    return adjust.settled(ops, chosen(inner * 1.0, changed, image), dtype)


def sharpened_host(image: torch.Tensor, factor: float) -> torch.Tensor:
    """By torchvision's kernel; on a GPU by its steps, since it waits there for the filter that it copies.

    Args:
        image: [..., C, H, W], of 1 or 3 channels.
        factor: 0: soft; 1: as it is; 2: twice as sharp.
    """
    if not image.is_cuda or min(image.shape[-2:]) <= 2:
        return recolored(image, "sharpness", factor)
    floating = image.is_floating_point()
    sharp = image.to(image.dtype if floating else torch.float32, copy=True)
    kernel = torch.full((3, 3), 1 / 13, dtype=sharp.dtype, device=sharp.device)
    kernel[1, 1].fill_(5 / 13)
    channels = image.shape[-3]
    soft = torch.nn.functional.conv2d(sharp, kernel.expand(channels, 1, 3, 3), groups=channels)
    inner = sharp[..., 1:-1, 1:-1]
    inner.add_((soft if floating else soft.round_()).sub_(inner), alpha=1 - factor)
    return sharp.clamp_(0, 1 if floating else 255).to(image.dtype)


@dataclass(frozen=True)
class RandomAdjustSharpness(Chance):
    """Sharper or softer, with probability p.

    Args:
        sharpness_factor: 0: soft; 1: as it is; 2: twice as sharp.
        p: the probability.

    Images are uint8, or floats in [0, 1], of 1 or 3 channels.  The CPU form is torchvision's; the DALI form has its
    formula: uint8 images differ by 1 at most.

    Raises:
        ValueError: an invalid argument.
    """

    sharpness_factor: float
    p: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_number(self.sharpness_factor) or not self.sharpness_factor >= 0:
            raise ValueError(f"sharpness_factor must not be negative, got {self.sharpness_factor!r}")

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        params, sizes = super().make_params(rand, sizes)
        return {**params, "kernel": kernels(len(rand))}, sizes

    def transform(self, ops: Ops, image: Any, on: Any, kernel: Any) -> Any:
        dtype, factor = ops.dtype_of(image), float(self.sharpness_factor)

        def branch(ops: Ops, part: Any, kernel: Any) -> Any:
            return sharpened(ops, part, factor, kernel, dtype)

        return switch(ops, on, [branch], image, [{"kernel": kernel}])

    def transform_host(
        self, image: torch.Tensor, out: torch.Tensor | None = None, *, on: Any, kernel: Any = None
    ) -> torch.Tensor:
        if not on:
            return image
        return sharpened_host(image, float(self.sharpness_factor))
