"""Shards of a pack that is being written, and of one that is not finished."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .packed import ALIGNMENT, PackedColumn, PackedShard, check_sizes, checksum, read_json, sync, write_json


class ShardWriter:
    """Writes one shard, sample by sample; it appears when it is finished.

    Args:
        folder: where the pack is.
        number: the shard's number.
        columns: the columns.

    Attributes:
        samples: the samples that were added.
        size: the bytes that were written.
    """

    def __init__(self, folder: Path, number: int, columns: Sequence[PackedColumn]) -> None:
        self._folder, self._number, self._columns = folder, number, columns
        self.samples = self.size = 0
        self._files: dict[str, _NpyWriter] = {}
        self._values: list[tuple[_NpyWriter, _NpyWriter | None]] = []
        try:
            for place, column in enumerate(columns):
                names = column.files(number, place)
                if column.shape is not None:
                    self._values.append((self._open(names[0], np.dtype(column.dtype), column.shape), None))
                else:
                    places = self._open(names[1], np.dtype(np.int64), [1 + column.ndim])
                    self._values.append((self._open(names[0], np.dtype(np.uint8), []), places))
        except BaseException:
            self.abandon()
            raise

    def _open(self, name: str, dtype: np.dtype[Any], shape: list[int]) -> _NpyWriter:
        self._files[name] = _NpyWriter(self._folder / f"{name}.part", dtype, shape)
        return self._files[name]

    def add(self, row: Sequence[NDArray[Any]]) -> None:
        """Add a sample: one array for each column, of its dtype and number of dimensions."""
        for value, (data, places) in zip(row, self._values, strict=True):
            if places is not None:
                data.skip(-data.size % ALIGNMENT)
                places.add(np.array([data.size, *value.shape], np.int64))
            data.add(value)
        self.samples += 1
        self.size = sum(file.size for file in self._files.values())

    def finish(self, identity: str, end: int, left_out: list[list[Any]]) -> PackedShard:
        """Make the shard appear, and with it the note that it is whole."""
        files = {}
        for name, file in self._files.items():
            file.finish()
            files[name] = [os.path.getsize(file.path), checksum(file.path)]
        for name, file in self._files.items():
            os.replace(file.path, self._folder / name)
        shard = PackedShard(self.samples, end, files, left_out)
        columns = [asdict(column) for column in self._columns]
        note = {"identity": identity, "columns": columns, **shard._asdict()}
        write_json(_note(self._folder, self._number), note)
        return shard

    def abandon(self) -> None:
        """Remove what was written."""
        for file in self._files.values():
            file.file.close()
            file.path.unlink(missing_ok=True)


class _NpyWriter:
    """Writes a .npy file whose length is not known before: numpy's header leaves room for it.

    Attributes:
        size: the bytes of its data.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: list[int]) -> None:
        self.path, self._dtype, self._shape = path, dtype, shape
        self.file: IO[bytes] = open(path, "wb")  # closed by `finish`, or by the shard
        self.size = self._added = 0
        self._write_header(0)
        self._start = self.file.tell()

    def _write_header(self, length: int) -> None:
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": (length, *self._shape)}
        np.lib.format.write_array_header_1_0(self.file, header)

    def skip(self, size: int) -> None:
        self.file.write(bytes(size))
        self.size += size

    def add(self, value: NDArray[Any]) -> None:
        self.file.write(np.ascontiguousarray(value).tobytes())
        self.size += value.nbytes
        self._added += 1

    def finish(self) -> None:
        row = self._dtype.itemsize * math.prod(self._shape)
        self.file.seek(0)
        self._write_header(self.size // row if row else self._added)
        assert self.file.tell() == self._start
        sync(self.file)


# Shards of a pack that is not finished


class UnfinishedPack(NamedTuple):
    """The whole shards that another call has left.

    Attributes:
        columns: the columns; None: there is no shard yet.
        shards: the shards.
    """

    columns: list[PackedColumn] | None
    shards: list[PackedShard]


def read_unfinished(folder: Path, identity: str) -> UnfinishedPack:
    """Find the whole shards from the first one on.

    Raises:
        FileExistsError: they are of another pack.
    """
    columns: list[PackedColumn] | None = None
    shards: list[PackedShard] = []
    while (note := read_json(_note(folder, len(shards)))) is not None:
        if note.pop("identity") != identity:
            raise FileExistsError(
                f"{folder} holds a part of another pack, of other data or options: write another path, or delete it"
            )
        columns = [PackedColumn(**column) for column in note.pop("columns")]
        shard = PackedShard(**note)
        try:
            check_sizes(folder, shard)
        except ValueError:
            break  # it is written again, and what comes after it
        shards.append(shard)
    return UnfinishedPack(columns if shards else None, shards)


def remove_notes(folder: Path) -> None:
    """Remove what is only needed while a pack is made."""
    for pattern in ("shard-*.json", "*.part"):
        for path in folder.glob(pattern):
            path.unlink()


def _note(folder: Path, number: int) -> Path:
    return folder / f"shard-{number:05d}.json"
