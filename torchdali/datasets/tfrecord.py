"""TFRecord files of tf.train.Example, read by index.

The formats: tensorflow/core/lib/io/record_writer.h and tensorflow/core/example/feature.proto.
"""

from __future__ import annotations

import itertools
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch import Column, Columns, Kind
from ..checks import integer
from ..formats.parts import as_bytes, as_integer, as_text, kind_of_bytes
from ..storage import Bytes, Storage
from .base import BESIDE
from .index import Index
from .protobuf import FeatureList, example, floats, integers, span
from .recordio import BOUNDS, RecordFiles, scan

_HEADER = struct.Struct("<QI")  # length, its checksum; the record's checksum is behind it
AROUND = 16  # bytes of a record beside its data


class TFRecordDataset(RecordFiles):
    """Examples in TFRecord files.

    Args:
        paths: the files: paths, URLs, and patterns such as "train-*-of-00128"; not compressed.
        features: what to read, by name, as a type or as (type, shape) or (type, shape, default):

                "int", "int64"              int64
                "float", "float32"          float32
                "bytes", "byte", "string"   bytes: an image file by its field's name, see `formats.parts.kind_of_bytes`,
                                            else an array; `kinds` says otherwise
                ()                          one value; this is the shape where there is none
                (4,), (2, 2)                that many values
                None, (None, 4)             any number, the first dimension is inferred; of bytes: a list of texts

            A feature that an example lacks is an error unless there is a default.  TensorFlow's FixedLenFeature,
            VarLenFeature and FixedLenSequenceFeature are taken too, with their own defaults.
        fields: names for the features: in their order, or by a dict of field and feature, and among them any of index,
            path and valid; or some of the features' own names.  None: the features' names.
        kinds: what fields of bytes hold: "encoded", "array", "object" (text in UTF-8) or "number" (an integer in text).
        index_paths: indexes made by DALI's `tfrecord2idx`, one a file; they are checked.  None: the files are scanned
            once, and the result is kept.
        index_dir: a folder for our own indexes, instead of `~/.cache/torchdali/index`.
        check_crc: verify the checksum of each record that is read; that of its length always is.
        storage_options: fsspec's, for remote files.

    Attributes:
        shards: the files.
        features: the features by field.

    Raises:
        ValueError: wrong arguments; a file that is damaged, cut off, compressed or without records, or whose first
            example has other features, with path and offset; an index that does not fit.
        TypeError: a feature that can't be looked into, or a default of another type.
        ImportError: `check_crc` without google-crc32c or crc32c.
        FileNotFoundError: no such file.
    """

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        features: Mapping[str, Any],
        fields: Sequence[str] | Mapping[str, str] | None = None,
        *,
        kinds: Mapping[str, Kind] | None = None,
        index_paths: str | Path | Sequence[str | Path] | None = None,
        index_dir: str | Path | None = None,
        check_crc: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if not isinstance(features, Mapping) or not features:
            raise TypeError(f"features must be a dict such as {{'image/encoded': 'bytes'}}, got {features!r}")
        known = {name: Feature.of(name, what) for name, what in features.items()}
        names = field_names(fields, known)
        self.features = {field: known[name] for field, name in names.items() if name in known}
        given = dict(kinds or {})
        if unknown := sorted(set(given) - set(self.features)):
            raise ValueError(f"kinds must be of the fields {', '.join(self.features)}, got {unknown[0]!r}")
        natural = {field: feature.kind(field, given.get(field)) for field, feature in self.features.items()}
        self._set_fields(tuple(names), natural)
        self._convert = {
            field: _texts if one.shape else _FROM_BYTES[natural[field]]
            for field, one in self.features.items()
            if one.type == "bytes"
        }
        self._crc = _crc32c() if check_crc else None
        self._open("tfrecord1", paths, index_paths, index_dir, storage_options)
        if index_paths is not None:
            self.payloads([0, len(self) - 1])  # each other one is checked when it is read
        try:
            self.read_columns([0], list(self.features))
        except FeatureError:
            raise
        except ValueError:
            pass  # it is damaged: met when it is read

    def _scan(self, storage: Storage) -> Index:
        def walk(window: bytes, base: int) -> list[int]:
            at, lengths, sums, ends = 0, [], [], []
            while at <= len(window) - _HEADER.size:
                length, crc = _HEADER.unpack_from(window, at)
                lengths.append(length)
                sums.append(crc)
                at += length + AROUND
                ends.append(base + at)
            wrong = length_checksums(lengths) != np.array(sums, np.uint32)
            if wrong.any():
                number = int(wrong.argmax())
                begin = ends[number - 1] if number else base
                raise ValueError(f"{storage.path} is no TFRecord at offset {begin}: {_not_a_header(window, begin)}")
            return ends

        return {BOUNDS: scan(storage, _HEADER.size, walk)}

    def _read_index(self, words: list[bytes], size: int) -> NDArray[np.int64]:
        if len(words) % 2:
            raise ValueError(f"lines of an offset and a size were expected, got {len(words)} words")
        table = np.array(words, np.int64).reshape(-1, 2)
        bounds = np.append(table[:, 0], size)
        wrong = np.append(bounds[0] != 0, bounds[1:] != table.sum(axis=1)) | np.append(table[:, 1] < AROUND, False)
        if wrong.any():
            raise ValueError(
                f"records one behind the other from 0 to {size} were expected, line {int(wrong.argmax()) or 1} is not"
            )
        return bounds

    def payloads(self, indices: Sequence[int]) -> list[tuple[str, Bytes]]:
        """The records' data, uint8 [n], and their places."""
        records = list(self._records(indices))
        heads = [_HEADER.unpack_from(record.data.data) for record in records]
        sums = length_checksums([length for length, _ in heads])
        payloads = []
        for (data, place), (length, crc), expected in zip(records, heads, sums.tolist(), strict=True):
            if crc != expected or length != len(data) - AROUND:
                raise ValueError(
                    f"{place} is damaged, or its index is wrong: a length of {len(data) - AROUND} with its checksum "
                    f"was expected, got {length}{'' if crc == expected else ' with another'}"
                )
            payload = data[_HEADER.size : -4]
            if self._crc is not None and masked(self._crc(payload.tobytes())) != int(data[-4:].view("<u4")[0]):
                raise ValueError(f"{place} is damaged: its checksum is another")
            payloads.append((place, payload))
        return payloads

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        values: dict[str, list[Any]] = {field: [] for field in names}
        wanted = {self.features[field].name.encode() for field in names}
        for place, payload in self.payloads(indices):
            try:
                found = example(payload.data, wanted)
                for field in names:
                    value = self.features[field].read(payload, found)
                    values[field].append(self._convert[field](value) if field in self._convert else value)
            except ValueError as error:
                raise (FeatureError if isinstance(error, FeatureError) else ValueError)(f"{place}: {error}") from None
        return {field: self._column(field, column) for field, column in values.items()}

    def _column(self, field: str, values: list[Any]) -> Column:
        if self.kinds[field] == "number":
            return np.array(values, np.float32 if self.features[field].type == "float" else np.int64)
        return np.stack(values) if self.uniform(field) else values

    def uniform(self, name: str) -> bool:
        if name in self.features and self.kinds[name] == "array" and self.features[name].type != "bytes":
            return None not in self.features[name].shape
        return self.kinds[name] == "number"


