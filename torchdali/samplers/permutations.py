"""Many keyed permutations at once, one for each element: those of `permutation.Permutation`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..permutation import ROUNDS
from ..rand import Words, fold, mix


def permute_each(sizes: NDArray[np.int64], keys: Words, positions: NDArray[np.int64]) -> NDArray[np.int64]:
    """`Permutation(sizes[i], keys[i])(positions[i])` for each i: [N] int64.

    Args:
        sizes: [N], at least 1.
        keys: [N] 64-bit keys.
        positions: [N], each in [0, sizes[i]).
    """
    n = sizes.astype(np.uint64)
    a = _ceil_sqrt(sizes)
    b = (n + a - np.uint64(1)) // a
    rounds = fold(keys[:, None], np.arange(ROUNDS * 2, dtype=np.uint64))
    y = _rounds(positions.astype(np.uint64), a, b, rounds)
    while (outside := np.flatnonzero(y >= n)).size:
        y[outside] = _rounds(y[outside], a[outside], b[outside], rounds[outside])
    return y.astype(np.int64)


def _rounds(x: Words, a: Words, b: Words, keys: Words) -> Words:
    left, right = x // b, x % b
    for i in range(0, 2 * ROUNDS, 2):
        left = (left + mix(right ^ keys[:, i]) % a) % a
        right = (right + mix(left ^ keys[:, i + 1]) % b) % b
    out: Words = left * b + right
    return out


def _ceil_sqrt(n: NDArray[np.int64]) -> Words:
    """isqrt(n - 1) + 1."""
    below = n - 1
    root = np.sqrt(below.astype(np.float64)).astype(np.int64)
    # The root of a rounded number may be one off.
    root -= root * root > below
    root += (root + 1) * (root + 1) <= below
    out: Words = (root + 1).astype(np.uint64)
    return out
