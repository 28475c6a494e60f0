"""A tiny DDP training with checkpoints: `train.py FOLDER OUT`.  It continues from the last checkpoint in OUT.

Each attempt writes OUT/ATTEMPT.RANK.pid, what it is told of ranks to OUT/ATTEMPT.RANK.environment.json, and the digests
of the samples of each step to OUT/ATTEMPT.RANK.jsonl; rank 0 writes OUT/weights.pt at the end.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from stream import make_loader
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from torchdali.testing import sample_digests

EPOCHS, EVERY = 5, 4


def main(folder: str, out: str) -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    rank, attempt = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
    Path(out, f"{attempt}.{rank}.pid").write_text(str(os.getpid()))
    told = {name: value for name, value in os.environ.items() if re.search("RANK|WORLD|ADDR|COUNT", name)}
    Path(out, f"{attempt}.{rank}.environment.json").write_text(json.dumps(told))
    net = DistributedDataParallel(nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 8), nn.ReLU(), nn.Linear(8, 3)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    step, path = 0, Path(out, "checkpoint.pt")
    with make_loader(folder, 4) as loader, Path(out, f"{attempt}.{rank}.jsonl").open("w", buffering=1) as log:
        if path.exists():
            checkpoint = torch.load(path, weights_only=True)
            step = checkpoint["step"]
            net.module.load_state_dict(checkpoint["net"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            loader.load_state_dict(checkpoint["loader"])
        while loader.epoch < EPOCHS:
            for batch in loader:
                images, labels, _ = batch
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(images.float() / 255), labels).backward()
                optimizer.step()
                step += 1
                log.write(json.dumps({"step": step, "samples": sample_digests(batch)}) + "\n")
                if rank == 0 and step % EVERY == 0:
                    states = {"net": net.module, "optimizer": optimizer, "loader": loader}
                    torch.save({"step": step, **{name: it.state_dict() for name, it in states.items()}}, f"{path}.new")
                    os.replace(f"{path}.new", path)
                time.sleep(0.01)  # else it would be over before anyone could kill it
    if rank == 0:
        torch.save(net.module.state_dict(), Path(out, "weights.pt"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
