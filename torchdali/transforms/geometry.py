"""Transforms of shape: decoding, resizing, cropping, flipping."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..random import Rand
from .base import Params, Sizes, Transform, mode_name, number_range, probability, size_pair

if TYPE_CHECKING:
    from .._dali import Ops


@dataclass(frozen=True)
class Decode(Transform):
    """Image files to uint8 RGB, upright by their EXIF orientation.

    The loader puts it in front by itself where it is missing.  On the CPU a crop that follows is fused with it: only
    the crop's window is decoded, with the same pixels as from the whole image.  On a GPU whole images are decoded.
    """

    on_host: ClassVar[bool] = False

    def transform(self, ops: Ops, image: Any, start: Any = None, shape: Any = None) -> Any:
        if start is None:
            return ops.decoders.image(image, device=ops.decoder_device)
        return ops.decoders.image_slice(image, start, shape, axes=[0, 1], device=ops.decoder_device)


class _Crop(Transform):
    """A window, which may lie partly outside the image and is filled there."""

    needs_sizes: ClassVar[bool] = True
    windowed: ClassVar[bool] = True
    fixes_size: ClassVar[bool] = True
    fill: Any = 0
    padding_mode: str = "constant"

    def transform(self, ops: Ops, image: Any, start: Any, shape: Any) -> Any:
        fill = list(self.fill) if isinstance(self.fill, (list, tuple)) else self.fill
        return ops.slice(image, start, shape, axes=[0, 1], out_of_bounds_policy="pad", fill_values=fill)

    def transform_host(
        self, image: torch.Tensor, out: torch.Tensor | None = None, *, start: Any, shape: Any
    ) -> torch.Tensor:
        top, left = (int(v) for v in start)
        height, width = (int(v) for v in shape)
        before = (max(0, -top), max(0, -left))
        behind = (max(0, top + height - image.shape[1]), max(0, left + width - image.shape[2]))
        if any(before) or any(behind):
            from torchvision.transforms.v2 import functional as F

            edges = [before[1], before[0], behind[1], behind[0]]
            fill = list(self.fill) if isinstance(self.fill, (list, tuple)) else self.fill
            image = F.pad_image(image, edges, fill=fill, padding_mode=self.padding_mode)
            top, left = top + before[0], left + before[1]
        return image[:, top : top + height, left : left + width]


def _window(start: NDArray[Any], shape: Any) -> tuple[Params, Sizes]:
    shapes = np.broadcast_to(np.asarray(shape, np.int32), start.shape)
    return {"start": start.astype(np.int32), "shape": shapes}, shapes.astype(np.int64)


@dataclass(frozen=True)
class CenterCrop(_Crop):
    """The middle of the image; a smaller image is surrounded by zeros (torchvision's rounding)."""

    size: Any

    def __post_init__(self) -> None:
        size_pair(self.size)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        crop = np.array(size_pair(self.size))
        # torchvision pads first, by floor and ceiling of a half, and then rounds a half to even.
        padding = np.maximum(crop - sizes, 0) // 2
        inside = np.rint((np.maximum(sizes, crop) - crop) / 2)
        return _window(inside - padding, crop)


@dataclass(frozen=True)
class RandomCrop(_Crop):
    """A window at a random place.

    Args:
        size: int or (height, width).
        padding: pixels added around the image before the crop: int, (left/right, top/bottom) or (left, top, right,
            bottom).
        pad_if_needed: where the image is smaller than the crop, pad both sides by what is missing; otherwise that is
            an error of the sample.
        fill: value of constant padding, a number or one for each channel.
        padding_mode: "constant"; "edge", "reflect" and "symmetric" have a CPU form only.
    """

    size: Any
    padding: Any = None
    pad_if_needed: bool = False
    fill: Any = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        size_pair(self.size)
        self._edges()
        if self.padding_mode not in ("constant", "edge", "reflect", "symmetric"):
            raise ValueError(f"padding_mode must be constant, edge, reflect or symmetric, got {self.padding_mode!r}")

    # DALI's slice fills with constants only.
    @property
    def on_dali(self) -> bool:  # type: ignore[override]
        return self.padding_mode == "constant"

    @property
    def windowed(self) -> bool:  # type: ignore[override]
        return self.padding_mode == "constant"

    def _edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Padding before and behind, each (vertical, horizontal)."""
        padding = 0 if self.padding is None else self.padding
        values = [padding] if isinstance(padding, int) else list(padding)
        if len(values) not in (1, 2, 4) or not all(isinstance(v, int) and v >= 0 for v in values):
            raise ValueError(f"padding must be 1, 2 or 4 integers, none negative, got {self.padding!r}")
        left, top, right, bottom = values * (4 // len(values))
        return np.array([top, left]), np.array([bottom, right])

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        crop = np.array(size_pair(self.size))
        before, behind = self._edges()
        padded = sizes + before + behind
        if self.pad_if_needed:
            missing = np.maximum(crop - padded, 0)
            before, padded = before + missing, padded + 2 * missing
        elif np.any(padded < crop):
            small = padded[np.any(padded < crop, axis=1)][0]
            raise ValueError(
                f"RandomCrop needs an image of at least {tuple(crop.tolist())}, got {tuple(small.tolist())}"
            )
        return _window(rand.integers(0, padded - crop + 1, shape=2) - before, crop)


class _Resizing(Transform):
    """A resize to the size in the params."""

    interpolation: Any
    antialias: bool

    def transform(self, ops: Ops, image: Any, size: Any) -> Any:
        mode = ops.interpolation(mode_name(self.interpolation))
        return ops.resize(image, size=size, interp_type=mode, antialias=self.antialias)

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, *, size: Any) -> torch.Tensor:
        from torchvision.transforms import InterpolationMode
        from torchvision.transforms.v2 import functional as F

        mode = InterpolationMode(mode_name(self.interpolation))
        return F.resize_image(image, [int(v) for v in size], interpolation=mode, antialias=self.antialias)


@dataclass(frozen=True)
class Resize(_Resizing):
    """To a size: (height, width), or an int for the shorter edge.

    Args:
        size: int, [int] or (height, width).
        interpolation: "bilinear", "bicubic", "nearest", "nearest-exact", or torchvision's InterpolationMode.
        max_size: with an int size: the longer edge is at most this, and the shorter one shrinks with it.
        antialias: low-pass filter when shrinking.
    """

    size: Any
    interpolation: Any = "bilinear"
    max_size: int | None = None
    antialias: bool = True

    def __post_init__(self) -> None:
        size_pair(self.size)
        mode_name(self.interpolation)
        if self.max_size is not None and (self._edge is None or self.max_size <= self._edge):
            raise ValueError(
                f"max_size goes with an int size below it, got size={self.size!r} max_size={self.max_size!r}"
            )

    @property
    def _edge(self) -> int | None:
        if isinstance(self.size, int):
            return self.size
        return int(self.size[0]) if len(self.size) == 1 else None

    @property
    def needs_sizes(self) -> bool:  # type: ignore[override]
        return self._edge is not None

    @property
    def fixes_size(self) -> bool:  # type: ignore[override]
        return self._edge is None

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        if self._edge is None:
            out = np.broadcast_to(np.array(size_pair(self.size), np.int64), (len(rand), 2))
        else:
            assert sizes is not None
            short, long = sizes.min(axis=1), sizes.max(axis=1)
            new_short = np.full_like(short, self._edge)
            new_long = (self._edge * long / short).astype(np.int64)
            if self.max_size is not None:
                over = new_long > self.max_size
                new_short = np.where(over, (self.max_size * new_short / new_long).astype(np.int64), new_short)
                new_long = np.minimum(new_long, self.max_size)
            upright = sizes[:, :1] >= sizes[:, 1:]
            out = np.where(upright, np.stack([new_long, new_short], 1), np.stack([new_short, new_long], 1))
        return {"size": out.astype(np.float32)}, out


@dataclass(frozen=True)
class RandomResizedCrop(_Resizing):
    """A window of random area and aspect ratio, resized: the usual augmentation of ImageNet training.

    Windows are drawn as torchvision does (Szegedy et al., "Going deeper with convolutions", 2015): ten tries for an
    area and a log-uniform ratio, then the largest central crop of a permitted ratio.

    Args:
        size: of the result, int or (height, width).
        scale: range of the window's part of the image's area.
        ratio: range of width / height.
        interpolation, antialias: as in Resize.
    """

    size: Any
    scale: Any = (0.08, 1.0)
    ratio: Any = (3 / 4, 4 / 3)
    interpolation: Any = "bilinear"
    antialias: bool = True

    needs_sizes: ClassVar[bool] = True
    windowed: ClassVar[bool] = True
    fixes_size: ClassVar[bool] = True

    def __post_init__(self) -> None:
        size_pair(self.size)
        number_range(self.scale, "scale")
        if number_range(self.ratio, "ratio")[0] <= 0:
            raise ValueError(f"ratio must be positive, got {self.ratio!r}")
        mode_name(self.interpolation)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        start, shape = self.windows(rand, sizes)
        params, _ = _window(start, shape)
        size = np.broadcast_to(np.array(size_pair(self.size), np.int64), start.shape)
        return {**params, "size": size.astype(np.float32)}, size

    def windows(self, rand: Rand, sizes: Sizes) -> tuple[Sizes, Sizes]:
        """(start, shape) of each window, each [N, 2] int64."""
        n, tries = len(sizes), 10
        area = sizes.prod(axis=1, dtype=np.float64)[:, None] * rand.uniform(*self.scale, shape=tries)
        ratio = np.exp(rand.uniform(math.log(self.ratio[0]), math.log(self.ratio[1]), shape=tries).astype(np.float64))
        shape = np.rint(np.sqrt(np.stack([area / ratio, area * ratio], 2))).astype(np.int64)
        fits = np.all((shape > 0) & (shape <= sizes[:, None]), axis=2)
        found, first = fits.any(axis=1), fits.argmax(axis=1)
        shape = np.where(found[:, None], shape[np.arange(n), first], self._central(sizes))
        random = rand.integers(0, sizes - shape + 1, shape=2)
        return np.where(found[:, None], random, (sizes - shape) // 2), shape

    def _central(self, sizes: Sizes) -> Sizes:
        height, width = sizes[:, 0], sizes[:, 1]
        ratio = width / height
        low, high = self.ratio
        return np.stack(
            [
                np.where(ratio < low, np.rint(width / low), height).astype(np.int64),
                np.where(ratio > high, np.rint(height * high), width).astype(np.int64),
            ],
            axis=1,
        )

    def transform(self, ops: Ops, image: Any, start: Any, shape: Any, size: Any) -> Any:
        # Not `resize(roi_start=...)`: its filter reads pixels outside the window.
        return super().transform(ops, ops.slice(image, start, shape, axes=[0, 1]), size)

    def transform_host(
        self, image: torch.Tensor, out: torch.Tensor | None = None, *, start: Any, shape: Any, size: Any
    ) -> torch.Tensor:
        (top, left), (height, width) = start, shape
        return super().transform_host(image[:, top : top + height, left : left + width], size=size)


class _Flip(Transform):
    p: float
    _horizontal: ClassVar[bool]

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        return {"flip": rand.bernoulli(self.p)}, sizes

    def transform(self, ops: Ops, image: Any, flip: Any) -> Any:
        return (
            ops.flip(image, horizontal=flip, vertical=0)
            if self._horizontal
            else ops.flip(image, horizontal=0, vertical=flip)
        )

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, *, flip: Any) -> torch.Tensor:
        return image.flip(-1 if self._horizontal else -2) if flip else image


@dataclass(frozen=True)
class RandomHorizontalFlip(_Flip):
    """Left and right exchanged with probability p."""

    p: float = 0.5
    _horizontal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        probability(self.p)


@dataclass(frozen=True)
class RandomVerticalFlip(_Flip):
    """Top and bottom exchanged with probability p."""

    p: float = 0.5
    _horizontal: ClassVar[bool] = False

    def __post_init__(self) -> None:
        probability(self.p)
