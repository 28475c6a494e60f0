"""Samplers that know the sample at any position: proportions, keys, and one stream on any number of ranks."""

from __future__ import annotations

import math
import pickle
import re
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from itertools import chain, zip_longest
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from torch.utils.data import RandomSampler, Sampler, WeightedRandomSampler

from torchdali import DataLoader, FieldTypeError, InMemoryDataset
from torchdali.datasets import FileDataset
from torchdali.distributed import Shard
from torchdali.drawn import Drawn
from torchdali.ids import Taken
from torchdali.order import Batching, Order
from torchdali.permutation import Permutation, permute_each
from torchdali.samplers import (
    ClassBalancedSampler,
    LengthBucketSampler,
    Mix,
    MixSampler,
    RepeatedAugmentationSampler,
    WeightedSampler,
)
from torchdali.samplers.weighted import exact_minus_log
from torchdali.state import Position
from torchdali.testing import make_image_folder

Rows = list[tuple[int, int]]  # (index, key)


def whole(order: Order, epoch: int = 0, seed: int = 0, cycle: int = 0) -> Any:
    """All rows of an epoch."""
    return order.epoch(seed, Position(epoch, cycle)).at(np.arange(len(order)))


def rank_steps(order: Order, ranks: int, batch_size: int, start: int = 0, seed: int = 0) -> list[list[Any]]:
    """The steps of each rank."""
    at = Position(3, 0, start)
    epochs = [order.epoch(seed, at) for _ in range(ranks)]
    return [list(epoch.steps(at, Batching(batch_size, Shard(r, ranks)))) for r, epoch in enumerate(epochs)]


def global_steps(order: Order, ranks: int, batch_size: int, start: int = 0, seed: int = 0) -> list[tuple[Rows, int]]:
    """Each step's rows over all ranks in the global order, and the position after it."""
    steps = rank_steps(order, ranks, batch_size, start, seed)
    found, position = [], start
    for together in zip(*steps, strict=True):
        rows = [list(zip(s.rows.indices[s.valid].tolist(), s.rows.keys[s.valid].tolist())) for s in together]
        if order.strided:
            turn = position % ranks
            taken = [row for rest in zip_longest(*rows[turn:], *rows[:turn]) for row in rest if row is not None]
        else:
            taken = list(chain(*rows))
        position = together[0].end.samples_seen
        found.append((taken, position))
    return found


SAMPLERS: dict[str, Callable[[], Order]] = {
    "weighted": lambda: WeightedSampler(np.arange(37)),
    "weighted, once": lambda: WeightedSampler(np.arange(37), 29, replacement=False),
    "balanced": lambda: ClassBalancedSampler([0] * 20 + [1] * 3 + [2] * 14),
    "repeated": lambda: RepeatedAugmentationSampler(37),
    "mix": lambda: MixSampler([30, 5, 2], [0.5, 0.3, 0.2]),
    "bucket": lambda: LengthBucketSampler(np.arange(37) % 11 + 1, tokens_per_batch=30),
}
every_sampler = pytest.mark.parametrize("name", SAMPLERS)


# All of them


@every_sampler
def test_any_positions_give_what_the_whole_epoch_gives(name: str) -> None:
    sampler = SAMPLERS[name]()
    rows = whole(sampler, 5)
    epoch = sampler.epoch(0, Position(5))
    for positions in (np.arange(len(sampler))[::-1], np.array([7, 7, 0]), np.array([len(sampler) - 1])):
        assert epoch.at(positions).indices.tolist() == rows.indices[positions].tolist()
        assert epoch.at(positions).keys.tolist() == rows.keys[positions].tolist()
    assert rows.indices.dtype == np.int64 and rows.keys.dtype == np.uint64
    assert rows.indices.min() >= 0 and rows.indices.max() < sampler.dataset_size


@every_sampler
def test_no_two_rows_of_an_epoch_are_augmented_alike(name: str) -> None:
    for epoch in range(20):
        keys = whole(SAMPLERS[name](), epoch).keys
        assert len(set(keys.tolist())) == len(keys)


@every_sampler
def test_seed_epoch_and_cycle_change_the_order(name: str) -> None:
    first = whole(SAMPLERS[name]()).indices.tolist()
    assert whole(SAMPLERS[name]()).indices.tolist() == first
    for other in (dict(epoch=1), dict(seed=1), dict(cycle=1)):
        assert whole(SAMPLERS[name](), **other).indices.tolist() != first


