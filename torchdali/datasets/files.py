"""Datasets of files, by lists or by folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..batch import Column, Columns, take
from ..checks import nearest_path
from ..columns import as_column, same_shape, told_column
from ..fields import check_kinds
from ..fingerprint import below_common_folder, files_digest
from ..formats.class_folders import IMAGE_ENDINGS, find_classes, list_files
from ..formats.files import as_root, read_file
from ..formats.npy import as_npy
from ..formats.parts import Whole, as_bytes, ending, whole_file
from ..kinds import ENCODED, NUMBER, AnyKind, Image, Mask, as_kind, as_kinds
from ..signature import Form
from .base import MapDataset
from .convert import Convert
from .exclude import Exclude, kept


class FileDataset(MapDataset):
    """Files in the order of a list: images, or several files per sample, such as {"image": images, "mask": masks}.

    A list is of image files, the field `image`.  Of a dict, each field's kind follows from the endings of its files:

        jpg, png, tif, ...        images
        npy                       arrays, as they were written; all of one dtype and number of dimensions
        wav, flac, ogg, mp3       sound
        mp4, mkv, webm, ...       videos
        txt, json, cls            strings, objects, numbers

    Mask files look like images: write `kinds={"mask": "mask"}`, and they become ids [H, W].

    Args:
        paths: the files; or a dict of lists, one file of each for a sample.  The first file of each list must exist; a
            fault of any other one shows when it is read (`on_bad_sample`).
        labels: one number, array or object per sample; None: there is no field `label`.  Arrays (numpy or torch) may be
            ragged, and then leave the loader padded; lists are objects.
        fields: some of the files' fields, label, index, path (of the first file) and valid; by default the files'
            fields, and label where there are labels.
        kinds: the kinds of fields that their endings don't say; a word, or an object of `torchdali.kinds`.
        convert: functions by field, such as {"text": tokenize}, that make a number, an array or an object of a value.
            They depend on nothing but the value, and run in the threads that read; images have `transform` instead.
        exclude: samples to leave out: the file of a report by `torchdali check`, or a list of indices, and of paths in
            the first list.

    Attributes:
        files: the files by field.
        paths: the samples' first files.

    Raises:
        ValueError: no files, lists of different lengths, an unknown field, endings that say no kind, or an `exclude`
            that names other files or all.
        IndexError: an index in `exclude` is outside.
        TypeError: one path instead of a list.
        FieldTypeError: arrays of labels that differ in dtype or number of dimensions.
        FileNotFoundError: the first file is missing.
    """

    blocking = True
    paths: list[str]

    def __init__(
        self,
        paths: Sequence[str | Path] | Mapping[str, Sequence[str | Path]],
        labels: Sequence[Any] | None = None,
        fields: Sequence[str] | None = None,
        *,
        kinds: Mapping[str, AnyKind] | None = None,
        convert: Convert | None = None,
        exclude: Exclude | None = None,
    ) -> None:
        self.files = _lists(paths)
        self.paths = next(iter(self.files.values()))
        if labels is not None and len(labels) != len(self.paths):
            raise ValueError(f"labels must be one for each file, got {len(labels)} for {len(self.paths)} files")
        if labels is not None and "label" in self.files:
            raise ValueError("the field 'label' is that of labels=: give the files another name, or leave labels= out")
        columns: Columns = dict(self.files)
        known: dict[str, AnyKind] = {}
        told = as_kinds(kinds)
        if labels is not None:
            columns["label"], known["label"] = as_column("labels", labels)
            if "label" in told and "label" not in (convert or {}):
                held = as_kind(known["label"]).held
                columns["label"], known["label"] = told_column("label", columns["label"], held, told["label"])
        if exclude is not None:
            columns = take(columns, kept(self.paths, exclude))
            self.files = {name: list(columns[name]) for name in self.files}
            self.paths = next(iter(self.files.values()))
        self.labels: Column | None = None if labels is None else columns["label"]
        self._uniform = self.labels is not None and same_shape(self.labels, as_kind(known["label"]).held)
        for first in (files[0] for files in self.files.values()):
            if not os.path.exists(first):
                raise FileNotFoundError(
                    f"the first of {len(self.paths)} files does not exist: {first}{nearest_path(first)}"
                )
        check_kinds(told, [*self.files, *known])
        if isinstance(paths, Mapping) or "image" in told:
            of_result = set(convert or {})
            wholes = {name: _whole(name, files, told, name in of_result) for name, files in self.files.items()}
        else:
            wholes = {"image": (ENCODED, as_bytes)}  # whatever their endings are
        self._read = {name: read for name, (_, read) in wholes.items()}
        self._pictures = frozenset(name for name, (kind, _) in wholes.items() if isinstance(kind, (Image, Mask)))
        known = {**{name: kind for name, (kind, _) in wholes.items()}, **known}
        self._forms: dict[str, Form] = {}
        for name in [name for name, read in self._read.items() if read is as_npy]:
            self._forms[name] = Form.of("array", self._load(name, 0))
            if not self._forms[name].ndim:
                known[name] = NUMBER
        self._set_fields(tuple(known) if fields is None else fields, known)
        self._told = frozenset(told)
        self._set_convert(convert or {}, told)
        self._fingerprint: str | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def uniform(self, name: str) -> bool:
        return self._uniform if name == "label" else self.kinds[name].held == "number"

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        columns: Columns = {
            name: self._column(name, [self._load(name, i) for i in indices]) for name in names if name in self.files
        }
        if "label" in names and self.labels is not None:
            columns |= take({"label": self.labels}, indices)
        return self._converted(columns)

    def _column(self, name: str, values: list[Any]) -> Column:
        return np.array(values) if self.kinds[name].held == "number" and name not in self._conversions else values

    def _load(self, name: str, index: int) -> Any:
        path = self.files[name][index]
        try:
            value = self._read[name](read_file(path, name in self._pictures))
        except ValueError as error:
            if path == self.paths[index]:  # which every error of a sample names
                raise
            raise ValueError(f"{path}: {error}") from error
        if name in self._forms:
            self._forms[name].check(name, value, self.files[name][0], path)
        return value

    def fingerprint(self) -> str:
        """Hash the files' names below their common folder, in order, and the labels: the folder itself may move."""
        if self._fingerprint is None:
            first, *others = self.files.values()
            more = [below_common_folder(files) for files in others]
            names = [list(self.files), *more] if more else []
            self._fingerprint = f"{len(self)} files {files_digest(first, self.labels, *names)}"
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
            self.extensions = tuple(e.lower() for e in (IMAGE_ENDINGS if extensions is None else extensions))
        self.classes, self.class_to_idx = find_classes(self.root)
        self.samples = list_files(self.root, self.class_to_idx, self.extensions, is_valid_file, allow_empty)
        if not self.samples:
            raise FileNotFoundError(f"no image files in the class folders of {self.root}")
        if exclude is not None:
            self.samples = [self.samples[row] for row in kept([path for path, _ in self.samples], exclude)]
        self.targets = [label for _, label in self.samples]
        super().__init__([path for path, _ in self.samples], self.targets, fields)
        self.imgs = self.samples  # torchvision's other name


