"""Ignite: `ignite_job.py FOLDER OUT`, on any number of processes.  Each rank writes OUT/RANK.json."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.trainer_jobs.common import EPOCHS, Record, digests, make_loader, make_model, run_matrix, weights, write


def train(folder: Path | str, out: Path, stop: int | None, resume: Path | None, set_epoch: bool = False) -> Record:
    """Train to an iteration (None: to the end) with ignite's own checkpoints of all parts, and save one there."""
    model, batches = DistributedDataParallel(make_model()), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def update(engine: Engine, batch: dict[str, Any]) -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch["image"]), batch["label"])
        loss.backward()
        optimizer.step()
        batches.append([engine.state.epoch - 1, digests(batch)])
        return loss.item()

    with make_loader(folder) as loader:
        trainer = Engine(update)
        parts = {"model": model.module, "optimizer": optimizer, "loader": loader, "trainer": trainer}
        save = Checkpoint(
            parts, DiskSaver(str(out), require_empty=False), filename_pattern="checkpoint.pt", n_saved=None
        )
        if set_epoch:
            trainer.add_event_handler(Events.EPOCH_STARTED, lambda engine: loader.set_epoch(engine.state.epoch - 1))
        if stop is not None:

            def leave(engine: Engine) -> None:
                save(engine)
                engine.terminate()

            trainer.add_event_handler(Events.ITERATION_COMPLETED(once=stop), leave)
        if resume is not None:
            Checkpoint.load_objects(parts, torch.load(resume / "checkpoint.pt", weights_only=True))
        trainer.run(loader, max_epochs=EPOCHS)
        return {"batches": batches, "weights": weights(model.module), "epoch length": trainer.state.epoch_length}


def run_cells(folder: Path | str, out: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for way in (False, True):

        def cell(name: str, stop: int | None, resume: str | None, done: int, way: bool = way) -> Record:
            dist.barrier()  # rank 0 writes the file
            return train(folder, out / f"{way} {name}", stop, out / f"{way} {resume}" if resume else None, way)

        found["by set_epoch" if way else "by itself"] = run_matrix(dist.get_world_size(), cell)
    return found


def main(folder: str, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    write(out, dist.get_rank(), run_cells(folder, Path(out)))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
