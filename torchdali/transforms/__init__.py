"""Transforms with torchvision v2's names, arguments and defaults."""

from .affine import RandomAffine, RandomRotation
from .base import Compose, Transform
from .color import ColorJitter, GaussianBlur, Normalize, ToDtype
from .crops import FiveCrop, TenCrop
from .elastic import ElasticTransform
from .function import traceable
from .geometry import CenterCrop, Decode, RandomCrop, RandomHorizontalFlip, RandomVerticalFlip
from .iou_crop import RandomIoUCrop
from .mix import CutMix, MixUp
from .objects import (
    ClampBoundingBoxes,
    ClampKeyPoints,
    ConvertBoundingBoxFormat,
    SanitizeBoundingBoxes,
    SanitizeKeyPoints,
)
from .pad import Pad, RandomZoomOut
from .perspective import RandomPerspective
from .random_resize import RandomResize, RandomShortestSize, ScaleJitter
from .resize import RandomResizedCrop, Resize
from .views import Views

__all__ = [
    "CenterCrop",
    "ClampBoundingBoxes",
    "ClampKeyPoints",
    "ColorJitter",
    "Compose",
    "ConvertBoundingBoxFormat",
    "CutMix",
    "Decode",
    "ElasticTransform",
    "FiveCrop",
    "GaussianBlur",
    "MixUp",
    "Normalize",
    "Pad",
    "RandomAffine",
    "RandomCrop",
    "RandomHorizontalFlip",
    "RandomIoUCrop",
    "RandomPerspective",
    "RandomResize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomShortestSize",
    "RandomVerticalFlip",
    "RandomZoomOut",
    "Resize",
    "SanitizeBoundingBoxes",
    "SanitizeKeyPoints",
    "ScaleJitter",
    "TenCrop",
    "ToDtype",
    "Transform",
    "Views",
    "traceable",
]
