"""Several datasets in given proportions, as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..batch import Columns, join, take
from ..datasets.base import BESIDE, MapDataset, digest
from ..sampler import Indices
from .mix_sampler import MixSampler


class Mix(MapDataset):
    """Datasets with the same fields, each as often as its weight says: `Mix({photos: 0.7, drawings: 0.3})`.

    It is their concatenation, with the order of a `MixSampler`, which a loader takes unless it is given another one;
    there it says how epochs go on.  The field `index` counts through the datasets, see `locate`.

    Args:
        datasets: {dataset: weight}; or a list of datasets, weighted by their sizes.
        num_samples, temperature: as for `MixSampler`; with a list, such as temperature=5.

    Attributes:
        datasets: in their order.
        sampler: the order.

    Raises:
        TypeError: something else than datasets of torchdali, or numbers and arrays of different types.
        ValueError: no datasets, an empty one, other fields than the first one's, or weights that cannot be.
    """

    def __init__(
        self,
        datasets: Mapping[MapDataset, float] | Sequence[MapDataset],
        num_samples: int | None = None,
        *,
        temperature: float = 1.0,
    ) -> None:
        if not isinstance(datasets, (Mapping, list, tuple)):
            raise TypeError(f"Mix takes {{dataset: weight}} or a list of datasets, got {type(datasets).__name__}")
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("Mix needs at least one dataset, got none")
        for number, dataset in enumerate(self.datasets):
            if not isinstance(dataset, MapDataset):
                raise TypeError(
                    f"Mix takes datasets of torchdali that are read by index, and dataset {number} is "
                    f"{type(dataset).__name__}: for torch's, write ConcatDataset and sampler=MixSampler(sizes)"
                )
            if not len(dataset):
                raise ValueError(f"dataset {number} of the mix is empty")
            first = self.datasets[0]
            if dataset.fields != first.fields or dataset.kinds != first.kinds:
                raise ValueError(
                    f"the datasets of a mix must have the same fields: dataset 0 has {first.kinds}, "
                    f"and dataset {number} has {dataset.kinds}"
                )
        self.fields, self.kinds = self.datasets[0].fields, dict(self.datasets[0].kinds)
        self.blocking = any(dataset.blocking for dataset in self.datasets)
        self.uses_dali = any(dataset.uses_dali for dataset in self.datasets)
        self._ends = np.cumsum([len(dataset) for dataset in self.datasets])
        weights = list(datasets.values()) if isinstance(datasets, Mapping) else None
        sizes = [len(dataset) for dataset in self.datasets]
        self.sampler = MixSampler(sizes, weights, num_samples, temperature=temperature)
        self._shapes = self._compare()

    def __len__(self) -> int:
        return int(self._ends[-1])

    @property
    def transform(self) -> Any:
        """The datasets' own, where all have the same one.

        Raises:
            ValueError: they differ.
        """
        first, *others = [dataset.transform for dataset in self.datasets]
        if any(other is not first for other in others):
            raise ValueError("the datasets of the mix have different transforms: write transform= at the DataLoader")
        return first

    def locate(self, indices: Any) -> tuple[Indices, Indices]:
        """Which dataset each index belongs to, by number, and its index there."""
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
        """Where each dataset's samples have one shape, and all the same."""
        if len(self.datasets) > 1 and self.kinds[name] != "number":
            shapes = self._shapes.get(name, [])
            if len(shapes) < len(self.datasets) or len(set(shapes)) > 1:
                return False
        return all(dataset.uniform(name) for dataset in self.datasets)

    def fingerprint(self) -> str:
        """Of the datasets' own, in their order."""
        return f"{len(self)} of {len(self.datasets)} datasets {digest([d.fingerprint() for d in self.datasets])}"

    def _compare(self) -> dict[str, list[tuple[int, ...]]]:
        """The shapes of the datasets' first samples, once their types are known to be the same.

        Raises:
            TypeError: they differ; numpy and DALI would convert silently, one way in this batch and another in that.
        """
        names = [name for name, kind in self.kinds.items() if kind in ("number", "array", "image")]
        shapes: dict[str, list[tuple[int, ...]]] = {name: [] for name in names}
        seen: dict[str, str] = {}
        for number, dataset in enumerate(self.datasets):
            try:
                columns = dataset.read_columns([0], [name for name in names if name not in BESIDE])
            except Exception:  # a damaged sample is met when it is read, where the loader knows what to do
                continue
            for name, column in columns.items():
                value = np.asarray(column[0])
                what = f"{value.dtype} of {value.ndim} dimensions"
                if self.kinds[name] == "image":
                    what += f" and {value.shape[-1]} channels"
                if what != seen.setdefault(name, what):
                    raise TypeError(
                        f"{name!r} is {seen[name]} in the mix, and {what} in dataset {number}: make them one"
                    )
                shapes[name].append(value.shape)
        return shapes
