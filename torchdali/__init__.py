"""torchdali: PyTorch data loading on NVIDIA DALI, where a batch is a pure function of its place in the stream.

DALI itself is imported when it is first needed.
"""

from . import kinds, readers, transforms
from .batch import BadSample, Padded
from .datasets import (
    CocoDataset,
    FileDataset,
    ImageFolder,
    InMemoryDataset,
    LMDBDataset,
    MapDataset,
    NumpyDataset,
    Packed,
    RecordIODataset,
    TarDataset,
    TFRecordDataset,
    TokenWindows,
    VideoClips,
    Zip,
)
from .errors import (
    BadSampleError,
    EngineError,
    FieldTypeError,
    KindError,
    LoaderTimeoutError,
    OpenFilesError,
    PadValueError,
    RankMismatchError,
    ReaderError,
    SharedMemoryError,
    StateMismatchError,
    TooManyBadSamplesError,
    TorchDaliError,
    TransformError,
    WorkerDiedError,
    WorkerTimeoutError,
)
from .interop import TorchvisionDataset, from_torchvision
from .loader import DataLoader
from .packing import pack
from .python import BatchInfo, IterableSource, PythonDataset, SampleInfo, SampleSource
from .samplers import (
    ClassBalancedSampler,
    LengthBucketSampler,
    Mix,
    MixSampler,
    RepeatedAugmentationSampler,
    WeightedSampler,
)
from .showing import show

__version__ = "0.1.0"

__all__ = [
    "BadSample",
    "BadSampleError",
    "BatchInfo",
    "ClassBalancedSampler",
    "CocoDataset",
    "DataLoader",
    "EngineError",
    "FieldTypeError",
    "FileDataset",
    "ImageFolder",
    "InMemoryDataset",
    "IterableSource",
    "KindError",
    "LMDBDataset",
    "LengthBucketSampler",
    "LoaderTimeoutError",
    "MapDataset",
    "Mix",
    "MixSampler",
    "NumpyDataset",
    "OpenFilesError",
    "Packed",
    "PadValueError",
    "Padded",
    "PythonDataset",
    "RankMismatchError",
    "ReaderError",
    "RecordIODataset",
    "RepeatedAugmentationSampler",
    "SampleInfo",
    "SampleSource",
    "SharedMemoryError",
    "StateMismatchError",
    "TFRecordDataset",
    "TarDataset",
    "TokenWindows",
    "TooManyBadSamplesError",
    "TorchDaliError",
    "TorchvisionDataset",
    "TransformError",
    "VideoClips",
    "WeightedSampler",
    "WorkerDiedError",
    "WorkerTimeoutError",
    "Zip",
    "from_torchvision",
    "kinds",
    "pack",
    "readers",
    "show",
    "transforms",
]
