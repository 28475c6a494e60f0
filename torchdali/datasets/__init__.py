"""Map-style datasets: samples are read by index, so that any order can be resumed anywhere."""

from .base import MapDataset
from .files import FileDataset, ImageFolder
from .lmdb import LMDBDataset
from .memory import InMemoryDataset
from .numpy import NumpyDataset
from .recordio import RecordIODataset
from .tar import TarDataset
from .tfrecord import TFRecordDataset

__all__ = [
    "FileDataset",
    "ImageFolder",
    "InMemoryDataset",
    "LMDBDataset",
    "MapDataset",
    "NumpyDataset",
    "RecordIODataset",
    "TFRecordDataset",
    "TarDataset",
]
