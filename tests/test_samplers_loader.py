"""Loaders with samplers of torchdali: one stream, exact resume, seeks, and different augmentations of one sample."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, SequentialSampler, TensorDataset

import torchdali as td
from torchdali.testing import assert_resumes_exactly, assert_same_stream

LENGTHS = np.random.default_rng(0).integers(3, 20, 40)


def rows() -> td.InMemoryDataset:
    return td.InMemoryDataset(
        x=[np.full(n, i, np.float32) for i, n in enumerate(LENGTHS)], label=np.arange(40) % 3, fields=("x", "index")
    )


def mix() -> td.Mix:
    whole = np.arange(60, dtype=np.float32)
    return td.Mix({td.InMemoryDataset(x=whole[:8]): 1, td.InMemoryDataset(x=whole[8:]): 2}, num_samples=40)


class Noise:
    """A sample of Python code that is random."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.rand(2), index


MAKERS: dict[str, Callable[..., td.DataLoader]] = {
    "weighted": lambda **kw: td.DataLoader(rows(), sampler=td.WeightedSampler(LENGTHS), **kw),
    "once": lambda **kw: td.DataLoader(rows(), sampler=td.WeightedSampler(LENGTHS, 31, False), **kw),
    "balanced": lambda **kw: td.DataLoader(rows(), sampler=td.ClassBalancedSampler(np.arange(40) // 30), **kw),
    "repeated": lambda **kw: td.DataLoader(Noise(), sampler=td.RepeatedAugmentationSampler(40), **kw),
    "mix": lambda **kw: td.DataLoader(mix(), **kw),
}


@pytest.mark.parametrize("name", MAKERS)
def test_one_stream_and_exact_resume(name: str) -> None:
    def make(ranks: int, batch_size: int) -> list[td.DataLoader]:
        return [MAKERS[name](batch_size=batch_size, seed=3, rank=r, world_size=ranks) for r in range(ranks)]

    assert_same_stream(lambda: make(1, 12), lambda: make(3, 4), lambda: make(2, 6), epochs=2)
    assert_resumes_exactly(lambda: make(2, 5), lambda: make(3, 4), every=3)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.slow
def test_batches_by_length(drop_last: bool) -> None:
    def make(ranks: int) -> list[td.DataLoader]:
        sampler = td.LengthBucketSampler(LENGTHS, 50, max_padding=0.3)
        return [
            td.DataLoader(rows(), sampler=sampler, seed=3, rank=r, world_size=ranks, drop_last=drop_last)
            for r in range(ranks)
        ]

    for ranks in (1, 2, 3):
        assert_resumes_exactly(lambda ranks=ranks: make(ranks), every=2)
    if not drop_last:
        assert_same_stream(lambda: make(1), lambda: make(2), lambda: make(4), epochs=2, steps=False)
        assert_resumes_exactly(lambda: make(2), lambda: make(3), every=3)
    (loader,) = make(1)
    seen = []
    batches = list(loader)
    assert len(batches) == len(loader)
    for x, index in batches:
        assert x.data.shape[0] * x.data.shape[1] <= 50 and len(index) <= loader.batch_size
        seen += index.tolist()
    assert sorted(seen) == list(range(40))
    loader.seek(0, 4)
    (first,) = islice(iter(loader), 1)
    assert first[1].tolist() == batches[4][1].tolist()
    loader.close()


def test_a_sampler_that_makes_batches_takes_no_batch_size() -> None:
    sampler = td.LengthBucketSampler(LENGTHS, 50)
    with pytest.raises(ValueError, match="leave batch_size and pad_last out"):
        td.DataLoader(rows(), batch_size=4, sampler=sampler)
    with pytest.raises(ValueError, match="leave shuffle out"):
        td.DataLoader(mix(), shuffle=True)
    with pytest.raises(ValueError, match="made for 40 samples, and the dataset has 60"):
        td.DataLoader(mix(), sampler=sampler)


def test_repeats_are_augmented_in_different_ways() -> None:
    loader = MAKERS["repeated"](batch_size=40)
    (batch,) = loader
    values, index = batch
    assert len(set(index.tolist())) == 14 and len({tuple(row) for row in values.tolist()}) == 40
    loader.close()


def test_a_mix_has_its_proportions_and_is_no_sequential_order() -> None:
    loader = td.DataLoader(mix(), batch_size=40)
    assert not isinstance(loader.sampler, SequentialSampler) and loader.num_samples == 40
    for _ in range(2):
        (batch,) = loader
        assert torch.count_nonzero(batch[0] < 8) == 13
    loader.close()


def test_datasets_of_torch_are_mixed_by_their_sizes() -> None:
    parts: list[Any] = [TensorDataset(torch.arange(5)), TensorDataset(torch.arange(100, 200))]
    loader = td.DataLoader(ConcatDataset(parts), batch_size=30, sampler=td.MixSampler([5, 100], [1, 1], 30))
    (batch,) = loader
    assert torch.count_nonzero(batch[0] < 100) == 15
    loader.close()


def test_buckets_that_leave_no_step_give_no_batch():
    """As torch does where drop_last leaves nothing."""
    sampler = td.LengthBucketSampler([5, 5, 5], batch_size=3)
    for rank in range(2):
        with td.DataLoader(
            td.InMemoryDataset(x=range(3)), sampler=sampler, drop_last=True, device="cpu", rank=rank, world_size=2
        ) as loader:
            assert len(loader) == 0 and list(loader) == [] and list(loader) == [] and loader.epoch == 2
