"""LMDB databases, read by index: Caffe's, Caffe2's, and any other."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import Columns, Kind
from ..checks import integer, one_of
from ..formats.parts import kind_of_bytes
from ..storage import Bytes, LocalStorage, Storage, is_remote
from .base import BESIDE, MapDataset, digest
from .index import Texts
from .protobuf import caffe2_sample, caffe_sample
from .recordio import first_whole

Decode = Callable[[bytes], "dict[str, Any] | tuple[Any, ...]"]
_POSSIBLE: dict[str, tuple[str, ...]] = {
    "caffe": ("image", "label"),
    "caffe2": ("image", "label", "bbox"),
    "raw": ("value",),
}
LABEL_TYPES = ("single", "sparse", "dense", "weighted", "none")
"""DALI's label types of Caffe2, in the order of its numbers."""


class LMDBDataset(MapDataset):
    """Samples in an LMDB database, in the order of its keys.

    The database is read with the package lmdb, without a lock: nobody may write to it meanwhile.

    Args:
        path: the folder with data.mdb, or the file itself.
        format: what its values are.

                "caffe"   Datum: the fields image and label (int64)
                "caffe2"  TensorProtos, as DALI's reader takes them: the fields image, label by `label_type`, and bbox
                          (int32 [4], the last part)
                "raw"     the field value (uint8 [n]); with `decode`, the fields that it gives

        fields: some of these and of key, index, path and valid; by default all but bbox, key and those beside.
        kinds: what fields hold where the first sample does not tell it: "encoded", "image" or "array".
        layout: of pixels that are not encoded, in Caffe: "HWC", as DALI's reader takes them, or "CHW": planes in the
            order blue, green, red, as Caffe's own tools write them.  Both come out as RGB [H, W, C] then.
        label_type: "single" (a number, int64 or float32), "sparse" (indices; the label is [num_labels] of 0 and 1),
            "dense" (the array as it is), "weighted" (indices and weights; float32 [num_labels]), "none"; or DALI's
            number of these, 0 to 4.
        num_labels: of sparse and weighted ones.
        decode: makes a dict, or a tuple in the order of `fields`, from a raw value.

    Attributes:
        file: the data file.

    Raises:
        ValueError: wrong arguments; a database that is damaged, cut off or empty, with path and offset; a first sample
            of another format.
        FileNotFoundError: no database there.
        ImportError: the package lmdb is missing.
    """

    blocking = True

    def __init__(
        self,
        path: str | Path,
        format: str = "caffe",
        fields: Sequence[str] | None = None,
        *,
        kinds: Mapping[str, Kind] | None = None,
        layout: str = "HWC",
        label_type: str | int = "single",
        num_labels: int = 1,
        decode: Decode | None = None,
    ) -> None:
        one_of("format", format, ("caffe", "caffe2", "raw"))
        one_of("layout", layout, ("HWC", "CHW"))
        if isinstance(label_type, int):
            label_type = LABEL_TYPES[integer("label_type", label_type, 0, 4)]
        one_of("label_type", label_type, LABEL_TYPES)
        if decode is not None and format != "raw":
            raise ValueError(f'decode is for format="raw", got format={format!r}')
        self.format, self.layout, self.label_type = format, layout, label_type
        self.num_labels, self.decode = integer("num_labels", num_labels, 1), decode
        self.file, self._keys = check_lmdb(path)
        self._version = LocalStorage(self.file).version
        self._database: Database | None = None
        self._fingerprint: str | None = None
        self._find_fields(fields, dict(kinds or {}))

    def _find_fields(self, fields: Sequence[str] | None, kinds: dict[str, Kind]) -> None:
        """What the fields are, and what they hold: the first sample tells it."""
        self._parts: tuple[str, ...] | None = None
        beside = {*BESIDE, "key"}
        possible = _POSSIBLE[self.format]
        if self.format == "caffe2" and self.label_type == "none":
            possible = ("image", "bbox")
        if self.decode is not None:
            if fields is not None:
                self._parts = tuple(name for name in fields if name not in beside)
            possible = tuple(first_whole(len(self), lambda index: self._sample(self._values([index])[0], ())))
            if "key" in possible:
                raise ValueError("decode must not return 'key', which is the sample's key in the database")
        chosen = tuple(name for name in possible if name != "bbox") if fields is None else fields
        self._set_fields(chosen, dict.fromkeys((*possible, "key"), "object"))
        names = [name for name in self.fields if name in possible]
        if unknown := sorted(set(kinds) - set(names)):
            raise ValueError(f"kinds must be of the fields {', '.join(names)}, got {unknown[0]!r}")
        first = first_whole(len(self), lambda index: self._sample(self._values([index])[0], names))
        self._first: dict[str, str] = {name: _signature(first[name]) for name in names}
        found = {name: _kind(name, first[name], kinds.get(name)) for name in names}
        self._set_fields(chosen, {"key": "object", **found})

    def __len__(self) -> int:
        return len(self._keys)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_database": None}

    def _values(self, indices: Sequence[int]) -> list[Bytes]:
        if LocalStorage(self.file).version != self._version:
            raise ValueError(f"{self.file} has changed since it was first looked at: make the dataset again")
        database = self._database or Database.of(self.file)
        self._database = database
        values = []
        with database.environment.begin(buffers=True) as view:
            for index in indices:
                try:
                    value = view.get(self._keys[index].encode("utf-8", "surrogateescape"))
                except database.error as error:
                    raise ValueError(f"{self.path(index)} is damaged: {error}") from error
                if value is None:
                    raise ValueError(f"{self.path(index)} is not found: the order of the keys is damaged")
                # Copied, since the memory is the file's, and only until the transaction ends.
                values.append(np.frombuffer(bytearray(value), np.uint8))
        return values

    def _sample(self, value: Bytes, names: Sequence[str]) -> dict[str, Any]:
        """The named fields of a value."""
        if self.format == "caffe":
            return caffe_sample(value, names, self.layout)
        if self.format == "caffe2":
            return caffe2_sample(value, names, self.label_type, self.num_labels)
        if self.decode is None:
            return {"value": value}
        decoded = self.decode(value.tobytes())
        if isinstance(decoded, Mapping):
            return {name: _as_array(one) for name, one in decoded.items()}
        if not isinstance(decoded, tuple) or self._parts is None or len(decoded) != len(self._parts):
            raise ValueError(f"decode must return a dict, or a tuple as long as fields=, got {decoded!r:.80}")
        return {name: _as_array(one) for name, one in zip(self._parts, decoded, strict=True)}

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        parts = [name for name in names if name != "key"]
        columns: dict[str, list[Any]] = {name: [] for name in parts}
        for index, value in zip(indices, self._values(indices), strict=True):
            try:
                sample = self._sample(value, parts)
                for name in parts:
                    if name not in sample:
                        raise ValueError(f"decode must return {name!r}, got {', '.join(sample)}")
                    if _signature(sample[name]) != self._first[name]:
                        raise ValueError(
                            f"{name!r} must be {self._first[name]} as in {self.path(0)}, got {_signature(sample[name])}"
                        )
                    columns[name].append(sample[name])
            except ValueError as error:
                raise ValueError(f"{self.path(index)}: {error}") from error
        result: Columns = {
            name: np.array(column) if self.kinds[name] == "number" else column for name, column in columns.items()
        }
        if "key" in names:
            result["key"] = [self._keys[index] for index in indices]
        return result

    def uniform(self, name: str) -> bool:
        fixed = name == "bbox" or (name == "label" and self.label_type in ("sparse", "weighted"))
        return self.kinds[name] == "number" or (self.format == "caffe2" and fixed)

    def path(self, index: int) -> str:
        """The file and the sample's key in it: "data.mdb#00000007"."""
        return f"{self.file}#{self._keys[index]}"

    def fingerprint(self) -> str:
        """Of the keys and of the file's size."""
        if self._fingerprint is None:
            parts = digest(self._keys.blob, self._keys.ends, self._version.split()[0])
            self._fingerprint = f"{len(self)} in LMDB {parts}"
        return self._fingerprint


