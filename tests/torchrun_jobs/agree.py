"""What four ranks say of each other, and stream.py's part: `agree.py FOLDER OUT CELLS`.  Each writes OUT/RANK.json."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import nvidia.dali.experimental.dynamic as ndd
import torch.distributed as dist
from stream import make_loader, read_cells
from torch.distributed.device_mesh import init_device_mesh

import torchdali as td
from torchdali.agreement import check_agreement
from torchdali.testing import sample_digests

FACTS: dict[str, int | str] = {"dataset": "105 files abc", "seed": 7, "batch_size": 4, "epoch": 0}


def message(call: Callable[[], Any]) -> str | None:
    """The error's name, text and notes, or None."""
    try:
        call()
    except Exception as error:
        return "\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
    return None


def noisy(sample: dict[str, Any], rand: Any) -> dict[str, Any]:
    """Random numbers of the sample, and those of the rank."""
    image = ndd.decoders.image(sample["image"], device=rand.device)
    image = ndd.rotate(ndd.resize(image, size=[16, 16]), angle=rand.uniform(-10, 10), fill_value=0)
    return {**sample, "image": ndd.noise.gaussian(image, stddev=20.0, rng=rand.ndd)}


def stream(folder: str, **where: Any) -> list[list[str]]:
    with make_loader(folder, 10, **where) as loader:
        return [sample_digests(batch) for batch in loader]


def noise(folder: str, **where: Any) -> list[list[str]]:
    data = td.ImageFolder(folder)
    with td.DataLoader(data, 10, shuffle=True, seed=7, device="cpu", transform=noisy, **where) as loader:
        return [sample_digests(batch) for batch in loader]


def facts_of(loader: td.DataLoader) -> dict[str, int | str]:
    return {**loader.state_dict(), "batch_size": loader.batch_size}


def main(folder: str, out: str, cells: str) -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.group.WORLD
    lonely = dist.new_group(timeout=timedelta(seconds=2))
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    stages = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "dp"))

    def check(group: Any = world, gpu: str = "", **changes: int | str) -> str | None:
        return message(lambda: check_agreement({**FACTS, **changes}, group, gpu=gpu))

    found: dict[str, Any] = {
        "equal": check(),
        "another order of the facts": message(
            lambda: check_agreement(dict(sorted(FACTS.items(), reverse=rank % 2 == 0)), world)
        ),
        "one fact": check(**({"batch_size": 8} if rank == 2 else {})),
        "two facts": check(**({"seed": rank // 2} | ({"dataset": "9 files"} if rank == 0 else {}))),
        "all": check(seed=rank),
        "a type": check(seed="7" if rank == 1 else 7),
        "missing": check(**({"more": 1} if rank == 3 else {})),
        "behind a long start": check(dataset="x" * 300 + str(rank == 1)),
        "again": check(),
        # Peers outside the loader's group may have anything.
        "tensor-parallel": check(grid["dp"].get_group(), seed=grid["tp"].get_local_rank()),
        "data-parallel": check(grid["dp"].get_group(), seed=grid["dp"].get_local_rank()),
        "alone": check(init_device_mesh("cpu", (1, 4), mesh_dim_names=("dp", "tp"))["dp"].get_group(), seed=rank),
        "own gpus": check(gpu=f"GPU-{rank}"),
        "shared on purpose": check(gpu=""),
        "pile-up": check(gpu="GPU-0"),
        "two of them": check(gpu=f"GPU-{min(rank, 2)}"),
        "some have one": check(gpu="GPU-0" if rank == 1 else ""),
    }

    data = td.InMemoryDataset(number=range(40 - (rank == 3)))
    with td.DataLoader(data, 4, shuffle=True, device="cpu", seed=1) as loader:
        found["another dataset"] = message(lambda: check_agreement(facts_of(loader), world))
    with td.DataLoader(td.InMemoryDataset(number=range(40)), 4, shuffle=True, device="cpu", seed=1) as loader:
        found["same loaders"] = message(lambda: check_agreement(facts_of(loader), world))
        if rank == 1:
            loader.set_epoch(3)
        found["another epoch"] = message(lambda: check_agreement(facts_of(loader), world))

    def first(numbers: int = 40, batch_size: int = 4, **arguments: Any) -> str | None:
        """What the loader's first batch says."""
        data = td.InMemoryDataset(number=range(numbers))

        def read() -> None:
            with td.DataLoader(data, batch_size, shuffle=True, device="cpu", **arguments) as loader:
                next(iter(loader))

        return message(read)

    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    own = groups[rank % 2]
    found["loaders"] = {
        "equal": first(),
        "seed": first(seed=rank),
        "batch_size": first(batch_size=4 + (rank == 2)),
        "drop_last": first(drop_last=rank == 0),
        "dataset": first(numbers=40 + (rank == 3)),
        "explicit": first(seed=rank, rank=0, world_size=1),
        "group": first(seed=rank % 2, process_group=own),
        "group, seed": first(seed=rank // 2, process_group=own),
        "not in the group": first(process_group=groups[1 - rank % 2]),
    }
    found["streams"] = {
        "process group": stream(folder, process_group=own),
        "dp": stream(folder),
        "dp x tp": stream(folder, mesh=grid["dp"]),
        "pp x dp": stream(folder, mesh=stages["dp"]),
        "noise": noise(folder, mesh=grid["dp"]),
    }
    read_cells(folder, out, cells)
    if rank != 3:
        found["nobody came"] = check(lonely)
    Path(out, f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
