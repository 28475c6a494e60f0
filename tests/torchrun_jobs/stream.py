"""Parts of one stream: `stream.py FOLDER OUT CELLS`, on any number of processes.

CELLS is a JSON list of {"name", "state": name of the cell to go on from, or null, "batch_size", "accumulate",
"stop": optimizer steps, or null for two epochs}.  Each rank writes the digests of its samples, by epoch and optimizer
step, to OUT/NAME.RANK.json, with the state behind them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch.distributed as dist

import torchdali as td
from torchdali import transforms as T
from torchdali.testing import sample_digests


def make_loader(folder: Path | str, batch_size: int, **arguments: Any) -> td.DataLoader:
    """Random crops, flips and colors; with the index, so that equal images are told apart."""
    return td.DataLoader(
        td.ImageFolder(folder, fields=("image", "label", "index")),
        batch_size,
        shuffle=True,
        seed=7,
        device="cpu",
        transform=T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4)]),
        **arguments,
    )


def run(loader: td.DataLoader, accumulate: int, stop: int | None) -> list[dict[str, Any]]:
    """Optimizer steps, each of up to `accumulate` batches; a partial one at the end of an epoch."""
    steps: list[dict[str, Any]] = []
    while loader.epoch < 2:
        epoch, batches = loader.epoch, []
        for number, batch in enumerate(loader, 1):
            batches.append(sample_digests(batch))
            if number % accumulate == 0:
                steps.append({"epoch": epoch, "batches": batches})
                batches = []
                if len(steps) == stop:
                    return steps
        if batches:
            steps.append({"epoch": epoch, "batches": batches})
    return steps


def read_cells(folder: str, out: str, cells: str) -> None:
    for cell in json.loads(cells):
        with make_loader(folder, cell["batch_size"]) as loader:
            if cell["state"]:
                loader.load_state_dict(json.loads(Path(out, f"{cell['state']}.0.json").read_text())["state"])
            steps = run(loader, cell["accumulate"], cell["stop"])
            found = {"steps": steps, "state": loader.state_dict(), "length": len(loader)}
        Path(out, f"{cell['name']}.{dist.get_rank()}.json").write_text(json.dumps(found))


def main(folder: str, out: str, cells: str) -> None:
    dist.init_process_group("gloo")
    read_cells(folder, out, cells)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
