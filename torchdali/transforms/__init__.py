"""Transforms with torchvision v2's names, arguments and defaults."""

from .base import Compose, Transform
from .blur import GaussianBlur
from .channels import RGB, Grayscale, RandomChannelPermutation, RandomGrayscale
from .color import ColorJitter, RandomPhotometricDistort
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

__all__ = [
    "JPEG",
    "RGB",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "Decode",
    "GaussianBlur",
    "GaussianNoise",
    "Grayscale",
    "GridMask",
    "Normalize",
    "RandomAdjustSharpness",
    "RandomAutocontrast",
    "RandomChannelPermutation",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomPhotometricDistort",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
    "ToDtype",
    "Transform",
    "traceable",
]
