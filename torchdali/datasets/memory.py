"""Samples that are in memory already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..batch import Column, Columns, Kind
from .base import MapDataset, digest


class InMemoryDataset(MapDataset):
    """Columns of values: `InMemoryDataset(image=images, label=labels)`.

    What a column holds is seen from its values:

        bytes                             image files, decoded by the loader
        uint8 arrays [H, W, 1 or 3]       decoded images; one array [N, H, W, C] or a list of any sizes
        other arrays, all of one type     arrays; ragged ones leave the loader padded
        numbers                           numbers
        anything else, such as strings    objects; a batch of them is a list

    Args:
        columns: the columns by name, instead of or beside keyword arguments.
        fields: names in the order that batches shall have, also index and valid; by default the columns' order.

    Raises:
        ValueError: no columns, columns of different lengths, none or unknown fields.
        TypeError: arrays in one column that differ in type or number of dimensions.
    """

    def __init__(
        self, columns: Mapping[str, Any] | None = None, *, fields: Sequence[str] | None = None, **more: Any
    ) -> None:
        given = {**(columns or {}), **more}
        if not given:
            raise ValueError("InMemoryDataset needs at least one column, such as image=[...]")
        self.columns: Columns = {}
        kinds: dict[str, Kind] = {}
        for name, values in given.items():
            self.columns[name], kinds[name] = _column(name, values)
        lengths = {name: len(column) for name, column in self.columns.items()}
        if len(set(lengths.values())) > 1 or not next(iter(lengths.values())):
            raise ValueError(f"columns must be of one length, at least 1, got {lengths}")
        self._set_fields(tuple(given) if fields is None else fields, kinds)
        self._fingerprint: str | None = None

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        picked: Columns = {}
        for name in names:
            column = self.columns[name]
            picked[name] = (
                column[np.asarray(indices)] if isinstance(column, np.ndarray) else [column[i] for i in indices]
            )
        return picked

    def uniform(self, name: str) -> bool:
        column = self.columns[name]
        return isinstance(column, np.ndarray) or len({np.shape(value) for value in column}) == 1

    def fingerprint(self) -> str:
        """Of all bytes, once."""
        if self._fingerprint is None:
            parts: list[Any] = []
            for name, column in self.columns.items():
                parts += [name, *(column if isinstance(column, list) else [str(column.dtype), column])]  # type: ignore[union-attr]
            self._fingerprint = f"{len(self)} in memory {digest(*parts)}"
        return self._fingerprint


def _column(name: str, values: Any) -> tuple[Column, Kind]:
    if isinstance(values, torch.Tensor):
        values = values.numpy()
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        if values.ndim == 4 and values.dtype == np.uint8 and values.shape[-1] in (1, 3):
            return values, "image"
        return values, "number" if values.ndim == 1 else "array"
    values = [value.numpy() if isinstance(value, torch.Tensor) else value for value in values]
    if values and all(isinstance(value, (bytes, bytearray, memoryview)) for value in values):
        return [np.frombuffer(value, np.uint8) for value in values], "encoded"
    if values and all(isinstance(value, np.ndarray) and value.dtype.kind in "biuf" for value in values):
        # DALI would convert silently, or fail later.
        seen = {(value.dtype, value.ndim) for value in values}
        if len(seen) > 1:
            raise TypeError(f"arrays of the column {name!r} must have one dtype and number of dimensions, got {seen}")
        values = [np.ascontiguousarray(value) for value in values]
        dtype, ndim = seen.pop()
        if dtype == np.uint8 and ndim == 3 and all(value.shape[2] in (1, 3) for value in values):
            return values, "image"
        return values, "array"
    if values and all(isinstance(value, (bool, int, float, np.number, np.bool_)) for value in values):
        return np.asarray(values), "number"
    return values, "object"
