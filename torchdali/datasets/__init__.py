"""Map-style datasets: samples are read by index, so that any order can be resumed anywhere."""

from .base import MapDataset
from .files import FileDataset, ImageFolder
from .memory import InMemoryDataset
from .numpy import NumpyDataset
from .recordio import RecordIODataset
from .tar import TarDataset

__all__ = [
    "FileDataset",
    "ImageFolder",
    "InMemoryDataset",
    "MapDataset",
    "NumpyDataset",
    "RecordIODataset",
    "TarDataset",
]
