"""The keyed permutation: a bijection for every n and key, evaluated at any position, without a pattern."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from torchdali.permutation import Permutation

# Each statistical test has a fixed seed, so it passes always or never; a fair generator fails one in 10,000 of them.
SIGNIFICANCE = 1e-4
KEYS = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize("key", [0, 1, 2**63, 2**64 - 1])
def test_bijection_for_every_small_n(key: int) -> None:
    for n in range(1, 201):
        assert np.array_equal(np.sort(Permutation(n, key)(np.arange(n))), np.arange(n)), n


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 1_000_000), key=KEYS)
def test_bijection(n: int, key: int) -> None:
    hits = np.bincount(Permutation(n, key)(np.arange(n)), minlength=n)
    assert len(hits) == n and np.all(hits == 1)


@settings(max_examples=200, deadline=None)
@given(n=st.integers(1, 2**62 - 1), key=KEYS, data=st.data())
def test_any_n_at_any_positions(n: int, key: int, data: st.DataObject) -> None:
    positions = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=20, unique=True))
    permutation = Permutation(n, key)
    elements = permutation(positions)
    assert elements.dtype == np.int64 and np.all((elements >= 0) & (elements < n))
    assert len(set(elements.tolist())) == len(positions)
    # A position's element depends on nothing that is asked beside it.
    assert [int(permutation(position)) for position in positions] == elements.tolist()


def test_a_seek_in_a_billion() -> None:
    permutation = Permutation(10**9, 7)
    last = permutation(np.arange(10**9 - 256, 10**9))
    assert last.shape == (256,) and len(np.unique(last)) == 256
    # Every position is computed alone, so the middle of a range is the range from its middle.
    half = 5 * 10**8
    assert np.array_equal(
        permutation(np.arange(half, half + 256))[100:], permutation(np.arange(half + 100, half + 256))
    )


def test_shape_is_kept() -> None:
    permutation = Permutation(50, 3)
    flat = permutation(np.arange(24))
    assert np.array_equal(permutation(np.arange(24).reshape(2, 3, 4)), flat.reshape(2, 3, 4))
    assert permutation(4).shape == () and permutation(4) == flat[4]
    assert permutation([]).shape == (0,) and permutation(np.zeros((0, 3), np.int64)).shape == (0, 3)


def test_the_argument_is_not_changed() -> None:
    positions = np.arange(100, dtype=np.uint64)
    Permutation(100, 5)(positions)
    assert np.array_equal(positions, np.arange(100))


def test_each_key_is_another_permutation() -> None:
    orders = {Permutation(1000, key)(np.arange(1000)).tobytes() for key in range(200)}
    assert len(orders) == 200
    assert len({tuple(Permutation(12, key)(np.arange(12)).tolist()) for key in range(500)}) == 500


@pytest.mark.parametrize("positions", [-1, 10, [0, 10], [3, -1], 2**62])
def test_positions_outside(positions: object) -> None:
    with pytest.raises(IndexError, match=r"positions must be in \[0, 10\), got"):
        Permutation(10, 0)(positions)


@pytest.mark.parametrize("n", [0, -1, 2**62])
def test_impossible_n(n: int) -> None:
    with pytest.raises(ValueError, match=rf"1 <= n < 2\*\*62, got n={n}"):
        Permutation(n, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "keys"), [(2, 2000), (3, 3000), (4, 4000), (5, 6000)])
def test_all_orders_are_equally_likely(n: int, keys: int) -> None:
    orders = np.stack([Permutation(n, 104729 * key + n)(np.arange(n)) for key in range(keys)])
    codes = orders @ n ** np.arange(n)
    counts = np.unique(codes, return_counts=True)[1]
    assert len(counts) == math.factorial(n)
    assert stats.chisquare(counts).pvalue > SIGNIFICANCE


@pytest.fixture(scope="module")
def many_orders() -> np.ndarray:
    """[2000 keys, 1009 positions]; 1009 is a prime, so that points outside the rectangle are walked over."""
    return np.stack([Permutation(1009, key)(np.arange(1009)) for key in range(2000)])


@pytest.mark.slow
def test_each_element_is_anywhere_equally_likely(many_orders: np.ndarray) -> None:
    # 16 x 16 bins of (position, element), with fixed sums of rows and columns: 15 * 15 degrees of freedom.
    keys, n = many_orders.shape
    bins = 16
    place, element = np.arange(n) * bins // n, many_orders * bins // n
    counts = np.zeros((bins, bins))
    np.add.at(counts, (np.broadcast_to(place, many_orders.shape), element), 1)
    size = np.bincount(place)
    expected = keys * np.outer(size, size) / n
    statistic = ((counts - expected) ** 2 / expected).sum()
    # The variance of a cell is that of draws without replacement, a little smaller than a Poisson's.
    assert stats.chi2.sf(statistic, (bins - 1) ** 2) > SIGNIFICANCE
    assert stats.chi2.cdf(statistic, (bins - 1) ** 2) > SIGNIFICANCE


@pytest.mark.parametrize("position", [0, 1, 504, 1008])
def test_one_position_is_uniform_over_the_keys(many_orders: np.ndarray, position: int) -> None:
    counts = np.bincount(many_orders[:, position] * 20 // 1009, minlength=20)
    expected = np.bincount(np.arange(1009) * 20 // 1009) / 1009 * len(many_orders)
    assert stats.chisquare(counts, expected).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("distance", [1, 2, 32, 33])
def test_neighbours_are_independent(many_orders: np.ndarray, distance: int) -> None:
    """The step from one element to the next takes each of n - 1 values equally often; 32 is the rectangle's width."""
    n = many_orders.shape[1]
    steps = (many_orders[:, distance:] - many_orders[:, :-distance]) % n
    counts = np.bincount(steps.ravel(), minlength=n)
    assert counts[0] == 0
    assert stats.chisquare(counts[1:]).pvalue > SIGNIFICANCE


def test_keys_that_differ_in_one_bit_are_unrelated() -> None:
    n = 4096
    order = Permutation(n, 12345)(np.arange(n))
    for bit in range(0, 64, 7):
        other = Permutation(n, 12345 ^ (1 << bit))(np.arange(n))
        # Fixed points between two random permutations are Poisson(1): 9 or more have probability 1e-6.
        assert np.sum(order == other) < 9
        assert abs(stats.spearmanr(order, other).statistic) < 4 / math.sqrt(n)
