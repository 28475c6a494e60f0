"""torch's defaults and modes are the user's: `set_default_dtype`, `inference_mode` and others change no batch."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch

import torchdali as td
from torchdali import transforms as T
from torchdali.native import blur, colors, sample

MEAN_STD = [0.5] * 3, [0.2] * 3
CHAINS = {
    "crop": [T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), T.Normalize(*MEAN_STD)],
    "resize": [T.RandomResizedCrop(24), T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.GaussianBlur(5)],
    "warps": [T.RandomAffine(20, interpolation="bilinear"), T.RandomPerspective(), T.ElasticTransform(5.0)],
    "RandAugment": [T.RandAugment(), T.RandomRotation(30)],
    "AutoAugment": [T.AutoAugment(), T.RandomSolarize(101.7)],
    "AugMix": [T.AugMix(), T.RandomEqualize(), T.RandomPhotometricDistort()],
    "floats": [T.ToDtype(torch.float32, scale=True), T.RandomErasing(1.0, value="random"), T.GaussianNoise()],
}


@contextlib.contextmanager
def default(value):
    """Set a default dtype, or device, for a while."""
    try:
        torch.set_default_dtype(value) if isinstance(value, torch.dtype) else torch.set_default_device(value)
        yield
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)


def tensors_of(batch):
    if isinstance(batch, torch.Tensor):
        return [batch.clone()]
    parts = batch.values() if isinstance(batch, dict) else batch
    return [tensor for part in parts for tensor in tensors_of(part)]


def assert_same(make, value):
    expected = [tensors_of(batch) for batch in make()]
    with default(value):
        found = [tensors_of(batch) for batch in make()]
    assert len(found) == len(expected) > 0
    for ours, other in zip(found, expected, strict=True):
        for one, two in zip(ours, other, strict=True):
            assert one.dtype == two.dtype and one.device == two.device and torch.equal(one, two)


DEFAULTS = [torch.float64, torch.bfloat16, "meta"]


@pytest.mark.parametrize("inline", [False, True], ids=["threads", "caller's thread"])
@pytest.mark.parametrize("value", DEFAULTS, ids=str)
@pytest.mark.parametrize("name", CHAINS)
def test_transforms(name, value, inline):
    data = np.random.default_rng(0).integers(0, 256, (12, 40, 44, 3), dtype=np.uint8)
    options = {"prefetch_factor": 0} if inline else {}

    def make():
        dataset = td.InMemoryDataset(image=data, label=np.arange(12))
        return td.DataLoader(dataset, 4, shuffle=True, transform=T.Compose(CHAINS[name]), device="cpu", **options)

    assert_same(make, value)


MODES = {
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


@pytest.mark.parametrize("native", ["1", "0"], ids=["in C", "in torch"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CHAINS)
def test_modes_of_the_callers_thread(name, mode, native, monkeypatch):
    if native == "0":
        for module, kernels in ((sample, "_kernel"), (blur, "_kernels"), (colors, "colors")):
            monkeypatch.setattr(module, kernels, lambda: None)
    data = np.random.default_rng(0).integers(0, 256, (12, 40, 44, 3), dtype=np.uint8)
    chain = T.Compose(CHAINS[name])

    def make():
        return td.DataLoader(td.InMemoryDataset(image=data), 4, transform=chain, device="cpu", prefetch_factor=0)

    expected = [image.clone() for (image,) in make()]
    with MODES[mode]():
        found = [image for (image,) in make()]
    assert not any(image.is_inference() for image in found)  # a training may use them
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return {"x": np.full(3, index, np.float32), "t": torch.full((2,), index, dtype=torch.int32), "n": index}


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        for number in range(10):
            yield torch.full((2,), number, dtype=torch.float32), number


SOURCES = {
    "dataset": lambda **options: td.DataLoader(Numbers(), 4, shuffle=True, device="cpu", **options),
    "iterable": lambda **options: td.DataLoader(Stream(), 4, device="cpu", **options),
    "batches": lambda **options: td.DataLoader(
        Numbers(), batch_sampler=torch.utils.data.BatchSampler(range(12), 5, False), device="cpu", **options
    ),
}


@pytest.mark.parametrize("value", DEFAULTS, ids=str)
@pytest.mark.parametrize("name", SOURCES)
def test_python_datasets(name, value):
    assert_same(SOURCES[name], value)


@pytest.mark.processes
@pytest.mark.parametrize("name", SOURCES)
def test_python_datasets_in_workers(name):
    assert_same(lambda: SOURCES[name](num_workers=1), "meta")


def test_random_samplers():
    weighted = torch.utils.data.WeightedRandomSampler(torch.arange(1.0, 13), 12)
    for sampler in (
        weighted,
        torch.utils.data.RandomSampler(range(12)),
        torch.utils.data.SubsetRandomSampler(range(9)),
    ):
        assert_same(lambda sampler=sampler: td.DataLoader(Numbers(), 4, sampler=sampler, device="cpu"), "meta")


def test_files(tmp_path):
    from PIL import Image

    rng = np.random.default_rng(0)
    for number in range(8):
        folder = tmp_path / "ab"[number % 2]
        folder.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (30, 40, 3), dtype=np.uint8)).save(folder / f"{number}.jpg")
    for engine in ("pipeline", "eager"):

        def make(engine=engine):
            chain = T.Compose([T.RandomResizedCrop(16), T.Normalize(*MEAN_STD)])
            return td.DataLoader(
                td.ImageFolder(tmp_path), 4, shuffle=True, transform=chain, device="cpu", engine=engine
            )

        for value in DEFAULTS:
            assert_same(make, value)


def test_a_state_is_saved_and_loaded():
    with default("meta"):
        loader = td.DataLoader(Numbers(), 4, shuffle=True, device="cpu")
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        rest = [tensors_of(batch) for batch in batches]
        other = td.DataLoader(Numbers(), 4, shuffle=True, device="cpu")
        other.load_state_dict(state)
        again = [tensors_of(batch) for batch in other]
    assert len(rest) == len(again) == 2
    assert all(torch.equal(a, b) for one, two in zip(rest, again, strict=True) for a, b in zip(one, two, strict=True))