class FeatureError(ValueError):
    """An example has not the features that it should have."""


@dataclass(frozen=True)
class Feature:
    """What to read of each example.

    Attributes:
        name: the feature.
        type: "bytes", "int" or "float".
        shape: None at its start: any number.
        default: the value where there is none, of this type and shape; None: that is an error.
    """

    name: str
    type: str
    shape: tuple[int | None, ...]
    default: Any = None

    @classmethod
    def of(cls, name: str, what: Any) -> Feature:
        """From what a user writes; errors as `TFRecordDataset`."""
        shape: Any = ()
        default = None
        if hasattr(what, "dtype") and not isinstance(what, type):  # TensorFlow's
            shape, default = getattr(what, "shape", None), getattr(what, "default_value", None)
            if hasattr(what, "allow_missing"):
                shape, default = (None, *shape), () if what.allow_missing else None
            elif not hasattr(what, "shape"):
                default = ()  # what TensorFlow gives
            what = what.dtype
        elif isinstance(what, (tuple, list)) and 1 <= len(what) <= 3:
            what, shape, default = itertools.islice(itertools.chain(what, [(), None][len(what) - 1 :]), 3)
        word = what if isinstance(what, str) else getattr(what, "name", None) or getattr(what, "__name__", None)
        if word not in _TYPES:
            raise TypeError(
                f"the feature {name!r} must be a type such as 'int', or (type, shape, default), got {what!r}; DALI's "
                "FixedLenFeature((), int64, 0) and VarLenFeature(float32, 0.0) can't be looked into: write "
                "('int', (), 0) and ('float', None)"
            )
        kind = _TYPES[word]
        feature = cls(name, kind, _shape(name, shape, kind))
        return feature if default is None else replace(feature, default=feature._flat(default))

    def _flat(self, default: Any) -> Any:
        """A default as values one behind the other; TypeError or ValueError if it has another type or length."""
        if self.type == "bytes":
            texts = list(default) if isinstance(default, (list, tuple)) else [default]
            if not all(isinstance(text, (str, bytes)) for text in texts):
                raise TypeError(f"the default of {self.name!r} must be bytes, got {default!r}")
            raw = [text.encode() if isinstance(text, str) else text for text in texts]
            values: Any = [np.frombuffer(bytearray(text), np.uint8) for text in raw]
        else:
            values = np.asarray(default)
            if values.size and values.dtype.kind not in ("iu" if self.type == "int" else "iuf"):
                raise TypeError(f"the default of {self.name!r} must be of type {self.type}, got {default!r}")
            count = 1 if None in self.shape else math.prod(size or 0 for size in self.shape)
            values = values.astype(_DTYPES[self.type])
            values = values.ravel() if values.ndim else np.full(count, values)
        self._fit(len(values))
        return values

    def _fit(self, count: int) -> tuple[int, ...]:
        """The shape of so many values; FeatureError if there should be another number."""
        rest = [size for size in self.shape if size is not None]
        if len(rest) < len(self.shape) and count % math.prod(rest) == 0:
            return count // math.prod(rest), *rest
        if len(rest) == len(self.shape) and count == math.prod(rest):
            return tuple(rest)
        raise FeatureError(
            f"the feature {self.name!r} has {count} values, and the shape {self.shape} was expected: write "
            f"({self.type!r}, ({count},)), or ({self.type!r}, None) for any number"
        )

    def kind(self, field: str, given: Kind | None) -> Kind:
        """What a field of this feature holds; ValueError if it can't be what is wanted."""
        if self.type == "bytes" and not self.shape:
            kind, possible = kind_of_bytes(field), tuple(_FROM_BYTES)
        else:
            kind = "object" if self.type == "bytes" else "array" if self.shape else "number"
            possible = (kind,)
        if given is not None and given not in possible:
            raise ValueError(f"the kind of {field!r} must be {' or '.join(possible)}, got {given!r}")
        return given or kind

    def read(self, record: Bytes, found: Mapping[bytes, FeatureList]) -> Any:
        """The value in an example: uint8 [n], a number, an array, or a list of uint8 arrays.

        Args:
            record: the example.
            found: its features.

        Raises:
            FeatureError: there is none, or one of another type or length.
        """
        there = found.get(self.name.encode())
        if there is None and self.default is None:
            raise FeatureError(
                f"there is no feature {self.name!r}: for examples without it, write (type, shape, default)"
            )
        values = self.default
        if there is not None:
            number, parts = there
            if number not in (0, _LISTS[self.type]):
                got = next(name for name, known in _LISTS.items() if known == number)
                raise FeatureError(f"the feature {self.name!r} was expected to be of type {self.type}, got {got}")
            if self.type == "bytes":
                values = [record[slice(*span(part))] for part in parts]
            else:
                values = (integers if self.type == "int" else floats)(record.data, parts)
            if not len(values) and self.default is not None and None not in self.shape:
                values = self.default
        shape = self._fit(len(values))
        if not shape:
            return values[0]
        return list(values) if self.type == "bytes" else np.array(values).reshape(shape)


