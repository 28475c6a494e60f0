"""LMDB databases: values by keys, in one file.

The file's format: mdb.c of LMDB 0.9.  The package lmdb reads the values.  It crashes where a part of the file is
missing, so the whole tree is checked first.
"""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from ..checks import nearest_path
from ..fingerprint import digest
from ..storage import Bytes, LocalStorage, Storage, is_remote
from .texts import Texts, to_bytes


class LMDBFile:
    """A database that was checked to be whole; values are read by the numbers of their keys, which are sorted.

    It can be pickled, and read in forked processes.

    Args:
        path: the folder with data.mdb, or the file itself.

    Attributes:
        file: the data file.
        keys: its keys.

    Raises:
        FileNotFoundError, ValueError: as `check_lmdb`.
    """

    def __init__(self, path: str | Path) -> None:
        self.file, self.keys = check_lmdb(path)
        self._version = LocalStorage(self.file).version
        self._database: Database | None = None
        self._digest: str | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_database": None}

    def read(self, numbers: Sequence[int]) -> list[Bytes]:
        """Read values, uint8 [n] each.

        Raises:
            ValueError: the file has changed, or can't be opened, or a value is damaged, which the message names.
            ImportError: the package lmdb is missing.
        """
        if LocalStorage(self.file).version != self._version:
            raise ValueError(f"{self.file} has changed since it was first looked at: make the dataset again")
        database = self._database or Database.of(self.file)
        self._database = database
        values = []
        with database.environment.begin(buffers=True) as view:
            for number in numbers:
                try:
                    value = view.get(to_bytes(self.keys[number]))
                except database.error as error:
                    raise ValueError(f"{self.path(number)} is damaged: {error}") from error
                if value is None:
                    raise ValueError(f"{self.path(number)} is not found: the order of the keys is damaged")
                # Copied, since the memory is the file's, and only until the transaction ends.
                values.append(np.frombuffer(bytearray(value), np.uint8))
        return values

    def path(self, number: int) -> str:
        """Give the file and a value's key in it: "data.mdb#00000007"."""
        return f"{self.file}#{self.keys[number]}"

    def digest(self) -> str:
        """Give a digest of the keys and of the file's size."""
        if self._digest is None:
            self._digest = digest(self.keys.blob, self.keys.ends, self._version.split()[0])
        return self._digest


class Database:
    """A database that is open in this process, once for all its readers, as lmdb demands.

    A forked process goes on with its parent's: without a lock, nothing in it belongs to one process.
    """

    def __init__(self, file: str) -> None:
        try:
            import lmdb
        except ImportError as error:
            raise ImportError("LMDB needs a package: pip install torchdali[lmdb]") from error
        self.error: type[Exception] = lmdb.Error
        # By the file and not by its folder: lmdb opens each once in a process, and an older file may be open still.
        try:
            self.environment = lmdb.open(file, subdir=False, readonly=True, lock=False, create=False, readahead=False)
        except lmdb.Error as error:
            raise ValueError(f"{file} can't be opened by lmdb: {error}") from error

    @classmethod
    def of(cls, file: str) -> Database:
        """Give the open database of a file, or open it.

        Raises:
            ValueError: lmdb refuses it.
        """
        status = os.stat(file)
        with _opening[0]:
            known = _open.get((status.st_dev, status.st_ino))
            if known is None:
                known = _open[status.st_dev, status.st_ino] = cls(file)
            return known


DATA = "data.mdb"
_open: WeakValueDictionary[tuple[int, int], Database] = WeakValueDictionary()
_opening = [threading.Lock()]


def _renew_lock() -> None:
    _opening[0] = threading.Lock()  # another thread may have held it when this process was forked


os.register_at_fork(after_in_child=_renew_lock)


_HEAD = 16  # bytes before a page's content
_META = struct.Struct("<10xH4x II16x I48x HH24xQQ QQ")  # _HEAD, the database of free pages, and the main one
_MAGIC, _FORMAT = 0xBEEFC0DE, 1
_NONE = (1 << 64) - 1  # the root of an empty database
_IS_BRANCH, _IS_LEAF, _IS_META = 1, 2, 8
_IS_LARGE, _IS_DATABASE = 1, 2  # of a node's value
_SEVERAL = 4  # of a database: values for a key
PAGES = 1024  # checked at once


class Meta(NamedTuple):
    """The content of a first page; `page` is the size of one, `last` the last one in use."""

    page: int
    flags: int
    depth: int
    entries: int
    root: int
    last: int
    transaction: int


