"""DALI's native readers as stateful iterable datasets; options have DALI's names."""

from ..readers import experimental
from .base import Reader
from .caffe import Caffe, Caffe2
from .coco import COCO
from .file import File
from .mxnet import MXNet
from .nemo import NemoAsr
from .numpy import Numpy
from .tfrecord import TFRecord
from .video import Video, VideoResize
from .webdataset import Webdataset

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
