"""Recipes of classification."""

from __future__ import annotations

from collections.abc import Sequence

from ..aug_mix import AugMix
from ..auto_augment import AutoAugment, RandAugment, TrivialAugmentWide
from ..base import Transform
from ..erasing import RandomErasing
from ..geometry import CenterCrop, RandomHorizontalFlip
from ..resize import RandomResizedCrop, Resize
from ..timm_notation import rand_augment_transform
from ..values import Normalize
from .recipe import MEAN, STD, Steps


def imagenet_train(
    size: int = 224,
    auto_augment: str | None = None,
    random_erasing: float = 0.0,
    interpolation: str = "bilinear",
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
) -> Steps:
    """Give the training transform of torchvision's references (`references/classification/presets.py`).

    Args:
        size: of the images in pixels.
        auto_augment: "ra" (RandAugment), "ta_wide" (TrivialAugmentWide), "augmix", a policy of AutoAugment
            ("imagenet", "cifar10", "svhn"), or timm's notation, such as "rand-m9-mstd0.5-inc1".
        random_erasing: its probability.
        interpolation: of the resized crop and of what `auto_augment` moves.
        mean, std: of Normalize.

    Raises:
        ValueError: an unknown `auto_augment`.
    """
    steps: Steps = [RandomResizedCrop(size, interpolation=interpolation), RandomHorizontalFlip()]
    if auto_augment is not None:
        steps.append(_auto_augment(auto_augment, interpolation))
    steps.append(Normalize(mean, std))
    if random_erasing:
        steps.append(RandomErasing(random_erasing))
    return steps


def _auto_augment(name: str, interpolation: str) -> Transform:
    if name.startswith("rand"):
        fill = tuple(round(255 * value) for value in MEAN)
        return rand_augment_transform(name, {"interpolation": interpolation, "img_mean": fill})
    mode = interpolation if interpolation in ("nearest", "bilinear") else "bilinear"
    if name == "ra":
        return RandAugment(interpolation=mode)
    if name == "ta_wide":
        return TrivialAugmentWide(interpolation=mode)
    if name == "augmix":
        return AugMix(interpolation=mode)
    if name in ("imagenet", "cifar10", "svhn"):
        return AutoAugment(name, mode)
    raise ValueError(
        'auto_augment must be "ra", "ta_wide", "augmix", "imagenet", "cifar10", "svhn" or timm\'s notation, such as '
        f'"rand-m9-mstd0.5-inc1", got {name!r}'
    )


def imagenet_eval(
    size: int = 224,
    resize: int = 256,
    interpolation: str = "bilinear",
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
) -> Steps:
    """Give the evaluation transform of torchvision's references and of its weights.

    Args:
        size: of the images in pixels.
        resize: the shorter edge before the central crop; `size / 0.875` in timm's words.
        interpolation: of the resizing.
        mean, std: of Normalize.
    """
    return [Resize(resize, interpolation), CenterCrop(size), Normalize(mean, std)]