@every_sampler
def test_fingerprints_are_short_and_tell_samplers_apart(name: str) -> None:
    order = SAMPLERS[name]()
    text = order.fingerprint(0, 4)
    assert len(text) <= 100 and text == SAMPLERS[name]().fingerprint(9, 1)
    assert [n for n, make in SAMPLERS.items() if make().fingerprint() == text] == [name]
    again = pickle.loads(pickle.dumps(order))
    assert again.fingerprint() == text
    assert again.epoch(0, Position(2)).at(np.arange(5)).indices.tolist() == whole(order, 2).indices[:5].tolist()


def test_fingerprints_change_with_the_tables() -> None:
    pairs = [
        (WeightedSampler([1, 2, 3]), WeightedSampler([1, 2, 4])),
        (WeightedSampler([1, 2, 3]), WeightedSampler([1, 2, 3], replacement=False)),
        (ClassBalancedSampler([0, 1, 1]), ClassBalancedSampler([0, 0, 1])),
        (RepeatedAugmentationSampler(9, 3), RepeatedAugmentationSampler(9, 2)),
        (MixSampler([8, 8], [3, 1]), MixSampler([8, 8], [1, 3])),
        (LengthBucketSampler([1, 2, 3, 9], batch_size=2), LengthBucketSampler([1, 2, 9, 3], batch_size=2)),
        (LengthBucketSampler([4, 4, 4], batch_size=1), LengthBucketSampler([4, 4, 4], batch_size=2)),
        (LengthBucketSampler([4, 4], batch_size=1), LengthBucketSampler([4, 4], batch_size=1, shuffle=False)),
    ]
    for one, other in pairs:
        assert one.fingerprint() != other.fingerprint()
    # A factor changes no weights.
    assert WeightedSampler([1, 2, 4]).fingerprint() == WeightedSampler(torch.tensor([2.0, 4.0, 8.0])).fingerprint()


@every_sampler
def test_a_dataset_of_another_size_is_refused(name: str) -> None:
    sampler = SAMPLERS[name]()
    with pytest.raises(ValueError, match=f"made for {sampler.dataset_size} samples, and the dataset has 99"):
        sampler.check_dataset(99)


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name != "bucket"])
@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_one_stream_on_any_number_of_ranks(name: str, batch_size: int) -> None:
    order = SAMPLERS[name]()
    rows = whole(order, 3, 4)
    expected = list(zip(rows.indices.tolist(), rows.keys.tolist()))
    for ranks in (1, 2, 3, 5):
        steps = global_steps(order, ranks, batch_size, seed=4)
        assert list(chain(*(taken for taken, _ in steps))) == expected
        for done, (_, position) in enumerate(steps):
            # The same ranks go on with the same steps; others with the same samples.
            assert global_steps(order, ranks, batch_size, position, 4) == steps[done + 1 :]
            if done % 3 == 0 and len(order) - position >= 4:
                rest = global_steps(order, 4, 2, position, 4)
                assert list(chain(*(taken for taken, _ in rest))) == expected[position:]


# Weights


@pytest.mark.parametrize("weights", [[1, 2, 3, 4], [5, 0, 1, 0, 0.5], [1e-6, 1], np.ones(50), [0, 0, 7]])
def test_weights_are_met(weights: Any) -> None:
    n = 40_000
    drawn = whole(WeightedSampler(weights, n)).indices
    shares = np.asarray(weights, float) / np.sum(weights)
    counts = np.bincount(drawn, minlength=len(shares))
    assert not counts[shares == 0].any()
    expected = shares[shares > 0] * n
    if len(expected) > 1 and expected.min() > 5:
        assert stats.chisquare(counts[shares > 0], expected).pvalue > 1e-4


def test_draws_with_replacement_do_not_depend_on_their_neighbours() -> None:
    drawn = whole(WeightedSampler(np.ones(4), 40_000), seed=3).indices
    pairs = np.bincount(drawn[:-1] * 4 + drawn[1:], minlength=16)
    assert stats.chisquare(pairs).pvalue > 1e-4
    epochs = whole(WeightedSampler(np.ones(4), 40_000), 1, seed=3).indices
    assert stats.chisquare(np.bincount(drawn * 4 + epochs, minlength=16)).pvalue > 1e-4


