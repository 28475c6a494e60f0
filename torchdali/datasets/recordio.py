"""MXNet's RecordIO, read by index, and what all files of records share.

The format: dmlc-core's recordio.h, and mxnet.recordio.IRHeader for what is in a record of an image.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..batch import Columns, Kind
from ..paths import below_common_folder, expand
from ..source import THREADS
from ..storage import CHUNK, Bytes, Storage, is_remote, open_storage, read_many
from .base import MapDataset, digest
from .index import Index, cached_index

WINDOW = 1 << 20  # bytes of a local file that are read at a time to find its records
TRIES = 16  # records that are looked at, until one is whole
BOUNDS = "bounds"  # in an index: int64 [n + 1], where records begin, and the last one ends

T = TypeVar("T")


class Record(NamedTuple):
    """A record as it is in its file.

    Attributes:
        data: uint8 [n], with headers.
        place: where it is, for messages.
    """

    data: Bytes
    place: str


class RecordFiles(MapDataset):
    """Base of datasets of files in which records lie one behind the other.

    Where they begin is found once and kept in a cache, 8 bytes a record; then they are read by offset, in any order.

    Attributes:
        shards: the files.
    """

    blocking = True
    shards: list[str]

    def _open(
        self,
        kind: str,
        paths: str | Path | Sequence[str | Path],
        index_paths: str | Path | Sequence[str | Path] | None,
        index_dir: str | Path | None,
        storage_options: Mapping[str, Any] | None,
    ) -> None:
        options = dict(storage_options or {})
        self.shards = expand(paths, **options)
        self._storages = [open_storage(path, **options) for path in self.shards]
        files = [] if index_paths is None else expand(index_paths, **options)
        if index_paths is not None and len(files) != len(self.shards):
            raise ValueError(f"index_paths must be one for each file, got {len(files)} for {len(self.shards)} files")
        indexes: list[Storage | None] = [open_storage(file, **options) for file in files]

        def find(storage: Storage, index: Storage | None) -> NDArray[np.int64]:
            if index is None:
                return cached_index(storage, kind, lambda: self._scan(storage), index_dir)[BOUNDS]
            try:
                return self._read_index(index.read_all().tobytes().split(), storage.size)
            except (ValueError, OverflowError) as error:
                raise ValueError(f"the index {index.path} does not fit {storage.path}: {error}") from None

        # Several at once where each waits for a network.
        with ThreadPoolExecutor(THREADS if is_remote(self.shards[0]) else 1, "torchdali-index") as threads:
            bounds = list(threads.map(find, self._storages, indexes or [None] * len(self.shards)))
        self._ends = np.cumsum([len(part) - 1 for part in bounds])
        self._bounds: NDArray[np.int64] = np.concatenate(bounds)
        self._fingerprint: str | None = None
        if not len(self):
            more = f" and {len(self.shards) - 1} more" if len(self.shards) > 1 else ""
            raise ValueError(f"there are no records in {self.shards[0]}{more}")

    def _scan(self, storage: Storage) -> Index:
        """Where the records of a file are: its bounds; ValueError, with path and offset, if it is damaged."""
        raise NotImplementedError

    def _read_index(self, words: list[bytes], size: int) -> NDArray[np.int64]:
        """The bounds from the words of an index made elsewhere, for a file of `size` bytes; ValueError if wrong."""
        raise NotImplementedError

    def __len__(self) -> int:
        return int(self._ends[-1])

    def rows_of(self, shard: int) -> range:
        """The samples of a file."""
        return range(int(self._ends[shard - 1]) if shard else 0, int(self._ends[shard]))

    def bounds_of(self, shard: int) -> list[int]:
        """[n + 1] where the records of a file begin, and where the last one ends."""
        rows = self.rows_of(shard)
        bounds: list[int] = self._bounds[rows.start + shard : rows.stop + shard + 1].tolist()
        return bounds

    def _records(self, indices: Sequence[int]) -> Iterator[Record]:
        shards, numbers = self._locate(indices)
        at = np.asarray(indices) + shards  # each file has one bound more than records
        begins, ends = self._bounds[at].tolist(), self._bounds[at + 1].tolist()
        places = [
            (self._storages[shard], begin, end - begin)
            for shard, begin, end in zip(shards.tolist(), begins, ends, strict=True)
        ]
        for data, (storage, begin, _), number in zip(read_many(places), places, numbers.tolist(), strict=True):
            yield Record(data, f"record {number} at offset {begin} of {storage.path}")

    def _locate(self, indices: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Which files samples are in, and their numbers in them."""
        shards = np.searchsorted(self._ends, indices, side="right")
        starts = np.concatenate([[0], self._ends])
        return shards, np.asarray(indices) - starts[shards]

    def path(self, index: int) -> str:
        """The file and the record's number in it: "train.rec#7"."""
        (shard,), (number,) = self._locate([index])
        return f"{self.shards[shard]}#{number}"

    def fingerprint(self) -> str:
        """Of the files' names below their common folder, and of where their records are."""
        if self._fingerprint is None:
            parts = digest(below_common_folder(self.shards), self._ends, self._bounds)
            self._fingerprint = f"{len(self)} in {len(self.shards)} record files {parts}"
        return self._fingerprint


