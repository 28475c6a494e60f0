"""torch.distributed.checkpoint: `dcp_job.py FOLDER OUT OTHER`, on any number of processes.

Each rank writes OUT/RANK.json.  OTHER is the folder of a job on another number of processes, whose checkpoints are
continued too.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.trainer_jobs.common import EPOCHS, Record, digests, make_loader, make_model, run_matrix, weights, write

SAVE_AFTER = 3  # batches: in the middle of the first epoch, on one process and on two


def train(
    out: Path | str, folder: Path | str, name: str, stop: int | None = None, resume: Path | str | None = None,
    later: bool = False,
) -> Record:  # fmt: skip
    """Train from a checkpoint to so many batches, or to the end, and save.

    `later`: by `async_save` one batch before the end, so that training goes on while the checkpoint is written.
    """
    model, batches, saving = DistributedDataParallel(make_model()), [], None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    path = str(Path(out, name))
    with make_loader(folder) as loader:
        parts = {"model": model.module, "loader": loader}
        if resume is not None:
            dcp.load(parts, checkpoint_id=str(resume))
        first = loader.state_dict()
        while loader.epoch < EPOCHS and len(batches) != stop:
            epoch = loader.epoch
            for batch in loader:
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(batch["image"]), batch["label"]).backward()
                optimizer.step()
                batches.append([epoch, digests(batch)])
                if later and stop is not None and len(batches) == stop - 1:
                    # A group of its own, since it speaks from another thread while training does from this one.
                    saving = dcp.async_save(parts, checkpoint_id=path, process_group=dist.new_group(backend="gloo"))
                if len(batches) == stop:
                    break
        if saving is not None:
            saving.result()
        else:
            dcp.save(parts, checkpoint_id=path)
        return {"batches": batches, "weights": weights(model.module), "first": first, "last": loader.state_dict()}


def run_cells(folder: Path | str, out: Path | str, other: Path | str | None) -> dict[str, Any]:
    def cell(name: str, stop: int | None, resume: str | None, done: int) -> Record:
        return train(out, folder, name, None if stop is None else stop - done, resume and Path(out, resume))

    found: dict[str, Any] = run_matrix(dist.get_world_size(), cell)
    train(out, folder, "saved", SAVE_AFTER)
    train(out, folder, "async", SAVE_AFTER + 1, later=True)
    found["async"] = train(out, folder, "async, then", resume=Path(out, "async"))
    if other is not None:
        found["other"] = train(out, folder, "other", resume=Path(other, "saved"))
        found["other, async"] = train(out, folder, "other, async", resume=Path(other, "async"))
    return found


def main(folder: str, out: str, other: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    write(out, dist.get_rank(), run_cells(folder, out, other))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
