"""A dataset of samples that are in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..batch import Column, Columns, Held, take
from ..columns import as_column, columns_of, same_shape, told_column
from ..fingerprint import digest
from ..kinds import AnyKind, Kind, as_kind, as_kinds
from ..pillow import is_image_file
from ..signature import Form, is_pixels
from .base import MapDataset


class InMemoryDataset(MapDataset):
    """Columns of values: `InMemoryDataset(image=images, label=labels)`.

    The kind of a column follows from its values:

        bytes                             image files, decoded by the loader
        uint8 arrays [H, W, 1 or 3]       decoded images; one array [N, H, W, C] or a list of any sizes
        other arrays (numpy or torch)     arrays; ragged ones leave the loader padded
        numbers                           numbers
        anything else, strings and lists  objects; a batch of them is a list

    Args:
        columns: the columns by name, instead of keyword arguments, or in addition to them: a dict, or a table of
            pandas, polars, pyarrow or Hugging Face, or a structured array of numpy.
        fields: names in the order of the batch, also index and valid; by default all columns, in their order.
        kinds: the kinds of columns that their values don't show, such as {"mask": "mask", "boxes": "boxes"}.  A column
            of this name goes into the dict.
        fingerprint: a string that names the data, such as "tokens, version 3"; by default the values are hashed when
            the first state is taken, of arrays over 64 MiB a sample.  A column of this name goes into the dict.

    Raises:
        ValueError: no columns, empty columns or columns of different lengths; no fields or unknown fields; a column
            with the name index, path or valid.
        TypeError: `columns` is no dict and no table, a column is not a list or an array, or the fingerprint is not a
            string.
        FieldTypeError: arrays in one column that differ in dtype or number of dimensions, or images in the number of
            channels.
    """

    def __init__(
        self,
        columns: Any = None,
        *,
        fields: Sequence[str] | None = None,
        kinds: Mapping[str, AnyKind] | None = None,
        fingerprint: str | None = None,
        **more: Any,
    ) -> None:
        named = {} if columns is None else columns_of(columns)
        if named is None:
            raise TypeError(f"columns must be a dict or a table, got {type(columns).__name__}: write image=...")
        if fingerprint is not None and not isinstance(fingerprint, str):
            raise TypeError(
                f"fingerprint must be a string that names the data, got {type(fingerprint).__name__}: "
                'for a column of this name write InMemoryDataset({"fingerprint": ...})'
            )
        if fingerprint == "":
            raise ValueError("fingerprint must be a string that names the data, got an empty one")
        given = {**named, **more}
        if not given:
            raise ValueError("InMemoryDataset needs at least one column, such as image=[...]")
        if not isinstance(kinds, Mapping | None):
            raise TypeError(
                f"kinds must be a dict such as {{'mask': 'mask'}}, got {type(kinds).__name__}: for a column of this "
                'name write InMemoryDataset({"kinds": ...})'
            )
        told = as_kinds(kinds)
        self.columns: Columns = {}
        known: dict[str, Kind] = {}
        for name, values in given.items():
            self.columns[name], held = _column(name, values)
            if held == "encoded" and name not in told:
                _check_files(name, self.columns[name])
            if name in told:
                self.columns[name], known[name] = told_column(
                    name, self.columns[name], held, told[name], _tensors(values)
                )
            else:
                known[name] = as_kind(held)
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1 or not next(iter(lengths.values())):
            raise ValueError(f"columns must be of one length, at least 1, got {lengths}")
        self._set_fields(tuple(given) if fields is None else fields, known, told)
        self._uniform = {name: same_shape(column, known[name].held) for name, column in self.columns.items()}
        self._fingerprint = None if fingerprint is None else f"{len(self)} in memory {fingerprint}"

    ready = True

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        return take({name: self.columns[name] for name in names}, indices)

    def uniform(self, name: str) -> bool:
        return self._uniform[name]

    def dtype(self, name: str) -> np.dtype[Any] | None:
        column = self.columns[name]
        dtype: np.dtype[Any] = column.dtype if isinstance(column, np.ndarray) else column[0].dtype
        return dtype

    def fingerprint(self) -> str:
        """Give the string that was given; else hash the values, once."""
        if self._fingerprint is None:
            self._fingerprint = f"{len(self)} in memory {digest(self.columns)}"
        return self._fingerprint


_FILES = 100  # whose beginnings are looked at


def _check_files(name: str, column: Column) -> None:
    """Raise where bytes are no image files, such as the strings of HDF5: one that is damaged may be among them."""
    if not any(is_image_file(data) for data in column[:_FILES]):
        raise ValueError(
            f"bytes must be image files, got {column[0][:20].tobytes()!r} for {name!r}: decode them to strings or "
            f"arrays, or write kinds={{{name!r}: 'object'}} for a list of them, or 'encoded' for damaged files"
        )


def _tensors(values: Any) -> bool:
    """Whether a column was given as a tensor, or a list of them."""
    first = next(iter(values), None) if isinstance(values, (list, tuple)) else values
    return isinstance(first, torch.Tensor)


def _column(name: str, values: Any) -> tuple[Column, Held]:
    column, kind = as_column(name, values)
    if kind == "object" and all(isinstance(value, (bytes, bytearray, memoryview)) for value in column):
        return [np.frombuffer(value, np.uint8) for value in column], "encoded"
    rows = column[:1] if isinstance(column, np.ndarray) else column
    if kind == "array" and all(is_pixels(row) for row in rows):
        form = Form.of("image", rows[0])
        for number, row in enumerate(rows):
            form.check(name, row, "sample 0", f"sample {number}")
        return column, "image"
    return column, kind