_TYPES = {
    **dict.fromkeys(["bytes", "byte", "string"], "bytes"),
    **dict.fromkeys(["int", "int64"], "int"),
    **dict.fromkeys(["float", "float32"], "float"),
}
_LISTS = {"bytes": 1, "float": 2, "int": 3}
_DTYPES = {"int": np.int64, "float": np.float32}
_FROM_BYTES: dict[Kind, Callable[[Bytes], Any]] = {
    "encoded": as_bytes, "array": as_bytes, "object": as_text, "number": as_integer,
}  # fmt: skip


def _texts(values: list[Bytes]) -> list[str]:
    return [as_text(value) for value in values]


def _shape(name: str, shape: Any, kind: str) -> tuple[int | None, ...]:
    """A shape with None for a first dimension of any size; TypeError or ValueError if it is none."""
    if shape is None:
        return (None,)
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable):
        raise TypeError(f"the shape of {name!r} must be a tuple such as () or (4,), or None, got {shape!r}")
    sizes = tuple(None if size in (None, -1) and not i else size for i, size in enumerate(shape))
    for size in sizes[sizes[:1] == (None,) :]:
        integer(f"a size in the shape of {name!r}", size, 1)
    if kind == "bytes" and len(sizes) > 1:
        raise ValueError(f"the shape of {name!r}, which is bytes, must be (), (n,) or None, got {shape!r}")
    return () if kind == "bytes" and sizes == (1,) else sizes


