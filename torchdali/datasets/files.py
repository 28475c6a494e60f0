"""Image files, by list or by folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..batch import Columns
from .base import MapDataset, as_root, digest, read_file


class FileDataset(MapDataset):
    """Image files in the order of a list.

    Args:
        paths: the files.  The first one must exist; each other one is met when it is read (`on_bad_sample`).
        labels: one number, array or object a file; None: there is no field `label`.
        fields: some of image, label, index, path, valid; by default image, and label where there are labels.

    Raises:
        ValueError: no files, labels of another number, an unknown field.
        FileNotFoundError: the first file is missing.
    """

    blocking = True

    def __init__(
        self,
        paths: Sequence[str | Path],
        labels: Sequence[Any] | None = None,
        fields: Sequence[str] | None = None,
    ) -> None:
        if isinstance(paths, (str, Path)):
            raise TypeError(f"paths must be a list of files, got {paths!r}: for a folder write ImageFolder(root)")
        self.paths = [os.fspath(path) for path in paths]
        if not self.paths:
            raise ValueError("paths must name at least one file, got none")
        if labels is not None and len(labels) != len(self.paths):
            raise ValueError(f"labels must be one for each file, got {len(labels)} for {len(self.paths)} files")
        if not os.path.exists(self.paths[0]):
            raise FileNotFoundError(f"the first of {len(self.paths)} files does not exist: {self.paths[0]}")
        self.labels = None if labels is None else _as_column(labels)
        given = ("image",) if labels is None else ("image", "label")
        kinds = {"image": "encoded"} if labels is None else {"image": "encoded", "label": kind_of(self.labels)}
        self._set_fields(given if fields is None else fields, kinds)  # type: ignore[arg-type]
        self._fingerprint: str | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def path(self, index: int) -> str:
        return self.paths[index]

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        columns: Columns = {}
        if "image" in names:
            columns["image"] = [read_file(self.paths[i]) for i in indices]
        if "label" in names and self.labels is not None:
            labels = self.labels
            columns["label"] = (
                labels[np.asarray(indices)] if isinstance(labels, np.ndarray) else [labels[i] for i in indices]
            )
        return columns

    def fingerprint(self) -> str:
        """Of the files' names below their common folder, in order, and the labels: the folder itself may move."""
        if self._fingerprint is None:
            # What the first and the last name share, all share.
            common = os.path.commonprefix([min(self.paths), max(self.paths)]).rpartition(os.sep)
            start = len(common[0]) + len(common[1])
            names = "\0".join(path[start:] for path in self.paths)
            labels = self.labels if isinstance(self.labels, np.ndarray) else repr(self.labels)
            self._fingerprint = f"{len(self)} files {digest(names, labels)}"
        return self._fingerprint


class ImageFolder(FileDataset):
    """`root/class/.../file`, with torchvision's semantics.

    Args:
        root: the folder; each folder in it is a class.
        fields: some of image, label, index, path, valid.
        extensions: endings of the files to take, in any case; None: torchvision's list.
        is_valid_file: takes a path and says whether to take it; instead of `extensions`.
        allow_empty: accept classes without a file.

    Attributes:
        classes: the classes' names, sorted.
        class_to_idx: their numbers, which are the labels.
        samples: [(path, label)], sorted by class and path.
        targets: the labels.

    Raises:
        FileNotFoundError: no root, no classes in it, or an empty class.
        ValueError: an unknown field, both `extensions` and `is_valid_file`.
    """

    def __init__(
        self,
        root: str | Path,
        fields: Sequence[str] = ("image", "label"),
        *,
        extensions: Sequence[str] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
    ) -> None:
        from torchvision.datasets import folder

        if extensions is not None and is_valid_file is not None:
            raise ValueError("pass extensions or is_valid_file, not both")
        if isinstance(extensions, str):
            extensions = (extensions,)
        self.root = as_root(root)
        self.extensions = tuple(extensions or folder.IMG_EXTENSIONS) if is_valid_file is None else None
        self.classes, self.class_to_idx = folder.find_classes(self.root)
        self.samples: list[tuple[str, int]] = folder.make_dataset(
            self.root, self.class_to_idx, self.extensions, is_valid_file, allow_empty
        )
        if not self.samples:
            raise FileNotFoundError(f"no image files in the class folders of {self.root}")
        self.targets = [label for _, label in self.samples]
        super().__init__([path for path, _ in self.samples], self.targets, fields)
        self.imgs = self.samples  # torchvision's other name


def _as_column(values: Sequence[Any]) -> Any:
    """Numbers become one array, so that a batch of them is one indexing."""
    array = np.asarray(values) if not any(isinstance(value, (str, bytes)) for value in values[:1]) else None
    return array if array is not None and array.dtype.kind in "biuf" else list(values)


def kind_of(column: Any) -> str:
    """The kind of a column of labels or other values."""
    if isinstance(column, np.ndarray) and column.dtype.kind in "biuf":
        return "number" if column.ndim == 1 else "array"
    return "object"
