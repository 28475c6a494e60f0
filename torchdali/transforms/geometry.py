"""Decoding, cropping and flipping."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..rand import Rand
from .base import (
    Params,
    Sizes,
    Transform,
    functional,
    is_integer,
    is_number,
    probability,
    size_pair,
)

if TYPE_CHECKING:
    from .._dali import Ops


@dataclass(frozen=True)
class Decode(Transform):
    """Image files to uint8 RGB [H, W, 3], upright by their EXIF orientation; grey is repeated, alpha dropped.

    The loader adds it where it is missing.  On the CPU a crop that follows is fused with it: only the crop's window is
    decoded, with the same pixels as from the whole image.  On a GPU whole images are decoded.
    """

    def transform(self, ops: Ops, image: Any, start: Any = None, shape: Any = None) -> Any:
        if start is None:
            return ops.decoders.image(image, device=ops.decoder_device)
        return ops.decoders.image_slice(image, start, shape, axes=[0, 1], device=ops.decoder_device)


class _Crop(Transform):
    """A window; its parts outside the image are filled."""

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
        """The fill values: one number, or one for each channel."""
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


def window_params(start: NDArray[Any], shape: Any) -> tuple[Params, Sizes]:
    """Make the params of windows, [N, 2] each, and their sizes."""
    shapes = np.broadcast_to(np.asarray(shape, np.int32), start.shape)
    return {"start": start.astype(np.int32), "shape": shapes}, shapes.astype(np.int64)


@dataclass(frozen=True)
class CenterCrop(_Crop):
    """The middle of the image; a smaller image is surrounded by zeros (torchvision's rounding).

    Args:
        size: of the result in pixels, int or (height, width).

    Raises:
        ValueError: an invalid size.
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
        return window_params(inside - padding, crop)


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
        ValueError: an invalid argument.
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
        """The padding before and after the image, each (vertical, horizontal)."""
        padding = 0 if self.padding is None else self.padding
        values = list(padding) if isinstance(padding, Sequence) else [padding]
        if len(values) not in (1, 2, 4) or not all(is_integer(value, 0) for value in values):
            raise ValueError(f"padding must be 1, 2 or 4 integers, none negative, got {self.padding!r}")
        left, top, right, bottom = values * (4 // len(values))
        return np.array([top, left]), np.array([bottom, right])

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        crop = np.array(size_pair(self.size))
        before, after = self._edges()
        padded = sizes + before + after
        if self.pad_if_needed:
            missing = np.maximum(crop - padded, 0)
            before, padded = before + missing, padded + 2 * missing
        elif np.any(padded < crop):
            small = padded[np.any(padded < crop, axis=1)][0]
            raise ValueError(
                f"RandomCrop needs an image of at least {tuple(crop.tolist())}, got {tuple(small.tolist())}"
            )
        return window_params(rand.integers(0, padded - crop + 1, shape=2) - before, crop)


class _Flip(Transform):
    p: float
    _horizontal: ClassVar[bool]

    @property
    def draws(self) -> bool:
        return 0 < self.p < 1

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
