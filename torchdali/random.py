"""Counter-based random numbers: one word for each (seed, epoch, sample, draw), and no state.

The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014) used as a
hash chain: a key is folded with one number after the other through its finaliser.  A word depends on nothing but these
numbers, so a sample looks the same on any rank, in any batch and after any restart.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_M1, _M2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S1, _S2, _S3 = np.uint64(30), np.uint64(27), np.uint64(31)

Words = NDArray[np.uint64]


def mix(x: Words) -> Words:
    """SplitMix64's finaliser: a bijection of uint64 whose every output bit depends on every input bit."""
    x = x ^ (x >> _S1)
    x = x * _M1
    x = x ^ (x >> _S2)
    x = x * _M2
    out: Words = x ^ (x >> _S3)
    return out


def fold(key: ArrayLike | int, number: ArrayLike | int) -> Words:
    """A new key from a key and a number, element by element; at least 1-d, so that uint64 wraps without a warning."""
    keys, numbers = _words(key), _words(number)
    return mix(keys * _GAMMA + mix(numbers + _GAMMA))


def _words(x: ArrayLike | int) -> Words:
    if isinstance(x, int):
        x = [x % 2**64]
    return np.atleast_1d(np.asarray(x).astype(np.uint64))


def derive(seed: int, *numbers: int) -> int:
    """One 64-bit number from a seed and any numbers, for seeding other generators."""
    key = _words(seed)
    for number in numbers:
        key = fold(key, number)
    return int(key[0])


def shard_seed(seed: int, rank: int) -> int:
    """The seed for random state that one rank owns ("global seed plus rank"), such as `rand.ndd`."""
    return derive(seed, 0x5EED, rank) % 2**63


class Rand:
    """Random numbers for the samples of one batch, as numpy arrays with one row for each sample.

    Every call is another draw: the n-th call gives, for one sample, the same numbers in any batch that holds it.

    Args:
        seed: the loader's seed.
        epoch: the epoch (with its cycle, see `state.Position.key`).
        samples: [N] uint64, what each row is keyed by: the sample's index, and how often it came before in this epoch.
    """

    def __init__(self, seed: int, epoch: int, samples: ArrayLike) -> None:
        self._keys = fold(derive(seed, epoch), samples)
        self._draw = 0

    def __len__(self) -> int:
        return len(self._keys)

    def child(self, number: int) -> Rand:
        """Independent numbers for one user of them, such as one of several transforms."""
        child = copy.copy(self)
        child._keys, child._draw = fold(self._keys, 0xC41D + number), 0
        return child

    def words(self, shape: int | Sequence[int] = ()) -> Words:
        """[N, *shape] independent 64-bit words."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        lanes = np.arange(math.prod(shape), dtype=np.uint64)
        key = fold(self._keys, self._draw)
        self._draw += 1
        return mix(key[:, None] + (lanes + np.uint64(1)) * _GAMMA).reshape(len(key), *shape)

    def _unit(self, shape: int | Sequence[int]) -> NDArray[np.float64]:
        out: NDArray[np.float64] = (self.words(shape) >> np.uint64(11)) * 2.0**-53
        return out

    def uniform(
        self, low: ArrayLike = 0.0, high: ArrayLike = 1.0, shape: int | Sequence[int] = ()
    ) -> NDArray[np.float32]:
        """[N, *shape] float32 in [low, high)."""
        low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        out = (low + (high - low) * self._unit(shape)).astype(np.float32)
        # Rounding to float32 may land on `high`.
        return np.where(high > low, np.minimum(out, np.nextafter(np.float32(high), np.float32(low))), out)

    def normal(
        self, mean: ArrayLike = 0.0, std: ArrayLike = 1.0, shape: int | Sequence[int] = ()
    ) -> NDArray[np.float32]:
        """[N, *shape] float32, normally distributed (Box and Muller, 1958)."""
        shape = (shape,) if isinstance(shape, int) else tuple(shape)
        u = self._unit((2, *shape))
        z = np.sqrt(-2 * np.log1p(-u[:, 0])) * np.cos(2 * np.pi * u[:, 1])
        return (np.asarray(mean) + np.asarray(std) * z).astype(np.float32)

    def integers(self, low: ArrayLike, high: ArrayLike | None = None, shape: int | Sequence[int] = ()) -> Any:
        """[N, *shape] int64 in [low, high), or [0, low) with one argument; bounds may be arrays of one row a sample.

        Raises:
            ValueError: an empty range.
        """
        low, high = (np.zeros_like(low), low) if high is None else (low, high)
        low, high = np.asarray(low, np.int64), np.asarray(high, np.int64)
        if np.any(high <= low):
            raise ValueError(f"integers needs low < high, got low={low} high={high}")
        # The product keeps 53 bits: below 2**21 values the bias is under 2**-32.
        return low + np.minimum((self._unit(shape) * (high - low)).astype(np.int64), high - low - 1)

    def bernoulli(self, p: ArrayLike = 0.5, shape: int | Sequence[int] = ()) -> NDArray[np.int32]:
        """[N, *shape] int32, 1 with probability `p`."""
        if np.any(np.asarray(p) < 0) or np.any(np.asarray(p) > 1):
            raise ValueError(f"p must be in [0, 1], got {p}")
        return (self._unit(shape) < p).astype(np.int32)

    def choice(
        self, values: int | Sequence[Any], p: Sequence[float] | None = None, shape: int | Sequence[int] = ()
    ) -> Any:
        """[N, *shape] of `values` (or of range(values)), each with its weight in `p`.

        Raises:
            ValueError: no values, or weights that do not fit.
        """
        options = np.arange(values) if isinstance(values, int) else np.asarray(values)
        if not len(options):
            raise ValueError("choice needs at least one value")
        if p is None:
            return options[self.integers(len(options), shape=shape)]
        weights = np.asarray(p, np.float64)
        if weights.shape != (len(options),) or np.any(weights < 0) or not weights.sum() > 0:
            raise ValueError(f"p must hold {len(options)} weights, none negative and not all zero, got {p}")
        edges = np.cumsum(weights) / weights.sum()
        return options[np.minimum(np.searchsorted(edges, self._unit(shape), side="right"), len(options) - 1)]

    def permutations(self, n: int) -> NDArray[np.int64]:
        """[N, n] int64, a random order of range(n) in each row."""
        return np.argsort(self.words(n), axis=1)
