"""Whether a file's row in a loader is what its dataset gives, in a process that may die."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

import torchdali as td
from torchdali.commands.collection import Sample
from torchdali.commands.examine import read_images

WAYS = (("eager", 0), ("eager", 2), ("pipeline", 2))
OUTCOMES = ("equal", "refused", "lenient", "wrong", "lost")


class Damage(NamedTuple):
    """A sample, and what is done to its image files first.

    Attributes:
        sample: of a collection.
        how: "", "cut" or "flipped".
        seed: of the damage.
    """

    sample: Sample
    how: str = ""
    seed: int = 0


def make_compare() -> Callable[[Damage], str]:
    warnings.simplefilter("ignore")
    return compare


def compare(damage: Damage) -> str:
    """Compare all ways to a file's pixels.

    Returns:
        "equal": the same pixels; "refused": all name the file; "lenient": DALI decodes data that Pillow finds damaged;
        "wrong": other pixels; "lost": the dataset decodes it, and a loader does not.
    """
    sample = damage.sample
    if sample.fault:
        return "refused"
    try:
        images = [image for part in sample.parts for image in read_images(sample.kind, part)]
    except (OSError, ValueError):
        return "refused"
    found = {_compare(_damaged(data, damage)) for data in images}
    return max(found, key=OUTCOMES.index)


def _damaged(data: Any, damage: Damage) -> Any:
    rng = np.random.default_rng(damage.seed)
    data = np.array(data)
    if damage.how == "cut":
        return data[: rng.integers(1, len(data))] if len(data) > 1 else data
    if damage.how == "flipped" and len(data):
        for place in rng.integers(0, len(data), 3):
            data[place] ^= 1 << rng.integers(8)
    return data


def _compare(data: Any) -> str:
    dataset = td.InMemoryDataset(image=[data.tobytes()])
    try:
        expected = dataset[0][0]
    except Exception:
        expected = None
    outcomes = {_row(dataset, expected, *way) for way in WAYS}
    return max(outcomes, key=OUTCOMES.index)


def _row(dataset: Any, expected: torch.Tensor | None, engine: str, prefetch: int) -> str:
    try:
        ((images,),) = td.DataLoader(dataset, 1, device="cpu", engine=engine, prefetch_factor=prefetch, num_threads=1)
    except td.BadSampleError:
        return "refused" if expected is None else "lost"
    if expected is None:
        return "lenient"
    image = images.data if isinstance(images, td.Padded) else images
    return "equal" if torch.equal(image[0], expected) else "wrong"
