"""The contract of torchdali's map-style datasets: whole columns are read, not single samples."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import Dataset

from ..batch import Columns, Kind
from ..images import decode

BESIDE: dict[str, Kind] = {"index": "number", "path": "object", "valid": "number"}
"""Fields that any dataset can be asked for: the loader knows them."""


class MapDataset(Dataset[tuple[Any, ...]]):
    """Base of datasets whose samples are read by index, as columns.

    A subclass sets `fields` and `kinds` by `_set_fields`, and defines `__len__`, `read_columns` and `fingerprint`;
    `path` where its samples are files.

    Attributes:
        fields: the names of a sample's parts, in the order in which a batch has them.
        kinds: what each field holds, see `batch.Kind`.
        blocking: reading waits for disks, so that several threads shall read.
    """

    blocking = False
    fields: tuple[str, ...]
    kinds: dict[str, Kind]

    def _set_fields(self, fields: Sequence[str], kinds: dict[str, Kind]) -> None:
        known = {**kinds, **BESIDE}
        if (
            isinstance(fields, str)
            or not fields
            or len(set(fields)) < len(fields)
            or any(f not in known for f in fields)
        ):
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
        """Whether all samples of a field have one shape."""
        return False

    def path(self, index: int) -> str | None:
        """The file of a sample, for messages and for the field `path`."""
        return None

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

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """One sample to look at, in the order of `fields`: images decoded as uint8 [C, H, W], numbers as torch scalars.

        Raises:
            IndexError: outside the dataset.
        """
        if not -len(self) <= index < len(self):
            raise IndexError(f"index {index} is outside a dataset of {len(self)} samples")
        columns = self.read(np.array([index % len(self)]))
        return tuple(_look(self.kinds[name], column[0]) for name, column in columns.items())


def _look(kind: Kind, value: Any) -> Any:
    if kind == "encoded":
        value = decode(value)
    if kind in ("encoded", "image"):
        return torch.from_numpy(np.array(value)).permute(2, 0, 1)
    return torch.as_tensor(np.array(value)) if kind in ("array", "number") else value


def digest(*parts: Any) -> str:
    """A short fingerprint of text, bytes and arrays."""
    hasher = hashlib.blake2b(digest_size=8)
    for part in parts:
        data = (
            part
            if isinstance(part, bytes)
            else np.ascontiguousarray(part).tobytes()
            if isinstance(part, np.ndarray)
            else str(part).encode()
        )
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.hexdigest()


def read_file(path: str) -> NDArray[np.uint8]:
    """A file's bytes.

    Raises:
        OSError: it can't be opened.
        ValueError: it is empty.
    """
    data = np.fromfile(path, np.uint8)
    if not len(data):
        raise ValueError("the file is empty")
    return data


def as_root(root: str | Path) -> str:
    """A folder that exists, as text.

    Raises:
        FileNotFoundError, NotADirectoryError: it doesn't.
    """
    path = Path(root).expanduser()
    if not path.exists():
        raise FileNotFoundError(f"root does not exist: {path}")
    if not path.is_dir():
        raise NotADirectoryError(f"root must be a folder, got the file {path}")
    return str(path)
