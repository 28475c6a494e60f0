"""Transforms with torchvision v2's names, arguments and defaults."""

from .aug_mix import AugMix
from .auto_augment import AutoAugment, RandAugment, TrivialAugmentWide
from .base import Compose, Transform
from .blur import GaussianBlur
from .channels import RGB, Grayscale, RandomChannelPermutation, RandomGrayscale
from .color import ColorJitter, RandomPhotometricDistort
from .combine import Identity, RandomApply, RandomChoice, RandomOrder
from .erasing import RandomErasing
from .function import traceable
from .geometry import CenterCrop, Decode, RandomCrop, RandomHorizontalFlip, RandomVerticalFlip
from .grid_mask import GridMask
from .jpeg import JPEG
from .levels import RandomAutocontrast, RandomEqualize, RandomInvert, RandomPosterize, RandomSolarize
from .noise import GaussianNoise
from .resize import RandomResizedCrop, Resize
from .sharpness import RandomAdjustSharpness
from .values import Normalize, ToDtype
from .views import Views

__all__ = [
    "JPEG",
    "RGB",
    "AugMix",
    "AutoAugment",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "Decode",
    "GaussianBlur",
    "GaussianNoise",
    "Grayscale",
    "GridMask",
    "Identity",
    "Normalize",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChannelPermutation",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
    "ToDtype",
    "Transform",
    "TrivialAugmentWide",
    "Views",
    "traceable",
]
