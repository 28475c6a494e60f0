"""Recipes as plain lists, to be read, changed and joined: `T.Compose(presets.imagenet_train())`.

Each is a function that gives a new list.  Numbers are those of the papers and of their reference code, which each
function names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch

from .audio import AddNoise, CenterTimeCrop, RandomTimeCrop, TimeShift
from .aug_mix import AugMix
from .auto_augment import AutoAugment, RandAugment, TrivialAugmentWide
from .base import Compose, Transform
from .blur import GaussianBlur
from .channels import RandomGrayscale
from .color import ColorJitter, RandomPhotometricDistort
from .combine import RandomApply, RandomChoice
from .crops import RandomSizeCrop
from .erasing import RandomErasing
from .geometry import CenterCrop, RandomCrop, RandomHorizontalFlip
from .iou_crop import RandomIoUCrop
from .levels import RandomSolarize
from .objects import SanitizeBoundingBoxes
from .pad import RandomZoomOut
from .random_resize import RandomResize, RandomShortestSize, ScaleJitter
from .resize import RandomResizedCrop, Resize
from .spectrogram import FrequencyMasking, MelSpectrogram, TimeMasking, ToDecibels
from .timm import rand_augment_transform
from .values import Normalize, ToDtype

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


def keyword_spotting_train(rate: int = 16000, seconds: float = 1.0, n_mels: int = 40) -> Steps:
    """Give a training transform for short words: log mels of sounds that are moved and masked, with noise.

    Windows of 25 ms every 10 ms; the shift of 100 ms is that of Warden, "Speech Commands", 2018, and the masks are
    those of Park et al., "SpecAugment", 2019, for short sounds.

    Args:
        rate: samples per second.
        seconds: of the sounds, which are cropped or filled up.
        n_mels: frequencies.
    """
    length = round(rate * seconds)
    shift = min(0.1 / seconds, 1.0)
    sound: Steps = [AddNoise((10, 40), 0.8), RandomTimeCrop(length), TimeShift(shift)]
    return [*sound, *_log_mels(rate, n_mels), TimeMasking(25), FrequencyMasking(7)]


def keyword_spotting_eval(rate: int = 16000, seconds: float = 1.0, n_mels: int = 40) -> Steps:
    """Give the evaluation transform beside `keyword_spotting_train`, by its arguments."""
    return [CenterTimeCrop(round(rate * seconds)), *_log_mels(rate, n_mels)]


def speech_train(
    rate: int = 16000,
    n_mels: int = 80,
    time_masks: int = 2,
    time_mask: int = 100,
    frequency_masks: int = 2,
    frequency_mask: int = 27,
) -> Steps:
    """Give a training transform for speech recognition: log mels with SpecAugment, padded to the longest of a batch.

    Park et al., "SpecAugment", 2019: its policy LD for LibriSpeech, without the warping of time.

    Args:
        rate: samples per second.
        n_mels: frequencies.
        time_masks, time_mask: how many, and the longest in frames of 10 ms.
        frequency_masks, frequency_mask: how many, and the widest in frequencies.
    """
    masks: Steps = [FrequencyMasking(frequency_mask) for _ in range(frequency_masks)]
    return [*_log_mels(rate, n_mels), *masks, *(TimeMasking(time_mask) for _ in range(time_masks))]


def speech_eval(rate: int = 16000, n_mels: int = 80) -> Steps:
    """Give the evaluation transform beside `speech_train`, by its arguments."""
    return _log_mels(rate, n_mels)


def _log_mels(rate: int, n_mels: int) -> Steps:
    return [MelSpectrogram(rate, round(0.025 * rate), hop_length=round(0.01 * rate), n_mels=n_mels), ToDecibels()]
