"""DALI's native readers as stateful iterable datasets; options have DALI's names."""

from .arrays import Numpy
from .base import Reader
from .files import File
from .lmdbs import Caffe, Caffe2
from .records import MXNet, TFRecord
from .tars import Webdataset

__all__ = ["Caffe", "Caffe2", "File", "MXNet", "Numpy", "Reader", "TFRecord", "Webdataset"]