def _kind(name: str, value: Any, given: Kind | None) -> Kind:
    """What a field with this value holds; ValueError if it can't be what is wanted."""
    kind: Kind = "object"
    possible: tuple[Kind, ...] = ("object",)
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 1:
        kind, possible = kind_of_bytes(name), ("encoded", "array")
    elif isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] in (1, 3):
        kind, possible = "image" if kind_of_bytes(name) == "encoded" else "array", ("image", "array")
    elif isinstance(value, _NUMBERS) and np.asarray(value).dtype.kind in "biuf":
        kind = "array" if np.ndim(value) else "number"
        possible = (kind,)
    if given is not None and given not in possible:
        raise ValueError(f"the kind of {name!r} must be {' or '.join(possible)}, got {given!r}")
    return given or kind


def _as_array(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return np.frombuffer(bytearray(value), np.uint8)
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value


def _signature(value: Any) -> str:
    return f"{np.asarray(value).dtype} of {np.ndim(value)} dimensions" if isinstance(value, _NUMBERS) else "an object"


_NUMBERS = (bool, int, float, np.number, np.bool_, np.ndarray)


class Database:
    """A database that is open in this process, once for all its readers, as lmdb demands it.

    A forked process goes on with its parent's: without a lock, there is nothing that belongs to one process.
    """

    def __init__(self, file: str) -> None:
        try:
            import lmdb
        except ImportError as error:
            raise ImportError("LMDB needs a package: pip install torchdali[lmdb]") from error
        self.error: type[Exception] = lmdb.Error
        name = os.path.basename(file) == DATA
        where = (os.path.dirname(file) or ".") if name else file
        options = dict(readonly=True, lock=False, create=False, readahead=False)
        self.environment = lmdb.open(where, subdir=name, **options)

    @classmethod
    def of(cls, file: str) -> Database:
        """The open one, or a new one; errors of lmdb."""
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


# The file's format: mdb.c of LMDB 0.9.

_HEAD = 16  # bytes before a page's content
_META = struct.Struct("<10xH4x II16x I48x HH24xQQ QQ")  # _HEAD, the database of free pages, and the main one
_MAGIC, _FORMAT = 0xBEEFC0DE, 1
_NONE = (1 << 64) - 1  # the root of an empty database
_IS_BRANCH, _IS_LEAF, _IS_META = 1, 2, 8
_IS_LARGE, _IS_DATABASE = 1, 2  # of a node's value
_SEVERAL = 4  # of a database: values for a key
PAGES = 1024  # that are checked at once


class Meta(NamedTuple):
    """What a database's first pages say; `page` is the size of one, `last` the last one in use."""

    page: int
    flags: int
    depth: int
    entries: int
    root: int
    last: int
    transaction: int


def check_lmdb(path: str | Path) -> tuple[str, Texts]:
    """Check that all of a database is there; lmdb and DALI die where a part is missing.

    All pages of its tree are read, which for images are a hundredth of the file, and the places of all values are
    compared with the file's size.  The last page in use may be missing, as lmdb does not write pages that were freed.

    Args:
        path: the folder with data.mdb, or the file itself; local.

    Returns:
        the data file, and its keys in their order.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is remote, damaged, cut off, empty, or has named databases or several values for a key; with
            path and offset.
    """
    text = os.fspath(path)
    if is_remote(text):
        raise ValueError(f"LMDB is read from local disks only, got {text}: copy it")
    file = os.path.expanduser(text.removeprefix("file://"))
    if os.path.isdir(file):
        file = os.path.join(file, DATA)
    storage = LocalStorage(file)
    meta = _meta(storage)
    if meta.flags & _SEVERAL:
        raise ValueError(f"{file} has several values for a key (dupsort), and one each was expected")
    if not meta.entries or meta.root == _NONE:
        raise ValueError(f"{file} is an empty database")
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
    """The newer of the two pages in front, as lmdb takes it."""
    found: list[Meta] = []
    while len(found) < 2:
        offset = found[0].page if found else 0
        if offset + _META.size > storage.size:
            raise ValueError(f"{storage.path} is cut off: {_META.size} bytes expected at offset {offset}")
        flags, magic, version, *rest = _META.unpack(storage.read(offset, _META.size).data)
        meta = Meta(*rest)
        if magic != _MAGIC or not flags & _IS_META or (found and meta.page != offset):
            raise ValueError(f"{storage.path} is no LMDB database, or damaged at offset {offset}")
        if version != _FORMAT or not 256 <= meta.page <= 1 << 16 or meta.page & (meta.page - 1):
            raise ValueError(
                f"{storage.path} must be of LMDB's format {_FORMAT}, got {version}, pages of {meta.page} bytes"
            )
        found.append(meta)
    return max(found, key=lambda meta: meta.transaction)


def _check_pages(storage: Storage, size: int, numbers: NDArray[np.uint64]) -> tuple[NDArray[np.uint64], Texts]:
    """The children of some pages of the tree, and the keys of the values in them; ValueError as `check_lmdb`."""
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
