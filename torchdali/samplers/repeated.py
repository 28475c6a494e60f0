"""An order in which every sample comes several times in a row, augmented differently."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import integer
from ..order import Epoch, Indices, Order, Rows
from ..permutation import Permutation
from ..rand import Key, derive
from ..state import Position
from .numbers import occurrence_keys, size_of


class RepeatedAugmentationSampler(Order):
    """Repeats each sample (Hoffer et al., "Augment your batch", 2020), as DeiT's and timm's `RASampler` do.

    The epoch is a random order in which each sample comes `repeats` times in a row, augmented differently each time.
    The ranks take its positions in turn, so that repeats land in one global batch and on different ranks.  As in
    `RASampler`, an epoch is as long as the dataset by default, and so sees one in `repeats` of its samples, which are
    drawn anew in each epoch.  Unlike there, nothing depends on the number of ranks, and nothing is rounded to 256.

    Args:
        dataset: a dataset, or its number of samples.
        repeats: how often each sample comes.
        num_samples: samples per epoch, over all ranks, repeats included; None: as many as the dataset has.

    Raises:
        TypeError, ValueError: no dataset, an empty one, no positive integers, or `num_samples` above the number of
            samples with repeats.
    """

    strided = True

    def __init__(self, dataset: Any, repeats: int = 3, num_samples: int | None = None) -> None:
        self.dataset_size = size_of(dataset)
        if self.dataset_size < 1:
            raise ValueError(f"the dataset must have at least one sample, got {self.dataset_size}")
        self.repeats = integer("repeats", repeats, 1)
        most = self.dataset_size * self.repeats
        self._size = self.dataset_size if num_samples is None else integer("num_samples", num_samples, 1, most)

    def __len__(self) -> int:
        return self._size

    def epoch(self, seed: int, at: Position) -> Epoch:
        shuffled = Permutation(self.dataset_size, derive(seed, Key.REPEATED, at.key))

        def rows(positions: Indices) -> Rows:
            places, repeats = np.divmod(positions, self.repeats)
            indices = shuffled(places)
            return Rows(indices, occurrence_keys(indices, repeats))

        return Epoch(len(self), rows, self.strided)

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        return f"each of {self.dataset_size} repeated {self.repeats} times"