def test_without_replacement_each_comes_once_as_in_torch() -> None:
    weights = np.array([8.0, 4, 2, 1, 0])
    first: Counter[tuple[int, ...]] = Counter()
    for epoch in range(4000):
        drawn = whole(WeightedSampler(weights, 2, replacement=False), epoch).indices
        first[tuple(drawn.tolist())] += 1
    shares = weights / weights.sum()
    pairs = [(i, j) for i in range(4) for j in range(4) if i != j]
    assert set(first) <= set(pairs)
    # Drawn one after the other, as by torch.multinomial.
    expected = np.array([shares[i] * shares[j] / (1 - shares[i]) for i, j in pairs]) * 4000
    assert stats.chisquare([first[pair] for pair in pairs], expected).pvalue > 1e-4
    everything = whole(WeightedSampler(weights, replacement=False))
    assert sorted(everything.indices.tolist()) == [0, 1, 2, 3]  # of zero weight, none
    assert everything.keys.tolist() == everything.indices.tolist()


def test_equal_times_go_by_index() -> None:
    """However a processor partitions: a table of few different weights has ties at the edge of what is drawn."""
    order = WeightedSampler(np.full(1000, 0.25), 400, replacement=False)
    assert len(set(whole(order).indices.tolist())) == 400


def test_the_logarithm_is_one() -> None:
    x = np.concatenate([np.random.default_rng(0).random(10_000), 2.0 ** -np.arange(1, 60), [1.0, 1 - 2**-53, 2**-53]])
    x = x[x > 0]
    np.testing.assert_allclose(exact_minus_log(x), -np.log(x), rtol=1e-14, atol=1e-15)
    assert exact_minus_log(np.array([1.0]))[0] == 0


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (([],), ValueError, "weights must hold at least one number, got none"),
        (([1, -2],), ValueError, "weights must not be negative, got -2.0 at 1"),
        (([0, 0],), ValueError, "weights must not all be zero"),
        (([1, math.nan],), ValueError, "weights must be finite, got nan at 1"),
        (("ab",), TypeError, "weights"),
        (([[1, 2]],), TypeError, "weights must be one number per sample"),
        (([1, 2], 0), ValueError, "num_samples must be at least 1, got 0"),
        (([1, 2], 2.0), TypeError, "num_samples must be an integer"),
        (([1, 0, 2], 3, False), ValueError, "at most the 2 samples of positive weight, got 3: write replacement=True"),
    ],
)
def test_weights_that_cannot_be(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        WeightedSampler(*arguments)


def test_torchs_own_sampler_is_drawn_as_before() -> None:
    order = Drawn(WeightedRandomSampler([1.0, 2.0, 3.0], 12), Taken(3))
    assert len(order) == 12


# Classes


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=6),
    num_samples=st.integers(1, 70),
    epochs=st.integers(1, 6),
    seed=st.integers(0, 2**63 - 1),
)
def test_classes_are_balanced_and_their_samples_take_turns(
    counts: list[int], num_samples: int, epochs: int, seed: int
) -> None:
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)), counts))
    sampler = ClassBalancedSampler(labels, num_samples)
    seen = []
    for epoch in range(epochs):
        rows = whole(sampler, epoch, seed)
        per_class = np.bincount(labels[rows.indices], minlength=len(counts))
        assert per_class.max() - per_class.min() <= 1
        assert len(set(rows.keys.tolist())) == num_samples
        seen.append(rows.indices)
        # Over all epochs: each sample of a class once before any comes again.
        times = np.bincount(np.concatenate(seen), minlength=len(labels))
        for label in range(len(counts)):
            own = times[labels == label]
            assert own.max() - own.min() <= 1
    total = np.bincount(labels[np.concatenate(seen)], minlength=len(counts))
    assert total.max() - total.min() <= 1


def test_labels_of_every_kind(tmp_path: Any) -> None:
    for labels in ([3, 3, 9], ["cat", "cat", "dog"], torch.tensor([0, 0, 1]), np.array([False, False, True])):
        indices = whole(ClassBalancedSampler(labels, 100)).indices
        assert np.count_nonzero(indices == 2) == 50
    in_memory = InMemoryDataset(x=np.arange(3), label=[1, 1, 0])
    assert np.count_nonzero(whole(ClassBalancedSampler(in_memory, 100)).indices == 2) == 50
    root = make_image_folder(tmp_path / "images", classes=1, per_class=3)
    files = FileDataset(sorted(root.glob("*/*.jpg")), labels=["a", "b", "b"])
    assert np.count_nonzero(whole(ClassBalancedSampler(files, 100)).indices == 0) == 50
    with pytest.raises(TypeError, match="dataset with targets, labels or a column 'label', got InMemoryDataset"):
        ClassBalancedSampler(InMemoryDataset(x=[1, 2]))
    with pytest.raises(TypeError, match="one integer or string per sample, got float64"):
        ClassBalancedSampler([0.5, 1.5])
    with pytest.raises(ValueError, match="labels must hold at least one, got none"):
        ClassBalancedSampler(np.zeros(0, np.int64))


