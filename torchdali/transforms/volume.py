"""Crops and flips of volumes, in three dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..moves import Crop3d, Flip, Move, Sizes
from ..rand import Rand
from .arguments import is_integer, probability
from .base import Mover, Params


class VolumeMover(Mover):
    """Base of the transforms that move volumes [D, H, W] and [C, D, H, W], and nothing else."""

    dims = 3

    def transform(self, ops: Any, image: Any, **params: Any) -> Any:
        raise self._not_an_image()

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, **params: Any) -> torch.Tensor:
        raise self._not_an_image()

    def _not_an_image(self) -> TypeError:
        return TypeError(f"{type(self).__name__} moves volumes only, and the field is an image or a video")


class _Crop3d(VolumeMover):
    needs_sizes = True
    fixes_size = True

    def moves(self, params: dict[str, Any]) -> list[Move]:
        return [Crop3d(params["start"], params["shape"])]


def _params(start: NDArray[Any], crop: NDArray[np.int64]) -> tuple[Params, Sizes]:
    shape = np.broadcast_to(crop, start.shape)
    return {"start": start.astype(np.int64), "shape": shape}, shape


def size_triple(size: Any) -> tuple[int, int, int]:
    """Make (depth, height, width) of an int, or of three.

    Raises:
        ValueError: it is something else.
    """
    values = list(size) if isinstance(size, Sequence) else [size] * 3
    if len(values) != 3 or not all(is_integer(value, 1) for value in values):
        raise ValueError(f"size must be a positive int or (depth, height, width), got {size!r}")
    return int(values[0]), int(values[1]), int(values[2])


@dataclass(frozen=True)
class CenterCrop3d(_Crop3d):
    """The middle of a volume; a smaller one is surrounded by its kind's `fill`.

    Each dimension is cropped as `CenterCrop` crops those of images.

    Args:
        size: of the result in voxels, int or (depth, height, width).

    Raises:
        ValueError: an invalid size.
    """

    size: int | Sequence[int]

    draws = False

    def __post_init__(self) -> None:
        size_triple(self.size)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        crop = np.array(size_triple(self.size))
        padding = np.maximum(crop - sizes, 0) // 2
        return _params(np.rint((np.maximum(sizes, crop) - crop) / 2) - padding, crop)


@dataclass(frozen=True)
class RandomCrop3d(_Crop3d):
    """A window of a volume at a random place, as `RandomCrop` cuts out of images.

    Args:
        size: of the result in voxels, int or (depth, height, width).
        pad_if_needed: where the volume is smaller than the crop, pad both sides by what is missing, with its kind's
            `fill`; otherwise that is an error of the sample.

    Raises:
        ValueError: an invalid argument.
    """

    size: int | Sequence[int]
    pad_if_needed: bool = False

    def __post_init__(self) -> None:
        size_triple(self.size)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        """Draw the windows.

        Raises:
            ValueError: a volume is smaller than the crop, and is not padded.
        """
        assert sizes is not None
        crop = np.array(size_triple(self.size))
        missing = np.maximum(crop - sizes, 0)
        if not self.pad_if_needed and missing.any():
            small = sizes[missing.any(axis=1)][0]
            raise ValueError(
                f"RandomCrop3d needs a volume of at least {tuple(crop.tolist())}, got {tuple(small.tolist())}: write "
                "pad_if_needed=True"
            )
        return _params(rand.integers(0, sizes + 2 * missing - crop + 1, shape=3) - missing, crop)


@dataclass(frozen=True)
class RandomDepthFlip(VolumeMover):
    """Front and back of a volume exchanged with probability p; `RandomHorizontalFlip` and `RandomVerticalFlip` do the
    same in its other dimensions.

    Raises:
        ValueError: p is no probability.
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        probability(self.p)

    @property
    def draws(self) -> bool:
        return 0 < self.p < 1

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        return {"flip": rand.bernoulli(self.p)}, sizes

    def moves(self, params: dict[str, Any]) -> list[Move]:
        return [Flip(-1, params["flip"])]
