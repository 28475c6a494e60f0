"""DALI's reader of MXNet's RecordIO files."""

from __future__ import annotations

from collections.abc import Sequence

from ..formats.recordio import RECORDIO, read_images
from ..formats.whole import first_whole
from .base import Output
from .records import RecordReader


class MXNet(RecordReader):
    """DALI's reader of MXNet's image records: `path` and `index_path` (made if it is not given).

    Fields: image, and label: a float32 number, or an array where the records were written with several labels.

    Checked when it is made: the headers of all records, and that the index agrees with them.
    """

    ndd_name = "MXNet"
    twin = "torchdali.RecordIODataset"

    def describe(self, fields: Sequence[str]) -> list[Output]:
        if "path" not in self.options:
            raise ValueError("MXNet needs path=")
        self.find(RECORDIO)
        if "index_path" in self.options:
            read_images(self.records, [0, len(self.records) - 1])  # the others are checked when DALI reads them
        several = first_whole(len(self.records), lambda number: read_images(self.records, [number])[0].several)
        return [Output("image", "encoded"), Output("label", "array" if several else "number")]

    def index_text(self, bounds: list[int]) -> str:
        return "".join(f"{number}\t{begin}\n" for number, begin in enumerate(bounds[:-1]))