# Repeats


@settings(max_examples=60, deadline=None)
@given(n=st.integers(1, 60), repeats=st.integers(1, 5), data=st.data())
def test_repeats_follow_each_other(n: int, repeats: int, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, n * repeats))
    rows = whole(RepeatedAugmentationSampler(n, repeats, size))
    groups = [rows.indices[i : i + repeats].tolist() for i in range(0, size, repeats)]
    assert all(len(set(group)) == 1 for group in groups)
    assert len({group[0] for group in groups}) == len(groups)
    assert len(set(rows.keys.tolist())) == size
    assert rows.keys[::repeats].tolist() == rows.indices[::repeats].tolist()  # the first one as in any other order


def test_repeats_land_on_different_ranks_as_in_deit() -> None:
    n, ranks, batch_size = 60, 4, 6
    order = RepeatedAugmentationSampler(n, 3)
    steps = rank_steps(order, ranks, batch_size, seed=1)
    places: dict[int, set[int]] = {}
    for rank, own in enumerate(steps):
        for index in chain(*(step.rows.indices.tolist() for step in own)):
            places.setdefault(index, set()).add(rank)
    assert len(places) == 20 and all(len(found) == 3 for found in places.values())
    # Rank r of RASampler takes every world_size-th of the repeated permutation, from r on.
    repeated = np.repeat(Permutation(n, 0)(np.arange(n)), 3)[:n]
    reference = [repeated[r::ranks] for r in range(ranks)]
    mine = [list(chain(*(step.rows.indices.tolist() for step in own))) for own in steps]
    rename = dict(zip(whole(order, 3, 1).indices.tolist(), repeated.tolist()))
    assert [[rename[index] for index in own] for own in mine] == [own.tolist() for own in reference]


def test_repeats_that_cannot_be() -> None:
    assert RepeatedAugmentationSampler(InMemoryDataset(x=np.arange(9))).dataset_size == 9
    for arguments, error, text in [
        ((0,), ValueError, "at least one sample, got 0"),
        ((4, 0), ValueError, "repeats must be at least 1, got 0"),
        ((4, 3, 13), ValueError, "num_samples must be in [1, 12], got 13"),
        ((4.5,), TypeError, "a dataset, or its number of samples, was expected, got 4.5"),
    ]:
        with pytest.raises(error, match=re.escape(text)):
            RepeatedAugmentationSampler(*arguments)


# Mixes


@settings(max_examples=60, deadline=None)
@given(
    parts=st.lists(st.tuples(st.integers(1, 40), st.floats(0.1, 10)), min_size=1, max_size=5),
    num_samples=st.integers(60, 200),
    epochs=st.integers(1, 5),
)
@example(parts=[(1000, 1.0), (3, 1.0)], num_samples=60, epochs=5)
def test_a_mix_has_its_proportions_and_goes_on_over_epochs(
    parts: list[tuple[int, float]], num_samples: int, epochs: int
) -> None:
    sizes, weights = zip(*parts)
    weights = tuple(max(weight, sum(weights) / num_samples) for weight in weights)
    sampler = MixSampler(sizes, weights, num_samples)
    edges = np.cumsum(sizes)
    exact = np.array(weights) / sum(weights) * num_samples
    assert np.abs(sampler.counts - exact).max() < 1 and sampler.counts.sum() == num_samples == len(sampler)
    times = np.zeros(edges[-1], int)
    for epoch in range(epochs):
        rows = whole(sampler, epoch)
        counts = np.bincount(np.searchsorted(edges, rows.indices, side="right"), minlength=len(sizes))
        assert counts.tolist() == sampler.counts.tolist()
        assert len(set(rows.keys.tolist())) == num_samples
        times += np.bincount(rows.indices, minlength=len(times))
        for own in np.split(times, edges[:-1]):
            assert own.max() - own.min() <= 1


def test_temperature_lifts_small_datasets() -> None:
    sizes = [10_000, 100]
    assert MixSampler(sizes).counts.tolist() == sizes
    assert MixSampler(sizes, temperature=2, num_samples=1100).counts.tolist() == [1000, 100]
    assert MixSampler(sizes, [1, 1], 100, temperature=7).counts.tolist() == [50, 50]
    assert MixSampler(sizes, [1, 1], 100, temperature=0.01).counts.tolist() == [50, 50]


