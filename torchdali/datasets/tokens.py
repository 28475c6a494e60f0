"""A dataset of windows of token files, for language models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..batch import Columns
from ..checks import integer
from ..fingerprint import files_digest
from ..formats.npy import npy_layout
from ..paths import expand
from ..storage import open_storage, read_many
from .base import MapDataset


class TokenWindows(MapDataset):
    """Windows of files of token ids: each sample is `tokens`, int64 [length + 1], whose last `length` are the targets.

    Files are raw ids, one after the other, as nanoGPT's train.bin; or 1-d arrays in .npy files.  A window lies in one
    file; what is left at a file's end, less than a window, is not read.

    Args:
        paths: a file, URL or pattern, or a list of them, in this order.
        length: tokens that a model sees; a window has one more.
        stride: tokens from a window's start to the next one's; None: `length`, so that each token is a target once.
        dtype: the ids' type in raw files; a .npy file says its own.
        fields: some of tokens, index, path and valid.
        storage_options: fsspec's, for remote files.

    Attributes:
        files: the files.

    Raises:
        ValueError: a file that is shorter than a window, or whose size is no multiple of the dtype's; a dtype that is
            none of integers; a `length` or `stride` below 1.
        FileNotFoundError: a file is missing.
    """

    blocking = True

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        length: int,
        stride: int | None = None,
        dtype: DTypeLike = "uint16",
        *,
        fields: Sequence[str] = ("tokens",),
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.length = integer("length", length, 1)
        self.stride = self.length if stride is None else integer("stride", stride, 1)
        options = dict(storage_options or {})
        self.files = expand(paths, **options)
        self._storages = [open_storage(path, **options) for path in self.files]
        self._layouts = []  # of each file: where its ids begin, and their dtype
        counts = []
        for storage in self._storages:
            offset, type_, tokens = npy_layout(storage) or (0, np.dtype(dtype), None)
            if type_.kind not in "iu":
                raise ValueError(f"{storage.path}: tokens must be integers, got {type_}")
            if tokens is None:
                tokens, rest = divmod(storage.size, type_.itemsize)
                if rest:
                    raise ValueError(
                        f"{storage.path}: {storage.size} bytes are no multiple of the {type_.itemsize} bytes of "
                        f"{type_}: is dtype= right, and the file whole?"
                    )
            if tokens < self.length + 1:
                raise ValueError(
                    f"{storage.path}: at least {self.length + 1} tokens were expected, for one window of length "
                    f"{self.length} and its next token, got {tokens} of {type_}"
                )
            self._layouts.append((offset, type_))
            counts.append((tokens - self.length - 1) // self.stride + 1)
        self._ends = np.cumsum(counts)
        self._set_fields(fields, {"tokens": "array"})

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        if "tokens" not in names:
            return {}
        numbers = np.searchsorted(self._ends, indices, side="right").tolist()
        places = []
        for index, number in zip(indices, numbers, strict=True):
            offset, dtype = self._layouts[number]
            start = (index - (int(self._ends[number - 1]) if number else 0)) * self.stride
            places.append((self._storages[number], offset + start * dtype.itemsize, (self.length + 1) * dtype.itemsize))
        tokens = np.empty((len(places), self.length + 1), np.int64)
        for row, data, number in zip(tokens, read_many(places), numbers, strict=True):
            row[:] = np.frombuffer(data, self._layouts[number][1])
        return {"tokens": tokens}

    def __getitem__(self, index: int) -> Any:
        """Read one sample: a tensor where tokens are its only field, as they are by default, else a tuple."""
        values = super().__getitem__(index)
        return values[0] if len(values) == 1 else values

    def rebuild(self, batch: dict[str, Any]) -> Any:
        """Give a tensor where tokens are the only field, else a tuple."""
        values = super().rebuild(batch)
        return values[0] if len(values) == 1 else values

    def uniform(self, name: str) -> bool:
        return True

    def dtype(self, name: str) -> np.dtype[Any]:
        return np.dtype(np.int64)

    def path(self, index: int) -> str:
        """Give the window's file."""
        return self.files[int(np.searchsorted(self._ends, index, side="right"))]

    def fingerprint(self) -> str:
        """Hash the files' names below their common folder, their sizes, and how they are cut."""
        sizes = [storage.size for storage in self._storages]
        cut = files_digest(self.files, sizes, self.length, self.stride, [str(dtype) for _, dtype in self._layouts])
        return f"{len(self)} windows of {self.length} tokens {cut}"
