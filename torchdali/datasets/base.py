"""The contract of torchdali's map-style datasets: whole columns are read, not single samples."""

from __future__ import annotations

import hashlib
import operator
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from ..batch import Column, Columns, Kind
from ..checks import nearest_path
from ..formats.image import look
from ..options import Options
from ..source import DirectReading, Pass, Reading, Source

BESIDE: dict[str, Kind] = {"index": "number", "path": "object", "valid": "number"}
"""Fields that any dataset can be asked for: the loader knows them."""


class MapDataset(Source, Dataset[tuple[Any, ...]]):
    """Base of datasets whose samples are read by index, as columns.

    A subclass sets `fields` and `kinds` by `_set_fields`, and defines `__len__`, `read_columns` and `fingerprint`.

    Attributes:
        fields: the names of a sample's parts, in the order in which a batch has them.
        kinds: what each field holds, see `batch.Kind`.
        paths: the samples' files, where there are files.
        transform: what a loader does with the samples unless it is told otherwise.
        blocking: reading waits for disks, so that several threads shall read.
    """

    blocking = False
    paths: list[str] | None = None

    def _set_fields(self, fields: Sequence[str], kinds: dict[str, Kind]) -> None:
        taken = [name for name in kinds if name in BESIDE]
        if taken:
            raise ValueError(f"the names {', '.join(BESIDE)} have a meaning of their own, got the column {taken[0]!r}")
        known = {**kinds, **BESIDE}
        if isinstance(fields, str) or not fields or len(set(fields)) < len(fields) or not set(fields) <= set(known):
            raise ValueError(f"fields must be different ones of {', '.join(known)}, got {fields!r}")
        self.fields = tuple(fields)
        self.kinds = {name: known[name] for name in fields}

    def __len__(self) -> int:
        raise NotImplementedError

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        """The named columns of some samples, without index, path and valid; any error may rise."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """The same for the same samples in the same order, another for others; at most 100 characters."""
        raise NotImplementedError

    def uniform(self, name: str) -> bool:
        """Whether all samples of a field are known to have one shape; of image files: once they are decoded."""
        return self.kinds[name] == "number"

    def path(self, index: int) -> str | None:
        """The file of a sample, for messages and for the field `path`."""
        return None if self.paths is None else self.paths[index]

    def read(self, indices: NDArray[np.int64]) -> Columns:
        """All columns of some samples, in the order of `fields`; image files stay encoded."""
        plain = [int(i) for i in indices]
        columns = self.read_columns(plain, [name for name in self.fields if name not in BESIDE])
        beside: Columns = {
            "index": np.asarray(indices, np.int64),
            "valid": np.ones(len(plain), np.bool_),
        }
        if "path" in self.fields:
            beside["path"] = [self.path(i) for i in plain]
        return {name: columns[name] if name in columns else beside[name] for name in self.fields}

    def bind(self, options: Options) -> Source:
        super().bind(options)
        if not len(self):
            raise ValueError("the dataset is empty")
        return self

    def open(self, pass_: Pass) -> Reading:
        return DirectReading(self.read, self.blocking)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """One sample to look at, in the order of `fields`: images decoded as uint8 [C, H, W], numbers as torch scalars.

        Raises:
            IndexError: outside the dataset.
        """
        index = operator.index(index)
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is outside a dataset of {len(self)} samples")
        columns = self.read(np.array([index % len(self)]))
        return tuple(_look(self.kinds[name], column[0]) for name, column in columns.items())


def _look(kind: Kind, value: Any) -> Any:
    if kind == "encoded":
        value = look(value)
    if kind in ("encoded", "image"):
        return torch.from_numpy(np.array(value)).permute(2, 0, 1)
    return torch.as_tensor(np.array(value)) if kind in ("array", "number") else value


def as_column(name: str, values: Any) -> tuple[Column, Kind]:
    """One value a sample as a column, and what it holds: numbers, arrays or objects.

    Raises:
        TypeError: something without an order, or arrays that differ in dtype or number of dimensions, which DALI would
            convert silently.
    """
    if isinstance(values, (str, bytes, Mapping, Set)) or not isinstance(values, Iterable):
        raise TypeError(f"{name!r} must be a list or an array of one value a sample, got {type(values).__name__}")
    if isinstance(values, torch.Tensor):
        values = _on_host(values)
    if isinstance(values, np.ndarray) and values.dtype.kind in _NUMERIC:
        return values, "number" if values.ndim == 1 else "array"
    column = [_on_host(value) if isinstance(value, torch.Tensor) else value for value in values]
    if all(isinstance(value, _NUMBERS) or (isinstance(value, np.ndarray) and not value.ndim) for value in column):
        numbers = np.asarray(column)
        return (numbers, "number") if numbers.dtype.kind in _NUMERIC else (column, "object")
    if all(isinstance(value, np.ndarray) and value.dtype.kind in _NUMERIC for value in column):
        seen = sorted({(str(value.dtype), value.ndim) for value in column})
        if len(seen) > 1:
            raise TypeError(f"arrays of {name!r} must have one dtype and number of dimensions, got {seen}")
        return [np.ascontiguousarray(value) for value in column], "array"
    return column, "object"


_NUMERIC = "biuf"  # kinds of dtypes that become tensors
_NUMBERS = (bool, int, float, np.number, np.bool_)


def _on_host(tensor: torch.Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array


def same_shape(column: Column, kind: Kind) -> bool:
    """Whether all values of a column are known to have one shape; image files have none before they are decoded."""
    if isinstance(column, np.ndarray):
        return True
    return kind in ("image", "array") and len({value.shape for value in column}) == 1


def digest(*values: Any) -> str:
    """A short fingerprint of plain values, the same in every process: anything else counts by its type alone."""
    hasher = hashlib.blake2b(digest_size=8)

    def add(data: bytes) -> None:
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)

    def feed(value: Any) -> None:
        add(type(value).__qualname__.encode())
        if isinstance(value, str):
            add(value.encode("utf-8", "surrogatepass"))  # paths may hold any bytes
        elif isinstance(value, (bytes, bytearray, memoryview)):
            add(bytes(value))
        elif isinstance(value, (np.ndarray, np.generic, torch.Tensor)):
            array = np.ascontiguousarray(_on_host(value) if isinstance(value, torch.Tensor) else value)
            add(f"{array.dtype} {np.shape(value)}".encode())
            if array.dtype.hasobject:
                feed(array.tolist())
            else:
                add(array.tobytes())
        elif isinstance(value, (int, float, complex)):
            add(repr(value).encode())
        elif isinstance(value, Mapping):
            feed(list(value.items()))
        elif isinstance(value, (list, tuple)):
            add(str(len(value)).encode())
            for item in value:
                feed(item)

    feed(values)
    return hasher.hexdigest()


def read_file(path: str) -> NDArray[np.uint8]:
    """A file's bytes.

    Raises:
        OSError: it can't be opened.
        ValueError: it is empty.
    """
    with open(path, "rb", buffering=0) as file:  # a third faster than numpy.fromfile
        data = file.read()
    if not data:
        raise ValueError("the file is empty")
    return np.frombuffer(data, np.uint8)


def as_root(root: str | Path) -> str:
    """A folder that exists, as text.

    Raises:
        FileNotFoundError, NotADirectoryError: it doesn't.
    """
    folder = os.path.expanduser(os.fspath(root))
    if not os.path.exists(folder):
        raise FileNotFoundError(f"root does not exist: {folder}{nearest_path(folder)}")
    if not os.path.isdir(folder):
        raise NotADirectoryError(f"root must be a folder, got the file {folder}")
    return folder
