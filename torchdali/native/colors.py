"""Colours of images, by the kernels in C, which give the bits of torchvision's."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable

import torch

from .library import library

NAMES = ("brightness", "contrast", "saturation", "hue", "sharpness", "grayscale", "autocontrast", "equalize")


class Colors:
    """The compiled kernels of colours, for uint8 images of three channels.

    Args:
        loaded: the library, as ctypes loaded it.
    """

    def __init__(self, loaded: ctypes.CDLL) -> None:
        pointer, number, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float

        def function(name: str, *types: type) -> Callable[..., None]:
            found = getattr(loaded, f"torchdali_{name}")
            found.argtypes, found.restype = types, None
            return found  # type: ignore[no-any-return]

        self._grey = function("grey", pointer, number, pointer)
        self._mix = function("mix", pointer, number, real, real, real, pointer)
        self._mix_grey = function("mix_grey", pointer, number, real, real, pointer)
        self._hue = function("hue", pointer, number, real, pointer)
        self._permute = function("permute", pointer, number, pointer, pointer)
        self._sharpen = function("sharpen", pointer, number, number, real, pointer)
        self._tables = {
            "grayscale": function("grayscale", pointer, number, pointer),
            "autocontrast": function("stretch", pointer, number, pointer),
            "equalize": function("equalize", pointer, number, pointer),
        }

    def change(self, images: torch.Tensor, name: str, value: float) -> torch.Tensor:
        """Change images; the interpreter is free meanwhile.

        Args:
            images: uint8 [..., 3, H, W], on the CPU, not empty; fastest where the channels lie last in memory.
            name: one of `NAMES`.
            value: the factor, or hue's shift in turns; the last three take none.

        Returns:
            uint8 of the same shape, in memory of its own, with the channels last.
        """
        pixels = images.movedim(-3, -1).contiguous()
        made = torch.empty_like(pixels)
        height, width = pixels.shape[-3:-1]
        n = height * width
        means = self._means(pixels).tolist() if name == "contrast" else []
        for k in range(pixels.numel() // (3 * n)):
            source, target = pixels.data_ptr() + 3 * n * k, made.data_ptr() + 3 * n * k
            if name == "brightness":
                self._mix(source, n, value, 0.0, 0.0, target)
            elif name == "contrast":
                self._mix(source, n, value, means[k], 1.0 - value, target)
            elif name == "saturation":
                self._mix_grey(source, n, value, 1.0 - value, target)
            elif name == "hue":
                self._hue(source, n, value, target)
            elif name == "sharpness":
                self._sharpen(source, height, width, 1.0 - value, target)
            else:
                self._tables[name](source, n, target)
        return made.movedim(-1, -3)

    def permute(self, images: torch.Tensor, permutation: list[int]) -> torch.Tensor:
        """Put the channels of images, as `change` takes them, into another order."""
        pixels = images.movedim(-3, -1).contiguous()
        made = torch.empty_like(pixels)
        places = (ctypes.c_int64 * 3)(*permutation)
        self._permute(pixels.data_ptr(), pixels.numel() // 3, ctypes.addressof(places), made.data_ptr())
        return made.movedim(-1, -3)

    def _means(self, pixels: torch.Tensor) -> torch.Tensor:
        """[N], the means of grey images, by torch: it adds large ones up in an order of its own."""
        *lead, height, width, _ = pixels.shape
        grey = torch.empty((*lead, 1, height, width), dtype=torch.float32)
        self._grey(pixels.data_ptr(), grey.numel(), grey.data_ptr())
        return grey.mean(dim=(-3, -2, -1)).reshape(-1)


@functools.cache
def colors() -> Colors | None:
    """Give the kernels; None: there are none here."""
    loaded = library()
    if loaded is None or not loaded.torchdali_colors():
        return None
    kernels = Colors(loaded)
    return kernels if _agrees(kernels) else None


def _agrees(kernels: Colors) -> bool:
    """Compare some thousand pixels with torchvision's.

    A torch that takes its plain kernels (`ATEN_CPU_CAPABILITY=default`) rounds a product before it adds it, so that a
    number that is cut off differs by one here and there.
    """
    from torchvision.transforms.v2 import functional

    if torch.get_default_dtype() != torch.float32:
        return True  # torchvision's would compute in another type; the stream does not depend on it
    generator = torch.Generator().manual_seed(0)
    image = torch.randint(0, 256, (64, 512, 3), generator=generator, dtype=torch.uint8).permute(2, 0, 1)
    for name, value in (("saturation", 0.7), ("saturation", 1.3), ("contrast", 0.6), ("hue", 0.1), ("sharpness", 1.7)):
        expected = getattr(functional, f"adjust_{name}_image")(image, value)
        if not torch.equal(kernels.change(image, name, value), expected):
            return False
    return True


def changed(images: torch.Tensor, name: str, value: float = 0.0) -> torch.Tensor | None:
    """Change images as `Colors.change`; None: the kernels do not take them."""
    kernels = _kernels_for(images)
    return None if kernels is None else kernels.change(images, name, value)


def permuted(images: torch.Tensor, permutation: list[int]) -> torch.Tensor | None:
    """Permute channels as `Colors.permute`; None: the kernels do not take the images."""
    kernels = _kernels_for(images)
    return None if kernels is None else kernels.permute(images, permutation)


def _kernels_for(images: torch.Tensor) -> Colors | None:
    taken = (
        type(images) is torch.Tensor
        and images.dtype == torch.uint8
        and images.device.type == "cpu"
        and images.ndim >= 3
        and images.shape[-3] == 3
        and images.numel() > 0
    )
    return colors() if taken else None