def _lists(paths: Sequence[str | Path] | Mapping[str, Sequence[str | Path]]) -> dict[str, list[str]]:
    """Give lists of paths by field.

    Raises:
        ValueError: no files, or lists of different lengths.
        TypeError: one path instead of a list.
    """
    files = {}
    for name, some in (paths if isinstance(paths, Mapping) else {"image": paths}).items():
        if isinstance(some, (str, Path)):
            what = f"the paths of {name!r}" if isinstance(paths, Mapping) else "paths"
            raise TypeError(f"{what} must be a list of files, got {some!r}: for a folder write ImageFolder(root)")
        files[name] = [os.fspath(path) for path in some]
    lengths = {name: len(some) for name, some in files.items()}
    if not any(lengths.values()):
        raise ValueError("paths must name at least one file, got none")
    if len(set(lengths.values())) > 1:
        raise ValueError(f"paths must be lists of one length, got {lengths}")
    return files


def _whole(name: str, files: Sequence[str], told: Mapping[str, AnyKind], converted: bool) -> Whole:
    """Give the kind of a field's files, and the function that reads them.

    Raises:
        ValueError: their endings say several kinds, or none, and the user says none.
    """
    kind = None if converted else told.get(name)  # else it is that of the function's results
    found = {ending(os.path.basename(path)) for path in files}
    try:
        wholes = {whole_file(one, kind) for one in sorted(found)}
    except ValueError as error:
        if kind is not None or converted:
            raise
        raise ValueError(
            f'{error} ({name!r}: {files[0]}): write kinds={{{name!r}: ...}} with "encoded" for images, "mask", '
            '"audio", "video", or "array" for their bytes'
        ) from None
    if len(wholes) > 1:
        raise ValueError(f"the files of {name!r} must be of one kind, got the endings {', '.join(sorted(found))}")
    return wholes.pop()
