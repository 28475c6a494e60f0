"""Turns torch's compositions of torchdali's datasets into torchdali's own."""

from __future__ import annotations

from typing import Any

from torch.utils import data

from .base import MapDataset
from .concat import ConcatDataset
from .subset import Subset


def as_columns(dataset: Any) -> Any:
    """Turn torch's `Subset` or `ConcatDataset` of torchdali's datasets into torchdali's own.

    torch's own would decode the samples one by one, in Python.  Anything else is returned as it is.

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
