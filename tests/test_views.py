"""A loader's views for trainers: a sampler, a batch sampler of tokens, and a dataset that seeks by them."""

from __future__ import annotations

import pickle
import threading
from itertools import islice
from typing import Any

import pytest
import torch
from accelerate import skip_first_batches
from torch.utils.data import SequentialSampler

import torchdali as td


def make(**changes: Any) -> td.DataLoader:
    dataset = td.InMemoryDataset(number=range(23), fields=("number", "index"))
    return td.DataLoader(dataset, 4, **{"device": "cpu", "shuffle": True, "seed": 5, **changes})


def numbers(batches: Any) -> list[list[int]]:
    return [number.tolist() for number, _ in batches]


@pytest.mark.parametrize("skip", range(7))
def test_skipping_is_a_seek(skip: int) -> None:
    with make() as loader, make() as other:
        for epoch in (0, 4):
            loader.set_epoch(epoch)
            other.batch_sampler.set_epoch(epoch)
            assert numbers(skip_first_batches(other, skip)) == numbers(loader)[skip:]


def test_a_pass_by_tokens_ends_like_any_other() -> None:
    with make() as loader, make() as other:
        epochs = [numbers(loader) for _ in range(4)]
        skipping = skip_first_batches(other, 2)
        assert numbers(skipping) == epochs[0][2:]
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("torchdali")]
        assert other.state_dict()["finished"] and other.epoch == 1
        assert numbers(other) == epochs[1]
        assert numbers(skipping) == epochs[2][2:]
        assert numbers(skip_first_batches(other, 0)) == epochs[3]


def test_a_broken_pass_by_tokens_can_be_gone_on_with_and_gone_back_on() -> None:
    with make() as loader, make() as other:
        expected = numbers(loader)
        loader.set_epoch(0), other.set_epoch(0)
        skipping = skip_first_batches(other, 1)
        assert numbers(islice(skipping, 2)) == expected[1:3]
        assert other.state_dict()["samples_seen"] == 12
        assert numbers(skipping) == expected[1:]
        with pytest.raises(IndexError):
            other.dataset[23]


def test_a_loader_pickles_in_the_middle_of_a_pass_by_tokens() -> None:
    with make() as loader:
        expected = numbers(make())
        assert numbers(islice(skip_first_batches(loader, 1), 2)) == expected[1:3]
        with pickle.loads(pickle.dumps(loader)) as again:
            assert numbers(skip_first_batches(again, 1)) == expected[1:]
        assert again.dataset.fields == ("number", "index")


def test_samplers() -> None:
    with make() as shuffled, make(shuffle=False) as sequential, make(shuffle=False, sampler=[3, 1, 2]) as drawn:
        # Lightning's overfit_batches asks whether the order is sequential.
        kinds = [isinstance(loader.sampler, SequentialSampler) for loader in (shuffled, sequential, drawn)]
        assert kinds == [False, True, False]
        assert [len(loader.sampler) for loader in (shuffled, sequential, drawn)] == [23, 23, 3]
        assert list(sequential.sampler) == list(range(23)) and list(drawn.sampler) == [3, 1, 2]
        for take in (shuffled.set_epoch, shuffled.sampler.set_epoch, shuffled.batch_sampler.set_epoch):
            take(3), take(7)
            assert shuffled.epoch == 7
            shuffled.set_epoch(0)
        assert len(shuffled.batch_sampler) == len(shuffled) == 6
        assert shuffled.batch_sampler.batch_size == 4 and shuffled.batch_sampler.drop_last is False


def test_the_sampler_and_the_batch_sampler_tell_the_indices_that_come() -> None:
    with make() as loader, make(rank=1, world_size=2) as second:
        for epoch in (0, 1):
            order, batches = list(loader.sampler), [list(batch) for batch in loader.batch_sampler]
            assert sorted(order) == list(range(23)) and len(loader.sampler) == 23
            assert [index for _, index in batches_of(loader)] == order == [i for batch in batches for i in batch]
            assert loader.epoch == epoch + 1
            theirs = [list(batch) for batch in second.batch_sampler]
            assert [index.tolist() for _, index in second] == theirs and len(theirs) == len(second)
        weighted = make(shuffle=False, sampler=td.WeightedSampler(range(1, 24), 1000))
        assert len(weighted.dataset) == 23 and len(weighted.sampler) == len(list(weighted.sampler)) == 1000
        loader.set_epoch(5)
        assert list(loader.sampler) == [index for _, index in batches_of(loader)]


def batches_of(loader: td.DataLoader) -> list[tuple[int, int]]:
    return [pair for numbers, indices in loader for pair in zip(numbers.tolist(), indices.tolist())]


def test_the_dataset_is_the_users() -> None:
    dataset = td.InMemoryDataset(number=range(23))
    whole = torch.utils.data.TensorDataset(torch.arange(5))
    part = torch.utils.data.Subset(dataset, [1, 2])
    for given in (dataset, whole, part, td.PythonDataset(whole)):
        with td.DataLoader(given, 4, device="cpu") as loader:
            assert loader.dataset is given
