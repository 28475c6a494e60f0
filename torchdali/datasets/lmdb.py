"""Datasets of LMDB databases, read by index: Caffe's, Caffe2's, and any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..batch import Columns, Held
from ..checks import integer, one_of
from ..fields import BESIDE, check_kind, check_kinds
from ..formats.caffe import LABEL_TYPES, caffe2_sample, caffe_sample, check_protobuf
from ..formats.lmdb import LMDBFile
from ..formats.parts import kind_of_bytes
from ..formats.whole import first_whole
from ..kinds import AnyKind, as_kinds
from ..signature import Form, is_pixels, kind_of
from ..storage import Bytes
from .base import MapDataset

Decode = Callable[[bytes], "dict[str, Any] | tuple[Any, ...]"]
_POSSIBLE: dict[str, tuple[str, ...]] = {
    "caffe": ("image", "label"),
    "caffe2": ("image", "label", "bbox"),
    "raw": ("value",),
}


class LMDBDataset(MapDataset):
    """Samples in an LMDB database, in the order of its keys.

    The database is read with the package lmdb, without a lock: it must not be written meanwhile.

    Args:
        path: the folder with data.mdb, or the file itself.
        format: the format of its values:

                "caffe"   Datum: the fields image and label (int64)
                "caffe2"  TensorProtos, as DALI's reader takes them: the fields image, label by `label_type`, and bbox
                          (int32 [4], the last part)
                "raw"     the field value (uint8 [n]); with `decode`, the fields that it gives

        fields: some of these, and any of key, index, path and valid; by default the format's own, without bbox.
        kinds: the kinds of fields that the first sample does not show: "encoded", "image" or "array".
        layout: the layout of Caffe's pixels that are not encoded: "HWC", as DALI's reader takes them, or "CHW": planes
            in the order blue, green, red, as Caffe's own tools write them.  Both come out as RGB [H, W, C].
        label_type: "single" (a number, int64 or float32), "sparse" (indices; the label is [num_labels] of 0 and 1),
            "dense" (the array as it is), "weighted" (indices and weights; float32 [num_labels]), "none"; or DALI's
            number of the type, 0 to 4.
        num_labels: the length of sparse and weighted labels.
        decode: a function of a raw value that returns a dict, or a tuple in the order of `fields`.

    Attributes:
        database: the file, and its keys.

    Raises:
        ValueError: invalid arguments; a database that is damaged, cut off or empty, with path and offset; a first
            sample of another format.
        FileNotFoundError: there is no database.
        ImportError: the package lmdb is missing, or protobuf for Caffe's formats.
    """

    blocking = True

    def __init__(
        self,
        path: str | Path,
        format: str = "caffe",
        fields: Sequence[str] | None = None,
        *,
        kinds: Mapping[str, AnyKind] | None = None,
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
        if format != "raw":
            check_protobuf()
        self.database = LMDBFile(path)
        self._find_fields(fields, as_kinds(kinds))

    def _find_fields(self, fields: Sequence[str] | None, kinds: dict[str, AnyKind]) -> None:
        """Set the fields and their kinds from the first sample."""
        self._parts: tuple[str, ...] | None = None
        beside = {*BESIDE, "key"}
        possible = _POSSIBLE[self.format]
        if self.format == "caffe2" and self.label_type == "none":
            possible = ("image", "bbox")
        if self.decode is not None:
            if fields is not None:
                self._parts = tuple(name for name in fields if name not in beside)
            possible = tuple(first_whole(len(self), lambda index: self._sample(self.database.read([index])[0], ())))
            if "key" in possible:
                raise ValueError("decode must not return 'key', which is the sample's key in the database")
        chosen = tuple(name for name in possible if name != "bbox") if fields is None else fields
        self._set_fields(chosen, dict.fromkeys((*possible, "key"), "object"))
        names = [name for name in self.fields if name in possible]
        check_kinds(kinds, names)
        first = first_whole(len(self), lambda index: self._sample(self.database.read([index])[0], names))
        self._forms = {name: _form(first[name]) for name in names}
        found = {name: _kind(name, first[name], kinds.get(name)) for name in names}
        self._set_fields(chosen, {"key": "object", **found}, kinds)

    @property
    def file(self) -> str:
        """The data file."""
        return self.database.file

    def __len__(self) -> int:
        return len(self.database)

    def _sample(self, value: Bytes, names: Sequence[str]) -> dict[str, Any]:
        """Give the named fields of a value."""
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
        for index, value in zip(indices, self.database.read(indices), strict=True):
            try:
                sample = self._sample(value, parts)
                for name in parts:
                    if name not in sample:
                        raise ValueError(f"decode must return {name!r}, got {', '.join(sample)}")
                    self._forms[name].check(name, sample[name], self.path(0), self.path(index))
                    columns[name].append(sample[name])
            except ValueError as error:
                raise ValueError(f"{self.path(index)}: {error}") from error
        result: Columns = {
            name: np.array(column) if self.kinds[name].held == "number" else column for name, column in columns.items()
        }
        if "key" in names:
            result["key"] = [self.database.keys[index] for index in indices]
        return result

    def uniform(self, name: str) -> bool:
        fixed = name == "bbox" or (name == "label" and self.label_type in ("sparse", "weighted"))
        return self.kinds[name].held == "number" or (self.format == "caffe2" and fixed)

    def path(self, index: int) -> str:
        """Give the file and the sample's key in it: "data.mdb#00000007"."""
        return self.database.path(index)

    def fingerprint(self) -> str:
        """Hash the keys and the file's size."""
        return f"{len(self)} in LMDB {self.database.digest()}"


def _kind(name: str, value: Any, given: AnyKind | None) -> Held:
    """Give the kind of a field with this value; raise ValueError if it can't have the given kind."""
    kind: Held = "object"
    possible: tuple[Held, ...] = ("object",)
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 1:
        kind, possible = kind_of_bytes(name), ("encoded", "array")
    elif is_pixels(value):
        kind, possible = "image" if kind_of_bytes(name) == "encoded" else "array", ("image", "array")
    elif kind_of(value) != "object":
        kind = "array" if np.ndim(value) else "number"
        possible = (kind,)
    return check_kind(name, given, kind, possible)


def _as_array(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return np.frombuffer(bytearray(value), np.uint8)
    return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value


def _form(value: Any) -> Form:
    """Give the form that all values of a field must have, from the first value."""
    if isinstance(value, np.ndarray) and value.ndim:  # files too, as bytes; images may differ in their channels
        return Form.of("array", value)
    return Form.of(kind_of(value), value)
