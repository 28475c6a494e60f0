"""The contract of samplers that know what stands at any position of an epoch, without drawing the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..datasets.base import as_column
from ..order import EpochOrder, Indices
from ..rand import Words, mix


class OrderSampler:
    """Base of these samplers: tables and numbers, without a seed.  The loader's seed makes an order of it.

    A subclass sets `dataset_size`, and defines `__len__`, `epoch` and `fingerprint`.

    Attributes:
        dataset_size: samples of the dataset that it was made for.
        strided: see `sampler.Order`.
    """

    dataset_size: int
    strided = False

    def __len__(self) -> int:
        """Samples of an epoch, over all ranks."""
        raise NotImplementedError

    def epoch(self, seed: int, epoch: int, key: int) -> EpochOrder:
        """The order of an epoch; `key` tells apart the cycles of one epoch too (`state.Position.key`)."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """Equal for equal samplers, at most 100 characters."""
        raise NotImplementedError

    def order(self, dataset_size: int, seed: int) -> SampledOrder:
        """The order of every epoch, for a dataset and a loader's seed.

        Raises:
            ValueError: it was made for a dataset of another size.
        """
        if dataset_size != self.dataset_size:
            raise ValueError(
                f"{type(self).__name__} was made for {self.dataset_size} samples, and the dataset has {dataset_size}"
            )
        return SampledOrder(self, seed)


class SampledOrder:
    """A sampler with a seed: a `sampler.Order`."""

    def __init__(self, sampler: OrderSampler, seed: int) -> None:
        self.sampler, self.seed = sampler, seed
        self.strided = sampler.strided

    def __len__(self) -> int:
        return len(self.sampler)

    def epoch(self, epoch: int, key: int) -> EpochOrder:
        return self.sampler.epoch(self.seed, epoch, key)

    def fingerprint(self, world_size: int = 1) -> str:
        return self.sampler.fingerprint()


def cycle_of(key: int) -> int:
    """How often an epoch was begun before, of a `state.Position.key`."""
    return key >> 32


def occurrence_keys(indices: Indices, occurrences: NDArray[np.int64]) -> Words:
    """What random numbers are keyed by where a sample comes several times: the first time its index, as everywhere."""
    return indices.astype(np.uint64) + mix(occurrences.astype(np.uint64))  # mix(0) is 0


def as_numbers(name: str, values: Any) -> NDArray[Any]:
    """[N] numbers of a list, an array or a tensor.

    Raises:
        TypeError: anything else.
        ValueError: none, or one that is infinite or nan.
    """
    column, kind = as_column(name, values)
    if not len(column):
        raise ValueError(f"{name} must hold at least one number, got none")
    if kind != "number":
        raise TypeError(f"{name} must be one number for each sample, got {column[0]!r:.80}")
    numbers = np.asarray(column)
    if not np.isfinite(numbers).all():
        at = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise ValueError(f"{name} must be finite, got {numbers[at]} at {at}")
    return numbers


def size_of(dataset: Any) -> int:
    """The size of a dataset, or the number itself.

    Raises:
        TypeError: neither a number nor something with a length.
    """
    if hasattr(dataset, "__len__"):
        return len(dataset)
    if isinstance(dataset, bool) or not hasattr(dataset, "__index__"):
        raise TypeError(f"a dataset, or its number of samples, was expected, got {dataset!r:.80}")
    return int(dataset)
