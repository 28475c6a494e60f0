"""What all trainings share: the data, a tiny model, and the cells of the matrix."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import torch
from torch import nn

import torchdali as td
from torchdali import transforms as T
from torchdali.testing import sample_digests

EPOCHS, BATCH_SIZE = 2, 2
"""Of 22 images: 11 batches an epoch on one process; on two 6, the last with one image each."""

Record = dict[str, Any]
"""What a part of a training did: "batches", the epoch and the digests of its samples for each; "weights" at its end."""


def make_loader(
    folder: Path | str,
    batch_size: int = BATCH_SIZE,
    fields: tuple[str, ...] = ("image", "label", "index"),
    **changes: Any,
) -> td.DataLoader:
    """Random crops and flips of 8x8 pixels, as dicts; with the index, so that equal images are told apart."""
    arguments: dict[str, Any] = {
        "shuffle": True,
        "seed": 7,
        "device": "cpu",
        "output": "dict",
        "transform": T.Compose(
            [T.RandomResizedCrop(8), T.RandomHorizontalFlip(), T.Normalize((0.5,) * 3, (0.25,) * 3)]
        ),
    }
    return td.DataLoader(td.ImageFolder(folder, fields=fields), batch_size, **(arguments | changes))


def make_eval_loader(folder: Path | str, batch_size: int, **changes: Any) -> td.DataLoader:
    """Every image in the folder's order, the same pixels in each pass; `valid` says which rows only fill up a batch."""
    fields = ("image", "label", "index", "valid")
    view = T.Compose([T.Resize((8, 8)), T.Normalize((0.5,) * 3, (0.25,) * 3)])
    return make_loader(folder, batch_size, fields, shuffle=False, transform=view, **changes)


def make_model() -> nn.Module:
    """The same first weights at each call."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 8), nn.Tanh(), nn.Linear(8, 2))


def weights(model: nn.Module) -> str:
    """A digest of all parameters, bit by bit."""
    parts = (parameter.detach().numpy().tobytes() for parameter in model.parameters())
    return hashlib.blake2b(b"".join(parts), digest_size=16).hexdigest()


def digests(batch: Mapping[str, Any]) -> list[str]:
    """One for each sample: its pixels, its label, its index."""
    return sample_digests({name: batch[name] for name in ("image", "label", "index")})


def expected_batches(folder: Path | str, rank: int, world_size: int, **changes: Any) -> list[Any]:
    """What any trainer has to train with, if nothing is lost: the loader's own batches."""
    with make_loader(folder, rank=rank, world_size=world_size, **changes) as loader:
        return [[epoch, digests(batch)] for epoch in range(EPOCHS) for batch in loader]


def steps(world_size: int) -> int:
    """Batches of an epoch on each rank."""
    return 11 if world_size == 1 else 6


def in_order(batches_of_ranks: list[list[Any]]) -> list[list[Any]]:
    """The samples of each epoch in their global order, of all ranks' batches."""
    epochs: list[list[Any]] = [[] for _ in range(EPOCHS)]
    for batches in zip(*batches_of_ranks, strict=True):
        for epoch, samples in batches:
            epochs[epoch] += samples
    return epochs


def matrix(world_size: int) -> dict[str, list[int]]:
    """The batches after which a cell's training is stopped and resumed, counted from the start of the training."""
    epoch = steps(world_size)
    return {"mid-epoch": [3], "boundary": [epoch], "second epoch": [epoch + 2], "twice": [2, epoch + 1]}


def part_lengths(world_size: int, cell: str) -> list[int]:
    """How many batches each part of a cell takes, if none is lost or repeated."""
    return [end - begin for begin, end in pairwise([0, *matrix(world_size)[cell], steps(world_size) * EPOCHS])]


def run_matrix(world_size: int, train: Callable[[str, int | None, str | None, int], Record]) -> dict[str, Record]:
    """The training as a whole, and every cell.

    Args:
        world_size: of the job.
        train: trains up to a batch (None: to the end) from a checkpoint (None: from the start) and leaves one; called
            with (name to save as, batch to stop after, name to resume from, batches done before).
    """
    found = {"fresh": train("fresh", None, None, 0)}
    for cell, stops in matrix(world_size).items():
        parts, before, done = [], None, 0
        for number, stop in enumerate([*stops, None]):
            name = f"{cell} {number}"
            parts.append(train(name, stop, before, done))
            before, done = name, stop or 0
        found[cell] = {"batches": list(chain(*(part["batches"] for part in parts))), "weights": parts[-1]["weights"]}
        found[cell]["parts"] = [len(part["batches"]) for part in parts]
    return found


def write(out: Path | str, rank: int, found: Mapping[str, Any]) -> None:
    Path(out, f"{rank}.json").write_text(json.dumps(found))


def read(out: Path | str, rank: int) -> dict[str, Any]:
    return json.loads(Path(out, f"{rank}.json").read_text())
