"""timm's recipes of classification, by the arguments of its `create_transform`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..arguments import size_pair
from ..base import Transform
from ..blur import GaussianBlur
from ..channels import RandomGrayscale
from ..color import ColorJitter
from ..combine import RandomApply, RandomChoice
from ..crop_or_pad import CenterCropOrPad, RandomCropOrPad, TrimBorder
from ..erasing import RandomErasing
from ..geometry import CenterCrop, RandomHorizontalFlip, RandomVerticalFlip
from ..random_resize import ResizeKeepRatio
from ..resize import RandomResizedCrop, Resize
from ..timm_erasing import TimmRandomErasing
from ..timm_notation import timm_transform
from ..values import Normalize
from .recipe import MEAN, STD, Steps


def timm_train(
    input_size: int | Sequence[int] = 224,
    scale: Sequence[float] | None = None,
    ratio: Sequence[float] | None = None,
    hflip: float = 0.5,
    color_jitter: float | Sequence[float] | None = 0.4,
    auto_augment: str | None = None,
    interpolation: str = "bicubic",
    re_prob: float = 0.0,
    re_mode: str = "const",
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
    vflip: float = 0.0,
    color_jitter_prob: float | None = None,
    grayscale_prob: float = 0.0,
    gaussian_blur_prob: float = 0.0,
    train_crop_mode: str | None = None,
    re_count: int = 1,
) -> Steps:
    """Give the training transform of timm's `create_transform(..., is_training=True)`, by its arguments.

    Args:
        input_size: of the images in pixels, int or (height, width).
        scale, ratio: of the crop; None: timm's, (0.08, 1) and (3/4, 4/3) for "rrc", (0.8, 1) and (0.9, 1/0.9) else.
        hflip, vflip: probabilities of flips.
        color_jitter: brightness, contrast and saturation, or one for each and hue; not used with `auto_augment` but
            "3a".
        auto_augment: timm's notation: "rand-m9-mstd0.5-inc1", "augmix-m5-w4-d2", "original-mstd0.5", "v0" or "3a".
        interpolation: "bilinear", "bicubic", "nearest", or "random" for bilinear or bicubic.
        re_prob: probability of erasing.
        re_mode: "const" for zeros, "rand" for one colour, "pixel" for normally distributed noise.
        mean, std: of Normalize, which comes before erasing.
        color_jitter_prob: probability of `color_jitter`; None: always.
        grayscale_prob, gaussian_blur_prob: probabilities.
        train_crop_mode: None or "rrc": RandomResizedCrop; "rkrc" and "rkrr": ResizeKeepRatio and a central or random
            crop.
        re_count: the most rectangles that are erased.

    Raises:
        ValueError: an unknown `auto_augment`, `re_mode` or `train_crop_mode`.
    """
    if re_mode not in ("const", "rand", "pixel"):
        raise ValueError(f're_mode must be "const", "rand" or "pixel", got {re_mode!r}')
    if train_crop_mode not in (None, "rrc", "rkrc", "rkrr"):
        raise ValueError(f'train_crop_mode must be None, "rrc", "rkrc" or "rkrr", got {train_crop_mode!r}')
    steps: Steps = _crop(input_size, train_crop_mode or "rrc", scale, ratio, interpolation)
    steps += [RandomHorizontalFlip(hflip)] if hflip else []
    steps += [RandomVerticalFlip(vflip)] if vflip else []
    if auto_augment:
        hparams: dict[str, Any] = {
            "translate_const": int(min(size_pair(input_size)) * 0.45),
            "img_mean": tuple(min(255, round(255 * value)) for value in mean),
            "interpolation": interpolation,
        }
        if auto_augment.startswith("augmix"):
            hparams["translate_pct"] = 0.3
        steps.append(timm_transform(auto_augment, hparams))
    if color_jitter is not None and (not auto_augment or "3a" in auto_augment):
        factors: Any = color_jitter if isinstance(color_jitter, (list, tuple)) else (color_jitter,) * 3
        jitter = ColorJitter(*factors)
        steps.append(jitter if color_jitter_prob is None else RandomApply([jitter], color_jitter_prob))
    steps += [RandomGrayscale(grayscale_prob)] if grayscale_prob else []
    steps += [RandomApply([GaussianBlur(23)], gaussian_blur_prob)] if gaussian_blur_prob else []
    steps.append(Normalize(mean, std))
    if re_prob and (re_count > 1 or re_mode == "rand"):
        steps.append(TimmRandomErasing(re_prob, mode=re_mode, max_count=re_count))
    elif re_prob:
        # timm draws areas from 2 % to a third, and ratios from 0.3 to 3.3.
        value = "random" if re_mode == "pixel" else 0.0
        steps.append(RandomErasing(re_prob, (0.02, 1 / 3), (0.3, 1 / 0.3), value))
    return steps


def _crop(
    size: int | Sequence[int],
    mode: str,
    scale: Sequence[float] | None,
    ratio: Sequence[float] | None,
    interpolation: str,
) -> Steps:
    if mode == "rrc":
        ranges = tuple(scale or (0.08, 1.0)), tuple(ratio or (3 / 4, 4 / 3))
        return [_by_mode(interpolation, lambda name: RandomResizedCrop(size, *ranges, name))]
    scale, ratio = tuple(scale or (0.8, 1.0)), tuple(ratio or (0.9, 1 / 0.9))
    resize = _by_mode(interpolation, lambda name: ResizeKeepRatio(size, 0.0, name, 0.5, scale, True, 0.5, ratio))
    crop = CenterCropOrPad if mode == "rkrc" else RandomCropOrPad
    return [resize, crop(size, padding_mode="reflect")]


def _by_mode(interpolation: str, make: Callable[[str], Transform]) -> Transform:
    if interpolation == "random":
        return RandomChoice([make("bilinear"), make("bicubic")])
    return make(_pillows(interpolation))


def _pillows(interpolation: str) -> str:
    """The interpolation by its name here; Pillow's nearest pixel is nearest-exact."""
    return "nearest-exact" if interpolation == "nearest" else interpolation


