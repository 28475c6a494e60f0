"""Files of records: TFRecord, and MXNet's RecordIO."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from .. import _dali
from ..components import kind_of_bytes
from ..datasets.protobuf import example
from ..datasets.recordio import RecordFiles, RecordIODataset
from ..datasets.tfrecord import Feature, TFRecordDataset
from .base import Output
from .cursor import Cursor
from .index_files import index_file
from .known import KnownReader

CHECKED_FILES, CHECKED_RECORDS = 64, 4  # of each file


class RecordReader(KnownReader):
    """Base of readers of record files, whose twin finds and checks the records."""

    records: RecordFiles

    def native_options(self) -> dict[str, Any]:
        return self.options | {"path": self.records.shards, "index_path": self._index_files()}

    def _index_files(self) -> list[str]:
        return [
            index_file(path, self.name.lower(), partial(self._index, shard))
            for shard, path in enumerate(self.records.shards)
        ]

    def _index(self, shard: int) -> str:
        return self._index_text(bounds(self.records, shard).tolist())

    def _index_text(self, bounds: list[int]) -> str:
        raise NotImplementedError


def bounds(records: RecordFiles, shard: int) -> Any:
    end = int(records._ends[shard])
    start = int(records._ends[shard - 1]) if shard else 0
    return records._bounds[start + shard : end + shard + 1]


class TFRecord(RecordReader):
    """DALI's reader of tf.train.Examples: `path` and `features`; `index_path` is made where it is not given.

    Features are DALI's (`tfrec.FixedLenFeature(...)`), or written as for `TFRecordDataset`: "int", "float", "bytes",
    ("int", (4,)), ("float", None) for any number; such a reader pickles.  Fields have the features' names unless
    `fields` gives others, in their order.

    Checked when it is made: lengths and checksums of all records' headers, and the index against them; and the first
    records of up to 64 files against what DALI gives for them.  DALI returns memory that nobody has written where a
    feature is absent or of another length, whatever its default: then torchdali.TFRecordDataset is the one to use.
    """

    ndd_name = "TFRecord"
    twin = "torchdali.TFRecordDataset"
    records: TFRecordDataset

    def describe(self, fields: Sequence[str]) -> list[Output]:
        if "path" not in self.options or not isinstance(self.options.get("features"), dict):
            raise ValueError('TFRecord needs path= and features=, such as {"image/encoded": "bytes", "label": "int"}')
        self.records = TFRecordDataset(
            self.options["path"], {"": ("int", None, ())}, index_paths=self.options.get("index_path")
        )
        self._native = {name: _native(name, what) for name, what in self.options["features"].items()}
        names = [name for name in fields if name not in ("index", "valid")] or list(self._native)
        first = self._check(0)
        return [
            Output(feature, _kind(field, what, value))
            for field, (feature, what), value in zip(names, self.options["features"].items(), first, strict=False)
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
        n = min(CHECKED_RECORDS, len(bounds(self.records, shard)) - 1)
        if n < 1:
            return []
        options = self.native_options()
        options |= {"path": options["path"][shard : shard + 1], "index_path": options["index_path"][shard : shard + 1]}

        def make(age: int, rows: int) -> Any:
            assert age == 0
            return self._class(max_batch_size=rows, **options)

        start = int(self.records._ends[shard]) - len(bounds(self.records, shard)) + 1
        wanted = {name.encode() for name in self._native}
        records = [
            (place, data, example(data.data, wanted)) for place, data in self.records._payloads(range(start, start + n))
        ]
        for place, _, found in records:
            for name, (number, parts) in found.items():
                if number == 1 and not parts:
                    raise ValueError(
                        f"{place}: the feature {name.decode()!r} is an empty list of texts; DALI dies of it"
                    )
        cpu = torch.device("cpu")
        got = Cursor(make, _dali.context(1, cpu), cpu, n, 0, 1).read(n)
        for row, (place, payload, found) in enumerate(records):
            for name, values in zip(self._native, got, strict=True):
                true, given = _values(name, payload, found), np.ravel(values[row])
                if true is None or not np.array_equal(true, given):
                    held = "several texts" if true is None else f"{len(true)} values"
                    raise ValueError(
                        f"{place}: the feature {name!r} has {held}, and DALI would give {len(given)} from memory that "
                        f"nobody has written: correct features=, or use {self.twin}, which knows defaults"
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


class _native:
    """Makes DALI's feature from ours when it is needed: DALI's own do not pickle."""

    def __init__(self, name: str, what: Any) -> None:
        self._opaque = what if type(what).__name__ == "Feature" and type(what).__module__.startswith("nvidia") else None
        self.feature = None if self._opaque is not None else Feature.of(name, what)

    def __call__(self) -> Any:
        if self.feature is None:
            return self._opaque
        return _dali.tfrecord_feature(self.feature.type, self.feature.shape)


def _kind(field: str, what: Any, value: Any) -> Any:
    if value.dtype == np.uint8:
        return kind_of_bytes(field)
    own = not (type(what).__name__ == "Feature" and type(what).__module__.startswith("nvidia"))
    number = Feature.of(field, what).shape == () if own else value.shape in ((), (1,))
    return "number" if number else "array"


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
        self.records = RecordIODataset(self.options["path"], self.options.get("index_path"))
        return [Output("image", "encoded"), Output("label", self.records.kinds["label"])]

    def _index_text(self, bounds: list[int]) -> str:
        return "".join(f"{number}\t{begin}\n" for number, begin in enumerate(bounds[:-1]))
