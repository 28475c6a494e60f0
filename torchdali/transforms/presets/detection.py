"""Recipes of detection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from ..color import RandomPhotometricDistort
from ..combine import RandomChoice
from ..compose import Compose
from ..crops import RandomSizeCrop
from ..geometry import RandomCrop, RandomHorizontalFlip
from ..iou_crop import RandomIoUCrop
from ..objects import SanitizeBoundingBoxes
from ..pad import RandomZoomOut
from ..random_resize import RandomShortestSize, ScaleJitter
from ..resize import Resize
from ..values import Normalize, ToDtype
from .recipe import MEAN, STD, Steps


def detection_train(
    augmentation: Literal["hflip", "multiscale", "lsj", "ssd", "ssdlite"] = "hflip",
    flip: float = 0.5,
    sizes: Sequence[int] = (480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800),
    max_size: int = 1333,
    size: int = 1024,
    mean: Sequence[float] = (123.0, 117.0, 104.0),
) -> Steps:
    """Give the training transform of torchvision's references for detectors (`references/detection/presets.py`).

    Args:
        augmentation: "hflip" (Faster and Mask R-CNN, whose models resize), "multiscale", "lsj" (large-scale jitter),
            "ssd" or "ssdlite".
        flip: probability of a flip.
        sizes, max_size: of "multiscale": the shorter edges to choose from, and the longest edge, in pixels.
        size: of "lsj": of the images in pixels.  The references pad at the right and at the bottom; here smaller images
            lie anywhere in it.
        mean: fills what "ssd" and "lsj" add around images, in [0, 255].

    Raises:
        ValueError: an unknown `augmentation`.
    """
    fill: dict[str, Sequence[float]] = {"image": tuple(mean)}
    moved: dict[str, Steps] = {
        "hflip": [],
        "multiscale": [RandomShortestSize(sizes, max_size)],
        "lsj": [ScaleJitter((size, size)), RandomCrop(size, pad_if_needed=True, fill=fill)],
        "ssd": [RandomPhotometricDistort(), RandomZoomOut(fill), RandomIoUCrop()],
        "ssdlite": [RandomIoUCrop()],
    }
    if augmentation not in moved:
        raise ValueError(f"augmentation must be one of {', '.join(map(repr, moved))}, got {augmentation!r}")
    steps = [*moved[augmentation], RandomHorizontalFlip(flip)]
    return [*steps, SanitizeBoundingBoxes(), ToDtype(torch.float32, scale=True)]


def detection_eval() -> Steps:
    """Give the evaluation transform of torchvision's references for detectors, whose models resize and normalize."""
    return [ToDtype(torch.float32, scale=True)]


_DETR_SIZES = (480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800)


def detr_train(
    sizes: Sequence[int] = _DETR_SIZES,
    max_size: int = 1333,
    crop_sizes: Sequence[int] = (400, 500, 600),
    crop: tuple[int, int] = (384, 600),
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
) -> Steps:
    """Give the training transform of DETR (`datasets/coco.py`).

    Carion et al., "End-to-End Object Detection with Transformers", 2020.  DETR's boxes are (cx, cy, w, h) in parts of
    the image: with `kinds.Boxes("cxcywh", normalized=True)` at the dataset they leave so.

    Args:
        sizes, max_size: the shorter edges to choose from, and the longest edge, in pixels.
        crop_sizes: the shorter edges before a crop, which half of the samples get.
        crop: range of the crop's edges.
        mean, std: of Normalize.
    """
    resized = RandomShortestSize(sizes, max_size)
    cropped = Compose([RandomShortestSize(crop_sizes), RandomSizeCrop(*crop), resized])
    steps: Steps = [RandomHorizontalFlip(), RandomChoice([resized, cropped])]
    return [*steps, SanitizeBoundingBoxes(), Normalize(mean, std)]


def detr_eval(size: int = 800, max_size: int = 1333, mean: Sequence[float] = MEAN, std: Sequence[float] = STD) -> Steps:
    """Give the evaluation transform of DETR.

    Args:
        size, max_size: the shorter edge, and the longest one that may come out, in pixels.
        mean, std: of Normalize.
    """
    return [Resize(size, max_size=max_size), Normalize(mean, std)]
