"""A dataset of arrays: one per .npy file, or the rows of arrays in memory or in a .npz file."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import Column, Columns, take
from ..columns import as_column, native, pictures, same_shape
from ..errors import first_line
from ..fingerprint import digest, files_digest
from ..formats.files import as_root, walk
from ..formats.npy import as_npy
from ..kinds import AnyKind, Image
from ..paths import expand
from ..signature import NUMERIC, Form
from ..storage import is_remote, open_storage
from .base import MapDataset


class NumpyDataset(MapDataset):
    """Arrays: one per .npy file, or the rows of arrays of one length.  No guess is made about pictures.

    Args:
        paths: .npy files, patterns or URLs, in this order, or one folder, with all its .npy files in sorted order: a
            sample is the array of a file, the field `array`, in this machine's byte order and C order; all of one dtype
            and number of dimensions.  Or a dict of arrays (also memory-mapped ones), or one .npz file: a sample is a
            row of each, under its name.
        fields: some of array, or of the names, label, index, path and valid; by default the arrays, and label where
            there are labels.  Of a .npz file only these are read.
        labels: one number, array or object per sample, as for `FileDataset`.
        ragged: the arrays of files may differ in shape, and leave the loader padded; False: all have the first one's.
        kinds: the kinds of fields that are more than arrays, such as {"image": "image", "mask": "mask"}.
        storage_options: fsspec's, for remote files.

    Raises:
        ValueError: no files, not one label per sample, arrays of different lengths, or an unknown field; the first file
            is damaged or holds no numbers.  A fault of any other file shows when it is read (`on_bad_sample`), as a
            FieldTypeError if its dtype, number of dimensions or shape is not the first one's.
        TypeError: `paths` are not paths, or a dict that holds something else than arrays.
        FieldTypeError: arrays of labels that differ in dtype or number of dimensions.
        FileNotFoundError: no such folder, no file in it, or the first file is missing.
    """

    blocking = True

    def __init__(
        self,
        paths: str | Path | Sequence[str | Path] | Mapping[str, Any],
        fields: Sequence[str] | None = None,
        *,
        labels: Sequence[Any] | None = None,
        ragged: bool = True,
        kinds: Mapping[str, AnyKind] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._options = dict(storage_options or {})
        self._form: Form | None = None
        self._columns = _arrays(paths, fields, self._options)
        known: dict[str, AnyKind] = {
            name: "number" if np.ndim(array) == 1 else "array" for name, array in self._columns.items()
        }
        self._uniform = dict.fromkeys(self._columns, True)
        if not self._columns:
            self.paths = _find(paths, self._options)  # type: ignore[arg-type]
            first = self._load(0)
            self._form = Form.of("array", first, fixed_shape=not ragged)
            known["array"], self._uniform["array"] = "array" if first.ndim else "number", not ragged or not first.ndim
        self.blocking = not self._columns
        if labels is not None:
            if len(labels) != len(self):
                what = "file" if self.paths else "row"
                raise ValueError(f"labels must be one for each {what}, got {len(labels)} for {len(self)} {what}s")
            self._columns["label"], held = as_column("labels", labels)
            known["label"], self._uniform["label"] = held, same_shape(self._columns["label"], held)
        self._set_fields(tuple(known) if fields is None else fields, known, kinds)
        self._fingerprint: str | None = None

    @property
    def labels(self) -> Column | None:
        """The labels."""
        return self._columns.get("label")

    def __len__(self) -> int:
        return len(self.paths) if self.paths is not None else len(next(iter(self._columns.values())))

    def uniform(self, name: str) -> bool:
        return self._uniform.get(name, self.kinds[name].held == "number")

    def dtype(self, name: str) -> np.dtype[Any] | None:
        if name == "array" and self._form is not None:
            form: np.dtype[Any] = self._form.dtype
            return form
        column = self._columns.get(name)
        return native(column[:0]).dtype if isinstance(column, np.ndarray) else None

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        columns = take({name: self._columns[name] for name in names if name in self._columns}, indices)
        # Only what is read: a memory-mapped array may be larger than the memory.
        columns = {name: native(rows) if isinstance(rows, np.ndarray) else rows for name, rows in columns.items()}
        if "array" in names and self.paths is not None:
            columns["array"] = [self._load(i) for i in indices]
        for name in columns:
            if isinstance(kind := self.kinds[name], Image):
                columns[name] = pictures(columns[name], kind)
        return columns

    def _load(self, index: int) -> NDArray[Any]:
        assert self.paths is not None
        path = self.paths[index]
        try:
            array = as_npy(open_storage(path, **self._options).read_all())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        if self._form is not None:
            self._form.check("array", array, self.paths[0], path)
        return array

    def fingerprint(self) -> str:
        """Hash the files' names below their common folder, in order, and the labels; or the arrays' values, once."""
        if self._fingerprint is None:
            found = digest(self._columns) if self.paths is None else files_digest(self.paths, self.labels)
            self._fingerprint = f"{len(self)} {'rows' if self.paths is None else 'arrays'} {found}"
        return self._fingerprint


def _arrays(paths: Any, fields: Sequence[str] | None, options: dict[str, Any]) -> Columns:
    """Give the arrays of a dict or of a .npz file by name; none of anything else.

    Raises:
        TypeError, ValueError: something else than arrays of numbers, or arrays of different lengths.
    """
    if isinstance(paths, Mapping):
        given = {name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in paths.items()}
    elif isinstance(paths, (str, Path)) and os.fspath(paths).endswith(".npz"):
        given = _load_npz(os.fspath(paths), fields, options)
    else:
        return {}
    for name, value in given.items():
        if not isinstance(value, np.ndarray) or not value.ndim or value.dtype.kind not in NUMERIC:
            got = f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else type(value).__name__
            raise TypeError(
                f"NumpyDataset takes arrays of numbers with a row per sample, got {got} for {name!r}: for lists of "
                "files write FileDataset({...}), for other values InMemoryDataset({...})"
            )
        native(value[:0])  # says what to write where there is no dtype of torch
    lengths = {name: len(value) for name, value in given.items()}
    if len(set(lengths.values())) != 1 or not next(iter(lengths.values())):
        raise ValueError(
            f"arrays must be of one length, at least 1, got {lengths}: choose some by fields=, or by a dict"
        )
    return given


def _load_npz(path: str, fields: Sequence[str] | None, options: dict[str, Any]) -> Columns:
    """Read arrays of a .npz file by name: all, or those that `fields` names.

    Raises:
        ValueError: it is damaged, or holds objects.
    """
    file = io.BytesIO(open_storage(path, **options).read_all().data)
    try:
        with np.load(file, allow_pickle=False) as saved:
            return {name: saved[name] for name in saved.files if fields is None or name in fields}
    except Exception as error:  # numpy's, zipfile's and zlib's, of any type
        raise ValueError(
            f"{path} is not a .npz file of numbers that can be read: {type(error).__name__}: {first_line(error)}"
        ) from error


def _find(paths: str | Path | Sequence[str | Path], options: dict[str, Any]) -> list[str]:
    if not isinstance(paths, (str, Path)):
        return expand(paths, **options)
    text = os.fspath(paths)
    if is_remote(text):
        pattern = text if text.endswith(".npy") or "*" in text else f"{text.rstrip('/')}/**/*.npy"
        return expand(pattern, **options)
    if not os.path.isdir(os.path.expanduser(text)) and os.path.splitext(text)[1] == ".npy":
        return expand(text)
    root = as_root(text)
    found = [os.path.join(folder, name) for folder, _, names in walk(root) for name in names if name.endswith(".npy")]
    if not found:
        raise FileNotFoundError(f"no .npy files in {root}")
    return sorted(found)
