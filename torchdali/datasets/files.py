"""Datasets of image files, by list or by folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..batch import Column, Columns, Held, take
from ..checks import nearest_path
from ..columns import as_column, same_shape
from ..fingerprint import files_digest
from ..formats.files import as_root, read_file
from .base import MapDataset
from .exclude import Exclude, kept


class FileDataset(MapDataset):
    """Image files in the order of a list.

    Args:
        paths: the files.  The first one must exist; a fault of any other one shows when it is read (`on_bad_sample`).
        labels: one number, array or object per file; None: there is no field `label`.  Arrays (numpy or torch) may be
            ragged, and then leave the loader padded; lists are objects.
        fields: some of image, label, index, path, valid; by default image, and label where there are labels.
        exclude: samples to leave out: the file of a report by `torchdali check`, or a list of paths and indices.

    Raises:
        ValueError: no files, not one label per file, an unknown field, or an `exclude` that names other files or all.
        IndexError: an index in `exclude` is outside.
        TypeError: one path instead of a list.
        FieldTypeError: arrays of labels that differ in dtype or number of dimensions.
        FileNotFoundError: the first file is missing.
    """

    blocking = True
    paths: list[str]

    def __init__(
        self,
        paths: Sequence[str | Path],
        labels: Sequence[Any] | None = None,
        fields: Sequence[str] | None = None,
        *,
        exclude: Exclude | None = None,
    ) -> None:
        if isinstance(paths, (str, Path)):
            raise TypeError(f"paths must be a list of files, got {paths!r}: for a folder write ImageFolder(root)")
        if isinstance(paths, Mapping):
            raise TypeError(
                f"paths must be a list of image files, got a dict of {', '.join(map(repr, paths))}: for several files "
                "per sample, write a dataset of your own that reads them in its __getitem__"
            )
        self.paths = [os.fspath(path) for path in paths]
        if not self.paths:
            raise ValueError("paths must name at least one file, got none")
        if labels is not None and len(labels) != len(self.paths):
            raise ValueError(f"labels must be one for each file, got {len(labels)} for {len(self.paths)} files")
        rows = None if exclude is None else kept(self.paths, exclude)
        if rows is not None:
            self.paths = [self.paths[row] for row in rows]
        if not os.path.exists(self.paths[0]):
            first = self.paths[0]
            raise FileNotFoundError(
                f"the first of {len(self.paths)} files does not exist: {first}{nearest_path(first)}"
            )
        kinds: dict[str, Held] = {"image": "encoded"}
        self.labels: Column | None = None
        if labels is not None:
            column, kinds["label"] = as_column("labels", labels)
            self.labels = column if rows is None else take({"label": column}, rows)["label"]
        self._uniform = self.labels is not None and same_shape(self.labels, kinds["label"])
        self._set_fields(tuple(kinds) if fields is None else fields, kinds)
        self._fingerprint: str | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def uniform(self, name: str) -> bool:
        return name == "label" and self._uniform

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        columns: Columns = {}
        if "image" in names:
            columns["image"] = [read_file(self.paths[i]) for i in indices]
        if "label" in names and self.labels is not None:
            columns |= take({"label": self.labels}, indices)
        return columns

    def fingerprint(self) -> str:
        """Hash the files' names below their common folder, in order, and the labels: the folder itself may move."""
        if self._fingerprint is None:
            self._fingerprint = f"{len(self)} files {files_digest(self.paths, self.labels)}"
        return self._fingerprint


class ImageFolder(FileDataset):
    """Image files in folders, `root/class/.../file`, with torchvision's semantics.

    Args:
        root: the folder; each folder in it is a class.
        fields: some of image, label, index, path, valid.
        extensions: endings of the files to take, in upper or lower case; None: torchvision's list.
        is_valid_file: a function of a path that says whether to take the file; instead of `extensions`.
        allow_empty: accept classes without a file.
        exclude: samples to leave out, as in `FileDataset`; the classes and their labels stay.

    Attributes:
        classes: the classes' names, sorted.
        class_to_idx: the label of each class.
        samples: [(path, label)], sorted by class and path.
        targets: the labels.

    Raises:
        FileNotFoundError: no root, no classes in it, no file in any class, or, unless `allow_empty`, in one of them.
        NotADirectoryError: `root` is a file.
        ValueError: an unknown field, empty `extensions`, both `extensions` and `is_valid_file`, or an `exclude` that
            names other files or all.
    """

    def __init__(
        self,
        root: str | Path,
        fields: Sequence[str] = ("image", "label"),
        *,
        extensions: Sequence[str] | None = None,
        is_valid_file: Callable[[str], bool] | None = None,
        allow_empty: bool = False,
        exclude: Exclude | None = None,
    ) -> None:
        from torchvision.datasets import folder

        if extensions is not None and is_valid_file is not None:
            raise ValueError("pass extensions or is_valid_file, not both")
        if isinstance(extensions, str):
            extensions = (extensions,)
        if extensions is not None and not extensions:
            raise ValueError("extensions must name at least one ending, such as ('.jpg',), got none")
        self.root = as_root(root)
        self.extensions: tuple[str, ...] | None = None
        if is_valid_file is None:
            # torchvision compares endings with names in lower case.
            self.extensions = tuple(e.lower() for e in (folder.IMG_EXTENSIONS if extensions is None else extensions))
        self.classes, self.class_to_idx = folder.find_classes(self.root)
        self.samples: list[tuple[str, int]] = folder.make_dataset(
            self.root, self.class_to_idx, self.extensions, is_valid_file, allow_empty
        )
        if not self.samples:
            raise FileNotFoundError(f"no image files in the class folders of {self.root}")
        if exclude is not None:
            self.samples = [self.samples[row] for row in kept([path for path, _ in self.samples], exclude)]
        self.targets = [label for _, label in self.samples]
        super().__init__([path for path, _ in self.samples], self.targets, fields)
        self.imgs = self.samples  # torchvision's other name
