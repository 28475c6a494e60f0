"""An order that mixes several concatenated datasets in given proportions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import integer
from ..fingerprint import digest
from ..order import Epoch, Indices, Order, Rows
from ..permutation import Permutation, permute_each
from ..rand import Key, derive, fold
from ..state import Position
from .numbers import as_numbers, occurrence_keys


class MixSampler(Order):
    """Draws from concatenated datasets, each as often as its weight says; `Mix` joins datasets and this order.

    Each epoch holds the same number of samples of each dataset, the nearest to its weight, in random order.  Each
    dataset is shuffled on its own, and continues from epoch to epoch: every sample of a dataset is seen once before any
    is seen again, however long an epoch is.  A sample that comes several times in an epoch is augmented differently
    each time.

    Args:
        sizes: number of samples of each dataset.
        weights: one positive number per dataset; they need not sum to 1.  None: the sizes.
        num_samples: samples per epoch, over all ranks; None: as many as all datasets have together.
        temperature: the weights are raised to the power 1 / temperature: above 1, small datasets come more often.

    Attributes:
        counts: samples of each dataset per epoch.

    Raises:
        TypeError: sizes or weights are not numbers.
        ValueError: the weights are not positive, or not one per dataset; an epoch is too short for a weight.
    """

    def __init__(
        self, sizes: Any, weights: Any = None, num_samples: int | None = None, *, temperature: float = 1.0
    ) -> None:
        self.sizes = as_numbers("sizes", sizes)
        if self.sizes.dtype.kind not in "iu" or self.sizes.min() < 1:
            raise ValueError(f"sizes must be positive integers, got {self.sizes.tolist()}")
        self.sizes = self.sizes.astype(np.int64)
        shares = as_numbers("weights", self.sizes if weights is None else weights).astype(np.float64)
        if shares.shape != self.sizes.shape:
            raise ValueError(f"weights must be one for each of {len(self.sizes)} datasets, got {len(shares)}")
        if not shares.min() > 0:
            raise ValueError(f"weights must be positive, got {shares.min()}: leave that dataset out")
        if isinstance(temperature, bool) or not isinstance(temperature, (int, float)) or not temperature > 0:
            raise ValueError(f"temperature must be a positive number, got {temperature!r}")
        self.dataset_size = int(self.sizes.sum())
        n = self.dataset_size if num_samples is None else integer("num_samples", num_samples, 1)
        self.counts = _apportion((shares / shares.max()) ** (1 / temperature), n)
        if not self.counts.all():
            none = int(np.flatnonzero(self.counts == 0)[0])
            raise ValueError(f"num_samples={n} is too few for one sample of dataset {none}, by its weight")
        self._edges = np.cumsum(self.counts)
        self._starts = np.cumsum(self.sizes) - self.sizes

    def __len__(self) -> int:
        return int(self._edges[-1])

    def epoch(self, seed: int, at: Position) -> Epoch:
        shuffled = Permutation(len(self), derive(seed, Key.MIX, at.key))
        own = derive(seed, Key.WITHIN_PART, at.cycle)
        # The start of the epoch in each dataset's own line of samples; Python's integers can't overflow.
        begun = [divmod(at.epoch * int(count), int(size)) for count, size in zip(self.counts, self.sizes, strict=True)]
        first_pass, first_place = np.array(begun, np.int64).T

        def rows(positions: Indices) -> Rows:
            places = shuffled(positions)
            dataset = np.searchsorted(self._edges, places, side="right")
            visits = places - (self._edges - self.counts)[dataset] + first_place[dataset]
            passes, within = np.divmod(visits, self.sizes[dataset])
            keys = fold(fold(own, dataset), first_pass[dataset] + passes)
            indices = self._starts[dataset] + permute_each(self.sizes[dataset], keys, within)
            return Rows(indices, occurrence_keys(indices, passes))

        return Epoch(len(self), rows)

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        return f"mix of {len(self.sizes)} datasets {digest(self.sizes, self.counts)}"


def _apportion(shares: NDArray[np.float64], n: int) -> Indices:
    """Find integers that sum to n, each less than one from its share (Hamilton's method)."""
    exact = shares / shares.sum() * n
    counts: Indices = np.floor(exact).astype(np.int64)
    missing = n - int(counts.sum())
    counts[np.argsort(-(exact - counts), kind="stable")[:missing]] += 1
    return counts
