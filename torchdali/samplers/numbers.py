"""Helpers of samplers: tables of numbers, sizes of datasets, and keys of samples that come several times."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..columns import as_column
from ..order import Indices
from ..rand import Words, mix


def occurrence_keys(indices: Indices, occurrences: NDArray[np.int64]) -> Words:
    """Make the keys of samples that come several times; the first time, the key is the index, as everywhere."""
    return indices.astype(np.uint64) + mix(occurrences.astype(np.uint64))  # mix(0) is 0


def as_numbers(name: str, values: Any) -> NDArray[Any]:
    """Read [N] numbers from a list, an array or a tensor.

    Raises:
        TypeError: it is anything else.
        ValueError: there are none, or one is infinite or NaN.
    """
    column, kind = as_column(name, values)
    if not len(column):
        raise ValueError(f"{name} must hold at least one number, got none")
    if kind != "number":
        raise TypeError(f"{name} must be one number per sample, got {column[0]!r:.80}")
    numbers = np.asarray(column)
    if not np.isfinite(numbers).all():
        at = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise ValueError(f"{name} must be finite, got {numbers[at]} at {at}")
    return numbers


def size_of(dataset: Any) -> int:
    """Get the size of a dataset, or the number itself.

    Raises:
        TypeError: it is neither a number nor an object with a length.
    """
    if hasattr(dataset, "__len__"):
        return len(dataset)
    if isinstance(dataset, bool) or not hasattr(dataset, "__index__"):
        raise TypeError(f"a dataset, or its number of samples, was expected, got {dataset!r:.80}")
    return int(dataset)
