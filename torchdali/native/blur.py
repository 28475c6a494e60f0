"""A filter over images, by the kernel in C, which gives the bits of torchvision's `gaussian_blur_image`."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import Any

import torch

from .library import library

BLOCK = 32
"""Numbers that the kernel takes at a time, as in blur.c."""
COLORS = 3
"""Channels; torch filters images of one in another order."""


def blurred(image: torch.Tensor, size: tuple[int, int], sigma: float) -> torch.Tensor | None:
    """Blur an image; the interpreter is free meanwhile.

    Args:
        image: uint8 [3, H, W]; fastest where the channels lie last in memory.
        size: of the filter, odd, horizontal and vertical; half of it is smaller than the image.
        sigma: the standard deviation in pixels.

    Returns:
        uint8 [3, H, W], with the channels last in memory; None: the kernel does not take the image, or does not give
        torchvision's bits here.
    """
    if (
        type(image) is not torch.Tensor
        or image.dtype != torch.uint8
        or image.device.type != "cpu"
        or image.ndim != 3
        or len(image) != COLORS
        or image.shape[1] <= size[1] // 2
        or image.shape[2] <= size[0] // 2
    ):
        return None
    call = _kernel()
    return None if call is None else _blurred(call, image, size, sigma)


def _blurred(call: Any, image: torch.Tensor, size: tuple[int, int], sigma: float) -> torch.Tensor:
    pixels = image.permute(1, 2, 0).contiguous()
    made = torch.empty_like(pixels)
    rows, columns, channels = pixels.shape
    weights = (_weights(size[1], sigma)[:, None] * _weights(size[0], sigma)).contiguous()
    scratch = torch.empty((rows + size[1]) * (columns + size[0] + BLOCK))
    call(
        *(pixels.data_ptr(), rows, columns, channels, weights.data_ptr(), size[1], size[0]),
        *(scratch.data_ptr(), made.data_ptr()),
    )
    return made.permute(2, 0, 1)


def _weights(size: int, sigma: float) -> torch.Tensor:
    """[size], of one dimension, by the steps of torchvision's `_get_gaussian_kernel1d`."""
    reach = (size - 1) / (2.0 * math.sqrt(2.0))
    return torch.softmax(torch.linspace(-reach, reach, size).div(sigma).pow(2).neg(), 0)


@functools.cache
def _kernel() -> Any:
    """Give the kernel; None: there is none, or it does not give torchvision's bits here."""
    loaded = library()
    if loaded is None or not loaded.torchdali_blurs():
        return None
    call, pointer, number = loaded.torchdali_blur, ctypes.c_void_p, ctypes.c_int64
    call.argtypes = [pointer, number, number, number, pointer, number, number, pointer, pointer]
    call.restype = None
    return call if _agrees(call) else None


def _agrees(call: Any) -> bool:
    """Compare some images with torchvision's: the order in which torch adds up is its own, and may change."""
    from torchvision.transforms.v2.functional import gaussian_blur_image

    generator = torch.Generator().manual_seed(0)
    for height, width, size, sigma in ((19, 26, (3, 5), 0.8), (64, 80, (9, 9), 2.0), (128, 128, (23, 23), 1.7)):
        image = torch.randint(0, 256, (height, width, COLORS), generator=generator, dtype=torch.uint8).permute(2, 0, 1)
        if not torch.equal(_blurred(call, image, size, sigma), gaussian_blur_image(image, list(size), [sigma] * 2)):
            return False
    return True
