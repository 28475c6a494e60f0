"""Colours changed in torch's form of a transform: one place for the kernels in C and torchvision's."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..forms.image import functional
from ..native import colors


def recolored(image: torch.Tensor, name: str, value: float | None = None) -> torch.Tensor:
    """Change the colours of images, to the bits of torchvision's kernel: by the one in C where it takes them.

    Args:
        image: [..., C, H, W], of 1 or 3 channels.
        name: brightness, contrast, saturation, hue, sharpness, grayscale, autocontrast or equalize.
        value: the factor, or hue's shift in turns; the last three take none.
    """
    changed = colors.changed(image, name, 0.0 if value is None else float(value))
    if changed is not None:
        return changed
    if name in ("hue", "autocontrast"):  # they work channel by channel, which is slower with channels last
        image = image.contiguous()
    if name == "grayscale":
        changed = functional().rgb_to_grayscale_image(image, num_output_channels=image.shape[-3])
    elif value is None:
        changed = getattr(functional(), f"{name}_image")(image)
    else:
        changed = getattr(functional(), f"adjust_{name}_image")(image, float(value))
    return changed  # type: ignore[no-any-return]


def permuted_host(image: torch.Tensor, permutation: Sequence[int]) -> torch.Tensor:
    """Put the channels of an image [3, H, W] into another order."""
    changed = colors.permuted(image, list(permutation))
    return image[permutation] if changed is None else changed
