"""A dataset of packed samples: decoded images and other values, as `pack` writes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch import BadSample, Column, Columns
from ..formats.packed import from_json, map_array, read_index, verify_shard
from ..progress import progress_bar
from .base import MapDataset

_BYTES, _PLACES = np.dtype(np.uint8), np.dtype(np.int64)  # of values, and of their places in it


class Packed(MapDataset):
    """Samples that `torchdali.pack` has decoded: a loader only transforms them.

    The files are mapped into memory, and processes share their pages.  A sample's memory is read when it is used, and
    only the window that is used of it.  Sizes are checked when the pack is opened; a file that is cut off later ends
    the process with SIGBUS, so replace a pack by another folder.

    Packed without a transform and without bad samples, it gives the stream of the packed dataset bit for bit, and a
    checkpoint of one goes on with the other.

    Args:
        path: the folder that `pack` wrote.
        fields: some of the packed fields, index, valid and path; by default those of the packed dataset, in its order.

    Attributes:
        left_out: the bad samples that are not in the pack; their indices are those of the packed dataset.
        packed_transform: the transform that was applied, in words; None: there was none.

    Raises:
        FileNotFoundError: no such pack, or one that is not finished.
        ValueError: the index is damaged, a file has another size, or a field is unknown.
    """

    def __init__(self, path: str | Path, fields: Sequence[str] | None = None) -> None:
        self.folder = Path(path).expanduser().absolute()
        self._index = read_index(self.folder)
        index = self._index
        self._columns = {column.name: (place, column) for place, column in enumerate(index.columns)}
        known = {column.name: column.of_field for column in index.columns if column.name != "path"}
        self.nested = index.nested
        self._set_fields(index.fields if fields is None else fields, known)
        self._ends = np.cumsum([shard.samples for shard in index.shards])
        self._maps: dict[str, NDArray[Any]] = {}
        self.packed_transform = index.transform
        self.left_out = [
            BadSample(i, path, stage, reason, None)
            for shard in index.shards
            for i, path, stage, reason in shard.left_out
        ]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_maps": {}}

    @property
    def where(self) -> str:
        return str(self.folder)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        rows = np.asarray(indices, np.int64)
        shards = np.searchsorted(self._ends, rows, side="right")
        rows = rows - np.append(0, self._ends)[shards]
        return {name: self._read(name, shards, rows) for name in names}

    def _read(self, name: str, shards: NDArray[np.int64], rows: NDArray[np.int64]) -> Column:
        place, column = self._columns[name]
        dtype = np.dtype(column.dtype)
        if column.shape is not None:
            out = np.empty((len(rows), *column.shape), dtype)
            for shard in np.unique(shards).tolist():
                there = shards == shard
                (file,) = column.files(shard, place)
                out[there] = self._map(shard, file, dtype, tuple(column.shape))[rows[there]]
            return out
        values = []
        for shard, row in zip(shards.tolist(), rows.tolist(), strict=True):
            file, at = column.files(shard, place)
            data, places = self._map(shard, file, _BYTES), self._map(shard, at, _PLACES, (1 + column.ndim,), True)
            begin, *shape = places[row].tolist()
            value = data[begin : begin + dtype.itemsize * math.prod(shape)].view(dtype).reshape(shape)
            values.append(from_json(value) if column.kind == "object" else value)
        return values

    def _map(
        self, number: int, file: str, dtype: np.dtype[Any], shape: tuple[int, ...] | None = None, checked: bool = False
    ) -> NDArray[Any]:
        """Map a file of a shard.

        Args:
            number: the shard's.
            file: the file's name.
            dtype: of its array.
            shape: of a row; None: any length of one dimension.
            checked: compare its checksum: that of places, since a wrong one would be another sample's bytes.

        Raises:
            ValueError: it is damaged.
        """
        found = self._maps.get(file)
        if found is None:  # two threads may map a file at the same time, and one map stays
            shard = self._index.shards[number]
            found = map_array(self.folder / file, shard.files[file][1] if checked else None)
            expected = found.shape[:1] if shape is None else (shard.samples, *shape)
            if found.dtype != dtype or found.shape != expected or not found.flags.c_contiguous:
                raise ValueError(
                    f"{self.folder / file} is damaged: {dtype} {list(expected)} was expected, got {found.dtype} "
                    f"{list(found.shape)}"
                )
            self._maps[file] = found
        return found

    def path(self, index: int) -> str | None:
        """Give the file that a sample was packed from, if it was one."""
        if "path" not in self._columns:
            return None
        (found,) = self.read_columns([index], ["path"])["path"]
        return None if found is None else str(found)

    def uniform(self, name: str) -> bool | None:
        return self._columns[name][1].uniform

    def dtype(self, name: str) -> np.dtype[Any] | None:
        return np.dtype(self._columns[name][1].dtype)

    def fingerprint(self) -> str:
        """Give the packed dataset's own fingerprint; where samples were changed or left out, one that tells how."""
        return self._index.fingerprint

    def verify(self, progress: bool = False) -> None:
        """Read all files, and compare them with their checksums.

        Args:
            progress: show a progress bar (tqdm's, where it is installed).

        Raises:
            ValueError: a file is damaged; it is named.
        """
        shards = self._index.shards
        size = sum(size for shard in shards for size, _ in shard.files.values())
        with progress_bar("verify", size, "B", progress) as bar:
            for shard in shards:
                verify_shard(self.folder, shard, bar.update)
