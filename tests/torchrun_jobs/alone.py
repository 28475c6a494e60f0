"""A rank that comes alone, to evaluate while the other one trains: `alone.py OUT`.  Each rank writes OUT/RANK.json."""

from __future__ import annotations

import json
import signal
import sys
import time
import warnings
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

import torchdali as td
from torchdali import agreement


class WarnedError(Exception):
    pass


def warn(number: int, frame: FrameType | None) -> None:
    raise WarnedError


def message(loader: td.DataLoader) -> str:
    try:
        next(iter(loader))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(out: str) -> None:
    agreement.PATIENCE = 1.0
    dist.init_process_group("gloo", timeout=timedelta(seconds=60))
    rank, store = dist.get_rank(), dist.distributed_c10d._get_default_store()
    short = dist.new_group(timeout=timedelta(seconds=4))
    data = td.InMemoryDataset(number=range(8))
    train, test = (td.DataLoader(data, 2, device="cpu", seed=seed) for seed in (0, 1))
    found: dict[str, Any] = {}

    # An exception of a handler ends the wait of a rank that came first; the next pass is for both again.
    if rank == 0:
        signal.signal(signal.SIGALRM, warn)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        found["left"] = message(train)
    dist.barrier()
    found["after it was left"] = message(train)

    # One evaluates while the other one begins to train: both come, and to different loaders.
    found["apart"] = message(test if rank == 0 else train)

    # What is kept in the store does not grow.
    dist.barrier()
    before = store.num_keys()
    dist.barrier()
    for _ in range(5):
        list(train)
    dist.barrier()
    found["keys"] = store.num_keys() - before
    dist.barrier()  # the other rank has counted too

    # A rank that is late by more than the patience is waited for.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if rank == 1:
            time.sleep(2)
        found["late"] = message(train)
    found["said"] = [str(warning.message) for warning in caught]

    # One evaluates, while the other one is in a collective of its training and will never come.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = td.DataLoader(data, 2, device="cpu", process_group=short)
        if rank == 0:
            begin = time.monotonic()
            found["alone"] = message(alone)
            found["seconds"] = time.monotonic() - begin
            found["explicit"] = message(td.DataLoader(data, 2, device="cpu", rank=0, world_size=1))
        dist.all_reduce(torch.ones(1))
    Path(out, f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