def test_a_mix_is_in_random_order() -> None:
    rows = whole(MixSampler([500, 500]))
    runs = np.count_nonzero(np.diff((rows.indices >= 500).astype(int)))
    assert 400 < runs < 600


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (dict(sizes=[]), "sizes must hold at least one number"),
        (dict(sizes=[3, 0]), "sizes must be positive integers, got [3, 0]"),
        (dict(sizes=[3, 1.5]), "sizes must be positive integers"),
        (dict(sizes=[3, 4], weights=[1]), "weights must be one for each of 2 datasets, got 1"),
        (dict(sizes=[3, 4], weights=[1, 0]), "weights must be positive, got 0.0: leave that dataset out"),
        (dict(sizes=[3, 4], temperature=0), "temperature must be a positive number, got 0"),
        (dict(sizes=[300, 4], num_samples=10), "num_samples=10 is too few for one sample of dataset 1"),
    ],
)
def test_mixes_that_cannot_be(arguments: Any, text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        MixSampler(**arguments)


def test_mix_is_the_concatenation_of_its_datasets(tmp_path: Any) -> None:
    one = make_image_folder(tmp_path / "one", classes=1, per_class=4)
    other = make_image_folder(tmp_path / "other", classes=1, per_class=3, seed=1)
    files = [sorted(root.glob("*/*.jpg")) for root in (one, other)]
    fields = ("image", "label", "index", "path", "valid")
    datasets = [FileDataset(paths, labels=[k] * len(paths), fields=fields) for k, paths in enumerate(files)]
    mix = Mix({datasets[0]: 0.25, datasets[1]: 0.75}, num_samples=100)
    assert len(mix) == 7 and mix.sampler.counts.tolist() == [25, 75] and mix.blocking
    columns = mix.read(np.array([6, 0, 4, 3, 0]))
    expected = [files[1][2], files[0][0], files[1][0], files[0][3], files[0][0]]
    assert [bytes(image) for image in columns["image"]] == [path.read_bytes() for path in expected]
    assert np.asarray(columns["label"]).tolist() == [1, 0, 1, 0, 0]
    assert np.asarray(columns["index"]).tolist() == [6, 0, 4, 3, 0]
    assert columns["path"] == [str(path) for path in expected]
    assert [mix.path(i) for i in (3, 4)] == [str(files[0][3]), str(files[1][0])]
    assert [part.tolist() for part in mix.locate([0, 3, 4, 6])] == [[0, 0, 1, 1], [0, 3, 0, 2]]
    assert torch.equal(mix[5][0], datasets[1][1][0])
    assert len(mix.fingerprint()) <= 100 and mix.fingerprint() != Mix(datasets[::-1]).fingerprint()


def test_mix_refuses_what_would_be_converted_silently() -> None:
    def arrays(dtype: Any, *shape: int) -> InMemoryDataset:
        return InMemoryDataset(x=np.zeros((3, *shape), dtype))

    assert Mix([arrays("f4", 2, 2), arrays("f4", 2, 2)]).uniform("x")
    assert not Mix([arrays("f4", 2, 2), arrays("f4", 3, 2)]).uniform("x")
    for datasets, error, text in [
        (
            [arrays("f4", 2), arrays("f8", 2)],
            FieldTypeError,
            "'x' must be float32 with 1 dimension, as in dataset 0, got float64 with 1 dimension in dataset 1",
        ),
        ([arrays("f4", 2), arrays("f4", 2, 2)], FieldTypeError, "got float32 with 2 dimensions in dataset 1"),
        ([arrays("i4"), arrays("i8")], FieldTypeError, "got a number of int64 in dataset 1"),
        (
            [arrays("u1", 4, 4, 1), arrays("u1", 4, 4, 3)],
            FieldTypeError,
            "an image with 1 channel, as in dataset 0, got an image with 3 channels",
        ),
        ([arrays("f4", 2), InMemoryDataset(y=[1])], ValueError, "must have the same fields"),
        ([arrays("f4", 2), torch.utils.data.TensorDataset(torch.zeros(3))], TypeError, "sampler=MixSampler(sizes)"),
        ([], ValueError, "at least one dataset, got none"),
        (arrays("f4", 2), TypeError, "Mix takes {dataset: weight} or a list of datasets"),
    ]:
        with pytest.raises(error, match=re.escape(text)):
            Mix(datasets)


def test_mix_has_the_transform_that_its_datasets_share() -> None:
    datasets = [InMemoryDataset(x=[1.0, 2.0]), InMemoryDataset(x=[3.0])]
    mix = Mix(datasets)
    assert mix.transform is None
    datasets[0].transform = datasets[1].transform = str
    assert mix.transform is str
    datasets[1].transform = repr
    with pytest.raises(ValueError, match="have different transforms: write transform= at the DataLoader"):
        _ = mix.transform


# Buckets


def bucket_steps(order: LengthBucketSampler, ranks: int, start: int = 0, drop_last: bool = False) -> list[list[Any]]:
    """The cuts of all ranks, step by step."""
    epoch = order.epoch(5, Position(3))
    found, position = [], start
    while True:
        cuts = [epoch.cut(position, order.batching(1, Shard(rank, ranks), drop_last, False)) for rank in range(ranks)]
        if cuts[0] is None:
            assert cuts == [None] * ranks
            return found
        assert len({taken.end for taken in cuts}) == 1 and cuts[0].end > position
        found.append(cuts)
        position = cuts[0].end


def real(steps: list[list[Any]]) -> list[int]:
    return [int(p) for taken in chain(*steps) for p in taken.positions[taken.valid]]


buckets = st.builds(
    dict,
    lengths=st.lists(st.one_of(st.integers(1, 50), st.floats(0.5, 50)), min_size=1, max_size=120),
    tokens_per_batch=st.one_of(st.none(), st.floats(50, 300)),
    batch_size=st.one_of(st.none(), st.integers(1, 9)),
    max_padding=st.sampled_from([0.0, 0.1, 0.5]),
    shuffle=st.booleans(),
).filter(lambda given: given["tokens_per_batch"] or given["batch_size"])


@settings(max_examples=200, deadline=None)
@given(buckets, st.integers(1, 9), st.booleans())
@example(dict(lengths=[9] * 9, batch_size=1), 8, False)  # one batch of one is left for eight ranks
@example(dict(lengths=[9] * 18, batch_size=2), 8, False)
@example(dict(lengths=[9] * 64 + [50] * 3, tokens_per_batch=50.0), 5, False)
@example(dict(lengths=[0.3] * 7, tokens_per_batch=0.9), 1, False)
def test_every_sample_once_within_the_budget_and_the_bucket(given: dict[str, Any], ranks: int, drop_last: bool) -> None:
    lengths = np.asarray(given["lengths"], float)
    sampler = order = LengthBucketSampler(**given)
    batching = order.batching(1, Shard(0, ranks), drop_last, False)
    steps = bucket_steps(order, ranks, drop_last=drop_last)
    assert len(steps) == order.num_steps(batching)
    seen = real(steps)
    assert seen == list(range(len(seen)))  # in the global order, each once
    assert drop_last or len(seen) == len(lengths)
    epoch = order.epoch(5, Position(3))
    assert sorted(epoch.at(np.arange(len(lengths))).indices.tolist()) == list(range(len(lengths)))
    for taken in chain(*steps):
        own = lengths[epoch.at(taken.positions).indices]
        assert 1 <= len(own) <= sampler.batch_size <= (given.get("batch_size") or len(lengths))
        assert own.max() * len(own) <= (given.get("tokens_per_batch") or np.inf)
        assert own.min() >= own.max() * (1 - given.get("max_padding", 0.1)) * (1 - 1e-12)
    # Repeated rows only where the last step has fewer samples than ranks.
    for cuts in steps[:-1]:
        assert all(taken.valid.all() for taken in cuts)
    sizes = [len(taken.positions) for taken in chain(*bucket_steps(order, 1))]
    if min(sizes) > 1 and len(lengths) >= ranks:
        assert all(taken.valid.all() for taken in chain(*steps))
    # Whole batches until the last two steps.
    ends = set(np.cumsum(sizes).tolist())
    assert all(taken.positions[-1] + 1 in ends for cuts in steps[:-2] for taken in cuts)


@settings(max_examples=60, deadline=None)
@given(buckets, st.integers(1, 6), st.integers(1, 6), st.booleans())
def test_buckets_resume_after_every_step(given: dict[str, Any], ranks: int, others: int, drop_last: bool) -> None:
    n = len(given["lengths"])
    order = LengthBucketSampler(**given)
    if n < max(ranks, others):
        return
    steps = bucket_steps(order, ranks, drop_last=drop_last)
    epoch = order.epoch(5, Position(3))
    positions = [0] + [cuts[0].end for cuts in steps]
    for k, position in enumerate(positions):
        assert epoch.start_of(k, order.batching(1, Shard(ranks - 1, ranks), drop_last, False)) == position
        rest = bucket_steps(order, ranks, position, drop_last)
        assert [[taken.positions.tolist() for taken in cuts] for cuts in rest] == [
            [taken.positions.tolist() for taken in cuts] for cuts in steps[k:]
        ]
        assert real(bucket_steps(order, others, position)) == list(range(position, n))
    assert epoch.start_of(len(steps) + 5, order.batching(1, Shard(0, ranks), drop_last, False)) == positions[-1]
    # And from anywhere else too.
    assert real(bucket_steps(order, others, n // 2)) == list(range(n // 2, n))


def test_batches_are_shuffled_within_their_buckets() -> None:
    lengths = np.random.default_rng(0).integers(20, 200, 3000)
    order = LengthBucketSampler(lengths, 2000)
    alone = order.batching(1, Shard(0, 1), False, False)
    epochs = [order.epoch(0, Position(e)) for e in range(2)]
    batches = []
    for epoch in epochs:
        cuts, position = [], 0
        while (taken := epoch.cut(position, alone)) is not None:
            cuts.append(epoch.at(taken.positions).indices)
            position = taken.end
        batches.append(cuts)
    assert len(batches[0]) == len(batches[1]) == order.num_steps(alone)
    # New batches in each epoch, but for buckets that hold a single one.
    again = {frozenset(b.tolist()) for b in batches[0]} & {frozenset(b.tolist()) for b in batches[1]}
    assert len(again) < 0.1 * len(batches[0])
    largest = [int(lengths[b].max()) for b in batches[0]]
    assert abs(stats.spearmanr(largest, range(len(largest))).statistic) < 0.3  # no order of lengths
    padded = sum(len(b) * int(lengths[b].max()) for b in batches[0])
    assert lengths.sum() > 0.93 * padded
    # The budget is used.
    assert padded > 0.85 * 2000 * len(batches[0])


def test_unshuffled_buckets_begin_with_the_longest() -> None:
    sampler = LengthBucketSampler([3, 9, 1, 9, 2, 8], batch_size=2, max_padding=0.0, shuffle=False)
    assert whole(sampler, 0).indices.tolist() == whole(sampler, 4).indices.tolist() == [1, 3, 5, 0, 4, 2]
    assert sampler.num_batches == 5 and sampler.batch_size == 2


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (dict(lengths=[1, 2]), ValueError, "needs tokens_per_batch=, batch_size=, or both"),
        (dict(lengths=[1, 0], batch_size=1), ValueError, "lengths must be positive, got 0 at 1"),
        (
            dict(lengths=[1, 20], tokens_per_batch=10),
            ValueError,
            "at least the largest length, got 10 for the length 20",
        ),
        (dict(lengths=[1], batch_size=1, max_padding=1), ValueError, "max_padding must be a number in [0, 1), got 1"),
        (dict(lengths=[1], batch_size=0), ValueError, "batch_size must be at least 1, got 0"),
        (dict(lengths=["a"], batch_size=1), TypeError, "lengths must be one number per sample, got 'a'"),
    ],
)
def test_buckets_that_cannot_be(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        LengthBucketSampler(**arguments)
    order = LengthBucketSampler([1, 2], batch_size=1)
    with pytest.raises(ValueError, match="leave batch_size and pad_last out"):
        order.batching(1, Shard(0, 1), False, True)


# The permutations, and sizes


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 2**40), st.integers(0, 2**64 - 1)), min_size=1, max_size=8))
@example(
    [(1, 0), (2, 5), (3, 5), (4, 5), (2**61, 9), (10**12 + 1, 9), ((2**26 + 1) ** 2, 3), ((2**26 + 1) ** 2 + 1, 3)]
)
def test_many_permutations_are_the_single_ones(cases: list[tuple[int, int]]) -> None:
    sizes = np.array([n for n, _ in cases])
    keys = np.array([key for _, key in cases], np.uint64)
    for share in (0, 0.3, 0.99):
        positions = (sizes * share).astype(np.int64)
        expected = [int(Permutation(n, k)(p)) for (n, k), p in zip(cases, positions.tolist())]
        assert permute_each(sizes, keys, positions).tolist() == expected


