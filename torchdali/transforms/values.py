"""Transforms of the values' scale and type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from ..forms.image import Images
from .arguments import channel_numbers, check_channels
from .base import Params, Transform

if TYPE_CHECKING:
    from .._dali import Ops


_LARGEST_STD = 10  # of numbers in [0, 1]; a larger one is of numbers up to 255


@dataclass(frozen=True)
class Normalize(Transform):
    """(x - mean) / std for each channel, as float32.

    uint8 images are scaled to [0, 1] first, so `ToDtype(torch.float32, scale=True)` before it may be left out.

    Args:
        mean, std: one number for each channel, or one for all, in units of [0, 1] for uint8 images, else in the
            image's own.
        inplace: accepted as in torchvision; batches are always fresh.

    Raises:
        ValueError: no numbers, of different lengths, or a zero in std; or, with uint8 images, numbers up to 255.
    """

    mean: Sequence[float]
    std: Sequence[float]
    inplace: bool = False

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            object.__setattr__(self, name, channel_numbers(getattr(self, name), name))
        if len(self.mean) != len(self.std):
            raise ValueError(f"mean and std must be of one length, got {len(self.mean)} and {len(self.std)}")
        if 0 in self.std:
            raise ValueError(f"std must not be zero, got {self.std!r}")

    @cached_property
    def _rows(self) -> dict[tuple[int, bool], tuple[torch.Tensor, torch.Tensor]]:
        return {}

    def affine(self, numbers: int, deep: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Make the rows of x * scale + bias, of `numbers` numbers (pixels times channels); once for each length."""
        found = self._rows.get((numbers, deep))
        if found is None:
            self._check_units(deep)
            mean, std = (torch.tensor(values, dtype=torch.float64) for values in (self.mean, self.std))
            scale, bias = (1 / (std * (255 if deep else 1))).float(), (-mean / std).float()
            found = scale.repeat(numbers // len(scale)), bias.repeat(numbers // len(bias))
            if len(self._rows) < 100:  # images may have any widths
                self._rows[numbers, deep] = found
        return found

    def _check_units(self, deep: bool) -> None:
        """Raise where uint8 images would be normalised by numbers up to 255, as DALI and OpenCV have them."""
        if deep and (max(self.mean) > 1 or max(self.std) > _LARGEST_STD):
            raise ValueError(
                f"Normalize takes mean and std of uint8 images in units of [0, 1], got {self.mean} and {self.std}: "
                "divide them by 255, or write ToDtype(torch.float32) before it"
            )

    def out_dtype(self, dtype: torch.dtype) -> torch.dtype:
        return torch.float32

    def transform(self, ops: Ops, image: Any) -> Any:
        source = ops.dtype_of(image)
        self._check_units(source == torch.uint8)
        if len(self.mean) > 1:
            check_channels(image, len(self.mean), "Normalize has")
        if source == torch.float64:
            image = ops.cast(image, dtype=ops.as_dtype(torch.float32))
        unit = 255.0 if source == torch.uint8 else 1.0
        return ops.crop_mirror_normalize(
            image,
            mean=[value * unit for value in self.mean],
            std=[value * unit for value in self.std],
            dtype=ops.as_dtype(torch.float32),
            output_layout="HWC",
        )

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        channels, height, width = image.shape
        if len(self.mean) not in (1, channels):
            raise ValueError(f"Normalize has {len(self.mean)} channels, and the image {channels}")
        if out is None or out.stride(0) != 1 or out.stride(2) != channels:
            out = torch.empty(height, width, channels, dtype=torch.float32).permute(2, 0, 1)
        scale, bias = self.affine(width * channels, image.dtype == torch.uint8)
        # Rows of width * channels numbers: with a last dimension of three, torch's loops are ten times as slow.  Three
        # separate steps, which round alike however a loop is cut.
        rows = out.permute(1, 2, 0).flatten(1)
        rows.copy_(image.permute(1, 2, 0).flatten(1)).mul_(scale).add_(bias)
        return out

    def transform_batch(self, images: torch.Tensor, params: Params) -> Images:
        channels = images.shape[1]
        if len(self.mean) not in (1, channels):
            raise ValueError(f"Normalize has {len(self.mean)} channels, and the image {channels}")
        rows = self.affine(channels, images.dtype == torch.uint8)
        scale, bias = (row.to(images.device, non_blocking=True)[:, None, None] for row in rows)
        return images.to(torch.float32, copy=True).mul_(scale).add_(bias)


_FLOATS = (torch.float32, torch.float16, torch.float64)
_OF_MASKS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool, *_FLOATS)


@dataclass(frozen=True)
class ToDtype(Transform):
    """Another element type, of images, videos and volumes; and of masks.

    Args:
        dtype: torch.uint8, float16, float32 or float64; None: unchanged.  Or a dict as torchvision's has it, such as
            `{tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}`, of which the entries for
            images (or else videos, or tensors) and for masks count.
        scale: map the range of uint8 to [0, 1] and back, of images.
        masks: of the masks as they leave, also those drawn of outlines, such as torch.int64, which the cross entropy
            takes; None: as in the dataset.

    Raises:
        ValueError: another dtype, or a dict without an entry for images.
    """

    dtype: torch.dtype | Mapping[Any, torch.dtype | None] | None
    scale: bool = False
    masks: torch.dtype | None = None

    def __post_init__(self) -> None:
        if isinstance(self.dtype, Mapping):
            given = {getattr(kind, "__name__", kind): dtype for kind, dtype in self.dtype.items()}
            found = [given[name] for name in ("Image", "Video", "Tensor", "others") if name in given]
            if not found:
                raise ValueError("dtype has no entry for images: add 'others': None")
            object.__setattr__(self, "dtype", found[0])
            object.__setattr__(self, "masks", given.get("Mask", given.get("others")))
        if self.dtype not in (None, torch.uint8, *_FLOATS):
            raise ValueError(f"dtype must be torch.uint8, float16, float32 or float64, got {self.dtype!r}")
        if self.masks is not None and self.masks not in _OF_MASKS:
            raise ValueError(f"masks must be a dtype of numpy's integers or floats, got {self.masks!r}")

    @property
    def _images(self) -> torch.dtype | None:
        return self.dtype  # type: ignore[return-value]  # of a dict the entry for images

    def out_dtype(self, dtype: torch.dtype) -> torch.dtype:
        return dtype if self._images is None else self._images

    def _factor(self, source: torch.dtype) -> float:
        if not self.scale or (source == torch.uint8) == (self._images == torch.uint8):
            return 1.0
        # torchvision's, which reaches 255 and never 256.
        return 255 + 1.0 - 1e-3 if self._images == torch.uint8 else 1 / 255

    def transform(self, ops: Ops, image: Any) -> Any:
        source = ops.dtype_of(image)
        if self._images is None or source == self._images:
            return image
        factor = self._factor(source)
        # DALI computes in float32, and not in float16 at all.
        if source == torch.float16 and self._images == torch.uint8:
            image = ops.cast(image, dtype=ops.as_dtype(torch.float32))
        if factor != 1.0:
            image = image * factor
        if self._images == torch.uint8:
            image = ops.math.floor(image)  # torch truncates, DALI's cast rounds
        return ops.cast(image, dtype=ops.as_dtype(self._images))

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        if self._images is None:
            return image
        factor = self._factor(image.dtype)
        if self._images == torch.uint8:
            return (image if factor == 1.0 else image.mul(factor)).to(self._images)
        converted = image.to(self._images)
        return converted if factor == 1.0 else converted.mul_(factor)

    def transform_batch(self, images: torch.Tensor, params: Params) -> Images:
        return self.transform_host(images)
