"""Map-style datasets: samples are read by index, so that any order can be resumed anywhere."""

from typing import TYPE_CHECKING, Any

from .. import elsewhere as _elsewhere
from .base import MapDataset
from .clips import VideoClips
from .coco import CocoDataset
from .concat import ConcatDataset
from .files import FileDataset, ImageFolder
from .lmdb import LMDBDataset
from .memory import InMemoryDataset
from .numpy import NumpyDataset
from .of_torch import as_columns
from .packed import Packed
from .recordio import RecordIODataset
from .subset import Subset
from .tar import TarDataset
from .tfrecord import TFRecordDataset
from .tokens import TokenWindows
from .zip import Zip

__all__ = [
    "CocoDataset",
    "ConcatDataset",
    "FileDataset",
    "ImageFolder",
    "InMemoryDataset",
    "LMDBDataset",
    "MapDataset",
    "NumpyDataset",
    "Packed",
    "RecordIODataset",
    "Subset",
    "TFRecordDataset",
    "TarDataset",
    "TokenWindows",
    "VideoClips",
    "Zip",
    "as_columns",
]

if not TYPE_CHECKING:  # which would take any name for known

    def __getattr__(name: str) -> Any:
        raise _elsewhere.no_attribute(__name__, name, _elsewhere.instead(name))
