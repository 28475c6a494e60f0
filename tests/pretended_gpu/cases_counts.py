"""Counts: what a batch costs on a GPU in kernels, copies and waits of the host, whatever the GPU's speed."""

from __future__ import annotations

import sys
from collections import Counter

import numpy as np
import nvidia.dali.experimental.dynamic as ndd
import pytest

import torchdali as td
from torchdali import transforms as T

from . import MACHINE
from .cases_loaders import AUGMENT, NORMALIZE, rotate


def smaller(sample, rand):
    return {**sample, "image": ndd.resize(sample["image"], size=[16, 16])}


CROP = T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), NORMALIZE])
BOXES = [np.ones((1 + i % 3, 4), np.float32) for i in range(20)]
DECODED = td.InMemoryDataset(
    image=np.zeros((20, 40, 30, 3), np.uint8), boxes=BOXES, label=np.arange(20), kinds={"boxes": "array"}
)

# Per batch of 4: kernels (those inside a pipeline count as one), copies to the GPU, and waits of the host: torchdali's,
# and DALI's own.  A pipeline's run waits for its batch; and torchdali waits before a function, which may decode, onto
# memory that the transforms before it still use.
TABLE = {
    ("crop", "eager"): (7, 1, 1, 0),
    ("crop", "pipeline"): (3, 1, 1, 1),
    ("ColorJitter", "eager"): (187.3, 19.8, 1, 0),  # for four rounds of a switch over four formulas, hue in HSV
    ("ColorJitter", "pipeline"): (3, 1, 1, 1),
    ("ragged", "eager"): (9, 2, 1, 0),
    ("ragged", "pipeline"): (8, 2, 1, 1),
    ("function", "eager"): (6, 1, 1, 0),
    ("transform, function", "eager"): (6, 1, 2, 0),
    ("decoded", "eager"): (9, 4, 1, 0),
    ("decoded as it is", "eager"): (4, 4, 1, 0),
}
TRANSFORMS = {
    "crop": CROP,
    "ColorJitter": AUGMENT,
    "ragged": T.RandomHorizontalFlip(),
    "function": rotate,
    "transform, function": T.Compose([T.RandomHorizontalFlip(), smaller]),
    "decoded": CROP,
    "decoded as it is": None,
}


def counted(dataset, batches: int, transform, engine: str) -> Counter[str]:
    loader = td.DataLoader(
        dataset, 4, device="cuda", sampler=list(range(20)) * (batches // 5), transform=transform, engine=engine
    )
    MACHINE.reset()
    assert len(list(loader)) == batches
    found: Counter[str] = Counter()
    for (_, what), n in MACHINE.counts.items():
        found[what] += n
    return found


@pytest.mark.parametrize("row, engine", TABLE, ids=str)
def test_counts_per_batch(folder, capsys, row, engine):
    dataset = DECODED if "decoded" in row else td.ImageFolder(folder)
    few, many = [counted(dataset, batches, TRANSFORMS[row], engine) for batches in (5, 15)]  # a pass costs some too
    found = {what: (many[what] - few[what]) / 10 for what in many}
    waits = {what: n for what, n in found.items() if what.startswith("wait")}
    of_dali = sum(n for what, n in waits.items() if what in ("wait: pipeline.run", "wait: DALI's copy to the CPU"))
    counts = (found["kernel"], found.get("H2D copy", 0), sum(waits.values()) - of_dali, of_dali)
    with capsys.disabled():
        line = "\n  [counts] {:22}{:10}{:5.0f} kernels{:4.0f} copies{:4.0f} + {:.0f} waits\n".format(
            row, engine, *counts
        )
        sys.stdout.write(line)
    assert "default stream waited for" not in many
    assert counts == TABLE[row, engine]


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_a_loader_makes_decoders_and_pipelines_once(folder, engine):
    loader = td.DataLoader(td.ImageFolder(folder), 4, device="cuda", transform=CROP, engine=engine)
    list(loader)
    made, streams = Counter(MACHINE.made_objects), len(MACHINE.handles)
    for _ in range(3):
        assert len(list(loader)) == 6
    assert MACHINE.made_objects == made and len(MACHINE.handles) == streams
