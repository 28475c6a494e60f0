"""Evaluation: `evaluation_job.py FOLDER OUT`, on any number of processes.  Each rank writes OUT/RANK.json."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import torchdali as td
from tests.trainer_jobs.common import make_eval_loader, make_model, write

SAMPLES, BATCH_SIZES = (3, 7, 12, 22, 23), (1, 3, 5, 30)


def read_numbers(samples: int, batch_size: int, shuffle: bool, pad_last: bool) -> dict[str, Any]:
    """Which samples came to this rank, in batches of which sizes."""
    data = td.InMemoryDataset(number=range(samples), fields=("number", "valid"))
    with td.DataLoader(data, batch_size, shuffle=shuffle, pad_last=pad_last, device="cpu", seed=3) as loader:
        batches = list(loader)
        length = len(loader)
    numbers = [number[valid].tolist() for number, valid in batches]
    return {"numbers": numbers, "sizes": [len(number) for number, _ in batches], "length": length}


def accuracy(folder: Path | str, batch_size: int) -> dict[str, float]:
    """Over all ranks, summed where each has its samples, and gathered with `valid`."""
    model = make_model()
    right, hits, indices = torch.zeros(2), [], []
    with make_eval_loader(folder, batch_size) as loader, make_eval_loader(folder, batch_size, pad_last=True) as padded:
        for batch in loader:
            hit = model(batch["image"]).argmax(1) == batch["label"]
            right += torch.tensor([hit.sum(), len(hit)])
        dist.all_reduce(right)
        for batch in padded:
            hit = model(batch["image"]).argmax(1) == batch["label"]
            row = torch.stack([batch["index"], hit.long(), batch["valid"].long()])
            rows = [torch.empty_like(row) for _ in range(dist.get_world_size())]
            dist.all_gather(rows, row)  # of equal shapes
            index, hit, valid = torch.cat(rows, 1)
            hits += hit[valid.bool()].tolist()
            indices += index[valid.bool()].tolist()
    return {"summed": right[0].item(), "of": right[1].item(), "gathered": sum(hits), "once": indices}


def main(folder: str, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found: dict[str, Any] = {"streams": [], "accuracy": [accuracy(folder, size) for size in BATCH_SIZES]}
    for samples in SAMPLES:
        for batch_size in BATCH_SIZES:
            for shuffle in (False, True):
                for pad_last in (False, True):
                    cell = {"samples": samples, "batch_size": batch_size, "shuffle": shuffle, "pad_last": pad_last}
                    found["streams"].append(cell | read_numbers(**cell))
    write(out, dist.get_rank(), found)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
