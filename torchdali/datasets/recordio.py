"""A dataset of MXNet's RecordIO files, read by index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..batch import Columns, Held
from ..formats.recordio import RECORDIO, read_images
from ..formats.records import RecordFiles
from ..formats.whole import first_whole
from ..kinds import AnyKind, as_kinds, tell
from .records import RecordDataset

_KINDS: dict[str, tuple[Held, Held]] = {"image": ("encoded", "array"), "label": ("number", "array")}


class RecordIODataset(RecordDataset):
    """Image records in MXNet's RecordIO files, as `im2rec` writes them, in the order of the file.

    Args:
        paths: the .rec files: paths, URLs, and patterns.
        index_paths: their .idx files; they are checked.  None: the files are scanned once, and the result is kept.
        fields: some of image, label, id, index, path and valid.  `label` is a float32 number where the first record
            has one label, else a float32 array; `id` is the image's number, int64.
        kinds: other kinds: for image, "array" for bytes as they are; for label, "array" for any number of labels, or
            "number".
        index_dir: a folder for our own indexes, instead of `~/.cache/torchdali/index`.
        storage_options: fsspec's, for remote files.

    Attributes:
        shards: the files.

    Raises:
        ValueError: invalid arguments; a file that is damaged, cut off or without records, with path and offset; an
            index of another file.
        FileNotFoundError: a file is missing.
    """

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        index_paths: str | Path | Sequence[str | Path] | None = None,
        fields: Sequence[str] = ("image", "label"),
        *,
        kinds: Mapping[str, AnyKind] | None = None,
        index_dir: str | Path | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        kinds = as_kinds(kinds)
        for name, kind in kinds.items():
            if name not in _KINDS or tell(kind, _KINDS[name][0]).held not in _KINDS[name]:
                some = " or ".join(f"{{{name!r}: {kind!r}}}" for name, kinds in _KINDS.items() for kind in kinds)
                raise ValueError(f"kinds must be of {some}, got {{{name!r}: {kind!r}}}")
        known: dict[str, AnyKind] = {"image": "encoded", "label": "number", "id": "number"}
        known |= {name: tell(kind, _KINDS[name][0]) for name, kind in kinds.items()}
        self._set_fields(fields, known)
        self.records = RecordFiles(RECORDIO, paths, index_paths, index_dir, storage_options)
        if "label" in self.fields and "label" not in kinds:
            several = first_whole(len(self), lambda index: read_images(self.records, [index])[0].several)
            self._set_fields(fields, known | {"label": "array" if several else "number"})
        if index_paths is not None:
            read_images(self.records, [0, len(self) - 1])  # the others are checked when they are read

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        images = read_images(self.records, indices)
        columns: Columns = {
            "image": [image.data for image in images],
            "id": np.array([image.id for image in images], np.uint64).astype(np.int64),
        }
        if "label" in names:
            columns["label"] = labels = [image.labels for image in images]
            if self.kinds["label"].held == "number":
                for index, label in zip(indices, labels, strict=True):
                    if len(label) != 1:
                        raise ValueError(
                            f"{self.path(index)}: one label was expected, as in the first record, got {len(label)}: "
                            "write kinds={'label': 'array'}"
                        )
                columns["label"] = np.concatenate(labels)
        return {name: columns[name] for name in names}
