"""The traces of JPEG compression."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..moves import Sizes
from ..rand import Rand
from .arguments import check_channels, is_integer
from .base import Params, Transform

if TYPE_CHECKING:
    from .._dali import Ops


@dataclass(frozen=True)
class JPEG(Transform):
    """The image after it was compressed as a JPEG.

    Args:
        quality: from 1 to 100, or (lowest, highest), both included.

    Images are uint8, of 1 or 3 channels; DALI's form takes three only.  Both forms are equal to torchvision's, as long
    as DALI and torchvision bring one version of libjpeg-turbo.

    Raises:
        ValueError: an invalid quality.
    """

    quality: int | Sequence[int]

    def __post_init__(self) -> None:
        _ = self._range

    @property
    def _range(self) -> tuple[int, int]:
        values = tuple(self.quality) if isinstance(self.quality, Sequence) else (self.quality, self.quality)
        if len(values) != 2 or not all(is_integer(value, 1) for value in values) or not values[0] <= values[1] <= 100:
            raise ValueError(f"quality must be an integer from 1 to 100, or (lowest, highest), got {self.quality!r}")
        return int(values[0]), int(values[1])

    @property
    def draws(self) -> bool:
        return self._range[0] < self._range[1]

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        low, high = self._range
        return {"quality": rand.integers(low, high + 1).astype(np.int32)}, sizes

    def transform(self, ops: Ops, image: Any, quality: Any) -> Any:
        _check_bytes(ops.dtype_of(image))
        check_channels(image, 3, "JPEG needs")
        return ops.jpeg_compression_distortion(image, quality=quality)

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, *, quality: Any) -> torch.Tensor:
        _check_bytes(image.dtype)
        channels = len(image)
        if channels not in (1, 3):
            raise ValueError(f"JPEG needs images of 1 or 3 channels, got {channels}")
        from PIL import Image

        # By Pillow, which gives what torchvision's kernel gives: that one announces its end, and is slower.
        pixels = image.permute(1, 2, 0).cpu().numpy()
        file = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(pixels if channels == 3 else pixels[..., 0])).save(
            file, "JPEG", quality=int(quality)
        )
        with Image.open(file) as opened:
            compressed = torch.from_numpy(np.array(opened)).view(pixels.shape)
        return compressed.permute(2, 0, 1).to(image.device, non_blocking=True)


def _check_bytes(dtype: torch.dtype) -> None:
    if dtype != torch.uint8:
        raise ValueError(f"JPEG compresses uint8 images, got {dtype}: put it before ToDtype and Normalize")
