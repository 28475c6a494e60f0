"""A dataset of tf.train.Examples in TFRecord files, read by index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..batch import Column, Columns, Held
from ..fields import BESIDE, check_kinds
from ..formats.example import check_protobuf, parse_example
from ..formats.feature import Feature, FeatureError
from ..formats.parts import as_bytes, as_integer, as_text
from ..formats.records import RecordFiles
from ..formats.tfrecord import TFRECORD, crc32c, read_records
from ..kinds import AnyKind, as_kinds
from ..storage import Bytes
from .convert import Convert
from .records import RecordDataset

_FROM_BYTES: dict[Held, Callable[[Bytes], Any]] = {
    "encoded": as_bytes, "array": as_bytes, "object": as_text, "number": as_integer,
}  # fmt: skip


class TFRecordDataset(RecordDataset):
    """Examples in TFRecord files.

    Args:
        paths: the files: paths, URLs, and patterns such as "train-*-of-00128"; not compressed.
        features: the features to read, by name: a type, (type, shape) or (type, shape, default):

                "int", "int64"              int64
                "float", "float32"          float32
                "bytes", "byte", "string"   bytes: an image file if the field's name says so, see
                                            `formats.parts.kind_of_bytes`, else an array; `kinds` overrides this
                ()                          one value; the default shape
                (4,), (2, 2)                that many values
                None, (None, 4)             any number, the first dimension is inferred; for bytes: a list of strings

            A feature that an example lacks is an error unless it has a default.  TensorFlow's FixedLenFeature,
            VarLenFeature and FixedLenSequenceFeature are taken too, with their own defaults.
        fields: names for the features, in their order, or a dict {field: feature}; or some of the features' own names.
            Any of index, path and valid may be among them.  None: the features' names.
        kinds: the kinds of fields of bytes: "encoded", "array", "object" (a string, from UTF-8) or "number" (an integer
            in text).
        convert: functions by field, such as {"caption": tokenize}, as in `FileDataset`.
        index_paths: indexes made by DALI's `tfrecord2idx`, one per file; they are checked.  None: files are scanned
            once, and the result is kept.
        index_dir: a folder for our own indexes, instead of `~/.cache/torchdali/index`.
        check_crc: verify the checksum of each record that is read; the checksum of its length is always verified.
        storage_options: fsspec's, for remote files.

    Attributes:
        shards: the files.
        features: the features by field.

    Raises:
        ValueError: invalid arguments; a file that is damaged, cut off, compressed or without records, or whose first
            example has other features, with path and offset; an index of another file.
        TypeError: a feature that can't be looked into, or a default of another type.
        ImportError: protobuf is missing, or, for `check_crc`, google-crc32c or crc32c.
        FileNotFoundError: a file is missing.
    """

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        features: Mapping[str, Any],
        fields: Sequence[str] | Mapping[str, str] | None = None,
        *,
        kinds: Mapping[str, AnyKind] | None = None,
        convert: Convert | None = None,
        index_paths: str | Path | Sequence[str | Path] | None = None,
        index_dir: str | Path | None = None,
        check_crc: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        check_protobuf()
        if not isinstance(features, Mapping) or not features:
            raise TypeError(f"features must be a dict such as {{'image/encoded': 'bytes'}}, got {features!r}")
        known = {name: Feature.of(name, what) for name, what in features.items()}
        names = field_names(fields, known)
        self.features = {field: known[name] for field, name in names.items() if name in known}
        given = as_kinds(kinds)
        check_kinds(given, self.features)
        told = {field: kind for field, kind in given.items() if field not in (convert or {})}  # those are of results
        natural = {field: feature.kind(field, told.get(field)) for field, feature in self.features.items()}
        self._natural = natural
        self._set_fields(tuple(names), natural, told)
        self._from_bytes = {
            field: _texts if one.shape else _FROM_BYTES[natural[field]]
            for field, one in self.features.items()
            if one.type == "bytes"
        }
        self._checksum = crc32c() if check_crc else None
        self.records = RecordFiles(TFRECORD, paths, index_paths, index_dir, storage_options)
        if index_paths is not None:
            read_records(self.records, [0, len(self) - 1], self._checksum)  # the others are checked when they are read
        try:
            self.read_columns([0], list(self.features))
        except FeatureError:
            raise
        except ValueError:
            pass  # it is damaged, and fails when it is read
        self._set_convert(convert or {}, given)

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        values: dict[str, list[Any]] = {field: [] for field in names}
        for place, content in read_records(self.records, indices, self._checksum):
            try:
                found = parse_example(content)
                for field in names:
                    value = self.features[field].read(found)
                    values[field].append(self._from_bytes[field](value) if field in self._from_bytes else value)
            except ValueError as error:
                raise (FeatureError if isinstance(error, FeatureError) else ValueError)(f"{place}: {error}") from None
        return self._converted({field: self._column(field, column) for field, column in values.items()})

    def _column(self, field: str, values: list[Any]) -> Column:
        if self._natural[field] == "number":
            return np.array(values, np.float32 if self.features[field].type == "float" else np.int64)
        return np.stack(values) if self._one_shape(field) else values

    def uniform(self, name: str) -> bool:
        return self.kinds[name].held == "number" or (name not in self._conversions and self._one_shape(name))

    def _one_shape(self, name: str) -> bool:
        """Whether a feature is of numbers in one shape."""
        return (
            self._natural.get(name) == "array"
            and self.features[name].type != "bytes"
            and (None not in self.features[name].shape)
        )


def _texts(values: list[Bytes]) -> list[str]:
    return [as_text(value) for value in values]


def field_names(fields: Sequence[str] | Mapping[str, str] | None, known: Mapping[str, Any]) -> dict[str, str]:
    """Give the feature of each field; index, path and valid stand for themselves.

    Raises:
        ValueError: the fields are neither names of features, nor as many as the features.
    """
    if fields is None:
        return {name: name for name in known}
    if isinstance(fields, Mapping):
        names = dict(fields)
    else:
        of_features = [name for name in fields if name not in BESIDE]
        if isinstance(fields, str) or not (set(of_features) <= set(known) or len(of_features) == len(known)):
            raise ValueError(
                f"fields must be names for the features {', '.join(known)}, or some of these, got {fields!r}: write a "
                "dict {field: feature}"
            )
        ordered = of_features if set(of_features) <= set(known) else known
        names = {**dict(zip(of_features, ordered)), **{name: name for name in fields if name in BESIDE}}
        names = {name: names[name] for name in fields}
    for field, name in names.items():
        if name not in known and field not in BESIDE:
            raise ValueError(f"fields must be of the features {', '.join(known)}, got {field!r}: {name!r}")
    return names
