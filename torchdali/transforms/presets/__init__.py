"""Recipes as plain lists, to be read, changed and joined: `T.Compose(presets.imagenet_train())`.

Each is a function that gives a new list.  Numbers are those of the papers and of their reference code, which each
function names.
"""

from .classification import imagenet_eval, imagenet_train
from .detection import detection_eval, detection_train, detr_eval, detr_train
from .recipe import MEAN as MEAN
from .recipe import STD as STD
from .recipe import Steps as Steps
from .segmentation import segmentation_eval, segmentation_train
from .sound import keyword_spotting_eval, keyword_spotting_train, speech_eval, speech_train
from .timm import timm_eval, timm_train
from .video import VIDEO_MEAN as VIDEO_MEAN
from .video import VIDEO_STD as VIDEO_STD
from .video import video_eval, video_train
from .views import dino, mae, mocov3, simclr

__all__ = [
    "detection_eval",
    "detection_train",
    "detr_eval",
    "detr_train",
    "dino",
    "imagenet_eval",
    "imagenet_train",
    "keyword_spotting_eval",
    "keyword_spotting_train",
    "mae",
    "mocov3",
    "segmentation_eval",
    "segmentation_train",
    "simclr",
    "speech_eval",
    "speech_train",
    "timm_eval",
    "timm_train",
    "video_eval",
    "video_train",
]
