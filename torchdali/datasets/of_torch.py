"""torch's own compositions of datasets, where they are of datasets of torchdali."""

from __future__ import annotations

from typing import Any

from torch.utils import data

from .base import MapDataset
from .concat import ConcatDataset
from .subset import Subset


def as_columns(dataset: Any) -> Any:
    """Those of `torch.utils.data.Subset` and `ConcatDataset` that hold datasets of torchdali as ours.

    Theirs would decode each sample by itself, in Python.  Anything else is given back as it is.

    Raises:
        TypeError, ValueError, IndexError: as `ConcatDataset` and `Subset`.
    """
    if type(dataset) is data.Subset:
        whole = as_columns(dataset.dataset)
        return Subset(whole, dataset.indices) if isinstance(whole, MapDataset) else dataset
    if type(dataset) is data.ConcatDataset:
        parts = [as_columns(part) for part in dataset.datasets]
        return ConcatDataset(parts) if all(isinstance(part, MapDataset) for part in parts) else dataset
    return dataset
