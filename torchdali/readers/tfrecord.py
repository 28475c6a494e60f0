"""DALI's reader of tf.train.Examples in TFRecord files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from .. import _dali
from ..errors import ReaderError
from ..fields import ALWAYS
from ..formats.example import parse_example, type_of, values_of
from ..formats.feature import Feature
from ..formats.parts import kind_of_bytes
from ..formats.protobuf import Message
from ..formats.tfrecord import TFRECORD, read_records
from ..storage import Bytes
from .base import Output
from .cursor import Cursor
from .records import RecordReader

CHECKED_FILES, CHECKED_RECORDS = 64, 4  # files, and records of each


class TFRecord(RecordReader):
    """DALI's reader of tf.train.Examples: `path`, `features` and `index_path` (made if it is not given).

    Features are DALI's (`tfrec.FixedLenFeature(...)`), or written as for `TFRecordDataset`: "int", "float", "bytes",
    ("int", (4,)), ("float", None) for any number; a reader with the latter can be pickled.  Fields have the features'
    names unless `fields` gives others, in their order.

    Checked when it is made: the lengths and checksums in all records' headers, and that the index agrees with them; and
    that DALI gives what is in the file for the first records of up to 64 files.  Where a feature is absent or has
    another length, DALI gives values that are not in the file, and not the default: then use
    torchdali.TFRecordDataset.
    """

    ndd_name = "TFRecord"
    twin = "torchdali.TFRecordDataset"

    def describe(self, fields: Sequence[str]) -> list[Output]:
        if "path" not in self.options or not isinstance(self.options.get("features"), dict):
            raise ValueError('TFRecord needs path= and features=, such as {"image/encoded": "bytes", "label": "int"}')
        self.find(TFRECORD)
        if "index_path" in self.options:
            read_records(self.records, [0, len(self.records) - 1])  # the others are checked when DALI reads them
        self._native = {name: NativeFeature(name, what) for name, what in self.options["features"].items()}
        names = [name for name in fields if name not in ALWAYS] or list(self._native)
        first = self._check(0)
        return [
            native.output(name, field, value)
            for (name, native), field, value in zip(self._native.items(), names, first, strict=False)
        ]

    def check(self) -> None:
        files = len(self.records.paths)
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

    def index_text(self, bounds: list[int]) -> str:
        return "".join(f"{begin} {end - begin}\n" for begin, end in pairwise(bounds))

    def _check(self, shard: int) -> list[Any]:
        """Compare DALI's first records of a file with the file, and give the values of the first, one per feature."""
        rows = self.records.rows_of(shard)[:CHECKED_RECORDS]
        if not rows:
            return []
        options = self.native_options()
        options |= {"path": options["path"][shard : shard + 1], "index_path": options["index_path"][shard : shard + 1]}

        def make(age: int, rows: int) -> Any:
            assert age == 0
            return self._class(max_batch_size=rows, **options)

        records = [(place, _parsed(place, data)) for place, data in read_records(self.records, rows)]
        for place, found in records:
            for name in self._native:
                if name in found and type_of(found[name]) == "bytes" and not found[name].bytes_list.value:
                    raise ValueError(f"{place}: the feature {name!r} is an empty list of bytes; DALI dies of it")
        cpu = torch.device("cpu")
        try:
            got = Cursor(make, _dali.Session(1, cpu), len(rows), 0, 1).read(len(rows))
        except ReaderError as error:
            raise ValueError(
                f"{records[0][0]}: DALI can't read this record, or one of the next few: {error}"
            ) from error
        for row, (place, found) in enumerate(records):
            for name, values in zip(self._native, got, strict=True):
                true, given = _values(found.get(name)), np.ravel(values[row])
                if true is None or not np.array_equal(true, given):
                    held = "several strings" if true is None else f"{len(true)} values"
                    raise ValueError(
                        f"{place}: the feature {name!r} has {held}, and DALI would give {len(given)} that are not in "
                        f"the file: correct features=, or use {self.twin}, which knows defaults"
                    )
        return [values[0] for values in got]


def _parsed(place: str, data: Bytes) -> Mapping[str, Message]:
    try:
        return parse_example(data)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from error


def _values(feature: Message | None) -> Any:
    """Give the true values of a feature as a flat list; None for several strings."""
    if feature is None:
        return []
    values = values_of(feature)
    if type_of(feature) == "bytes":
        return values[0] if len(values) == 1 else None
    return values


class NativeFeature:
    """Makes DALI's feature from ours when it is needed: DALI's own can't be pickled or looked into."""

    def __init__(self, name: str, what: Any) -> None:
        opaque = type(what).__name__ == "Feature" and type(what).__module__.startswith("nvidia")
        self._opaque = what if opaque else None
        self.feature = None if opaque else Feature.of(name, what)

    def __call__(self) -> Any:
        if self.feature is None:
            return self._opaque
        return _dali.tfrecord_feature(self.feature.type, self.feature.shape)

    def output(self, name: str, field: str, value: Any) -> Output:
        """Describe the feature's output, from its first value where DALI's feature does not say enough."""
        if value.dtype == np.uint8:
            return Output(name, kind_of_bytes(field))
        if self.feature is None:
            return Output(name, "number" if value.shape in ((), (1,)) else "array")
        shape = self.feature.shape
        return Output(name, "array", uniform=None not in shape) if shape else Output(name, "number")
