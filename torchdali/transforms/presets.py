"""Recipes as plain lists, to be read, changed and joined: `T.Compose(presets.imagenet_train())`.

Each is a function that gives a new list.  Numbers are those of the papers and of their reference code, which each
function names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .aug_mix import AugMix
from .auto_augment import AutoAugment, RandAugment, TrivialAugmentWide
from .base import Transform
from .blur import GaussianBlur
from .channels import RandomGrayscale
from .color import ColorJitter
from .combine import RandomApply
from .erasing import RandomErasing
from .geometry import CenterCrop, RandomHorizontalFlip
from .levels import RandomSolarize
from .resize import RandomResizedCrop, Resize
from .timm import rand_augment_transform
from .values import Normalize

Steps = list[Transform]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet, in units of [0, 1]."""


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
    mode = interpolation if interpolation in ("nearest", "bilinear") else "bilinear"
    if name == "ra":
        return RandAugment(interpolation=mode)
    if name == "ta_wide":
        return TrivialAugmentWide(interpolation=mode)
    if name == "augmix":
        return AugMix(interpolation=mode)
    if name.startswith("rand"):
        return rand_augment_transform(name, {"interpolation": mode, "img_mean": tuple(round(255 * m) for m in MEAN)})
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


def timm_train(
    input_size: int = 224,
    scale: Sequence[float] = (0.08, 1.0),
    ratio: Sequence[float] = (3 / 4, 4 / 3),
    hflip: float = 0.5,
    color_jitter: float | Sequence[float] | None = 0.4,
    auto_augment: str | None = None,
    interpolation: str = "bicubic",
    re_prob: float = 0.0,
    re_mode: str = "const",
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
) -> Steps:
    """Give the training transform of timm's `create_transform(..., is_training=True)`, by its arguments.

    Args:
        input_size: of the images in pixels.
        scale, ratio: of RandomResizedCrop.
        hflip: probability of a flip.
        color_jitter: brightness, contrast and saturation, or one for each and hue; not used with `auto_augment`.
        auto_augment: as in `imagenet_train`.
        interpolation: of the resized crop.
        re_prob: probability of erasing.
        re_mode: "const" for zeros, "pixel" for normally distributed noise.
        mean, std: of Normalize, which comes before erasing.

    Raises:
        ValueError: an unknown `auto_augment` or `re_mode`.
    """
    if re_mode not in ("const", "pixel"):
        raise ValueError(f're_mode must be "const" or "pixel", got {re_mode!r}')
    steps: Steps = [RandomResizedCrop(input_size, scale, ratio, interpolation)]
    if hflip:
        steps.append(RandomHorizontalFlip(hflip))
    if auto_augment:
        steps.append(_auto_augment(auto_augment, interpolation))
    elif color_jitter is not None:
        factors: Any = color_jitter if isinstance(color_jitter, (list, tuple)) else (color_jitter,) * 3
        steps.append(ColorJitter(*factors))
    steps.append(Normalize(mean, std))
    if re_prob:
        # timm draws areas from 2 % to a third, and ratios from 0.3 to 3.3.
        value = "random" if re_mode == "pixel" else 0.0
        steps.append(RandomErasing(re_prob, (0.02, 1 / 3), (0.3, 1 / 0.3), value))
    return steps


def simclr(size: int = 224, strength: float = 1.0, mean: Sequence[float] = MEAN, std: Sequence[float] = STD) -> Steps:
    """Give the transform of both views of SimCLR: `T.Views([presets.simclr()] * 2)`.

    Chen et al., "A Simple Framework for Contrastive Learning of Visual Representations", 2020, appendix A.

    Args:
        size: of the images in pixels; the blur's kernel is a tenth of it.
        strength: of the colours.
        mean, std: of Normalize.
    """
    kernel = size // 10 // 2 * 2 + 1
    return [
        RandomResizedCrop(size),
        RandomHorizontalFlip(),
        RandomApply([ColorJitter(0.8 * strength, 0.8 * strength, 0.8 * strength, 0.2 * strength)], 0.8),
        RandomGrayscale(0.2),
        RandomApply([GaussianBlur(kernel, (0.1, 2.0))], 0.5),
        Normalize(mean, std),
    ]


def mocov3(size: int = 224, mean: Sequence[float] = MEAN, std: Sequence[float] = STD) -> list[Steps]:
    """Give the transforms of the two views of MoCo v3: `T.Views(presets.mocov3())`.

    Chen et al., "An Empirical Study of Training Self-Supervised Vision Transformers", 2021 (`main_moco.py`), which
    follows BYOL: the first view is blurred always, the second seldom, and solarized.

    Args:
        size: of the images in pixels.
        mean, std: of Normalize.
    """

    def view(blur: float, solarize: float) -> Steps:
        return [
            RandomResizedCrop(size, (0.08, 1.0)),
            RandomApply([ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8),
            RandomGrayscale(0.2),
            RandomApply([GaussianBlur(23, (0.1, 2.0))], blur),
            RandomSolarize(128, solarize),
            RandomHorizontalFlip(),
            Normalize(mean, std),
        ]

    return [view(1.0, 0.0), view(0.1, 0.2)]


def dino(
    size: int = 224,
    local_size: int = 96,
    local_views: int = 8,
    scale: Sequence[float] = (0.4, 1.0),
    local_scale: Sequence[float] = (0.05, 0.4),
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
) -> list[Steps]:
    """Give the transforms of DINO's views, two global and several local ones: `T.Views(presets.dino())`.

    Caron et al., "Emerging Properties in Self-Supervised Vision Transformers", 2021 (`DataAugmentationDINO`).

    Args:
        size, local_size: of the global and the local images in pixels.
        local_views: the number of local ones.
        scale, local_scale: ranges of the crops' part of the image's area.
        mean, std: of Normalize.
    """

    def view(size: int, scale: Sequence[float], blur: float, solarize: float) -> Steps:
        return [
            RandomResizedCrop(size, scale, interpolation="bicubic"),
            RandomHorizontalFlip(),
            RandomApply([ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8),
            RandomGrayscale(0.2),
            # Pillow's blur of a radius, which is the deviation.
            RandomApply([GaussianBlur(9, (0.1, 2.0))], blur),
            RandomSolarize(128, solarize),
            Normalize(mean, std),
        ]

    globals_ = [view(size, scale, 1.0, 0.0), view(size, scale, 0.1, 0.2)]
    return globals_ + [view(local_size, local_scale, 0.5, 0.0) for _ in range(local_views)]
