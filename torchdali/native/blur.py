"""Blurs, by the kernels in C, which give the bits of torchvision's `gaussian_blur_image`."""

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
"""Channels of images."""
LEAST = 9
"""Size of a filter over a single plane: torch adds up smaller ones in another order."""


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
    calls = _kernels()
    return None if calls is None else _blurred(calls[0], image, size, sigma)


def _blurred(call: Any, image: torch.Tensor, size: tuple[int, int], sigma: float) -> torch.Tensor:
    pixels = image.permute(1, 2, 0).contiguous()
    made = torch.empty_like(pixels)
    rows, columns, channels = pixels.shape
    weights = _filter(size, (sigma, sigma))
    scratch = torch.empty((rows + size[1]) * (columns + size[0] + BLOCK), dtype=torch.float32)
    call(
        *(pixels.data_ptr(), rows, columns, channels, weights.data_ptr(), size[1], size[0]),
        *(scratch.data_ptr(), made.data_ptr()),
    )
    return made.permute(2, 0, 1)


def smoothed(planes: torch.Tensor, size: int, sigma: tuple[float, float]) -> torch.Tensor | None:
    """Blur planes of numbers; the interpreter is free meanwhile.

    Args:
        planes: float32 [N, 1, H, W].
        size: of the filter in both dimensions, odd; half of it is smaller than the planes.
        sigma: the standard deviations in pixels, horizontal and vertical.

    Returns:
        float32 [N, 1, H, W]; None: the kernel does not take the planes, or does not give torchvision's bits here.
    """
    if planes.device.type != "cpu" or planes.dtype != torch.float32 or size < LEAST or not planes.numel():
        return None
    calls = _kernels()
    return None if calls is None else _smoothed(calls[1], planes, size, sigma)


def _smoothed(call: Any, planes: torch.Tensor, size: int, sigma: tuple[float, float]) -> torch.Tensor:
    rows, columns = planes.shape[-2:]
    weights = _filter((size, size), sigma)
    around = torch.nn.functional.pad(planes, [size // 2] * 4, mode="reflect")
    around = torch.nn.functional.pad(around, [0, BLOCK, 0, 0])
    made = torch.empty_like(planes, memory_format=torch.contiguous_format)
    for plane, out in zip(around, made, strict=True):
        place = (plane.data_ptr(), around.shape[-1], rows, columns, weights.data_ptr(), size, size)
        call(*place, out.data_ptr())
    return made


def _filter(size: tuple[int, int], sigma: tuple[float, float]) -> torch.Tensor:
    """[vertical, horizontal], by the steps of torchvision's `_get_gaussian_kernel2d`."""
    return (_weights(size[1], sigma[1])[:, None] * _weights(size[0], sigma[0])).contiguous()


def _weights(size: int, sigma: float) -> torch.Tensor:
    """[size], of one dimension, by the steps of torchvision's `_get_gaussian_kernel1d`."""
    reach = (size - 1) / (2.0 * math.sqrt(2.0))
    return torch.softmax(torch.linspace(-reach, reach, size, dtype=torch.float32).div(sigma).pow(2).neg(), 0)


@functools.cache
def _kernels() -> tuple[Any, Any] | None:
    """Give the kernels of images and of planes; None: there are none, or they do not give torchvision's bits here."""
    loaded = library()
    if loaded is None or not loaded.torchdali_blurs():
        return None
    images, planes, pointer, number = loaded.torchdali_blur, loaded.torchdali_filter, ctypes.c_void_p, ctypes.c_int64
    images.argtypes = [pointer, number, number, number, pointer, number, number, pointer, pointer]
    planes.argtypes = [pointer, number, number, number, pointer, number, number, pointer]
    images.restype = planes.restype = None
    return (images, planes) if _agree(images, planes) else None


def _agree(images: Any, planes: Any) -> bool:
    """Compare some results with torchvision's: the order in which torch adds up is its own, and may change."""
    from torchvision.transforms.v2.functional import gaussian_blur_image

    generator = torch.Generator().manual_seed(0)
    for height, width, size, sigma in ((19, 26, (3, 5), 0.8), (64, 80, (9, 9), 2.0), (64, 70, (23, 23), 1.7)):
        image = torch.randint(0, 256, (height, width, COLORS), generator=generator, dtype=torch.uint8).permute(2, 0, 1)
        if not torch.equal(_blurred(images, image, size, sigma), gaussian_blur_image(image, list(size), [sigma] * 2)):
            return False
    for edge, side, sigma in ((30, LEAST, 1.2), (60, 41, 5.0)):
        plane = torch.rand((1, 1, edge, edge + 7), generator=generator, dtype=torch.float32) * 2 - 1
        expected = gaussian_blur_image(plane, [side] * 2, [sigma, 1.5 * sigma])
        if not torch.equal(_smoothed(planes, plane, side, (sigma, 1.5 * sigma)), expected):
            return False
    return True
