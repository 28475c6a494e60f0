"""The base of readers of record files."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from ..formats.records import RecordFiles, RecordFormat
from .indexed import IndexedReader


class RecordReader(IndexedReader):
    """Base of readers of record files, whose records torchdali finds and checks.

    Attributes:
        records: the files; set by `find`.
    """

    records: RecordFiles

    def find(self, format: RecordFormat) -> None:
        """Find the records of the files that `path` and `index_path` name.

        Raises:
            ValueError: as `RecordFiles`; an index that leaves out a record, which DALI would not notice.
        """
        path, given = self.options["path"], self.options.get("index_path")
        self.records = RecordFiles(format, path, None, self.index_dir)
        if given is not None:
            told = RecordFiles(format, path, given, self.index_dir)
            for number, file in enumerate(self.records.paths):
                if told.bounds_of(number) != self.records.bounds_of(number):
                    raise ValueError(
                        f"the index of {file} has {len(told.rows_of(number))} records, and the file "
                        f"{len(self.records.rows_of(number))}, or they begin elsewhere: make the index again, or leave "
                        "index_path= out"
                    )
        self.total_bytes = sum(os.path.getsize(path) for path in self.records.paths)
        self.contents = {"path": self.records.digest(), "index_path": None}

    def native_options(self) -> dict[str, Any]:
        return self.options | {"path": self.records.paths, "index_path": self._index_files()}

    def _index_files(self) -> list[str]:
        return [
            self.index_file(path, self.name.lower(), partial(self._index, file))
            for file, path in enumerate(self.records.paths)
        ]

    def _index(self, file: int) -> str:
        return self.index_text(self.records.bounds_of(file))

    def index_text(self, bounds: list[int]) -> str:
        """Give a file's index in DALI's form.

        Args:
            bounds: n + 1 offsets: where each record begins, and where the last one ends.
        """
        raise NotImplementedError
