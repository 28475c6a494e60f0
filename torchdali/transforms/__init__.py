"""Transforms with torchvision v2's names, arguments and defaults."""

from .base import Compose, Transform
from .color import ColorJitter, GaussianBlur, Normalize, ToDtype
from .function import traceable
from .geometry import CenterCrop, Decode, RandomCrop, RandomHorizontalFlip, RandomVerticalFlip
from .mix import CutMix, MixUp
from .resize import RandomResizedCrop, Resize
from .views import Views

__all__ = [
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "CutMix",
    "Decode",
    "GaussianBlur",
    "MixUp",
    "Normalize",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "ToDtype",
    "Transform",
    "Views",
    "traceable",
]
