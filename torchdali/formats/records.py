"""Files in which records lie one after the other, read by number.

The offsets at which the records begin are found once and kept in a cache, 8 bytes per record; then records are read by
offset, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..fingerprint import below_common_folder, digest
from ..paths import expand
from ..storage import CHUNK, THREADS, Bytes, Storage, is_remote, open_storage, read_many
from ..threads import map_in_threads
from .cache import cached_index

WINDOW = 1 << 20  # bytes of a local file that are read at a time to find its records
BOUNDS = "bounds"  # in an index: int64 [n + 1], where records begin, and the last one ends


class RecordFormat(NamedTuple):
    """The layout of a file of records.

    Attributes:
        kind: the name of its indexes in the cache, with their version.
        scan: finds the bounds of a file's records, int64 [n + 1]: where each begins, and where the last one ends;
            raises ValueError, with path and offset, for a damaged file.
        read_index: finds the bounds in the words of an index that another tool made, and the file's size in bytes;
            raises ValueError where the index can't be that file's.
    """

    kind: str
    scan: Callable[[Storage], NDArray[np.int64]]
    read_index: Callable[[list[bytes], int], NDArray[np.int64]]


class Record(NamedTuple):
    """A record as it is in its file.

    Attributes:
        data: uint8 [n], with headers.
        place: its place, for messages.
    """

    data: Bytes
    place: str


class RecordFiles:
    """Files of records, numbered through all of them.

    Args:
        format: the format of all files.
        paths: the files: paths, URLs and patterns.
        index_paths: indexes that another tool made, one per file; None: the files are scanned.
        index_dir: the folder of our own indexes.
        storage_options: fsspec's, for remote files.

    Attributes:
        paths: the files.

    Raises:
        ValueError: a damaged file, no records, or an index of another file.
        FileNotFoundError: no such file.
    """

    def __init__(
        self,
        format: RecordFormat,
        paths: str | Path | Sequence[str | Path],
        index_paths: str | Path | Sequence[str | Path] | None = None,
        index_dir: str | Path | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        options = dict(storage_options or {})
        self.paths = expand(paths, **options)
        self._storages = [open_storage(path, **options) for path in self.paths]
        files = [] if index_paths is None else expand(index_paths, **options)
        if index_paths is not None and len(files) != len(self.paths):
            raise ValueError(f"index_paths must be one for each file, got {len(files)} for {len(self.paths)} files")
        indexes: list[Storage | None] = [open_storage(file, **options) for file in files]

        def find(pair: tuple[Storage, Storage | None]) -> NDArray[np.int64]:
            storage, index = pair
            if index is None:
                return cached_index(storage, format.kind, lambda: {BOUNDS: format.scan(storage)}, index_dir)[BOUNDS]
            try:
                return format.read_index(index.read_all().tobytes().split(), storage.size)
            except (ValueError, OverflowError) as error:
                raise ValueError(f"the index {index.path} does not fit {storage.path}: {error}") from None

        # Several files at once where each read waits for a network.
        count = THREADS if is_remote(self.paths[0]) else 1
        pairs = list(zip(self._storages, indexes or [None] * len(self.paths), strict=True))
        bounds = map_in_threads(find, pairs, count, "torchdali-index")
        self._ends = np.cumsum([len(part) - 1 for part in bounds])
        self._bounds: NDArray[np.int64] = np.concatenate(bounds)
        self._digest: str | None = None
        if not len(self):
            more = f" and {len(self.paths) - 1} more" if len(self.paths) > 1 else ""
            raise ValueError(f"there are no records in {self.paths[0]}{more}")

    def __len__(self) -> int:
        return int(self._ends[-1])

    def rows_of(self, file: int) -> range:
        """Give the numbers of a file's records."""
        return range(int(self._ends[file - 1]) if file else 0, int(self._ends[file]))

    def bounds_of(self, file: int) -> list[int]:
        """Give n + 1 offsets: where each record of a file begins, and where the last one ends."""
        rows = self.rows_of(file)
        bounds: list[int] = self._bounds[rows.start + file : rows.stop + file + 1].tolist()
        return bounds

    def read(self, numbers: Sequence[int]) -> Iterator[Record]:
        """Read records by their numbers, in any order.

        Raises:
            ValueError, OSError: as `Storage.read`.
        """
        files, own = self._locate(numbers)
        at = np.asarray(numbers) + files  # each file has one more bound than records
        begins, ends = self._bounds[at].tolist(), self._bounds[at + 1].tolist()
        ranges = [
            (self._storages[file], begin, end - begin)
            for file, begin, end in zip(files.tolist(), begins, ends, strict=True)
        ]
        for data, (storage, begin, _), number in zip(read_many(ranges), ranges, own.tolist(), strict=True):
            yield Record(data, f"record {number} at offset {begin} of {storage.path}")

    def path(self, number: int) -> str:
        """Give the file of a record and its number in it: "train.rec#7"."""
        (file,), (own,) = self._locate([number])
        return f"{self.paths[file]}#{own}"

    def digest(self) -> str:
        """Give a digest of the files' names below their common folder, and of their records' offsets."""
        if self._digest is None:
            self._digest = digest(below_common_folder(self.paths), self._ends, self._bounds)
        return self._digest

    def _locate(self, numbers: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Find the files that records are in, and the records' numbers in them."""
        files = np.searchsorted(self._ends, numbers, side="right")
        starts = np.concatenate([[0], self._ends])
        return files, np.asarray(numbers) - starts[files]


def scan(storage: Storage, header: int, walk: Callable[[bytes, int], list[int]]) -> NDArray[np.int64]:
    """Find n + 1 offsets, int64: where each record of a file begins, and where the last one ends.

    Args:
        storage: the file.
        header: bytes of a record that `walk` needs.
        walk: takes a part of the file and its offset, and gives the ends of the records that begin in it, as offsets.

    Raises:
        ValueError: the file ends inside a record.
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
        # Of large records, only the headers are read.
        window = storage.gap if ends[-1] - position > sparse * len(ends) else dense
        found.append(np.array(ends, np.int64))
        position = ends[-1]
    return np.concatenate(found)
