"""Recipes of clips."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..geometry import CenterCrop, RandomCrop, RandomHorizontalFlip
from ..resize import Resize
from ..values import Normalize, ToDtype
from .recipe import Steps

VIDEO_MEAN, VIDEO_STD = (0.43216, 0.394666, 0.37645), (0.22803, 0.22145, 0.216989)
"""Of Kinetics, in units of [0, 1]."""


def video_train(
    crop_size: int | Sequence[int] = (112, 112),
    resize_size: int | Sequence[int] = (128, 171),
    flip: float = 0.5,
    mean: Sequence[float] = VIDEO_MEAN,
    std: Sequence[float] = VIDEO_STD,
) -> Steps:
    """Give the training transform of torchvision's references (`references/video_classification/presets.py`).

    Clips leave as [N, F, C, H, W]; torchvision's models take `clips.movedim(1, 2)`.

    Args:
        crop_size, resize_size: of the frames in pixels, int or (height, width).
        flip: probability of a flip.
        mean, std: of Normalize.
    """
    resized: Steps = [ToDtype(torch.float32, scale=True), Resize(resize_size, antialias=False)]
    return [*resized, RandomHorizontalFlip(flip), RandomCrop(crop_size), Normalize(mean, std)]


def video_eval(
    crop_size: int | Sequence[int] = (112, 112),
    resize_size: int | Sequence[int] = (128, 171),
    mean: Sequence[float] = VIDEO_MEAN,
    std: Sequence[float] = VIDEO_STD,
) -> Steps:
    """Give the evaluation transform of torchvision's references.

    Args:
        crop_size, resize_size: of the frames in pixels, int or (height, width).
        mean, std: of Normalize.
    """
    resized: Steps = [ToDtype(torch.float32, scale=True), Resize(resize_size, antialias=False)]
    return [*resized, CenterCrop(crop_size), Normalize(mean, std)]