@pytest.mark.parametrize(
    "make",
    [
        lambda: RepeatedAugmentationSampler(10**8),
        lambda: MixSampler([10**8, 10**9, 7], [0.5, 0.4, 0.1]),
        lambda: WeightedSampler(np.broadcast_to(np.float32(1), 10**6), 10**8),
        lambda: ClassBalancedSampler(np.arange(10**6) % 1000, 10**8),
    ],
)
def test_a_seek_among_1e8_samples_costs_nothing(make: Callable[[], Order]) -> None:
    order = make()
    n = len(order)
    assert n >= 10**8
    tracemalloc.start()
    try:
        at = Position(3, 0, n * 2 // 3)
        steps = order.epoch(0, at).steps(at, Batching(256, Shard(3, 8)))
        assert len(next(steps).rows.indices) == 256
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4e6  # nothing is made for each sample
    assert order.num_steps(Batching(256, Shard(3, 8))) == -(-n // 2048)


def test_buckets_of_many_samples_are_found_quickly() -> None:
    n = 10**6
    order = LengthBucketSampler(np.random.default_rng(0).integers(10, 1000, n), 20_000)
    batches, batching = order.num_batches, order.batching(1, Shard(3, 8), False, False)
    calls = Counter[str]()
    sys.setprofile(lambda frame, event, arg: calls.update([event]))
    try:
        epoch = order.epoch(0, Position(7))
        start = epoch.start_of(batches // 16, batching)
        taken = epoch.cut(start, batching)
    finally:
        sys.setprofile(None)
    assert taken is not None and len(epoch.at(taken.positions).indices) == len(taken.positions)
    assert calls.total() < 1000  # numpy's loops find it, none of Python's over the batches
    assert 0.4 * n < start < 0.6 * n


# Samplers that shard themselves


class RASampler(Sampler):
    """As in torchvision's references, and by another word in timm's RepeatAugSampler."""

    def __init__(self, dataset, num_replicas, rank, shuffle=True, seed=0, repetitions=3, word="repetitions"):
        self.dataset, self.num_replicas, self.rank, self.seed, self.epoch = dataset, num_replicas, rank, seed, 0
        setattr(self, word, repetitions)
        self.repeats_, self.num_selected = repetitions, len(dataset) // num_replicas

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(len(self.dataset), generator=generator).repeat_interleave(self.repeats_)
        return iter(order[self.rank :: self.num_replicas].tolist()[: self.num_selected])

    def __len__(self):
        return self.num_selected

    def set_epoch(self, epoch):
        self.epoch = epoch


class OrderedDistributedSampler(Sampler):
    """As timm's, for evaluation."""

    def __init__(self, dataset, num_replicas, rank):
        self.dataset, self.num_replicas, self.rank = dataset, num_replicas, rank

    def __iter__(self):
        return iter(range(self.rank, len(self.dataset), self.num_replicas))

    def __len__(self):
        return len(self.dataset) // self.num_replicas


class Wrapper(Sampler):
    """Around a sampler."""

    def __init__(self, sampler, num_replicas=1):
        self.sampler, self.num_replicas = sampler, num_replicas

    def __iter__(self):
        return iter(self.sampler)

    def __len__(self):
        return len(self.sampler)


@pytest.mark.parametrize(
    ("make", "name", "instead"),
    [
        (lambda d: RASampler(d, 2, 0), "RASampler", r"torchdali\.samplers\.RepeatedAugm.*repeats=3\)"),
        (lambda d: RASampler(d, 2, 0, repetitions=4, word="num_repeats"), "RASampler", r"RepeatedAugm.*repeats=4\)"),
        (lambda d: OrderedDistributedSampler(d, 2, 1), "OrderedDistributedSampler", "the plain sampler, or leave it"),
        (lambda d: Wrapper(RandomSampler(d), 2), "Wrapper", "its plain sampler, the RandomSampler"),
        (lambda d: Wrapper(RASampler(d, 2, 0)), "RASampler", "RepeatedAugmentationSampler"),
    ],
)  # fmt: skip
def test_a_sampler_that_shards_itself_is_refused_with_what_to_write(make, name, instead):
    data = InMemoryDataset(number=range(12))
    with pytest.raises(
        TypeError, match=rf"{name} gives one rank's of 2 \(num_replicas\).*once more: write .*{instead}"
    ):
        DataLoader(data, 2, device="cpu", sampler=make(data))


@pytest.mark.parametrize("word", ["world_size", "_world_size"])
def test_shares_by_other_words_are_refused_too(word):
    """mmengine's samplers have `world_size`, detectron2's and YOLOX's `_world_size`."""
    sampler = Wrapper(range(12))
    setattr(sampler, word, 2)
    del sampler.num_replicas
    with pytest.raises(TypeError, match=rf"Wrapper gives one rank's of 2 \({word}\), .* write its plain sampler"):
        DataLoader(InMemoryDataset(number=range(12)), 2, device="cpu", sampler=sampler)


def test_a_sampler_for_one_process_is_drawn_as_any_other():
    data = InMemoryDataset(number=range(12))
    for sampler in (RASampler(data, 1, 0), Wrapper(OrderedDistributedSampler(data, 1, 0))):
        loader = DataLoader(data, 4, device="cpu", sampler=sampler)
        assert [n for batch in loader for n in batch[0].tolist()] == list(sampler)
