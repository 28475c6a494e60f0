"""DALI's native readers as stateful iterable datasets; options have DALI's names."""

from ..readers import experimental
from .arrays import Numpy
from .base import Reader
from .coco import COCO
from .files import File
from .lmdbs import Caffe, Caffe2
from .nemo import NemoAsr
from .records import MXNet, TFRecord
from .tars import Webdataset
from .video import Video, VideoResize

__all__ = [
    "COCO",
    "Caffe",
    "Caffe2",
    "File",
    "MXNet",
    "NemoAsr",
    "Numpy",
    "Reader",
    "TFRecord",
    "Video",
    "VideoResize",
    "Webdataset",
    "experimental",
]
