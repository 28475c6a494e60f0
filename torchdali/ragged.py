"""The rows of all samples of a batch in one array: boxes, points and what else comes in lists of objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Ragged(NamedTuple):
    """Rows of samples, end to end.

    Attributes:
        data: [T, ...], the rows of all samples.
        counts: int64 [N], how many of them each sample has.
    """

    data: NDArray[Any]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[Any] | NDArray[Any]) -> Ragged:
        """Join arrays [m, ...], one for each sample, at least one."""
        return cls(np.concatenate(rows), np.array([len(row) for row in rows], np.int64))

    @property
    def owner(self) -> NDArray[np.int64]:
        """int64 [T], the number of each row's sample."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    def split(self) -> list[NDArray[Any]]:
        """Give the rows of each sample."""
        return np.split(self.data, np.cumsum(self.counts)[:-1])

    def filter(self, keep: NDArray[np.bool_]) -> Ragged:
        """Keep some rows: bool [T]."""
        return Ragged(self.data[keep], np.bincount(self.owner[keep], minlength=len(self.counts)))
