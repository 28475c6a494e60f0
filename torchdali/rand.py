"""Counter-based random numbers: one word for each (seed, epoch, sample, draw), and no state.

The generator is SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014) used as a
hash chain: a key is folded with one number after the other through its finaliser.  A word depends on nothing but these
numbers, so a sample looks the same on any rank, in any batch and after any restart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

Words = NDArray[np.uint64]
Shape = int | Sequence[int]


def _word(number: int) -> Words:
    """Make a 0-d array: numpy takes twice as long for a scalar of its own."""
    return np.array(number, np.uint64)


_GAMMA = _word(0x9E3779B97F4A7C15)
_M1, _M2 = _word(0xBF58476D1CE4E5B9), _word(0x94D049BB133111EB)
_S1, _S2, _S3, _S_UNIT = _word(30), _word(27), _word(31), _word(11)


class Key(IntEnum):
    """The purposes of random numbers: from one seed, each purpose has numbers of its own.

    Never renumber: every value is part of the stream, which users' states continue.  A new purpose gets a new value.
    """

    SHUFFLE = 0x0DE5  # the permutation of `shuffle=True`
    DRAWN = 0xD4A3  # seeds of the global generators while torch's sampler is iterated
    REPEATED = 0x4E9A  # the permutation of `RepeatedAugmentationSampler`
    WEIGHTED = 0x3E16  # the draws of `WeightedSampler`
    CLASSES = 0xC1A5  # the permutation of the places of classes in `ClassBalancedSampler`
    WITHIN_CLASS = 0xC1A6  # each class's own permutations
    MIX = 0x313C  # the permutation of the places of datasets in `MixSampler`
    WITHIN_PART = 0x313D  # each dataset's own permutations
    WITHIN_BUCKET = 0xB0C4  # the permutations inside buckets in `LengthBucketSampler`
    BATCHES = 0xB0C5  # the order of its batches
    READER = 0x4EAD  # the seed of a native reader's own generator
    SHARD = 0x5EED  # one rank's seed, see `shard_seed`
    READER_SHARDS = 0x4EAE  # the permutation of a native reader's shards over the ranks
    CHILD = 0xC41D  # plus a number: the children of a `Rand`
    STEP = 0x57E9  # a step of a transform, by its name and occurrence, see `Rand.named`
    VIEW = 0x51EE  # a view of a sample, by its name, see `Rand.branch`
    SCENE = 0x5CE2  # a scene of a sample, by its name
    STREAM = 0x57EA  # the draws that a user gave a name, see `Rand.stream`
    COLLATE = 0xC011  # the global generators while a `collate_fn` runs
    BATCH = 0xBA7C  # a `batch_transform`: the global generators while it runs, and its `rand`
    TORCH = 0x70C4  # the seed of `rand.torch` in a function
    NUMPY = 0x70C5  # the seed of `rand.numpy`
    GLOBAL = 0x70C6  # the seeds of the global generators while a function runs in the caller's thread
    SUBSTITUTE = 0xBAD  # a number for `Rand.child`: the samples that take the place of bad ones


def mix(x: Words) -> Words:
    """SplitMix64's finaliser: a bijection of uint64 whose every output bit depends on every input bit."""
    out: Words = x >> _S1
    out ^= x
    out *= _M1
    shifted = out >> _S2
    out ^= shifted
    out *= _M2
    np.right_shift(out, _S3, shifted)
    out ^= shifted
    return out


def fold(key: ArrayLike | int, number: ArrayLike | int) -> Words:
    """Make a new key from a key and a number, element by element; at least 1-d, so that uint64 wraps silently."""
    if isinstance(number, int):
        return mix(_words(key) * _GAMMA + _addend(number))
    keys, numbers = _words(key), _words(number)
    return mix(keys * _GAMMA + mix(numbers + _GAMMA))


@lru_cache(1024)  # numbers of steps, draws and purposes, which come in each batch
def _addend(number: int) -> Words:
    """Compute what `fold` adds for a number."""
    return _word(_mix(number + int(_GAMMA)))


def _mix(x: int) -> int:
    """Compute `mix` of one number: without numpy, whose calls cost more than the arithmetic."""
    x %= 2**64
    x = (x ^ (x >> 30)) * int(_M1) % 2**64
    x = (x ^ (x >> 27)) * int(_M2) % 2**64
    return x ^ (x >> 31)


