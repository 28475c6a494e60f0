"""What a batch and a sample cost in calls, whatever the machine's speed: a regression is seen without a clock.

Everything runs in the caller's thread (engine="debug", one batch at a time), where calls can be counted.
"""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import torchdali as td
from torchdali import transforms as T
from torchdali.native.images import kernel

FLIP, NORMALIZE = T.RandomHorizontalFlip(), T.Normalize((0.5, 0.5, 0.5), (0.2, 0.2, 0.2))
SMALL, LARGE = 16, 48  # samples per batch


class Operators(TorchDispatchMode):
    """Counts torch's operators that touch memory; views cost nothing but their call."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.counts[func._schema.name.removeprefix("aten::")] += 1
        return func(*args, **(kwargs or {}))


def counted(make, batch_size: int) -> Counter[str]:
    """Calls of Python's functions, calls of C's, and torch's operators, for one batch."""
    found: Counter[str] = Counter()

    def note(frame, event, argument) -> None:
        found[event] += 1

    batches = iter(make(batch_size))
    next(batches), next(batches)
    sys.setprofile(note)
    try:
        batch = next(batches)
    finally:
        sys.setprofile(None)
    del batch
    with Operators() as operators:
        next(batches)
    return Counter(python=found["call"], c=found["c_call"], torch=operators.counts.total()) | operators.counts


ARRAYS = np.random.default_rng(0).integers(0, 256, (4 * LARGE, 32, 32, 3), dtype=np.uint8)


class Pairs(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return len(ARRAYS)

    def __getitem__(self, index: int):
        return ARRAYS[index], index


def loader(dataset, transform):
    def make(batch_size: int) -> td.DataLoader:
        return td.DataLoader(dataset(), batch_size, shuffle=True, device="cpu", engine="debug", transform=transform)

    return make


def memory() -> td.InMemoryDataset:
    return td.InMemoryDataset(image=ARRAYS, label=np.arange(len(ARRAYS)))


def numbers() -> td.InMemoryDataset:
    return td.InMemoryDataset(label=np.arange(len(ARRAYS)))


CROP = T.Compose([T.RandomCrop(32, padding=4), FLIP, NORMALIZE])
RESIZE = T.Compose([T.RandomResizedCrop(24), FLIP, NORMALIZE])
FITTING = T.Compose([T.RandomResizedCrop(24, scale=(0.08, 0.5)), FLIP, NORMALIZE])  # the first two tries always fit

# By case, the most calls of Python's functions, of C's, and of torch's operators, per batch, and per sample.  Versions
# of Python, numpy and DALI differ a little: the first two have a quarter more than was counted.
MOST = {
    "numbers": ((140, 100, 1), (0.3, 0.3, 0)),
    "arrays": ((265, 230, 8), (0.3, 0.3, 0)),
    "crop": ((550, 510, 10), (0.3, 0.3, 0)),
    "resize": ((640, 610, 10), (0.3, 0.3, 0)),
    "resize of any window": ((640, 610, 10), (3, 4, 0)),  # the more samples, the likelier that one needs all ten tries
    "resize in torch": ((710, 690, 10), (26.5, 47.5, 17)),
    "python": ((330, 280, 8), (12.5, 12.5, 0)),
    "files": ((2020, 1440, 10), (24, 30, 0)),
}
COPIES = {"clone", "copy_", "_to_copy", "contiguous", "cat", "stack", "fill_", "zero_", "mul_", "add_", "div_"}


@pytest.fixture
def make(folder):
    paths = [path for path, _ in td.ImageFolder(folder).samples]
    return {
        "numbers": loader(numbers, None),
        "arrays": loader(memory, None),
        "crop": loader(memory, CROP),
        "resize": loader(memory, FITTING),
        "resize of any window": loader(memory, RESIZE),
        "resize in torch": loader(memory, FITTING),
        "python": loader(Pairs, None),
        "files": loader(lambda: td.FileDataset(paths * 9), FITTING),
    }


@pytest.mark.parametrize("case", MOST)
def test_calls_per_batch_and_sample(make, monkeypatch, case):
    most_per_batch, most_per_sample = MOST[case]
    if "torch" in case:
        monkeypatch.setattr("torchdali.engine.pictures.kernel", lambda: None)
    elif kernel() is None and case != "numbers":  # no compiler here: all images go through torch
        most_per_sample = [60 + most for most in most_per_sample]
    small, large = [counted(make[case], size) for size in (SMALL, LARGE)]
    per_sample = {what: (large[what] - small[what]) / (LARGE - SMALL) for what in large}
    per_batch = {what: small[what] - per_sample[what] * SMALL for what in large}
    for what, of_batch, of_sample in zip(("python", "c", "torch"), most_per_batch, most_per_sample, strict=True):
        assert per_batch[what] <= of_batch and per_sample[what] <= of_sample, (what, per_batch, per_sample)
    copies = COPIES & {what for what, count in large.items() if count}
    assert copies == {"copy_", "mul_", "add_"} if "torch" in case else kernel() is None or not copies
