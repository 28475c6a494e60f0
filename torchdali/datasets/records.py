"""The base of datasets of record files."""

from __future__ import annotations

from ..formats.records import RecordFiles
from .base import MapDataset


class RecordDataset(MapDataset):
    """Base of datasets of files in which records lie one after the other.

    A subclass sets `records` before it reads, calls `_set_fields`, and defines `read_columns`.

    Attributes:
        records: the files.
    """

    blocking = True
    records: RecordFiles

    @property
    def shards(self) -> list[str]:
        """The files' paths."""
        return self.records.paths

    def __len__(self) -> int:
        return len(self.records)

    def path(self, index: int) -> str:
        """Give the file and the record's number in it: "train.rec#7"."""
        return self.records.path(index)

    def fingerprint(self) -> str:
        """Hash the files' names below their common folder, and where their records are."""
        return f"{len(self)} in {len(self.shards)} record files {self.records.digest()}"