def check_lmdb(path: str | Path) -> tuple[str, Texts]:
    """Check that a database is whole; lmdb and DALI crash where a part is missing.

    All pages of its tree are read (for images, a hundredth of the file), and the places of all values are compared with
    the file's size.  The last page in use may be missing, since lmdb does not write pages that were freed.

    Args:
        path: the folder with data.mdb, or the file itself; local.

    Returns:
        the data file, and its keys in their order.

    Raises:
        FileNotFoundError: there is no database.
        ValueError: it is remote, damaged, cut off, empty, or has named databases or several values for a key; with
            path and offset.
    """
    text = os.fspath(path)
    if is_remote(text):
        raise ValueError(f"LMDB is read from local disks only, got {text}: copy it")
    file = os.path.expanduser(text.removeprefix("file://"))
    if os.path.isdir(file):
        folder, file = file, os.path.join(file, DATA)
        if not os.path.exists(file):
            raise FileNotFoundError(f"an LMDB database was expected, got {folder}, which has no {DATA}")
    elif not os.path.exists(file):
        raise FileNotFoundError(f"there is no LMDB database at {file}{nearest_path(file)}")
    storage = LocalStorage(file)
    meta = _meta(storage)
    if meta.flags & _SEVERAL:
        raise ValueError(f"{file} has several values for a key (dupsort), and one each was expected")
    if not meta.entries or meta.root == _NONE:
        raise ValueError(f"{file} is an empty database")
    if not meta.depth:
        raise ValueError(f"{file} is damaged: {meta.entries} values were expected in its tree, which has no pages")
    level, keys, visited = np.array([meta.root], np.uint64), [], 0
    for _ in range(meta.depth):
        below = [np.zeros(0, np.uint64)]
        visited += len(level)
        if visited > meta.last:
            raise ValueError(f"{file} is damaged: its tree has more pages than the file")
        for start in range(0, len(level), PAGES):
            children, found = _check_pages(storage, meta.page, level[start : start + PAGES])
            below.append(children)
            keys.append(found)
        level = np.concatenate(below)
    joined = Texts.joined(keys)
    if len(level) or len(joined) != meta.entries:
        raise ValueError(f"{file} is damaged: {meta.entries} values were expected in its tree, got {len(joined)}")
    return file, joined


def _meta(storage: Storage) -> Meta:
    """Read the newer of the two first pages, as lmdb does."""
    found: list[Meta] = []
    while len(found) < 2:
        offset = found[0].page if found else 0
        if offset + _META.size > storage.size:
            raise ValueError(f"{storage.path} is cut off: {_META.size} bytes expected at offset {offset}")
        flags, magic, version, *rest = _META.unpack(storage.read(offset, _META.size).data)
        meta = Meta(*rest)
        if magic != _MAGIC or not flags & _IS_META or (found and meta.page != offset):
            raise ValueError(f"{storage.path} is not an LMDB database, or is damaged at offset {offset}")
        if version != _FORMAT or not 256 <= meta.page <= 1 << 16 or meta.page & (meta.page - 1):
            raise ValueError(
                f"{storage.path} must be of LMDB's format {_FORMAT}, got {version}, pages of {meta.page} bytes"
            )
        found.append(meta)
    return max(found, key=lambda meta: meta.transaction)


def _check_pages(storage: Storage, size: int, numbers: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], Texts]:
    """Give the children of some pages of the tree, and the keys of their values; errors as `check_lmdb`."""
    count = storage.size // size
    if (numbers >= count).any():
        page = int(numbers[numbers >= count][0])
        raise ValueError(f"{storage.path} is cut off: a page expected at offset {page * size} is not there")
    parts = storage.read_many([(page * size, size) for page in numbers.tolist()])
    pages = np.concatenate(parts).reshape(-1, size)
    words = pages.view("<u2").astype(np.int64)
    flags, nodes, upper = words[:, 5], (words[:, 6] - _HEAD) // 2, words[:, 7]
    leaf = (flags & _IS_LEAF) > 0
    bad = (pages[:, :8].copy().view("<u8")[:, 0] != numbers) | ((flags & (_IS_BRANCH | _IS_LEAF)) % 3 == 0)
    bad |= (flags & ~0x13) > 0
    bad |= (words[:, 6] < _HEAD + 2) | (words[:, 6] > upper) | (upper > size)
    nodes[bad] = 0
    rows = np.repeat(np.arange(len(pages)), nodes)
    nth = np.arange(len(rows)) - np.repeat(np.cumsum(nodes) - nodes, nodes)
    at = words[rows, _HEAD // 2 + nth]
    wrong = (at < upper[rows]) | (at > size - 8) | (at % 2 > 0)
    at = np.where(wrong, 0, at)
    low, high, kind, key = (words[rows, at // 2 + i] for i in range(4))
    value = low | high << 16
    large = leaf[rows] & (kind & _IS_LARGE > 0)
    end = at + 8 + key + np.where(large, 8, np.where(leaf[rows], value, 0))
    wrong |= (end > size) | (leaf[rows] & (kind & ~_IS_LARGE & ~_IS_DATABASE > 0))
    bad[rows[wrong]] = True
    if bad.any():
        raise ValueError(f"{storage.path} is damaged in the page at offset {int(numbers[bad.argmax()]) * size}")
    if (leaf[rows] & (kind & _IS_DATABASE > 0)).any():
        raise ValueError(f"{storage.path} holds named databases, and values were expected")
    where = (at + 8 + key)[large]
    first = np.ascontiguousarray(pages[rows[large, None], where[:, None] + np.arange(8)]).view("<u8")[:, 0]
    over = (first > count) | (first.astype(np.float64) * size + _HEAD + value[large] > storage.size)
    if over.any():
        row = int(over.argmax())
        raise ValueError(
            f"{storage.path} is cut off: {value[large][row]} bytes expected at offset {int(first[row]) * size + _HEAD}"
        )
    children = (value | kind << 32)[~leaf[rows]].astype(np.uint64)
    begins, lengths = (rows * size + at + 8)[leaf[rows]], key[leaf[rows]]
    ends = np.cumsum(lengths)
    each = np.repeat(begins - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)
    return children, Texts(pages.ravel()[each], ends)
