"""Transforms of shape: decoding, resizing, cropping, flipping."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..random import Rand
from .base import (
    Params,
    Sizes,
    Transform,
    check_antialias,
    functional,
    is_integer,
    is_number,
    mode_name,
    number_pair,
    probability,
    size_pair,
)

if TYPE_CHECKING:
    from .._dali import Ops


@dataclass(frozen=True)
class Decode(Transform):
    """Image files to uint8 RGB [H, W, 3], upright by their EXIF orientation; grey is repeated, alpha dropped.

    The loader puts it in front by itself where it is missing.  On the CPU a crop that follows is fused with it: only
    the crop's window is decoded, with the same pixels as from the whole image.  On a GPU whole images are decoded.
    """

    on_host = False

    def transform(self, ops: Ops, image: Any, start: Any = None, shape: Any = None) -> Any:
        if start is None:
            return ops.decoders.image(image, device=ops.decoder_device)
        return ops.decoders.image_slice(image, start, shape, axes=[0, 1], device=ops.decoder_device)


class _Crop(Transform):
    """A window, which may lie partly outside the image and is filled there."""

    needs_sizes = True
    fixes_size = True
    fill: float | Sequence[float] | None = 0
    padding_mode: str = "constant"

    # DALI's slice fills with constants only, and any other padding looks at pixels outside the window.

    @property
    def on_dali(self) -> bool:
        return self.padding_mode == "constant"

    @property
    def windowed(self) -> bool:
        return self.padding_mode == "constant"

    def _fill_values(self, dtype: torch.dtype) -> list[float]:
        """One number, or one for each channel."""
        fill = [0.0] if self.fill is None else [self.fill] if isinstance(self.fill, (int, float)) else [*self.fill]
        if dtype == torch.uint8 and not all(0 <= value < 256 for value in fill):
            raise ValueError(f"fill must be in [0, 255] for uint8 images, got {self.fill!r}")
        return [float(value) for value in fill]

    def transform(self, ops: Ops, image: Any, start: Any, shape: Any) -> Any:
        fill = self._fill_values(ops.dtype_of(image))
        return ops.slice(image, start, shape, axes=[0, 1], out_of_bounds_policy="pad", fill_values=fill)

    def transform_host(
        self, image: torch.Tensor, out: torch.Tensor | None = None, *, start: Any, shape: Any
    ) -> torch.Tensor:
        (top, left), (height, width) = start, shape
        bottom, right = top + height, left + width
        channels, rows, columns = image.shape
        if top >= 0 and left >= 0 and bottom <= rows and right <= columns:
            return image[:, top:bottom, left:right]
        if self.padding_mode == "constant":
            fill = self._fill_values(image.dtype)
            window = image.new_empty(height, width, channels).permute(2, 0, 1)
            if len(fill) == 1:
                window.fill_(fill[0])
            else:
                window.copy_(torch.tensor(fill).to(image.dtype)[:, None, None])
            inside = image[:, max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
            above, before = max(-top, 0), max(-left, 0)
            window[:, above : above + inside.shape[1], before : before + inside.shape[2]] = inside
            return window
        edges = [max(-left, 0), max(-top, 0), max(right - columns, 0), max(bottom - rows, 0)]
        padded: torch.Tensor = functional().pad_image(image, edges, padding_mode=self.padding_mode)
        top, left = max(top, 0), max(left, 0)
        return padded[:, top : top + height, left : left + width]


def _window(start: NDArray[Any], shape: Any) -> tuple[Params, Sizes]:
    shapes = np.broadcast_to(np.asarray(shape, np.int32), start.shape)
    return {"start": start.astype(np.int32), "shape": shapes}, shapes.astype(np.int64)


@dataclass(frozen=True)
class CenterCrop(_Crop):
    """The middle of the image; a smaller image is surrounded by zeros (torchvision's rounding).

    Args:
        size: of the result in pixels, int or (height, width).

    Raises:
        ValueError: another size.
    """

    size: int | Sequence[int]

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
        size: of the result in pixels, int or (height, width).
        padding: pixels added around the image before the crop: int, (left/right, top/bottom) or (left, top, right,
            bottom).
        pad_if_needed: where the image is smaller than the crop, pad both sides by what is missing; otherwise that is
            an error of the sample.
        fill: value of constant padding, a number or one for each channel, in the image's own units.
        padding_mode: "constant"; "edge", "reflect" and "symmetric" have a CPU form only.

    Raises:
        ValueError: an argument that cannot be meant.
    """

    size: int | Sequence[int]
    padding: int | Sequence[int] | None = None
    pad_if_needed: bool = False
    fill: float | Sequence[float] | None = 0
    padding_mode: str = "constant"

    def __post_init__(self) -> None:
        size_pair(self.size)
        self._edges()
        if self.padding_mode not in ("constant", "edge", "reflect", "symmetric"):
            raise ValueError(f"padding_mode must be constant, edge, reflect or symmetric, got {self.padding_mode!r}")
        fill = self.fill if isinstance(self.fill, (list, tuple)) else [0 if self.fill is None else self.fill]
        if not fill or not all(is_number(value) for value in fill):
            raise ValueError(f"fill must be a number or one for each channel, got {self.fill!r}")

    def _edges(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Padding before and behind, each (vertical, horizontal)."""
        padding = 0 if self.padding is None else self.padding
        values = list(padding) if isinstance(padding, Sequence) else [padding]
        if len(values) not in (1, 2, 4) or not all(is_integer(value, 0) for value in values):
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
    """Resizes, by torchvision's interpolation and antialias."""

    interpolation: Any
    antialias: bool | None

    def _resize(self, ops: Ops, image: Any, size: Any) -> Any:
        mode = ops.interpolation(mode_name(self.interpolation))
        return ops.resize(image, size=size, interp_type=mode, antialias=bool(self.antialias))

    def _resize_host(self, image: torch.Tensor, size: Any) -> torch.Tensor:
        """[C, height, width] by torchvision's kernel, bit for bit."""
        height, width = int(size[0]), int(size[1])
        channels, rows, columns = image.shape
        if (height, width) == (rows, columns):
            return image
        mode = mode_name(self.interpolation)
        resized: torch.Tensor
        if image.dtype == torch.uint8 and mode in ("bilinear", "bicubic") and channels > 1 and _native_uint8():
            # What torchvision does after 15 us of Python: torch's kernel, told by the first stride to keep the layout.
            if image.stride(0) == 1:
                _, row, column = image.stride()
                whole = image.as_strided((1, channels, rows, columns), (rows * row, 1, row, column))
            else:
                whole = image[None]
            resized = torch.nn.functional.interpolate(
                whole, (height, width), mode=mode, align_corners=False, antialias=bool(self.antialias)
            )[0]
        else:
            from torchvision.transforms import InterpolationMode

            resized = functional().resize_image(
                image, [height, width], interpolation=InterpolationMode(mode), antialias=self.antialias
            )
        return resized


@functools.cache
def _native_uint8() -> bool:
    """torchvision uses torch's uint8 kernels on these CPUs; on others it goes through float32."""
    return torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


@dataclass(frozen=True)
class Resize(_Resizing):
    """To a size: (height, width), or an int for the shorter edge.

    Args:
        size: in pixels: int, [int] or (height, width); None: `max_size` is the longer edge.
        interpolation: "bilinear", "bicubic", "nearest", "nearest-exact", or torchvision's InterpolationMode.
        max_size: with an int size: the longer edge is at most this, and the shorter one shrinks with it.
        antialias: low-pass filter when shrinking, for bilinear and bicubic; None: False.

    The CPU form is torchvision's, but that an edge never vanishes.  DALI's resampler differs in rounding, and its
    nearest neighbour is "nearest-exact" in both cases.

    Raises:
        ValueError: an argument that cannot be meant.
    """

    size: int | Sequence[int] | None
    interpolation: Any = "bilinear"
    max_size: int | None = None
    antialias: bool | None = True

    def __post_init__(self) -> None:
        mode_name(self.interpolation)
        check_antialias(self.antialias)
        if self.size is not None:
            size_pair(self.size)
        if self.max_size is None and self.size is not None:
            return
        if not is_integer(self.max_size, 1) or self._pair or (self._edge and self.max_size <= self._edge):  # type: ignore[operator]
            raise ValueError(
                "max_size must be an int, with an int size below it or size=None, "
                f"got size={self.size!r} max_size={self.max_size!r}"
            )

    @property
    def _edge(self) -> int | None:
        """The shorter edge, where it is given."""
        return None if self.size is None or self._pair else size_pair(self.size)[0]

    @property
    def _pair(self) -> tuple[int, int] | None:
        """The size, where it is given."""
        return size_pair(self.size) if isinstance(self.size, Sequence) and len(self.size) == 2 else None

    @property
    def needs_sizes(self) -> bool:
        return self._pair is None

    @property
    def fixes_size(self) -> bool:
        return self._pair is not None

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        if self._pair:
            out = np.broadcast_to(np.array(self._pair, np.int64), (len(rand), 2))
        else:
            assert sizes is not None
            short, long = sizes.min(axis=1), sizes.max(axis=1)
            if self._edge is None:
                new_short, new_long = self.max_size * short / long, np.full_like(long, self.max_size)
            else:
                new_short, new_long = np.full_like(short, self._edge), (self._edge * long / short).astype(np.int64)
                if self.max_size is not None:
                    new_short = np.where(new_long > self.max_size, self.max_size * new_short / new_long, new_short)
                    new_long = np.minimum(new_long, self.max_size)
            new_short = np.maximum(new_short.astype(np.int64), 1)
            upright = sizes[:, :1] >= sizes[:, 1:]
            out = np.where(upright, np.stack([new_long, new_short], 1), np.stack([new_short, new_long], 1))
        return {"size": out.astype(np.float32)}, out

    def transform(self, ops: Ops, image: Any, size: Any) -> Any:
        return self._resize(ops, image, size)

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, *, size: Any) -> torch.Tensor:
        return self._resize_host(image, size)


@dataclass(frozen=True)
class RandomResizedCrop(_Resizing):
    """A window of random area and aspect ratio, resized: the usual augmentation of ImageNet training.

    Windows are drawn as torchvision does (Szegedy et al., "Going deeper with convolutions", 2015): ten tries for an
    area and a log-uniform ratio, then the largest central crop of a permitted ratio.

    Args:
        size: of the result in pixels, int or (height, width).
        scale: range of the window's part of the image's area.
        ratio: range of width / height.
        interpolation, antialias: as in Resize.

    Raises:
        ValueError: an argument that cannot be meant.
    """

    size: int | Sequence[int]
    scale: Sequence[float] = (0.08, 1.0)
    ratio: Sequence[float] = (3 / 4, 4 / 3)
    interpolation: Any = "bilinear"
    antialias: bool | None = True

    needs_sizes = True
    windowed = True
    fixes_size = True

    def __post_init__(self) -> None:
        size_pair(self.size)
        number_pair(self.scale, "scale")
        if number_pair(self.ratio, "ratio")[0] == 0:
            raise ValueError(f"ratio must be positive, got {self.ratio!r}")
        mode_name(self.interpolation)
        check_antialias(self.antialias)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        start, shape = self.windows(rand, sizes)
        params, _ = _window(start, shape)
        size = np.broadcast_to(np.array(size_pair(self.size), np.int64), start.shape)
        return {**params, "size": size.astype(np.float32)}, size

    def windows(self, rand: Rand, sizes: Sizes) -> tuple[Sizes, Sizes]:
        """(start, shape) of each window, each [N, 2] int64."""
        n, tries = len(sizes), 10
        (small, large), (low, high) = self.scale, self.ratio
        area = sizes.prod(axis=1, dtype=np.float64)[:, None] * rand.uniform(small, large, shape=tries)
        ratio = np.exp(rand.uniform(math.log(low), math.log(high), shape=tries).astype(np.float64))
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
        shape = np.stack(
            [
                np.where(ratio < low, np.rint(width / low), height),
                np.where(ratio > high, np.rint(height * high), width),
            ],
            axis=1,
        )
        return np.maximum(shape.astype(np.int64), 1)

    def transform(self, ops: Ops, image: Any, start: Any, shape: Any, size: Any) -> Any:
        # Not `resize(roi_start=...)`: its filter reads pixels outside the window.
        return self._resize(ops, ops.slice(image, start, shape, axes=[0, 1]), size)

    def transform_host(
        self, image: torch.Tensor, out: torch.Tensor | None = None, *, start: Any, shape: Any, size: Any
    ) -> torch.Tensor:
        (top, left), (height, width) = start, shape
        if image.shape[1:] != (height, width):  # else the decoder has cut the window
            image = image[:, top : top + height, left : left + width]
        return self._resize_host(image, size)


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
    """Left and right exchanged with probability p.

    Raises:
        ValueError: p is no probability.
    """

    p: float = 0.5
    _horizontal: ClassVar[bool] = True

    def __post_init__(self) -> None:
        probability(self.p)


@dataclass(frozen=True)
class RandomVerticalFlip(_Flip):
    """Top and bottom exchanged with probability p.

    Raises:
        ValueError: p is no probability.
    """

    p: float = 0.5
    _horizontal: ClassVar[bool] = False

    def __post_init__(self) -> None:
        probability(self.p)
