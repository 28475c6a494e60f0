"""torchdali: PyTorch data loading on NVIDIA DALI, where a batch is a pure function of its place in the stream.

DALI itself is imported when it is first needed.
"""

from . import transforms
from .batch import BadSample, Padded
from .datasets import FileDataset, ImageFolder, InMemoryDataset, MapDataset
from .errors import (
    BadSampleError,
    EngineError,
    LoaderTimeoutError,
    StateMismatchError,
    TorchDaliError,
    TransformError,
)
from .loader import DataLoader

__version__ = "0.1.0"

__all__ = [
    "BadSample",
    "BadSampleError",
    "DataLoader",
    "EngineError",
    "FileDataset",
    "ImageFolder",
    "InMemoryDataset",
    "LoaderTimeoutError",
    "MapDataset",
    "Padded",
    "StateMismatchError",
    "TorchDaliError",
    "TransformError",
    "transforms",
]
