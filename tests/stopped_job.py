"""A loop over a loader, in a process that is stopped meanwhile."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch

import torchdali as td

TIMEOUT = 3.0
BATCHES = 12
OPTIONS: dict[str, dict[str, Any]] = {
    "workers": {"num_workers": 2},
    "threads": {"num_workers": 0},
    "inline": {"num_workers": 0, "prefetch_factor": 0},
}


class Slow(torch.utils.data.Dataset[torch.Tensor]):
    """A batch is always waited for: a sample takes a tenth of a second."""

    def __len__(self) -> int:
        return 2 * BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.1)
        return torch.tensor([index])


if __name__ == "__main__":
    loader = td.DataLoader(Slow(), 2, timeout=TIMEOUT, device="cpu", **OPTIONS[sys.argv[1]])
    for number, _ in enumerate(loader):
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
