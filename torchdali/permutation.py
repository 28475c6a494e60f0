"""Keyed pseudo-random permutations of range(n), evaluated at any positions in O(1) memory.

A generalised Feistel network over a rectangle a x b that just covers n (Black and Rogaway, "Ciphers with arbitrary
finite domains", 2002), with cycle walking for the few points outside.  Round functions are SplitMix64's finaliser, see
`rand.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .rand import Words, fold, mix

ROUNDS = 10  # of two half rounds each; tests/test_permutation.py compares them with all permutations of small n


@dataclass(frozen=True)
class Permutation:
    """A permutation of range(n): `Permutation(n, key)(positions)` gives the elements at these positions.

    Args:
        n: number of elements, at least 1 and below 2**62.
        key: 64-bit key; each key gives another permutation.
    """

    n: int
    key: int

    def __post_init__(self) -> None:
        if not 1 <= self.n < 2**62:
            raise ValueError(f"a permutation needs 1 <= n < 2**62, got n={self.n}")

    def __call__(self, positions: ArrayLike) -> NDArray[np.int64]:
        """Give the elements at `positions`: int64, of the same shape.

        Raises:
            IndexError: a position outside range(n).
        """
        x = np.asarray(positions)
        if x.size and (x.min() < 0 or x.max() >= self.n):
            raise IndexError(f"positions must be in [0, {self.n}), got {x.min()}..{x.max()}")
        a = math.isqrt(self.n - 1) + 1
        b = -(-self.n // a)
        keys = fold(self.key, np.arange(ROUNDS * 2, dtype=np.uint64))
        y = _rounds(x.astype(np.uint64).ravel(), np.uint64(a), np.uint64(b), keys)
        # Walk along the cycle until every point is inside again.  At most a of the a * b points are outside.
        while (outside := np.flatnonzero(y >= self.n)).size:
            y[outside] = _rounds(y[outside], np.uint64(a), np.uint64(b), keys)
        return y.astype(np.int64).reshape(x.shape)


def permute_each(sizes: NDArray[np.int64], keys: Words, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """Evaluate many permutations at once: `Permutation(sizes[i], keys[i])(positions[i])` for each i, as [N] int64.

    Args:
        sizes: [N], at least 1.
        keys: [N] 64-bit keys.
        positions: [N], each in [0, sizes[i]).
    """
    n = sizes.astype(np.uint64)
    a = _ceil_sqrt(sizes)
    b = (n + a - np.uint64(1)) // a
    rounds = fold(keys[None], np.arange(ROUNDS * 2, dtype=np.uint64)[:, None])
    y = _rounds(positions.astype(np.uint64), a, b, rounds)
    while (outside := np.flatnonzero(y >= n)).size:
        y[outside] = _rounds(y[outside], a[outside], b[outside], rounds[:, outside])
    return y.astype(np.int64)


def _rounds(x: Words, a: Any, b: Any, keys: Words) -> Words:
    """Send [N] points of a x b through the network; a, b and the keys are one for all points, or one per point."""
    left, right = x // b, x % b
    for i in range(0, ROUNDS * 2, 2):
        left = (left + mix(right ^ keys[i]) % a) % a
        right = (right + mix(left ^ keys[i + 1]) % b) % b
    out: Words = left * b + right
    return out


def _ceil_sqrt(n: NDArray[np.int64]) -> Words:
    """Compute isqrt(n - 1) + 1."""
    below = n - 1
    root = np.sqrt(below.astype(np.float64)).astype(np.int64)
    # The root of a rounded number may be one off.
    root -= root * root > below
    root += (root + 1) * (root + 1) <= below
    out: Words = (root + 1).astype(np.uint64)
    return out
