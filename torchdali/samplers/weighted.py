"""An order in which each sample comes as often as its weight says."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import integer
from ..fingerprint import digest
from ..order import Epoch, Indices, Order, Rows, own_rows
from ..rand import Key, Words, derive, fold
from ..state import Position
from .numbers import as_numbers

_LOG2 = 0.6931471805599453


class WeightedSampler(Order):
    """Draws samples by weight, like torch's `WeightedRandomSampler`, but each position on its own.

    With replacement, every position is an independent draw: nothing is drawn at the start of an epoch.  Without
    replacement, the epoch begins with a table of O(N), in the order of drawing one sample after the other (Efraimidis
    and Spirakis, "Weighted random sampling with a reservoir", 2006): heavy samples tend to come first.  A sample that
    comes several times in an epoch is augmented differently each time.

    Args:
        weights: [N] one per sample, not negative; they need not sum to 1.
        num_samples: samples per epoch, over all ranks; None: as many as there are weights, or, without replacement,
            positive weights.
        replacement: a sample may come several times in an epoch.

    Raises:
        TypeError: the weights are not numbers.
        ValueError: a weight is negative or not finite, or all are zero; without replacement, `num_samples` is above the
            number of positive weights.
    """

    def __init__(self, weights: Any, num_samples: int | None = None, replacement: bool = True) -> None:
        numbers = as_numbers("weights", weights).astype(np.float64)
        if numbers.min() < 0:
            at = int(numbers.argmin())
            raise ValueError(f"weights must not be negative, got {numbers[at]} at {at}")
        if not numbers.max() > 0:
            raise ValueError("weights must not all be zero")
        numbers /= numbers.max()
        self.dataset_size, self.replacement = len(numbers), bool(replacement)
        positive = int(np.count_nonzero(numbers))
        self._size = len(numbers) if replacement else positive
        if num_samples is not None:
            self._size = integer("num_samples", num_samples, 1)
        if not replacement and self._size > positive:
            raise ValueError(
                f"num_samples must be at most the {positive} samples of positive weight, got {self._size}: write "
                "replacement=True"
            )
        if replacement:
            # The last edge is exactly 1, above every draw; a weight of zero leaves no room between its edges.
            self._table: NDArray[np.float64] = np.cumsum(numbers, out=numbers)
            self._table /= self._table[-1]
        else:
            self._table = numbers
        self._fingerprint: str | None = None

    def __len__(self) -> int:
        return self._size

    def epoch(self, seed: int, at: Position) -> Epoch:
        draw = derive(seed, Key.WEIGHTED, at.key)
        if not self.replacement:
            indices = _drawn_without(self._table, self._size, draw)
            return Epoch(len(self), lambda positions: own_rows(indices[positions]))

        def rows(positions: Indices) -> Rows:
            numbers = positions.astype(np.uint64)
            drawn = np.searchsorted(self._table, _unit(fold(draw, numbers)), side="right")
            return Rows(drawn.astype(np.int64), numbers)  # keyed by the position, since each position comes once

        return Epoch(len(self), rows)

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        if self._fingerprint is None:
            how = "with" if self.replacement else "without"
            self._fingerprint = f"weighted {how} replacement {digest(self._table)}"
        return self._fingerprint


def _unit(words: Words) -> NDArray[np.float64]:
    """Turn random words into numbers in [0, 1)."""
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _drawn_without(weights: NDArray[np.float64], n: int, key: int) -> Indices:
    """Draw an exponential time of rate `weights[i]` for each i, and give the n smallest, in their order."""
    with np.errstate(divide="ignore", over="ignore"):
        words = fold(key, np.arange(len(weights), dtype=np.uint64))
        times = exact_minus_log(1 - _unit(words)) / weights
    times[weights == 0] = np.inf
    # Ties go by index, whichever algorithm numpy's partition uses.
    among = np.flatnonzero(times <= np.partition(times, n - 1)[n - 1])
    return among[np.argsort(times[among], kind="stable")][:n]


def exact_minus_log(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute -log(x) for x in (0, 1], within 1e-15, with the same bits on every machine.

    numpy's own log depends on the processor, and one different bit would swap two samples between the ranks.  This
    function uses only operations that IEEE 754 defines exactly.
    """
    mantissa, exponent = np.frexp(x)
    low = mantissa < 0.5**0.5
    mantissa = np.where(low, 2 * mantissa, mantissa)
    s = (mantissa - 1) / (mantissa + 1)
    square, series = s * s, np.zeros_like(s)
    for k in range(23, 0, -2):
        series = series * square + 1 / k
    out: NDArray[np.float64] = (low - exponent) * _LOG2 - 2 * s * series
    return out