def timm_eval(
    input_size: int | Sequence[int] = 224,
    crop_pct: float | None = None,
    crop_mode: str | None = None,
    crop_border_pixels: int | None = None,
    interpolation: str = "bicubic",
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
) -> Steps:
    """Give the evaluation transform of timm's `create_transform(...)`, by its arguments.

    Args:
        input_size: of the images in pixels, int or (height, width).
        crop_pct: the part of the resized image that is kept; None: 0.875.
        crop_mode: None or "center": the shorter edge is resized, and the middle kept; "squash": both edges; "border":
            the longer edge, with the mean around the image.
        crop_border_pixels: cut off at each side before.
        interpolation: of the resizing.
        mean, std: of Normalize.

    Raises:
        ValueError: an unknown `crop_mode`.
    """
    if crop_mode not in (None, "center", "squash", "border"):
        raise ValueError(f'crop_mode must be None, "center", "squash" or "border", got {crop_mode!r}')
    size = size_pair(input_size, "input_size")
    whole = tuple(math.floor(edge / (crop_pct or 0.875)) for edge in size)
    mode = _pillows(interpolation)
    steps: Steps = [TrimBorder(crop_border_pixels)] if crop_border_pixels else []
    if crop_mode == "squash":
        steps += [Resize(whole, mode), CenterCrop(size)]
    elif crop_mode == "border":
        fill = tuple(round(255 * value) for value in mean)
        steps += [ResizeKeepRatio(whole, 1.0, mode), CenterCropOrPad(size, fill)]
    elif whole[0] == whole[1]:
        steps += [Resize(whole[0], mode), CenterCrop(size)]
    else:
        steps += [ResizeKeepRatio(whole, 0.0, mode), CenterCrop(size)]
    return [*steps, Normalize(mean, std)]
