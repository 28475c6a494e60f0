"""torchdali: PyTorch data loading on NVIDIA DALI, where a batch is a pure function of its place in the stream.

Its modules are imported when they are first used, and so is DALI.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
        OutOfMemoryError,
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
    "OutOfMemoryError",
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

_MODULES = {
    "batch": "BadSample Padded",
    "datasets": (
        "CocoDataset FileDataset ImageFolder InMemoryDataset LMDBDataset MapDataset NumpyDataset Packed "
        "RecordIODataset TarDataset TFRecordDataset TokenWindows VideoClips Zip"
    ),
    "errors": (
        "BadSampleError EngineError FieldTypeError KindError LoaderTimeoutError OpenFilesError "
        "OutOfMemoryError PadValueError RankMismatchError ReaderError SharedMemoryError StateMismatchError "
        "TooManyBadSamplesError TorchDaliError TransformError WorkerDiedError WorkerTimeoutError"
    ),
    "interop": "TorchvisionDataset from_torchvision",
    "loader": "DataLoader",
    "packing": "pack",
    "python": "BatchInfo IterableSource PythonDataset SampleInfo SampleSource",
    "samplers": "ClassBalancedSampler LengthBucketSampler Mix MixSampler RepeatedAugmentationSampler WeightedSampler",
    "showing": "show",
}
"""Where the names of this package are defined: a module is imported when one of its names is first used."""
_HOMES = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is not None:
        value = getattr(importlib.import_module(f".{home}", __name__), name)
    else:
        try:
            value = importlib.import_module(f".{name}", __name__)
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise  # a package that the module needs
            from .elsewhere import instead, no_attribute

            raise no_attribute(__name__, name, instead(name)) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