def _words(x: ArrayLike | int) -> Words:
    if isinstance(x, np.ndarray) and x.ndim and x.dtype == np.uint64:
        return x
    if isinstance(x, (int, Sequence)):
        # Not by numpy, which takes a list of small and large integers for floats.
        x = np.array([int(value) % 2**64 for value in (x if isinstance(x, Sequence) else [x])], np.uint64)
    return np.atleast_1d(np.asarray(x).astype(np.uint64))


@lru_cache(16)
def _lanes(number: int) -> Words:
    """Compute what tells the words of one draw apart; not to be written to."""
    lanes = np.arange(1, number + 1, dtype=np.uint64) * _GAMMA
    lanes.flags.writeable = False
    return lanes


def _dims(shape: Shape) -> tuple[int, ...]:
    return tuple(shape) if isinstance(shape, Sequence) else (int(shape),)


def derive(seed: int, *numbers: int) -> int:
    """Make one 64-bit number from a seed and any numbers, for seeding other generators."""
    key = int(seed) % 2**64
    for number in numbers:
        key = _mix(key * int(_GAMMA) + int(_addend(int(number))))
    return key


@lru_cache(1024)
def name_key(name: str) -> int:
    """Make a 64-bit number from a name, the same in every process."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little")


def shard_seed(seed: int, rank: int) -> int:
    """Make the seed for random state that one rank owns ("global seed plus rank"), such as `rand.ndd`."""
    return derive(seed, Key.SHARD, rank) % 2**63


class Rand:
    """Random numbers for the samples of one batch, as numpy arrays with one row for each sample.

    Every call is another draw: the n-th call gives, for one sample, the same numbers in any batch that holds it.

    Bounds, means and the like are numbers, or arrays with one row for each sample.

    Args:
        seed: the loader's seed.
        epoch: the epoch (with its cycle, see `state.Position.key`).
        samples: [N] uint64, what each row is keyed by: the sample's index, and how often it came before in this epoch.
    """

    def __init__(self, seed: int, epoch: int, samples: ArrayLike) -> None:
        self._keys = fold(derive(seed, epoch), samples)
        self._draw = 0
        self._grow_from(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def child(self, number: int) -> Self:
        """Make independent numbers for one of several users."""
        return self._with(fold(self._keys, Key.CHILD + number))

    def named(self, key: Key, name: str, occurrence: int = 0) -> Self:
        """Make independent numbers of the same samples by a name, whichever child of a `Rand` is asked.

        Args:
            key: the purpose of the name.
            name: any text.
            occurrence: tells users of one name apart.
        """
        purpose = self._purposes.get(key)
        if purpose is None:
            purpose = self._purposes[key] = fold(self._root, key)
        return self._with(fold(purpose, derive(name_key(name), occurrence)))

    def within(self) -> Self:
        """Make the numbers of what is inside a step: the names of its parts are told apart from those outside."""
        return self._with(self._keys)._grow_from(self._keys)

    def branch(self, key: Key, name: str) -> Self:
        """Make the numbers of the same samples in another place, such as a view: what is named in it has its own."""
        return self.named(key, name).within()

    def take(self, rows: NDArray[np.int64]) -> Self:
        """Make the same numbers for some of the samples."""
        return self._with(self._keys[rows])._grow_from(self._root[rows])

    def rows(self, rows: NDArray[np.int64] | slice) -> Self:
        """Make the numbers of some of the samples from the next draw on, where `take` begins with the first."""
        made = self._with(self._keys[rows])._grow_from(self._root[rows])
        made._draw = self._draw
        return made

    def stream(self, name: str) -> Self:
        """Make independent numbers by a name of your own, such as "geometry".

        They keep their values when the steps of a transform are reordered, renamed, added or taken out; whoever asks
        for the same name gets the same numbers.
        """
        if not isinstance(name, str):
            raise TypeError(f'rand.stream takes a name, such as rand.stream("geometry"), got {name!r}')
        return self.named(Key.STREAM, name)

    def _with(self, keys: Words) -> Self:
        """Make a copy that draws from other keys; `copy.copy` costs as much as a draw."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__, _keys=keys, _draw=0)
        return made

    def _grow_from(self, root: Words) -> Self:
        """Set what names are told apart from; the first step towards a name's keys is the same for each purpose."""
        self._root, self._purposes = root, dict[Key, Words]()
        return self

    def words(self, shape: Shape = ()) -> Words:
        """[N, *shape] independent 64-bit words."""
        dims = _dims(shape)
        key = fold(self._keys, self._draw)
        self._draw += 1
        return mix(key[:, None] + _lanes(math.prod(dims))).reshape(len(key), *dims)

    def _unit(self, shape: Shape) -> NDArray[np.float64]:
        return (self.words(shape) >> _S_UNIT).astype(np.float64) * 2.0**-53

    def _rows(self, value: Any, dtype: DTypeLike, shape: Shape) -> NDArray[Any]:
        """An argument that broadcasts against [N, *shape]: a number, or one row for each sample."""
        array, ndim = np.asarray(value, dtype), 1 + len(_dims(shape))
        if array.ndim == 0:
            return array
        if len(array) not in (1, len(self)) or array.ndim > ndim:
            raise ValueError(
                f"an argument must be a number, or an array of one row for each of the {len(self)} samples, "
                f"got one of shape {array.shape}"
            )
        return array.reshape(array.shape + (1,) * (ndim - array.ndim))

    def uniform(self, low: Any = 0.0, high: Any = 1.0, shape: Shape = ()) -> NDArray[np.float32]:
        """[N, *shape] float32 in [low, high); `low` itself where they are equal.

        Raises:
            ValueError: low > high.
        """
        if isinstance(low, float) and isinstance(high, float) and low <= high:
            below: Any = _below(low, high)
        else:
            low, high = self._rows(low, np.float64, shape), self._rows(high, np.float64, shape)
            if not (low <= high).all():
                raise ValueError(f"uniform needs low <= high, got low={low} high={high}")
            below = np.nextafter(high.astype(np.float32), low.astype(np.float32))
        # Rounding to float32 may land on `high`.
        out: NDArray[np.float32] = np.minimum((low + (high - low) * self._unit(shape)).astype(np.float32), below)
        return out

    def normal(self, mean: Any = 0.0, std: Any = 1.0, shape: Shape = ()) -> NDArray[np.float32]:
        """[N, *shape] float32, normally distributed (Box and Muller, 1958).

        Raises:
            ValueError: a negative std.
        """
        mean, std = self._rows(mean, np.float64, shape), self._rows(std, np.float64, shape)
        if not (std >= 0).all():
            raise ValueError(f"std must not be negative, got {std}")
        u = self._unit((2, *_dims(shape)))
        z = np.sqrt(-2 * np.log1p(-u[:, 0])) * np.cos(2 * np.pi * u[:, 1])
        out: NDArray[np.float32] = (mean + std * z).astype(np.float32)
        return out

    def dirichlet(self, alpha: float, n: int) -> NDArray[np.float32]:
        """[N, n] float32 weights that sum to 1, of the Dirichlet distribution with n equal parameters.

        Raises:
            ValueError: alpha is not positive.
        """
        if not alpha > 0:
            raise ValueError(f"dirichlet needs a positive number, got {alpha}")
        logs = _log_gamma(alpha, self._unit((n, 3 * _PROPOSALS + 1)))
        # By logarithms: for a small `alpha`, all variates may be too small for a float.
        parts = np.exp(logs - logs.max(axis=1, keepdims=True))
        out: NDArray[np.float32] = (parts / parts.sum(axis=1, keepdims=True)).astype(np.float32)
        return out

    def integers(self, low: Any, high: Any = None, shape: Shape = ()) -> NDArray[np.int64]:
        """[N, *shape] int64 in [low, high), or [0, low) with one argument.

        Raises:
            ValueError: an empty range.
        """
        low, high = (0, low) if high is None else (low, high)
        low, high = self._rows(low, np.int64, shape), self._rows(high, np.int64, shape)
        if not (low < high).all():
            raise ValueError(f"integers needs low < high, got low={low} high={high}")
        # A remainder of 64 bits: below 2**32 values the bias is under 2**-32.
        span = (high - low).astype(np.uint64)
        out: NDArray[np.int64] = low + (self.words(shape) % span).astype(np.int64)
        return out

    def bernoulli(self, p: Any = 0.5, shape: Shape = ()) -> NDArray[np.int32]:
        """[N, *shape] int32, 1 with probability `p`.

        Raises:
            ValueError: p outside [0, 1].
        """
        p = self._rows(p, np.float64, shape)
        if not ((p >= 0) & (p <= 1)).all():
            raise ValueError(f"p must be in [0, 1], got {p}")
        out: NDArray[np.int32] = (self._unit(shape) < p).astype(np.int32)
        return out

    def beta(self, a: float, b: float, shape: Shape = ()) -> NDArray[np.float32]:
        """[N, *shape] float32 in [0, 1], of the Beta distribution: one gamma variate's share of two.

        Raises:
            ValueError: `a` or `b` is not positive.
        """
        if not (a > 0 and b > 0):
            raise ValueError(f"beta needs positive numbers, got a={a} and b={b}")
        u = self._unit((*_dims(shape), 2, 3 * _PROPOSALS + 1))
        one, other = _log_gamma(a, u[..., 0, :]), _log_gamma(b, u[..., 1, :])
        # By logarithms: for a small `a`, both variates may be too small for a float.
        out: NDArray[np.float32] = (1 / (1 + np.exp(np.clip(other - one, -700, 700)))).astype(np.float32)
        return out

    def choice(self, values: int | Sequence[Any], p: Sequence[float] | None = None, shape: Shape = ()) -> NDArray[Any]:
        """[N, *shape] of `values` (or of range(values)), each with its weight in `p`; equal weights without.

        Raises:
            ValueError: no values, or weights that do not fit.
        """
        options = np.arange(values) if isinstance(values, (int, np.integer)) else np.asarray(values)
        if not len(options):
            raise ValueError("choice needs at least one value")
        if p is None:
            return options[self.integers(len(options), shape=shape)]
        weights = np.asarray(p, np.float64)
        if weights.shape != (len(options),) or not np.all(weights >= 0) or not 0 < weights.sum() < np.inf:
            raise ValueError(f"p must hold {len(options)} weights, none negative and not all zero, got {p}")
        edges = np.cumsum(weights)
        # The last edge is exactly 1, above every draw; a weight of zero has no room between its edges.
        return options[np.searchsorted(edges / edges[-1], self._unit(shape), side="right")]

    def permutations(self, n: int) -> NDArray[np.int64]:
        """[N, n] int64, a random order of range(n) in each row."""
        return np.argsort(self.words(n), axis=1)


