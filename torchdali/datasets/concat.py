"""Joins several datasets into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch import Columns, join, take
from ..errors import let_through
from ..fields import BESIDE
from ..fingerprint import digest
from ..signature import Form
from .base import MapDataset

Indices = NDArray[np.int64]


class ConcatDataset(MapDataset):
    """Joins datasets with the same fields, one after the other; the field `index` counts through all, see `locate`.

    A loader makes one from torch's `ConcatDataset`, if that holds datasets of torchdali.

    Attributes:
        datasets: the datasets, in their order.

    Raises:
        FieldTypeError: numbers, arrays or images that differ in dtype, number of dimensions or of channels.
        ValueError: no datasets, an empty one, or other fields than the first one's.
    """

    def __init__(self, datasets: Sequence[MapDataset]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError(f"{type(self).__name__} needs at least one dataset, got none")
        first = self.datasets[0]
        for number, dataset in enumerate(self.datasets):
            if not len(dataset):
                raise ValueError(f"dataset {number} of {type(self).__name__} is empty")
            if dataset._fields() != first._fields():
                one, other = ({name: str(kind) for name, kind in some.kinds.items()} for some in (first, dataset))
                if one == other:  # it is their kinds' arguments
                    one, other = ({name: repr(kind) for name, kind in some.kinds.items()} for some in (first, dataset))
                raise ValueError(
                    f"the datasets of {type(self).__name__} must have the same fields: dataset 0 has {one}, "
                    f"and dataset {number} has {other}"
                )
        self._chosen = first._fields()
        self.blocking = any(dataset.blocking for dataset in self.datasets)
        self.uses_dali = any(dataset.uses_dali for dataset in self.datasets)
        self.ready = all(dataset.ready for dataset in self.datasets)
        self.nested, self._told = first.nested, first._told
        self._ends = np.cumsum([len(dataset) for dataset in self.datasets])
        self._shapes = self._compare()

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def transform(self) -> Any:
        """The datasets' own transform, if all have the same one.

        Raises:
            ValueError: they differ.
        """
        return common_transform(self.datasets)

    def locate(self, indices: Any) -> tuple[Indices, Indices]:
        """Give for each index the number of its dataset, and the index there."""
        found = np.asarray(indices, np.int64)
        numbers = np.searchsorted(self._ends, found, side="right")
        starts = np.append(0, self._ends[:-1])
        return numbers, found - starts[numbers]

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        numbers, own = self.locate(indices)
        parts = [(n, np.flatnonzero(numbers == n)) for n in np.unique(numbers).tolist()]
        columns = join([self.datasets[n].read_columns(own[rows].tolist(), names) for n, rows in parts])
        if len(parts) == 1:
            return columns
        return take(columns, np.argsort(np.concatenate([rows for _, rows in parts])))

    def path(self, index: int) -> str | None:
        (number,), (own,) = self.locate([index])
        dataset: MapDataset = self.datasets[number]
        return dataset.path(int(own))

    def uniform(self, name: str) -> bool:
        """Tell whether each dataset's samples have one shape, and all datasets the same."""
        if len(self.datasets) > 1 and self.kinds[name].held != "number":
            shapes = self._shapes.get(name, [])
            if len(shapes) < len(self.datasets) or len(set(shapes)) > 1:
                return False
        return all(dataset.uniform(name) for dataset in self.datasets)

    def fingerprint(self) -> str:
        """Hash the datasets' fingerprints, in their order."""
        return f"{len(self)} of {len(self.datasets)} datasets {digest([d.fingerprint() for d in self.datasets])}"

    def _compare(self) -> dict[str, list[tuple[int, ...]]]:
        """Check that the datasets' first samples have the same types, and give their shapes.

        Raises:
            FieldTypeError: they differ; numpy and DALI would convert them silently, and differently in each batch.
        """
        names = [name for name, kind in self.kinds.items() if kind.held in ("number", "array", "image")]
        shapes: dict[str, list[tuple[int, ...]]] = {name: [] for name in names}
        forms: dict[str, tuple[Form, str]] = {}  # by field, with the dataset that showed the form
        for number, dataset in enumerate(self.datasets):
            try:
                columns = dataset.read_columns([0], [name for name in names if name not in BESIDE])
            except Exception as error:  # a damaged sample fails when it is read, where the loader knows what to do
                let_through(error)
                continue
            for name, column in columns.items():
                form, first = forms.setdefault(name, (Form.of(self.kinds[name].held, column[0]), f"dataset {number}"))
                form.check(name, column[0], first, f"dataset {number}")
                shapes[name].append(np.shape(column[0]))
        return shapes


def common_transform(datasets: Sequence[MapDataset]) -> Any:
    """Give the datasets' own transform, if all have the same one.

    Raises:
        ValueError: they differ.
    """
    first, *others = [dataset.transform for dataset in datasets]
    if any(other is not first for other in others):
        raise ValueError("the datasets have different transforms: write transform= at the DataLoader")
    return first
