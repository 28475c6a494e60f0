"""Caffe's and Caffe2's LMDB databases."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..fingerprint import digest
from ..formats.caffe import caffe2_sample
from ..formats.lmdb import LMDBFile
from .base import Output
from .known import KnownReader

CHECKED = 16  # values that are checked


class LMDBReader(KnownReader):
    """Base of readers of LMDB databases."""

    twin = "torchdali.LMDBDataset"

    def check(self) -> None:
        paths = self.options.get("path")
        if not paths:
            raise ValueError(f"{self.name} needs path=")
        databases = [LMDBFile(path) for path in (paths if isinstance(paths, list) else [paths])]
        self.contents = {"path": digest([database.digest() for database in databases])}
        for database in databases:
            self.total_bytes += os.path.getsize(database.file)
            self.check_values(database)

    def check_values(self, database: LMDBFile) -> None:
        """Refuse values that would end DALI's process, as far as the first values show it."""


class Caffe(LMDBReader):
    """DALI's reader of Caffe's databases: `path`, a folder or several.

    Fields: image and label (int32), unless `image_available` or `label_available` says otherwise.

    Checked when it is made: the database is whole (one that is cut off would end DALI's process).
    """

    ndd_name = "Caffe"

    def describe(self, fields: Sequence[str]) -> list[Output]:
        image = [Output("image", "encoded")] if self.options.get("image_available", True) else []
        return [*image, *([Output("label", "number")] if self.options.get("label_available", True) else [])]


class Caffe2(LMDBReader):
    """DALI's reader of Caffe2's databases: `path`, a folder or several.

    Fields: image; label, a number for `label_type` 0, a vector for 2, none for 4; then input0 and so on for
    `additional_inputs`, and boxes (int32 [4]) with `bbox=True`.

    Checked when it is made: the database is whole, and its first values are as the options say (others would end DALI's
    process).
    """

    ndd_name = "Caffe2"

    def check_values(self, database: LMDBFile) -> None:
        options = self.options
        if options.get("label_type", 0) in (1, 3):
            raise ValueError(
                f"DALI 2.4 can't read sparse labels (label_type={options['label_type']}): write torchdali.LMDBDataset"
            )
        if options.get("label_type", 0) == 0 and not options.get("additional_inputs") and not options.get("bbox"):
            numbers = range(min(len(database), CHECKED))
            for number, value in zip(numbers, database.read(numbers), strict=True):
                try:
                    caffe2_sample(value, ("image", "label"), "single", 1)
                except ValueError as error:
                    raise ValueError(f"{database.path(number)}: {error}") from error

    def describe(self, fields: Sequence[str]) -> list[Output]:
        options = self.options
        outputs = [Output("image", "encoded")] if options.get("image_available", True) else []
        label_type = options.get("label_type", 0)
        if label_type != 4:
            outputs.append(Output("label", "array" if label_type else "number"))
        outputs += [Output(f"input{i}", "array") for i in range(options.get("additional_inputs", 0))]
        return [*outputs, *([Output("boxes", "array")] if options.get("bbox") else [])]
