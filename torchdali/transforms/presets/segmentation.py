"""Recipes of segmentation."""

from __future__ import annotations

from collections.abc import Sequence

from ..geometry import RandomCrop, RandomHorizontalFlip
from ..random_resize import RandomResize
from ..resize import Resize
from ..values import Normalize
from .recipe import MEAN, STD, Steps


def segmentation_train(
    base_size: int = 520,
    crop_size: int = 480,
    flip: float = 0.5,
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
) -> Steps:
    """Give the training transform of torchvision's references (`references/segmentation/presets.py`).

    Masks are filled with 255, which the loss leaves out.  The references pad at the right and at the bottom; here
    smaller images lie anywhere in the crop.

    Args:
        base_size: the shorter edge becomes half to twice of it, in pixels.
        crop_size: of the images in pixels.
        flip: probability of a flip.
        mean, std: of Normalize.
    """
    crop = RandomCrop(crop_size, pad_if_needed=True, fill={"image": 0, "mask": 255})
    return [
        RandomResize(int(0.5 * base_size), int(2.0 * base_size)),
        RandomHorizontalFlip(flip),
        crop,
        Normalize(mean, std),
    ]


def segmentation_eval(base_size: int = 520, mean: Sequence[float] = MEAN, std: Sequence[float] = STD) -> Steps:
    """Give the evaluation transform of torchvision's references, whose batches have one image, or are padded.

    Args:
        base_size: the shorter edge in pixels.
        mean, std: of Normalize.
    """
    return [Resize(base_size), Normalize(mean, std)]
