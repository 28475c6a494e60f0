"""A small training, which saves after every second step and goes on from what it saved.

    python training_job.py FOLDER OUT [WORKERS]

OUT gets a checkpoint with the weights, the loader's state and every sample trained on so far.  It is the leader of a
process group, in which SIGTERM is a warning: it saves after the step that it is in, and ends.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import torchdali as td
from torchdali import transforms as T

EPOCHS, BATCH = 3, 3


def make_loader(folder: str, workers: int = 0) -> td.DataLoader:
    transform = T.Compose([T.RandomResizedCrop(8), T.RandomHorizontalFlip(), T.ToDtype(torch.float32, scale=True)])
    images = td.ImageFolder(folder, fields=("image", "index"))
    if not workers:
        return td.DataLoader(images, BATCH, shuffle=True, seed=7, device="cpu", transform=transform, num_threads=1)
    files = [{"image": torch.from_numpy(images.read([i])["image"][0]), "index": i} for i in range(len(images))]
    data = td.PythonDataset(files, kinds={"image": "encoded"})
    return td.DataLoader(
        data, BATCH, shuffle=True, seed=7, device="cpu", transform=transform, num_workers=workers,
        multiprocessing_context="fork", output="tuple",
    )  # fmt: skip


def main(folder: str, out: str, workers: int = 0) -> None:
    rank, ranks = 0, 1
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
        rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Linear(3 * 8 * 8, 4)
    loader = make_loader(folder, workers)
    path, seen = Path(out), []
    warned: list[int] = []
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, lambda number, _: warned.append(number))
    if path.exists():
        saved = torch.load(path, weights_only=True)
        model.load_state_dict(saved["model"])
        loader.load_state_dict(saved["loader"])
        seen = saved["seen"]
    Path(f"{out}.pid{rank}").write_text(str(os.getpid()))
    while loader.epoch < EPOCHS:
        epoch = loader.epoch
        for step, batch in enumerate(loader, loader.step):
            images, index = batch.values() if isinstance(batch, dict) else batch
            loss = model(images.flatten(1)).pow(2).mean()
            loss.backward()
            index = index.tolist()
            if ranks > 1:
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)
                parts: list[list[int]] = [[]] * ranks
                dist.all_gather_object(parts, index)
                index = [i for part in parts for i in part]
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= 0.01 * parameter.grad
            model.zero_grad()
            seen += [epoch * 1000 + i for i in index]
            if rank == 0 and (step % 2 == 0 or warned):
                save(path, model, loader, seen)
            if warned:
                return loader.close()
    if rank == 0:
        save(path, model, loader, seen)
        Path(f"{out}.done").touch()
    loader.close()
    if ranks > 1:
        dist.destroy_process_group()


def save(path: Path, model: torch.nn.Module, loader: td.DataLoader, seen: list[int]) -> None:
    """Replace the checkpoint as a whole: a kill leaves the old one."""
    new = path.with_suffix(".new")
    torch.save({"model": model.state_dict(), "loader": loader.state_dict(), "seen": seen}, new)
    os.replace(new, path)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(int, sys.argv[3:]))
