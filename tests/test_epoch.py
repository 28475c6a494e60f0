"""The epoch reaches every dataset that has `set_epoch`, and the same one however the samples are made."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset

import torchdali as td
from torchdali.datasets import MapDataset
from torchdali.testing import assert_resumes_exactly

N = 12


class Told(Dataset):
    """Samples that tell the epoch, and what torch's global generator gave when it was told."""

    def __init__(self):
        self.epoch, self.drawn = -1, 0.0

    def __len__(self):
        return N

    def set_epoch(self, epoch):
        self.epoch, self.drawn = epoch, torch.rand(()).item()

    def __getitem__(self, index):
        return {"index": index, "epoch": self.epoch, "drawn": self.drawn}


class ToldColumns(MapDataset):
    """A dataset of torchdali's own kind."""

    def __init__(self):
        self._set_fields(("index", "epoch", "drawn"), {"epoch": "number", "drawn": "number"})
        self.epoch, self.drawn = -1, 0.0

    def __len__(self):
        return N

    set_epoch = Told.set_epoch

    def read_columns(self, indices, names):
        columns = {"epoch": [self.epoch] * len(indices), "drawn": [self.drawn] * len(indices)}
        return {name: np.array(columns[name]) for name in names}

    def fingerprint(self):
        return "told"


class Holder(Dataset):
    """A user's own wrapper."""

    def __init__(self, dataset):
        self.dataset = dataset

    def __len__(self):
        return len(self.dataset)

    def __getitem__(self, index):
        return self.dataset[index]


DATASETS = {
    "dataset": Told,
    "subset": lambda: Subset(Told(), list(range(N))),
    "concatenated": lambda: ConcatDataset([Told(), Subset(Told(), [0, 1])]),
    "held": lambda: Holder(Told()),
    "columns": ToldColumns,
    "subset of columns": lambda: Subset(ToldColumns(), list(range(N))),
    "concatenated columns": lambda: ConcatDataset([ToldColumns(), ToldColumns()]),
    "mixed columns": lambda: td.Mix([ToldColumns(), ToldColumns()]),
}
WORKERS = {
    "inline": dict(),
    "workers": dict(num_workers=2),
    "persistent workers": dict(num_workers=2, persistent_workers=True),
}


def load(dataset, **options):
    return td.DataLoader(dataset, 4, device="cpu", output="dict", seed=3, **options)


def epochs_of(loader):
    batches = list(loader)
    (epoch,) = torch.cat([batch["epoch"] for batch in batches]).unique().tolist()
    return epoch, torch.cat([batch["drawn"] for batch in batches]).unique().tolist()


@pytest.mark.parametrize("name", DATASETS)
def test_every_dataset_is_told(name):
    """By the loop, by `set_epoch` and by a resume."""
    dataset = DATASETS[name]()
    with load(dataset) as loader:
        found = [epochs_of(loader) for _ in range(3)]
        assert [epoch for epoch, _ in found] == [0, 1, 2]
        loader.set_epoch(7)
        iterator = iter(loader)
        assert next(iterator)["epoch"].tolist() == [7] * 4
        state = loader.state_dict()
    with load(DATASETS[name]()) as resumed:
        resumed.load_state_dict(state)
        assert epochs_of(resumed)[0] == 7
    with load(dataset) as again:
        assert [epochs_of(again) for _ in range(3)] == found
    assert len({tuple(drawn) for _, drawn in found}) == 3


@pytest.mark.processes
@pytest.mark.parametrize("options", WORKERS.values(), ids=WORKERS)
def test_the_epoch_is_the_same_in_workers(options):
    with load(Told(), **options) as loader:
        found = [epochs_of(loader) for _ in range(2)]
        loader.set_epoch(5)
        found.append(epochs_of(loader))
    with load(Told()) as inline:
        expected = [epochs_of(inline) for _ in range(2)]
        inline.set_epoch(5)
        assert found == [*expected, epochs_of(inline)]
    assert [epoch for epoch, _ in found] == [0, 1, 5]


@pytest.mark.parametrize("name", ["dataset", "columns"])
def test_two_passes_over_one_dataset(name):
    """Each reads its own epoch, and whatever the user told the dataset."""
    dataset = DATASETS[name]()
    with load(dataset, prefetch_factor=0) as first, load(dataset, prefetch_factor=0) as second:
        second.set_epoch(4)
        dataset.set_epoch(9)
        pairs = [(a["epoch"].unique().item(), b["epoch"].unique().item()) for a, b in zip(first, second, strict=True)]
    assert pairs == [(0, 4)] * 3
    with load(dataset) as loader:
        dataset.set_epoch(9)
        assert epochs_of(loader)[0] == 0


def test_a_resume_goes_on_with_the_epoch():
    assert_resumes_exactly(lambda: load(Told()), epochs=2)


def test_the_callers_generators_are_left_alone():
    torch.manual_seed(1)
    expected = torch.rand(())
    torch.manual_seed(1)
    for name in ("dataset", "columns"):
        epochs_of(load(DATASETS[name]()))
    assert torch.equal(torch.rand(()), expected)


class Counting(IterableDataset):
    """Counts its epoch in shared memory by differences, as Hugging Face's iterables do; slowly."""

    def __init__(self):
        self._epoch = torch.tensor(0).share_memory_()

    def set_epoch(self, epoch):
        missing = epoch - int(self._epoch)
        time.sleep(0.2)  # meanwhile the other worker does the same
        self._epoch += missing

    def __iter__(self):
        yield from [int(self._epoch)] * 4


@pytest.mark.processes
@pytest.mark.parametrize("context", ["fork", "forkserver"])
def test_workers_that_share_a_counter_of_epochs_count_each_epoch_once(context):
    with td.DataLoader(
        Counting(), 2, num_workers=2, persistent_workers=True, multiprocessing_context=context, device="cpu"
    ) as loader:
        assert [[batch.tolist() for batch in loader] for _ in range(3)] == [[[n, n]] * 2 for n in range(3)]
