"""Transforms with torchvision v2's names, arguments and defaults."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .. import elsewhere as _elsewhere
from .affine import RandomAffine, RandomRotation
from .audio import AddNoise, CenterTimeCrop, RandomTimeCrop, TimeShift, TrimSilence
from .aug_mix import AugMix
from .auto_augment import AutoAugment, RandAugment, TrivialAugmentWide
from .base import Mover, Transform
from .blur import GaussianBlur
from .channels import RGB, Grayscale, RandomChannelPermutation, RandomGrayscale
from .color import ColorJitter, RandomPhotometricDistort
from .combine import Identity, Lambda, RandomApply, RandomChoice, RandomOrder
from .compose import Compose
from .crop_or_pad import CenterCropOrPad, RandomCropOrPad, TrimBorder
from .crops import FiveCrop, RandomSizeCrop, TenCrop
from .decode import Decode
from .elastic import ElasticTransform
from .erasing import RandomErasing
from .frames import UniformTemporalSubsample
from .function import function, traceable
from .geometry import CenterCrop, RandomCrop, RandomHorizontalFlip, RandomVerticalFlip
from .grid_mask import GridMask
from .iou_crop import RandomIoUCrop
from .jpeg import JPEG
from .levels import RandomAutocontrast, RandomEqualize, RandomInvert, RandomPosterize, RandomSolarize
from .mix import CutMix, MixUp
from .noise import GaussianNoise
from .objects import (
    ClampBoundingBoxes,
    ClampKeyPoints,
    ConvertBoundingBoxFormat,
    SanitizeBoundingBoxes,
    SanitizeKeyPoints,
)
from .pad import Pad, RandomZoomOut
from .per_sample import PerSample
from .perspective import RandomPerspective
from .random_resize import RandomResize, RandomShortestSize, ResizeKeepRatio, ScaleJitter
from .resize import RandomResizedCrop, Resize
from .sharpness import RandomAdjustSharpness
from .sound import SoundStep
from .spectrogram import MFCC, FrequencyMasking, MelSpectrogram, Spectrogram, TimeMasking, ToDecibels
from .timm import TimmAugMix, TimmAutoAugment, TimmRandAugment
from .timm_erasing import TimmRandomErasing
from .timm_notation import augment_and_mix_transform, auto_augment_transform, rand_augment_transform
from .values import Normalize, ToDtype
from .views import Views
from .volume import CenterCrop3d, RandomCrop3d, RandomDepthFlip

__all__ = [
    "JPEG",
    "MFCC",
    "RGB",
    "AddNoise",
    "AugMix",
    "AutoAugment",
    "CenterCrop",
    "CenterCrop3d",
    "CenterCropOrPad",
    "CenterTimeCrop",
    "ClampBoundingBoxes",
    "ClampKeyPoints",
    "ColorJitter",
    "Compose",
    "ConvertBoundingBoxFormat",
    "CutMix",
    "Decode",
    "ElasticTransform",
    "FiveCrop",
    "FrequencyMasking",
    "GaussianBlur",
    "GaussianNoise",
    "Grayscale",
    "GridMask",
    "Identity",
    "Lambda",
    "MelSpectrogram",
    "MixUp",
    "Mover",
    "Normalize",
    "Pad",
    "PerSample",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChannelPermutation",
    "RandomChoice",
    "RandomCrop",
    "RandomCrop3d",
    "RandomCropOrPad",
    "RandomDepthFlip",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomIoUCrop",
    "RandomOrder",
    "RandomPerspective",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomResize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomShortestSize",
    "RandomSizeCrop",
    "RandomSolarize",
    "RandomTimeCrop",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "Resize",
    "ResizeKeepRatio",
    "SanitizeBoundingBoxes",
    "SanitizeKeyPoints",
    "ScaleJitter",
    "SoundStep",
    "Spectrogram",
    "TenCrop",
    "TimeMasking",
    "TimeShift",
    "TimmAugMix",
    "TimmAutoAugment",
    "TimmRandAugment",
    "TimmRandomErasing",
    "ToDecibels",
    "ToDtype",
    "Transform",
    "TrimBorder",
    "TrimSilence",
    "TrivialAugmentWide",
    "UniformTemporalSubsample",
    "Views",
    "augment_and_mix_transform",
    "auto_augment_transform",
    "function",
    "rand_augment_transform",
    "traceable",
]

if not TYPE_CHECKING:  # which would take any name for known

    def __getattr__(name: str) -> Any:
        if name == "presets":  # it is imported when it is first used
            return import_module(f".{name}", __name__)
        raise _elsewhere.no_attribute(__name__, name, _elsewhere.transform_instead(name))
