"""Counts: what a batch costs on a GPU in kernels, copies and waits of the host, whatever the GPU's speed."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import nvidia.dali.experimental.dynamic as ndd
import pytest
import torch

import torchdali as td
from torchdali import transforms as T

from . import MACHINE
from .cases_loaders import AUGMENT, CROP, NORMALIZE, rotate


def smaller(sample, rand):
    return {**sample, "image": ndd.resize(sample["image"], size=[16, 16])}


BOXES = [np.ones((1 + i % 3, 4), np.float32) for i in range(20)]
DECODED = td.InMemoryDataset(
    image=np.zeros((20, 40, 30, 3), np.uint8), boxes=BOXES, label=np.arange(20), kinds={"boxes": "array"}
)
SIZED = T.Resize((20, 20))
FLOATS = T.ToDtype(torch.float32, scale=True)
TRANSFORMS = {
    "crop": CROP,
    "ColorJitter": AUGMENT,
    "RandomPhotometricDistort": T.Compose([SIZED, T.RandomPhotometricDistort()]),
    "RandAugment": T.Compose([SIZED, T.RandAugment()]),
    "AugMix": T.Compose([SIZED, T.AugMix()]),
    "RandomPerspective": T.Compose([SIZED, T.RandomPerspective(p=1.0, fill=(1, 2, 3))]),
    "ElasticTransform": T.Compose([SIZED, T.ElasticTransform(sigma=1.0)]),
    "GaussianNoise": T.Compose([SIZED, FLOATS, T.GaussianNoise(), NORMALIZE]),
    "RandomErasing(random)": T.Compose([SIZED, FLOATS, T.RandomErasing(p=1.0, value="random")]),
    "RandomEqualize": T.Compose([SIZED, T.RandomEqualize()]),
    "padded by reflection": T.RandomCrop(50, pad_if_needed=True, padding_mode="reflect"),
    "ragged": T.RandomHorizontalFlip(),
    "function": rotate,
    "transform, function": T.Compose([T.RandomHorizontalFlip(), smaller]),
    "decoded": CROP,
    "decoded as it is": None,
}

# Per batch of 4, at most: kernels (those inside a pipeline count as one), copies to the GPU, and waits of the host:
# torchdali's, and DALI's own.  A pipeline's run waits for its batch; and torchdali waits before a function, which may
# decode, onto memory that the transforms before it still use.
TABLE = {
    ("crop", "eager"): (7, 1, 1, 0),
    ("crop", "pipeline"): (3, 1, 1, 1),
    # Six turns of one formula for brightness, saturation and contrast, and one turn of hue, in HSV.
    ("ColorJitter", "eager"): (94, 1, 1, 0),
    ("ColorJitter", "pipeline"): (3, 1, 1, 1),
    ("RandomPhotometricDistort", "eager"): (61, 1, 1, 0),
    ("RandAugment", "eager"): (88, 11, 1, 0),
    ("AugMix", "eager"): (237, 29, 1, 0),
    ("RandomPerspective", "eager"): (24, 6, 1, 0),
    ("ElasticTransform", "eager"): (57, 6, 1, 0),
    ("GaussianNoise", "eager"): (46, 5, 1, 0),
    ("RandomErasing(random)", "eager"): (55, 7, 1, 0),
    ("RandomEqualize", "eager"): (30, 2, 1, 0),
    ("padded by reflection", "eager"): (16, 1, 1, 0),
    ("ragged", "eager"): (9, 2, 1, 0),
    ("ragged", "pipeline"): (8, 2, 1, 1),
    ("function", "eager"): (6, 1, 1, 0),
    ("transform, function", "eager"): (6, 1, 2, 0),
    ("decoded", "eager"): (9, 4, 1, 0),
    ("decoded as it is", "eager"): (4, 4, 1, 0),
}


@pytest.mark.parametrize("row, engine", TABLE, ids=str)
def test_counts_per_batch(ten, row, engine):
    dataset, of_dali = DECODED if "decoded" in row else td.ImageFolder(ten), ("pipeline.run", "DALI's copy to the CPU")
    loader = td.DataLoader(
        dataset, 4, device="cuda", sampler=list(range(8)) * 4, transform=TRANSFORMS[row], engine=engine, num_threads=1,
        prefetch_factor=0,
    )  # fmt: skip
    batches = iter(loader)
    for number in range(7):  # a pass costs some too, so the first three don't count
        if number == 3:
            MACHINE.counts.clear()
        next(batches)
    found = dict.fromkeys(("kernel", "H2D copy"), 0.0)
    for (_, what), n in MACHINE.counts.items():
        found[what] = found.get(what, 0) + n / 4
    waits = {what.removeprefix("wait: "): n for what, n in found.items() if what.startswith("wait")}
    theirs = sum(waits.pop(what, 0) for what in of_dali)
    counts = (found["kernel"], found["H2D copy"], sum(waits.values()), theirs)
    kernels, copies, ours, _ = counts
    sys.stdout.write(
        f"[counts] {row:25}{engine:10}{kernels:6.1f} kernels{copies:5.1f} copies {ours:g} + {theirs:g} waits\n"
    )
    assert all(n <= most for n, most in zip(counts, TABLE[row, engine])), (counts, TABLE[row, engine], waits)
    assert set(waits) <= {"stream.synchronize"} and "default stream waited for" not in found


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_a_loader_makes_decoders_and_pipelines_once(ten, engine):
    loader = td.DataLoader(td.ImageFolder(ten), 4, device="cuda", transform=CROP, engine=engine)
    list(loader)
    made, streams = Counter(MACHINE.made_objects), len(MACHINE.handles)
    for _ in range(3):
        assert len(list(loader)) == 3
    assert MACHINE.made_objects == made and len(MACHINE.handles) == streams
