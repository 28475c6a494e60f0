"""Recipes of self-supervised views."""

from __future__ import annotations

from collections.abc import Sequence

from ..blur import GaussianBlur
from ..channels import RandomGrayscale
from ..color import ColorJitter
from ..combine import RandomApply
from ..geometry import RandomHorizontalFlip
from ..levels import RandomSolarize
from ..resize import RandomResizedCrop
from ..values import Normalize
from .recipe import MEAN, STD, Steps


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


def mae(
    size: int = 224, scale: Sequence[float] = (0.2, 1.0), mean: Sequence[float] = MEAN, std: Sequence[float] = STD
) -> Steps:
    """Give the pretraining transform of MAE; the model draws its masks.

    He et al., "Masked Autoencoders Are Scalable Vision Learners", 2022 (`main_pretrain.py`).

    Args:
        size: of the images in pixels.
        scale: range of the crop's part of the image's area.
        mean, std: of Normalize.
    """
    return [RandomResizedCrop(size, scale, interpolation="bicubic"), RandomHorizontalFlip(), Normalize(mean, std)]


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

    Caron et al., "Emerging Properties in Self-Supervised Vision Transformers", 2021 (`DataAugmentationDINO`).  Those of
    DINOv2 are `dino(224, 98, scale=(0.32, 1.0), local_scale=(0.05, 0.32))`.

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
