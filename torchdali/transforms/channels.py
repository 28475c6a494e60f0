"""Transforms of an image's channels: their order, and their number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..forms.image import functional
from ..moves import Sizes
from ..rand import Rand
from . import adjust
from .base import Params, Transform
from .chance import Chance
from .recolor import permuted_host, recolored
from .switch import switch

if TYPE_CHECKING:
    from .._dali import Ops


def permutation_params(permutation: NDArray[Any]) -> Params:
    """The params of a permutation [N, 3] of channels, and of the same as matrices [N, 3, 3] for DALI."""
    return {"permutation": permutation.astype(np.int32), "matrix": np.eye(3, dtype=np.float32)[permutation]}


def permuted(ops: Ops, image: Any, matrix: Any) -> Any:
    """The channels in another order, by a matrix for each sample; a grey image stays."""
    dtype = ops.dtype_of(image)
    if ops.channels_of(image) == 1:
        return adjust.unchanged(ops, image, matrix, dtype)
    moved = ops.coord_transform(adjust.wide(ops, image, dtype), M=matrix, dtype=ops.as_dtype(torch.float32))
    return ops.cast(moved, dtype=ops.as_dtype(dtype))


@dataclass(frozen=True)
class RandomChannelPermutation(Transform):
    """The channels in a random order.

    Images have three channels; a grey one stays as it is.  Both forms are equal to torchvision's.
    """

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        return permutation_params(rand.permutations(3)), sizes

    def dali_params(self, params: Params) -> Params:
        return {"matrix": params["matrix"]}

    def transform(self, ops: Ops, image: Any, matrix: Any) -> Any:
        _check_colours(ops.channels_of(image), self)
        return permuted(ops, image, matrix)

    def transform_host(
        self, image: torch.Tensor, out: torch.Tensor | None = None, *, permutation: Any, matrix: Any = None
    ) -> torch.Tensor:
        _check_colours(len(image), self)
        return image if len(image) == 1 else permuted_host(image, permutation)


def _check_colours(channels: int, transform: Transform) -> None:
    if channels not in (1, 3):
        raise ValueError(f"{type(transform).__name__} needs images of 1 or 3 channels, got {channels}")


def _grey(ops: Ops, image: Any, channels: int) -> Any:
    dtype = ops.dtype_of(image)
    grey = ops.cast(adjust.grey_of(ops, adjust.wide(ops, image, dtype), dtype), dtype=ops.as_dtype(dtype))
    return grey if channels == 1 else _tripled(ops, grey)


def _tripled(ops: Ops, image: Any) -> Any:
    return ops.cat(image, image, image, axis=adjust.axes(ops, "C")[0])


@dataclass(frozen=True)
class Grayscale(Transform):
    """The grey image, by the weights 0.2989, 0.587 and 0.114 of red, green and blue.

    Args:
        num_output_channels: 1, or 3 equal ones.

    The CPU form is torchvision's; the DALI form has its formula: uint8 images differ by 1 at most.

    Raises:
        ValueError: another number of channels.
    """

    num_output_channels: int = 1

    def __post_init__(self) -> None:
        if self.num_output_channels not in (1, 3):
            raise ValueError(f"num_output_channels must be 1 or 3, got {self.num_output_channels!r}")

    def out_channels(self, channels: int) -> int:
        return self.num_output_channels

    def transform(self, ops: Ops, image: Any) -> Any:
        _check_colours(channels := ops.channels_of(image), self)
        if channels == 1:
            return (
                image if self.num_output_channels == 1 else ops.cat(image, image, image, axis=adjust.axes(ops, "C")[0])
            )
        return _grey(ops, image, self.num_output_channels)

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        _check_colours(len(image), self)
        if len(image) == self.num_output_channels == 3:
            return recolored(image, "grayscale")
        grey: torch.Tensor = functional().rgb_to_grayscale_image(image, num_output_channels=self.num_output_channels)
        return grey


@dataclass(frozen=True)
class RandomGrayscale(Chance):
    """The grey image in all channels, with probability p.

    The CPU form is torchvision's; the DALI form has its formula: uint8 images differ by 1 at most.

    Raises:
        ValueError: p is no probability.
    """

    p: float = 0.1

    def transform(self, ops: Ops, image: Any, on: Any) -> Any:
        _check_colours(channels := ops.channels_of(image), self)
        if channels == 1:
            return adjust.unchanged(ops, image, on, ops.dtype_of(image))
        return switch(ops, on, [lambda ops, part: _grey(ops, part, 3)], image, [{}])

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, *, on: Any) -> torch.Tensor:
        _check_colours(len(image), self)
        return recolored(image, "grayscale") if on else image


@dataclass(frozen=True)
class RGB(Transform):
    """Three channels of one; an image that has three stays as it is.  Both forms are equal to torchvision's."""

    def out_channels(self, channels: int) -> int:
        return 3 if channels == 1 else channels

    def transform(self, ops: Ops, image: Any) -> Any:
        return _tripled(ops, image) if ops.channels_of(image) == 1 else image

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        coloured: torch.Tensor = functional().grayscale_to_rgb_image(image)
        return coloured