@lru_cache(256)
def _below(low: float, high: float) -> np.float32:
    """Give the largest float32 below `high`, or `low` itself where they are equal."""
    return np.float32(np.nextafter(np.float32(high), np.float32(low)))


_PROPOSALS = 16  # of a gamma variate; each is taken with a probability of over 0.95, so one of them is


def _log_gamma(a: float, u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logarithms of gamma variates (Marsaglia and Tsang, "A simple method for generating gamma variables", 2000).

    Args:
        a: the shape parameter.
        u: [..., 3 * _PROPOSALS + 1], uniform in [0, 1).
    """
    d = (a if a >= 1 else a + 1) - 1 / 3
    radius, angle, chance = (u[..., k * _PROPOSALS : (k + 1) * _PROPOSALS] for k in range(3))
    z = np.sqrt(-2 * np.log1p(-radius)) * np.cos(2 * np.pi * angle)
    v = (1 + z / math.sqrt(9 * d)) ** 3
    with np.errstate(divide="ignore", invalid="ignore"):
        taken = (v > 0) & (np.log1p(-chance) < z * z / 2 + d - d * v + d * np.log(v))
    first = np.take_along_axis(v, taken.argmax(-1)[..., None], -1)[..., 0]
    out: NDArray[np.float64] = np.log(d * np.where(taken.any(-1), first, 1.0))
    return out if a >= 1 else out + np.log1p(-u[..., -1]) / a


class BatchRand(Rand):
    """Random numbers for the samples of a batch that is put together: the argument `rand` of a `batch_transform`.

    Every draw gives a numpy array with one row for each sample, and a sample draws the same in any batch.

    Args:
        seed: the loader's seed.
        key: the pass, `state.Position.key`.
        samples: [N] uint64, what each row is keyed by.
        positions: see below.
        epoch, step: see below.

    Attributes:
        positions: [N] int64, each sample's place in the order of the epoch, over all ranks; of an iterable, on this
            rank; in a batch that its source makes as a whole, the row.
        epoch: the epoch, as `set_epoch` counts it.
        step: the number of this batch in its epoch, from 0; it goes on after a resume.
    """

    def __init__(
        self, seed: int, key: int, samples: ArrayLike, positions: NDArray[np.int64], epoch: int, step: int
    ) -> None:
        super().__init__(seed, key, samples)
        self.positions, self.epoch, self.step = positions, epoch, step
