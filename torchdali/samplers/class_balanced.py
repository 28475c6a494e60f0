"""An order in which every class comes equally often."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import integer
from ..columns import as_column
from ..fingerprint import digest
from ..order import Epoch, Indices, Order, Rows
from ..permutation import Permutation, permute_each
from ..rand import Key, derive, fold
from ..state import Position
from .numbers import occurrence_keys


class ClassBalancedSampler(Order):
    """Draws every class equally often, in random order.

    In an epoch, the numbers of samples of any two classes differ by at most one.  The samples of a class come in random
    order, each one once before any comes again.  This continues from epoch to epoch, so that several epochs see all
    samples of a large class.  A sample that comes several times in an epoch is augmented differently each time.

    Args:
        labels: [N] one integer or string per sample; or a dataset with `targets`, `labels` or a column "label".
        num_samples: samples per epoch, over all ranks; None: as many as there are labels.

    Raises:
        TypeError: no labels, or labels that are neither integers nor strings.
        ValueError: the labels are empty.
    """

    def __init__(self, labels: Any, num_samples: int | None = None) -> None:
        values = np.asarray(_labels(labels))
        if values.ndim != 1 or values.dtype.kind not in "biuU":
            raise TypeError(f"labels must be one integer or string per sample, got {values.dtype} {values.shape}")
        if not len(values):
            raise ValueError("labels must hold at least one, got none")
        self.classes, classes, self._counts = np.unique(values, return_inverse=True, return_counts=True)
        self.dataset_size = len(values)
        self._size = len(values) if num_samples is None else integer("num_samples", num_samples, 1)
        self._members = np.argsort(classes, kind="stable")
        self._starts = np.cumsum(self._counts) - self._counts
        self._fingerprint: str | None = None

    def __len__(self) -> int:
        return self._size

    def epoch(self, seed: int, at: Position) -> Epoch:
        shuffled = Permutation(self._size, derive(seed, Key.CLASSES, at.key))
        # The epochs are parts of one endless line; the class and its visit follow from the position on it.
        visit, first_class = divmod(at.epoch * self._size, len(self._counts))
        own = derive(seed, Key.WITHIN_CLASS, at.cycle)

        def rows(positions: Indices) -> Rows:
            places = shuffled(positions) + first_class
            visits, classes = np.divmod(places, len(self._counts))
            sizes = self._counts[classes]
            rounds, within = np.divmod(visits + visit, sizes)
            members = permute_each(sizes, fold(fold(own, classes), rounds), within)
            indices = self._members[self._starts[classes] + members]
            return Rows(indices, occurrence_keys(indices, rounds - visit // sizes))

        return Epoch(len(self), rows)

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        if self._fingerprint is None:
            self._fingerprint = f"balanced over {len(self._counts)} classes {digest(self._members, self._counts)}"
        return self._fingerprint


def _labels(labels: Any) -> Any:
    if isinstance(labels, (list, tuple, np.ndarray)) or hasattr(labels, "__array__"):
        column, _ = as_column("labels", labels)
        return column
    columns = getattr(labels, "columns", None)
    in_memory = columns.get("label") if isinstance(columns, dict) else None
    for found in (in_memory, getattr(labels, "targets", None), getattr(labels, "labels", None)):
        if found is not None:
            return as_column("labels", found)[0]
    raise TypeError(
        f"labels must be a list or an array, or a dataset with targets, labels or a column 'label', got "
        f"{type(labels).__name__}: write ClassBalancedSampler(labels)"
    )
