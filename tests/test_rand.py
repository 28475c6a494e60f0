"""Random numbers: a function of (seed, epoch, sample, draw) and nothing else, and distributed as they say."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from torchdali.rand import Key, Rand, derive, fold, mix, shard_seed

# Each statistical test has a fixed seed, so it passes always or never; a fair generator fails one in 10,000 of them.
SIGNIFICANCE = 1e-4
N = 20_000

Draw = Callable[[Rand], np.ndarray]
DRAWS: dict[str, Draw] = {
    "uniform": lambda rand: rand.uniform(-2, 5),
    "uniform of a shape": lambda rand: rand.uniform(0, 1, shape=(2, 3)),
    "normal": lambda rand: rand.normal(1, 2),
    "normal of a shape": lambda rand: rand.normal(shape=4),
    "integers": lambda rand: rand.integers(-3, 9),
    "bernoulli": lambda rand: rand.bernoulli(0.3),
    "choice": lambda rand: rand.choice(["a", "b", "c"]),
    "weighted choice": lambda rand: rand.choice(5, p=[1, 2, 3, 4, 5]),
    "beta": lambda rand: rand.beta(0.4, 2, shape=2),
    "permutations": lambda rand: rand.permutations(6),
    "words": lambda rand: rand.words((2, 2)),
}
draws = pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
samples = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20, unique=True)


def many(seed: int = 0, n: int = N) -> Rand:
    return Rand(seed, 3, np.arange(n, dtype=np.uint64))


# The same numbers for a sample, wherever it is


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**63 - 1), epoch=st.integers(0, 2**63 - 1), keys=samples, data=st.data())
def test_a_sample_has_its_numbers_in_any_batch(seed: int, epoch: int, keys: list[int], data: Any) -> None:
    order = data.draw(st.permutations(range(len(keys))))
    part = order[: data.draw(st.integers(1, len(keys)))]
    whole, other = Rand(seed, epoch, np.array(keys, np.uint64)), Rand(seed, epoch, [keys[i] for i in part])
    for draw in DRAWS.values():
        assert np.array_equal(draw(whole)[part], draw(other))


@draws
def test_rows_are_draws_of_single_samples(draw: Draw) -> None:
    whole = draw(Rand(5, 1, np.arange(30)))
    assert np.array_equal(np.concatenate([draw(Rand(5, 1, [i])) for i in range(30)]), whole)


@draws
def test_draws_do_not_depend_on_those_before_only_on_their_number(draw: Draw) -> None:
    one, two = many(n=50), many(n=50)
    one.uniform(shape=7)
    two.normal()
    assert np.array_equal(draw(one), draw(two))
    assert not np.array_equal(draw(one), draw(many(n=50)))


def test_nothing_global_is_touched() -> None:
    before = np.random.get_state()[1].copy()
    for draw in DRAWS.values():
        draw(many(n=10))
    assert np.array_equal(np.random.get_state()[1], before)


def test_it_pickles_in_the_middle() -> None:
    rand = many(n=10)
    rand.uniform()
    assert np.array_equal(pickle.loads(pickle.dumps(rand)).uniform(), rand.uniform())


# What differs gives other numbers


@draws
def test_seed_epoch_sample_and_draw_all_count(draw: Draw) -> None:
    keys = np.arange(200)
    rand = Rand(1, 1, keys)
    outputs = [
        draw(rand),
        draw(rand),
        draw(Rand(2, 1, keys)),
        draw(Rand(1, 2, keys)),
        draw(Rand(1, 1 + 2**32, keys)),  # the next cycle of the epoch
        draw(Rand(1, 1, keys + 2**48)),  # the next occurrence of the sample
        draw(Rand(1, 1, keys).child(0)),
        draw(Rand(1, 1, keys).child(1)),
        draw(Rand(1, 1, keys).child(0).child(1)),
    ]
    for one, two in itertools.combinations(outputs, 2):
        assert not np.array_equal(one, two)


def correlations(columns: np.ndarray) -> np.ndarray:
    matrix = np.corrcoef(columns, rowvar=False)
    return matrix[np.triu_indices(len(matrix), 1)]


def test_draws_lanes_children_seeds_and_epochs_are_uncorrelated() -> None:
    rand = many()
    columns = [rand.uniform(), rand.uniform(), *rand.uniform(shape=3).T]
    columns += [many().child(k).uniform() for k in range(3)]
    columns += [many().child(k).child(j).uniform() for k in range(2) for j in range(2)]
    columns += [many(seed).uniform() for seed in (1, 2, 2**62)]
    columns += [Rand(0, epoch, np.arange(N)).uniform() for epoch in (4, 5, 3 + 2**32)]
    columns += [Rand(0, 3, np.arange(N) + shift).uniform() for shift in (1, 2**48)]
    found = correlations(np.stack(columns, axis=1))
    assert np.abs(found).max() < stats.norm.isf(SIGNIFICANCE / 2 / len(found)) / np.sqrt(N)


def test_neighbouring_samples_are_uncorrelated() -> None:
    values = many().uniform()
    for distance in (1, 2, 3, 64, 1024):
        pair = np.stack([values[:-distance], values[distance:]], axis=1)
        assert abs(correlations(pair)[0]) < stats.norm.isf(SIGNIFICANCE / 2) / np.sqrt(N)


def test_pairs_of_draws_fill_the_square() -> None:
    rand = many()
    counts = np.histogram2d(rand.uniform(), rand.uniform(), bins=16, range=[[0, 1], [0, 1]])[0]
    assert stats.chisquare(counts.ravel()).pvalue > SIGNIFICANCE


def test_using_a_child_leaves_its_parent_alone() -> None:
    rand, other = many(n=10), many(n=10)
    rand.uniform(), other.uniform()
    child = rand.child(3)
    child.uniform(shape=5)
    assert np.array_equal(rand.uniform(), other.uniform())
    # A child's numbers do not depend on what its parent drew.
    assert np.array_equal(many(n=10).child(3).uniform(), rand.child(3).uniform())


def test_shard_seeds() -> None:
    seeds = {shard_seed(seed, rank) for seed in range(50) for rank in range(200)}
    assert len(seeds) == 50 * 200
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert shard_seed(7, 1) == shard_seed(7, 1)
    assert shard_seed(7, 1) not in (shard_seed(8, 0), derive(7, 1))


# Distributions


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-10, 10), (5, 5.5), (-1e6, 1e6)])
def test_uniform(low: float, high: float) -> None:
    values = many(1).uniform(low, high)
    assert values.dtype == np.float32 and values.shape == (N,)
    assert values.min() >= np.float32(low) and values.max() < np.float32(high)
    assert stats.kstest(values, stats.uniform(low, high - low).cdf).pvalue > SIGNIFICANCE


def test_uniform_never_gives_high_though_float32_rounds() -> None:
    # Numbers of float32 are 2 apart here, so that every sixth draw would be rounded to `high`.
    low, high = 2.0**24, 2.0**24 + 6
    values = many().uniform(low, high)
    assert set(values.tolist()) == {low, low + 2, low + 4}
    assert np.all(many().uniform(3, 3) == 3)


@pytest.mark.parametrize(("mean", "std"), [(0, 1), (-3, 0.25), (1000, 50)])
def test_normal(mean: float, std: float) -> None:
    values = many(2).normal(mean, std)
    assert values.dtype == np.float32 and np.all(np.isfinite(values))
    assert stats.kstest(values, stats.norm(mean, std).cdf).pvalue > SIGNIFICANCE
    assert np.all(many().normal(5, 0) == 5)


@pytest.mark.parametrize(
    ("low", "high"), [(0, 2), (-3, 4), (0, 10), (100, 1123), (-(2**63), 2**63 - 1), (2**62, 2**62 + 7)]
)
def test_integers(low: int, high: int) -> None:
    values = many(3).integers(low, high)
    assert values.dtype == np.int64 and values.min() >= low and values.max() < high
    bins = min(high - low, 64)
    counts = np.bincount([(int(value) - low) * bins // (high - low) for value in values], minlength=bins)
    sizes = np.diff([-(-k * (high - low) // bins) for k in range(bins + 1)]).astype(np.float64)
    assert stats.chisquare(counts, sizes / sizes.sum() * N).pvalue > SIGNIFICANCE


def test_integers_of_one_argument_and_of_one_value() -> None:
    assert np.array_equal(many(n=100).integers(7), many(n=100).integers(0, 7))
    assert np.all(many(n=100).integers(5, 6) == 5)


@pytest.mark.parametrize(("a", "b"), [(0.1, 0.1), (0.4, 0.4), (1, 1), (2, 5), (0.2, 30)])
def test_beta(a: float, b: float) -> None:
    values = many(5).beta(a, b)
    assert values.dtype == np.float32 and values.min() >= 0 and values.max() <= 1
    # Below a half: above it, float32 rounds many values to 1 where `b` is small.
    low, law = values[values < 0.5].astype(np.float64), stats.beta(a, b)
    assert stats.binomtest(len(low), N, law.cdf(0.5)).pvalue > SIGNIFICANCE
    assert stats.kstest(low, lambda x: law.cdf(x) / law.cdf(0.5)).pvalue > SIGNIFICANCE
    for wrong in ((0, 1), (1, -1)):
        with pytest.raises(ValueError, match="beta needs positive numbers"):
            many(n=2).beta(*wrong)


@pytest.mark.parametrize("p", [0.001, 0.3, 0.5, 0.99])
def test_bernoulli(p: float) -> None:
    values = many(4).bernoulli(p)
    assert values.dtype == np.int32 and set(values.tolist()) <= {0, 1}
    assert stats.binomtest(int(values.sum()), N, p).pvalue > SIGNIFICANCE


def test_bernoulli_at_its_ends() -> None:
    assert not many().bernoulli(0).any() and many().bernoulli(1).all()


def test_choice() -> None:
    counts = np.bincount(many(5).choice(7), minlength=7)
    assert stats.chisquare(counts).pvalue > SIGNIFICANCE
    names = many(5).choice(["x", "y"])
    assert set(names.tolist()) == {"x", "y"} and names.shape == (N,)
    assert many(5).choice([(1, 2), (3, 4)], shape=3).shape == (N, 3, 2)
    assert np.array_equal(many(n=50).choice(np.int64(7)), many(n=50).choice(7))


def test_weighted_choice() -> None:
    weights = np.array([0, 1, 2, 0, 0.5, 0])
    counts = np.bincount(many(6).choice(6, p=weights.tolist()), minlength=6)
    assert not counts[weights == 0].any()
    kept = weights > 0
    assert stats.chisquare(counts[kept], weights[kept] / weights.sum() * N).pvalue > SIGNIFICANCE


def test_permutations() -> None:
    orders = many(7).permutations(4)
    assert orders.dtype == np.int64 and np.array_equal(np.sort(orders, axis=1), np.tile(np.arange(4), (N, 1)))
    counts = np.unique(orders @ 4 ** np.arange(4), return_counts=True)[1]
    assert len(counts) == 24 and stats.chisquare(counts).pvalue > SIGNIFICANCE


def test_every_bit_of_a_word_is_fair() -> None:
    bits = np.unpackbits(many(8).words().view(np.uint8).reshape(N, 8), axis=1)
    limit = stats.binom.isf(SIGNIFICANCE / 64, N, 0.5)
    assert np.all(np.abs(bits.sum(axis=0) - N / 2) < limit - N / 2)


def test_mix_is_a_bijection_that_changes_half_of_the_bits() -> None:
    words = np.arange(1000, dtype=np.uint64)
    assert len(np.unique(mix(words))) == 1000
    for bit in range(64):
        changed = mix(words) ^ mix(words ^ np.uint64(1 << bit))
        assert 31 < np.unpackbits(changed.view(np.uint8)).sum() / len(words) < 33


@given(st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**64 - 1))
def test_fold_of_numbers_and_of_arrays_agree(key: int, number: int) -> None:
    number %= 2**64
    folded = fold(key, number)
    assert folded.dtype == np.uint64 and folded.shape == (1,)
    assert np.array_equal(fold(np.array([key], np.uint64), np.array([number], np.uint64)), folded)
    assert derive(key) == key and 0 <= derive(key, number) < 2**64


# Arguments: a number, or one row for each sample


def test_one_row_for_each_sample() -> None:
    low, high = np.arange(5) * 10, np.arange(5) * 10 + 3
    for shape in ((), 4, (2, 3)):
        rand = Rand(0, 0, np.arange(5))
        for values in (rand.uniform(low, high, shape), rand.integers(low, high, shape)):
            spread = values.reshape(5, -1)
            assert np.all((spread >= low[:, None]) & (spread < high[:, None]))
        assert np.array_equal(rand.normal(low, 0, shape).reshape(5, -1)[:, 0], low)
        assert np.array_equal(rand.bernoulli([0, 1, 0, 1, 0], shape).reshape(5, -1)[:, 0], [0, 1, 0, 1, 0])
    assert Rand(0, 0, np.arange(3)).integers(0, [[1, 100], [1, 100], [1, 100]], shape=2)[:, 0].tolist() == [0, 0, 0]


def test_a_batch_as_long_as_the_shape_is_not_taken_for_it() -> None:
    low = [0.0, 10.0, 20.0]
    alone = np.concatenate([Rand(0, 0, [i]).uniform(low[i], low[i] + 1, shape=3) for i in range(3)])
    assert np.array_equal(Rand(0, 0, [0, 1, 2]).uniform(low, np.add(low, 1), shape=3), alone)


@pytest.mark.parametrize("rows", [[1.0, 2.0], np.ones((3, 2)), np.ones((3, 2, 2))])
def test_rows_that_do_not_fit(rows: Any) -> None:
    shape = 2 if np.ndim(rows) == 3 else ()
    with pytest.raises(ValueError, match="an array of one row for each of the 3 samples, got one of shape"):
        Rand(0, 0, [0, 1, 2]).uniform(0, rows, shape)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda rand: rand.uniform(2, 1), "uniform needs low <= high, got low=2.0 high=1.0"),
        (lambda rand: rand.uniform(0, float("nan")), "uniform needs low <= high"),
        (lambda rand: rand.normal(0, -1), r"std must not be negative, got -1.0"),
        (lambda rand: rand.integers(3, 3), "integers needs low < high, got low=3 high=3"),
        (lambda rand: rand.integers(0), "integers needs low < high, got low=0 high=0"),
        (lambda rand: rand.integers([0, 1], [1, 1]), "integers needs low < high"),
        (lambda rand: rand.bernoulli(1.5), r"p must be in \[0, 1\], got 1.5"),
        (lambda rand: rand.bernoulli(-0.1), r"p must be in \[0, 1\], got -0.1"),
        (lambda rand: rand.bernoulli(float("nan")), r"p must be in \[0, 1\], got nan"),
        (lambda rand: rand.choice([]), "choice needs at least one value"),
        (lambda rand: rand.choice(0), "choice needs at least one value"),
        (lambda rand: rand.choice(2, p=[1]), r"p must hold 2 weights, none negative and not all zero, got \[1\]"),
        (lambda rand: rand.choice(2, p=[1, -1]), "p must hold 2 weights"),
        (lambda rand: rand.choice(2, p=[0, 0]), "p must hold 2 weights"),
        (lambda rand: rand.choice(2, p=[1, float("inf")]), "p must hold 2 weights"),
        (lambda rand: rand.choice(2, p=[1, float("nan")]), "p must hold 2 weights"),
    ],
)
def test_wrong_arguments(draw: Draw, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        draw(Rand(0, 0, [0, 1]))


def test_shapes() -> None:
    rand = Rand(0, 0, [4, 9])
    assert len(rand) == 2
    for draw in (rand.uniform, rand.normal, rand.bernoulli, lambda **kw: rand.integers(3, **kw)):
        shapes = ((), 1, 5, (2, 3), [3, 2], 0)
        assert [draw(shape=shape).shape for shape in shapes] == [(2,), (2, 1), (2, 5), (2, 2, 3), (2, 3, 2), (2, 0)]
    assert Rand(0, 0, []).uniform().shape == (0,)


def test_extreme_seeds_and_samples_warn_of_nothing() -> None:
    """pytest runs with -W error: an overflow of a numpy scalar would fail here."""
    for seed, epoch in ((0, 0), (2**64 - 1, 2**63 - 1), (2**63 - 1, 2**63 + 5)):
        keys = np.array([0, 2**64 - 1, 2**63], np.uint64)
        rand = Rand(seed, epoch, keys)
        for draw in DRAWS.values():
            draw(rand.child(2**40))
        rand.integers(-(2**63), 2**63 - 1)
        # numpy would make floats of this list.
        assert np.array_equal(Rand(seed, epoch, [0, 2**64 - 1, 2**63]).words(), Rand(seed, epoch, keys).words())


def test_no_key_is_renumbered():
    """The stream and every state depend on them; a new purpose adds a line here."""
    assert {key.name: int(key) for key in Key} == {
        "SHUFFLE": 0x0DE5,
        "DRAWN": 0xD4A3,
        "REPEATED": 0x4E9A,
        "WEIGHTED": 0x3E16,
        "CLASSES": 0xC1A5,
        "WITHIN_CLASS": 0xC1A6,
        "MIX": 0x313C,
        "WITHIN_PART": 0x313D,
        "WITHIN_BUCKET": 0xB0C4,
        "BATCHES": 0xB0C5,
        "READER": 0x4EAD,
        "SHARD": 0x5EED,
        "READER_SHARDS": 0x4EAE,
        "CHILD": 0xC41D,
        "STEP": 0x57E9,
        "VIEW": 0x51EE,
        "SCENE": 0x5CE2,
        "STREAM": 0x57EA,
        "COLLATE": 0xC011,
        "BATCH": 0xBA7C,
        "TORCH": 0x70C4,
        "NUMPY": 0x70C5,
        "GLOBAL": 0x70C6,
        "SUBSTITUTE": 0xBAD,
    }
    assert len({int(key) for key in Key}) == len(Key.__members__)  # and no two are one
