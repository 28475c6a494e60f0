"""A keyed pseudo-random permutation of range(n), evaluated at any positions in O(1) memory.

A generalised Feistel network over a rectangle a x b that just covers n (Black and Rogaway, "Ciphers with arbitrary
finite domains", 2002), with cycle walking for the few points outside.  Round functions are SplitMix64's finaliser, see
`rand.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .rand import fold, mix

ROUNDS = 10  # of two half rounds; tests/test_permutation.py holds it against all permutations of small n


@dataclass(frozen=True)
class Permutation:
    """`Permutation(n, key)(positions)` gives the elements at these positions.

    Args:
        n: number of elements, at least 1 and below 2**62.
        key: 64-bit key; each key is another permutation.
    """

    n: int
    key: int

    def __post_init__(self) -> None:
        if not 1 <= self.n < 2**62:
            raise ValueError(f"a permutation needs 1 <= n < 2**62, got n={self.n}")

    def __call__(self, positions: ArrayLike) -> NDArray[np.int64]:
        """Elements at `positions`: int64, same shape.

        Raises:
            IndexError: a position outside range(n).
        """
        x = np.asarray(positions)
        if x.size and (x.min() < 0 or x.max() >= self.n):
            raise IndexError(f"positions must be in [0, {self.n}), got {x.min()}..{x.max()}")
        a = math.isqrt(self.n - 1) + 1
        b = -(-self.n // a)
        y = self._rounds(x.astype(np.uint64).ravel(), a, b)
        # Walk along the cycle until every point is back inside.  At most a of the a * b points are outside.
        while (outside := np.flatnonzero(y >= self.n)).size:
            y[outside] = self._rounds(y[outside], a, b)
        return y.astype(np.int64).reshape(x.shape)

    def _rounds(self, x: NDArray[np.uint64], a: int, b: int) -> NDArray[np.uint64]:
        columns, rows = np.uint64(a), np.uint64(b)
        left, right = x // rows, x % rows
        for key in fold(self.key, np.arange(ROUNDS * 2, dtype=np.uint64)).reshape(ROUNDS, 2):
            left = (left + mix(right ^ key[0]) % columns) % columns
            right = (right + mix(left ^ key[1]) % rows) % rows
        out: NDArray[np.uint64] = left * rows + right
        return out