def scan(storage: Storage, header: int, walk: Callable[[bytes, int], list[int]]) -> NDArray[np.int64]:
    """Where the records of a file begin, and where the last one ends, [n + 1].

    Args:
        storage: the file.
        header: bytes of a record that `walk` needs.
        walk: takes a part of the file and its offset, and gives the offsets behind the records that begin in it.

    Raises:
        ValueError: the file ends in a record.
    """
    dense, sparse = (CHUNK, CHUNK) if is_remote(storage.path) else (WINDOW, WINDOW // 16)
    window, position = dense, 0
    found: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
    while position < storage.size:
        part = storage.read(position, min(window, storage.size - position))
        ends = walk(part.tobytes(), position) if len(part) >= header else [storage.size + header - len(part)]
        if ends[-1] > storage.size:
            last = ends[-2] if len(ends) > 1 else position
            raise ValueError(
                f"{storage.path} is cut off: the record at offset {last} needs {ends[-1] - last} bytes, "
                f"got {storage.size - last}"
            )
        # Of large records only the headers are read.
        window = storage.gap if ends[-1] - position > sparse * len(ends) else dense
        found.append(np.array(ends, np.int64))
        position = ends[-1]
    return np.concatenate(found)


def first_whole(count: int, read: Callable[[int], T]) -> T:
    """What is read from the first sample, or from the first of 16 that is not damaged.

    Raises:
        ValueError: of the first sample, if all are.
    """
    first: ValueError | None = None
    for index in range(min(count, TRIES)):
        try:
            return read(index)
        except ValueError as error:
            first = first or error
    assert first is not None
    raise first


MAGIC = 0xCED7230A
_PART = struct.Struct("<II")  # magic, cflag << 29 | length
_IMAGE = struct.Struct("<IfQQ")  # number of labels behind it, label, id, second id
LONGEST = (1 << 29) - 1  # bytes of a part
WHOLE, FIRST, MIDDLE, LAST = range(4)  # cflag: a record in which the magic number occurs is cut there


class RecordIODataset(RecordFiles):
    """Image records in MXNet's RecordIO files, as `im2rec` writes them.

    Args:
        paths: the .rec files: paths, URLs, and patterns.
        index_paths: their .idx files; they are checked.  None: the files are scanned once, and the result is kept.
        fields: some of image, label, id, index, path and valid.  `label` is a float32 number where the first record
            has one label, else a float32 array; `id` is the image's number, int64.
        kinds: "array" for image: bytes as they are; "array" for label: an array of any number of labels; "number".
        index_dir: a folder for our own indexes, instead of `~/.cache/torchdali/index`.
        storage_options: fsspec's, for remote files.

    Attributes:
        shards: the files.

    Samples are in the order of the file.

    Raises:
        ValueError: wrong arguments; a file that is damaged, cut off or without records, with path and offset; an index
            that does not fit.
        FileNotFoundError: no such file.
    """

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        index_paths: str | Path | Sequence[str | Path] | None = None,
        fields: Sequence[str] = ("image", "label"),
        *,
        kinds: Mapping[str, Kind] | None = None,
        index_dir: str | Path | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        kinds = dict(kinds or {})
        for name, kind in kinds.items():
            if kind not in _KINDS.get(name, ()):
                some = " or ".join(f"{{{name!r}: {kind!r}}}" for name, kinds in _KINDS.items() for kind in kinds)
                raise ValueError(f"kinds must be of {some}, got {{{name!r}: {kind!r}}}")
        known: dict[str, Kind] = {"image": "encoded", "label": "number", "id": "number", **kinds}
        self._set_fields(fields, known)
        self._open("recordio1", paths, index_paths, index_dir, storage_options)
        if "label" in self.fields and "label" not in kinds:
            several = first_whole(len(self), lambda index: self._images([index])[0].several)
            self._set_fields(fields, known | {"label": "array" if several else "number"})
        if index_paths is not None:
            self._images([0, len(self) - 1])  # each other one is checked when it is read

    def _scan(self, storage: Storage) -> Index:
        flags: list[int] = []

        def walk(window: bytes, base: int) -> list[int]:
            at, ends = 0, []
            while at <= len(window) - _PART.size:
                magic, word = _PART.unpack_from(window, at)
                if magic != MAGIC:
                    raise ValueError(f"{storage.path} is no RecordIO at offset {base + at}: {_not_magic(magic)}")
                flags.append(word >> 29)
                end = at + _PART.size + (word & LONGEST)
                at = end + -end % 4
                if base + at > storage.size >= base + end:  # some writers do not pad the last one
                    at = storage.size - base
                ends.append(base + at)
            return ends

        bounds = scan(storage, _PART.size, walk)
        kinds = np.array(flags, np.int64)
        goes_on = np.isin(kinds, (FIRST, MIDDLE))
        wrong = (np.isin(kinds, (MIDDLE, LAST)) != np.concatenate([[False], goes_on])[:-1]) | (kinds > LAST)
        if wrong.any():
            part = int(wrong.argmax())
            raise ValueError(
                f"{storage.path} is damaged at offset {bounds[part]}: a part of kind {kinds[part]} can't follow there"
            )
        if goes_on[-1:].any():
            raise ValueError(f"{storage.path} is cut off: the record of several parts at its end has no last one")
        return {BOUNDS: np.append(bounds[:-1][np.isin(kinds, (WHOLE, FIRST))], bounds[-1])}

    def _read_index(self, words: list[bytes], size: int) -> NDArray[np.int64]:
        if len(words) % 2 or not words:
            raise ValueError(f"lines of a number and an offset were expected, got {len(words)} words")
        offsets = np.sort(np.array(words[1::2], np.int64))
        odd = np.append(offsets[0] != 0, np.diff(offsets) < _PART.size) | (offsets % 4 != 0) | (offsets > size - 8)
        if odd.any():
            raise ValueError(
                f"offsets from 0, multiples of 4 and below {size} were expected, got {offsets[odd.argmax()]}"
            )
        return np.append(offsets, size)

    def _images(self, indices: Sequence[int]) -> list[Image]:
        images = []
        for record in self._records(indices):
            try:
                images.append(Image.of(whole(record.data)))
            except ValueError as error:
                raise ValueError(f"{record.place}: {error}") from None
        return images

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        images = self._images(indices)
        columns: Columns = {
            "image": [image.data for image in images],
            "id": np.array([image.id for image in images], np.uint64).astype(np.int64),
        }
        if "label" in names:
            columns["label"] = labels = [image.labels for image in images]
            if self.kinds["label"] == "number":
                for index, label in zip(indices, labels, strict=True):
                    if len(label) != 1:
                        raise ValueError(
                            f"{self.path(index)}: one label was expected, as in the first record, got {len(label)}: "
                            "write kinds={'label': 'array'}"
                        )
                columns["label"] = np.concatenate(labels)
        return {name: columns[name] for name in names}


class Image(NamedTuple):
    """A record's content.

    Attributes:
        data: uint8 [n], the image file.
        labels: float32 [k].
        id: the image's number.
        several: the record was written with a list of labels, not with one.
    """

    data: Bytes
    labels: NDArray[np.float32]
    id: int
    several: bool

    @classmethod
    def of(cls, content: Bytes) -> Image:
        """From a record without its headers; ValueError if it is none of an image."""
        if len(content) < _IMAGE.size:
            raise ValueError(f"an image's header of {_IMAGE.size} bytes was expected, got {len(content)} bytes")
        count, label, number, _ = _IMAGE.unpack_from(content.data)
        end = _IMAGE.size + 4 * count
        if end > len(content):
            raise ValueError(f"{count} labels were expected in an image's record, got {len(content)} bytes")
        labels = np.frombuffer(content[_IMAGE.size : end].tobytes(), "<f4") if count else np.array([label], "<f4")
        return cls(content[end:], labels.astype(np.float32), number, count > 0)


def whole(data: Bytes) -> Bytes:
    """A record's content, without headers and padding; a record of several parts put together.

    Raises:
        ValueError: it is damaged, or is not exactly one record.
    """
    parts: list[Bytes] = []
    at, flag = 0, FIRST
    while flag in (FIRST, MIDDLE):
        if len(data) - at < _PART.size:
            raise ValueError(f"a header of {_PART.size} bytes was expected at byte {at}, got {len(data) - at}")
        magic, word = _PART.unpack_from(data.data, at)
        if magic != MAGIC:
            raise ValueError(f"no record begins at byte {at}: {_not_magic(magic)}")
        before, flag = (flag if at else None), word >> 29
        if flag > LAST or (flag in (MIDDLE, LAST)) != (before is not None):
            raise ValueError(f"a part of kind {flag} can't be at byte {at} of a record")
        begin, size = at + _PART.size, word & LONGEST
        if begin + size > len(data):
            raise ValueError(f"{size} bytes were expected at byte {begin}, got {len(data) - begin}")
        if before is not None:
            parts.append(np.frombuffer(MAGIC.to_bytes(4, "little"), np.uint8))  # the writer cuts it out
        parts.append(data[begin : begin + size])
        at = begin + size + -size % 4
    if at < len(data):
        raise ValueError(f"a record of {at} bytes was expected, got {len(data)}: the index lacks what follows it")
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _not_magic(found: int) -> str:
    return f"the number {MAGIC:#x} was expected, got {found:#x}"


_KINDS = {"image": ("encoded", "array"), "label": ("number", "array")}
