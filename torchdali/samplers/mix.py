"""Mixes several datasets in given proportions into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..datasets import ConcatDataset, MapDataset, as_columns
from ..order import Order
from .mix_sampler import MixSampler


class Mix(ConcatDataset):
    """Mixes datasets with the same fields by weight: `Mix({photos: 0.7, drawings: 0.3})`.

    It is the datasets' concatenation with the order of a `MixSampler`, which says how epochs continue; a loader uses
    that order unless it is given another one.  The field `index` counts through all datasets, see `locate`.

    Args:
        datasets: {dataset: weight}; or a list of datasets, weighted by their sizes.
        num_samples, temperature: as for `MixSampler`; temperature=5, say, goes with a list.

    Attributes:
        datasets: the datasets, in their order.
        sampler: the order.

    Raises:
        TypeError: something else than datasets of torchdali.
        FieldTypeError: numbers, arrays or images of different types.
        ValueError: no datasets, an empty one, other fields than the first one's, or invalid weights.
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
        parts = [as_columns(dataset) for dataset in datasets]
        for number, dataset in enumerate(parts):
            if not isinstance(dataset, MapDataset):
                raise TypeError(
                    f"Mix takes datasets of torchdali that are read by index, and dataset {number} is "
                    f"{type(dataset).__name__}: for torch's, write ConcatDataset and sampler=MixSampler(sizes)"
                )
        super().__init__(parts)
        sizes = [len(dataset) for dataset in self.datasets]
        weights = list(datasets.values()) if isinstance(datasets, Mapping) else None
        self.sampler = MixSampler(sizes, weights, num_samples, temperature=temperature)

    def order(self, shuffle: bool, sampler: Any) -> Order:
        if sampler is None and shuffle:
            raise ValueError("Mix gives the order, which is shuffled: leave shuffle out")
        return super().order(False, self.sampler if sampler is None else sampler)