def field_names(fields: Sequence[str] | Mapping[str, str] | None, known: Mapping[str, Any]) -> dict[str, str]:
    """Which feature each field is, where index, path and valid stand for themselves; errors as `TFRecordDataset`."""
    if fields is None:
        return {name: name for name in known}
    if isinstance(fields, Mapping):
        names = dict(fields)
    else:
        of_features = [name for name in fields if name not in BESIDE]
        if isinstance(fields, str) or not (set(of_features) <= set(known) or len(of_features) == len(known)):
            raise ValueError(
                f"fields must be names for the features {', '.join(known)}, or some of these, got {fields!r}: write a "
                "dict of field and feature"
            )
        ordered = of_features if set(of_features) <= set(known) else known
        names = {**dict(zip(of_features, ordered)), **{name: name for name in fields if name in BESIDE}}
        names = {name: names[name] for name in fields}
    for field, name in names.items():
        if name not in known and field not in BESIDE:
            raise ValueError(f"fields must be of the features {', '.join(known)}, got {field!r}: {name!r}")
    return names


# Checksums: CRC-32C, masked since a file may hold files with checksums in them.

_POLYNOMIAL = 0x82F63B78


def _crc_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


_TABLE = _crc_table()


def length_checksums(lengths: Sequence[int]) -> NDArray[np.uint32]:
    """The masked checksums of records' lengths, [n]."""
    raw = np.array(lengths, "<u8").view(np.uint8).reshape(-1, 8)
    crc = np.full(len(raw), 0xFFFFFFFF, np.uint32)
    for i in range(8):
        crc = _TABLE[(crc ^ raw[:, i]) & 0xFF] ^ (crc >> 8)
    checksums: NDArray[np.uint32] = masked(~crc)
    return checksums


def masked(crc: Any) -> Any:
    """A checksum, or an array of them in 32 bits, as it is in a file."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _crc32c() -> Callable[[bytes], int]:
    try:
        from google_crc32c import value
    except ImportError:
        try:
            from crc32c import crc32c as value
        except ImportError:
            raise ImportError("check_crc=True needs a package for checksums: pip install google-crc32c") from None
    checksum: Callable[[bytes], int] = value
    return checksum


def _not_a_header(window: bytes, begin: int) -> str:
    if begin == 0 and window.startswith(b"\x1f\x8b"):
        return "it is compressed (gzip) and has no random access: decompress it"
    if begin == 0:
        return "the checksum of the first length is another: it has another format, or is compressed"
    return "the checksum of the record's length is another"
