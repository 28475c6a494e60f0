"""A dataset of some samples of another one, as torch's `Subset` and `random_split` choose them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..batch import Columns
from ..fields import Fields
from ..fingerprint import digest
from .base import MapDataset


class Subset(MapDataset):
    """Some samples of a dataset, in the order of `indices`; the field `index` counts from 0 in this order.

    A loader makes one from torch's `Subset`, if that holds a dataset of torchdali.

    Raises:
        IndexError: an index is outside the dataset.
        TypeError: the indices are not integers.
    """

    def __init__(self, dataset: MapDataset, indices: Sequence[int]) -> None:
        found = np.asarray(indices if isinstance(indices, np.ndarray) else list(indices))
        if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
            raise TypeError(f"indices must be integers, got {found.dtype} of {found.ndim} dimensions")
        n = len(dataset)
        self.indices = found.astype(np.int64)
        outside = self.indices[(self.indices < -n) | (self.indices >= n)]
        if outside.size:
            raise IndexError(f"index {outside[0]} of the subset is outside a dataset of {n} samples")
        self.indices %= n
        self.dataset = dataset
        self._chosen = Fields(dataset.fields, dict(dataset.kinds))
        self.blocking, self.uses_dali, self.inline = dataset.blocking, dataset.uses_dali, dataset.inline
        self.nested, self.ready, self._told = dataset.nested, dataset.ready, dataset._told

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def transform(self) -> Any:
        """The dataset's own transform."""
        return self.dataset.transform

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        return self.dataset.read_columns(self.indices[list(indices)].tolist(), names)

    def path(self, index: int) -> str | None:
        return self.dataset.path(int(self.indices[index]))

    def uniform(self, name: str) -> bool | None:
        return self.dataset.uniform(name)

    def fingerprint(self) -> str:
        """Hash the dataset's fingerprint and the indices."""
        return f"{len(self)} of {len(self.dataset)} samples {digest(self.dataset.fingerprint(), self.indices)}"
