"""A dataset of arrays in .npy files, by list or by folder."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..batch import Column, Columns, Held, take
from ..columns import as_column, same_shape
from ..fingerprint import files_digest
from ..formats.files import as_root
from ..formats.npy import as_npy
from ..paths import expand
from ..signature import Form
from ..storage import is_remote, open_storage
from .base import MapDataset


class NumpyDataset(MapDataset):
    """One array per file, in this machine's byte order and C order; all of one dtype and number of dimensions.

    Args:
        paths: files, patterns or URLs, in this order; or one folder, with all its .npy files in sorted order.
        fields: some of array, label, index, path, valid; by default array, and label where there are labels.
        labels: one number, array or object per file, as for `FileDataset`.
        ragged: arrays may differ in shape, and leave the loader padded; False: all have the first one's shape.
        storage_options: fsspec's, for remote files.

    Raises:
        ValueError: no files, not one label per file, or an unknown field; the first file is damaged or holds no
            numbers.  A fault of any other file shows when it is read (`on_bad_sample`), as a FieldTypeError if its
            dtype, number of dimensions or shape is not the first one's.
        TypeError: `paths` are not paths.
        FieldTypeError: arrays of labels that differ in dtype or number of dimensions.
        FileNotFoundError: no such folder, no file in it, or the first file is missing.
    """

    blocking = True
    paths: list[str]

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path],
        fields: Sequence[str] | None = None,
        *,
        labels: Sequence[Any] | None = None,
        ragged: bool = True,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._options = dict(storage_options or {})
        self.paths = _find(paths, self._options)
        if labels is not None and len(labels) != len(self.paths):
            raise ValueError(f"labels must be one for each file, got {len(labels)} for {len(self.paths)} files")
        self._form: Form | None = None
        first = self._load(0)
        self._form = Form.of("array", first, fixed_shape=not ragged)
        kinds: dict[str, Held] = {"array": "array" if first.ndim else "number"}
        self.labels: Column | None = None
        if labels is not None:
            self.labels, kinds["label"] = as_column("labels", labels)
        self._uniform = {
            "array": not ragged or not first.ndim,
            "label": self.labels is not None and same_shape(self.labels, kinds["label"]),
        }
        self._set_fields(tuple(kinds) if fields is None else fields, kinds)
        self._fingerprint: str | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def uniform(self, name: str) -> bool:
        return self._uniform.get(name, self.kinds[name].held == "number")

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        columns: Columns = {}
        if "array" in names:
            columns["array"] = [self._load(i) for i in indices]
        if "label" in names and self.labels is not None:
            columns |= take({"label": self.labels}, indices)
        return columns

    def _load(self, index: int) -> NDArray[Any]:
        path = self.paths[index]
        try:
            array = as_npy(open_storage(path, **self._options).read_all())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        if self._form is not None:
            self._form.check("array", array, self.paths[0], path)
        return array

    def fingerprint(self) -> str:
        """Hash the files' names below their common folder, in order, and the labels: the folder itself may move."""
        if self._fingerprint is None:
            self._fingerprint = f"{len(self)} arrays {files_digest(self.paths, self.labels)}"
        return self._fingerprint


def _find(paths: str | Path | Sequence[str | Path], options: dict[str, Any]) -> list[str]:
    if isinstance(paths, Mapping):
        raise TypeError(
            "NumpyDataset takes the paths of .npy files, got a dict: for arrays in memory write "
            "InMemoryDataset(**arrays), for several files per sample a Dataset of your own"
        )
    if not isinstance(paths, (str, Path)):
        return expand(paths, **options)
    text = os.fspath(paths)
    if is_remote(text):
        pattern = text if text.endswith(".npy") or "*" in text else f"{text.rstrip('/')}/**/*.npy"
        return expand(pattern, **options)
    if not os.path.isdir(os.path.expanduser(text)) and os.path.splitext(text)[1] == ".npy":
        return expand(text)
    root = as_root(text)
    found = [
        os.path.join(folder, name)
        for folder, _, names in os.walk(root, followlinks=True)
        for name in names
        if name.endswith(".npy")
    ]
    if not found:
        raise FileNotFoundError(f"no .npy files in {root}")
    return sorted(found)
