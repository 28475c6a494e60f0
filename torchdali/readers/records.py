"""Files of records: TFRecord, and MXNet's RecordIO."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from .. import _dali
from ..datasets.protobuf import example
from ..datasets.recordio import RecordFiles, RecordIODataset
from ..datasets.tfrecord import Feature, TFRecordDataset
from ..formats.parts import kind_of_bytes
from .base import Output
from .cursor import Cursor
from .index_files import index_file
from .known import KnownReader

CHECKED_FILES, CHECKED_RECORDS = 64, 4  # of each file


class RecordReader(KnownReader):
    """Base of readers of record files, whose twin finds and checks the records."""

    records: RecordFiles

    def _found(self, records: RecordFiles) -> None:
        self.records = records
        self.total_bytes = sum(os.path.getsize(path) for path in records.shards)

    def native_options(self) -> dict[str, Any]:
        return self.options | {"path": self.records.shards, "index_path": self._index_files()}

    def _index_files(self) -> list[str]:
        return [
            index_file(path, self.name.lower(), partial(self._index, shard))
            for shard, path in enumerate(self.records.shards)
        ]

    def _index(self, shard: int) -> str:
        return self._index_text(self.records.bounds_of(shard))

    def _index_text(self, bounds: list[int]) -> str:
        raise NotImplementedError


class TFRecord(RecordReader):
    """DALI's reader of tf.train.Examples: `path` and `features`; `index_path` is made where it is not given.

    Features are DALI's (`tfrec.FixedLenFeature(...)`), or written as for `TFRecordDataset`: "int", "float", "bytes",
    ("int", (4,)), ("float", None) for any number; such a reader pickles.  Fields have the features' names unless
    `fields` gives others, in their order.

    Checked when it is made: lengths and checksums of all records' headers, and the index against them; and the first
    records of up to 64 files against what DALI gives for them.  Where a feature is absent or of another length, DALI
    gives what is not in the file, and not the default: then torchdali.TFRecordDataset is the one to use.
    """

    ndd_name = "TFRecord"
    twin = "torchdali.TFRecordDataset"
    records: TFRecordDataset

    def describe(self, fields: Sequence[str]) -> list[Output]:
        if "path" not in self.options or not isinstance(self.options.get("features"), dict):
            raise ValueError('TFRecord needs path= and features=, such as {"image/encoded": "bytes", "label": "int"}')
        anything = {"": ("int", None, ())}
        self._found(TFRecordDataset(self.options["path"], anything, index_paths=self.options.get("index_path")))
        self._native = {name: NativeFeature(name, what) for name, what in self.options["features"].items()}
        names = [name for name in fields if name not in ("index", "valid")] or list(self._native)
        first = self._check(0)
        return [
            native.output(name, field, value)
            for (name, native), field, value in zip(self._native.items(), names, first, strict=False)
        ]

    def check(self) -> None:
        files = len(self.records.shards)
        for shard in range(1, files, -(-files // CHECKED_FILES)):
            self._check(shard)

    def native_options(self) -> dict[str, Any]:
        natives = {name: native() for name, native in self._native.items()}
        return super().native_options() | {"features": natives}

    def __getstate__(self) -> dict[str, Any]:
        if any(native.feature is None for native in self._native.values()):
            raise TypeError(
                "DALI's features do not pickle, so this reader does not: write them as for TFRecordDataset, such as "
                '"bytes", "int" or ("float", (4,))'
            )
        return self.__dict__

    def _index_text(self, bounds: list[int]) -> str:
        return "".join(f"{begin} {end - begin}\n" for begin, end in pairwise(bounds))

    def _check(self, shard: int) -> list[Any]:
        """Compare DALI's first records of a file with the file; the first one's values by feature."""
        rows = self.records.rows_of(shard)[:CHECKED_RECORDS]
        if not rows:
            return []
        options = self.native_options()
        options |= {"path": options["path"][shard : shard + 1], "index_path": options["index_path"][shard : shard + 1]}

        def make(age: int, rows: int) -> Any:
            assert age == 0
            return self._class(max_batch_size=rows, **options)

        wanted = {name.encode() for name in self._native}
        records = [(place, data, example(data.data, wanted)) for place, data in self.records.payloads(rows)]
        for place, _, found in records:
            for name, (number, parts) in found.items():
                if number == 1 and not parts:
                    raise ValueError(
                        f"{place}: the feature {name.decode()!r} is an empty list of texts; DALI dies of it"
                    )
        cpu = torch.device("cpu")
        got = Cursor(make, _dali.context(1, cpu), cpu, len(rows), 0, 1).read(len(rows))
        for row, (place, payload, found) in enumerate(records):
            for name, values in zip(self._native, got, strict=True):
                true, given = _values(name, payload, found), np.ravel(values[row])
                if true is None or not np.array_equal(true, given):
                    held = "several texts" if true is None else f"{len(true)} values"
                    raise ValueError(
                        f"{place}: the feature {name!r} has {held}, and DALI would give {len(given)} that are not in "
                        f"the file: correct features=, or use {self.twin}, which knows defaults"
                    )
        return [values[0] for values in got]


def _values(name: str, payload: Any, found: Any) -> Any:
    """The true values of a feature, flat; None for several texts."""
    number, parts = found.get(name.encode(), (0, []))
    if not parts:
        return []
    kind = {1: "bytes", 2: "float", 3: "int"}[number]
    values = Feature(name, kind, (None,)).read(payload, found)
    if kind == "bytes":
        return values[0] if len(values) == 1 else None
    return values


class NativeFeature:
    """Makes DALI's feature from ours when it is needed: DALI's own do not pickle, and tell nothing of themselves."""

    def __init__(self, name: str, what: Any) -> None:
        opaque = type(what).__name__ == "Feature" and type(what).__module__.startswith("nvidia")
        self._opaque = what if opaque else None
        self.feature = None if opaque else Feature.of(name, what)

    def __call__(self) -> Any:
        if self.feature is None:
            return self._opaque
        return _dali.tfrecord_feature(self.feature.type, self.feature.shape)

    def output(self, name: str, field: str, value: Any) -> Output:
        """What it gives, by its first value where DALI's does not tell."""
        if value.dtype == np.uint8:
            return Output(name, kind_of_bytes(field))
        if self.feature is None:
            return Output(name, "number" if value.shape in ((), (1,)) else "array")
        shape = self.feature.shape
        return Output(name, "array", uniform=None not in shape) if shape else Output(name, "number")


class MXNet(RecordReader):
    """DALI's reader of MXNet's image records: `path` and `index_path`, which is made where it is not given.

    Fields: image, and label: a float32 number, or an array where the records were written with several labels.

    Checked when it is made: all records' headers, and the index against them, by `RecordIODataset`.
    """

    ndd_name = "MXNet"
    twin = "torchdali.RecordIODataset"
    records: RecordIODataset

    def describe(self, fields: Sequence[str]) -> list[Output]:
        if "path" not in self.options:
            raise ValueError("MXNet needs path=")
        self._found(RecordIODataset(self.options["path"], self.options.get("index_path")))
        return [Output("image", "encoded"), Output("label", self.records.kinds["label"])]

    def _index_text(self, bounds: list[int]) -> str:
        return "".join(f"{number}\t{begin}\n" for number, begin in enumerate(bounds[:-1]))
