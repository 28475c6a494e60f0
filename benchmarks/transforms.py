"""Measure each transform in torch's DataLoader with workers, and in torchdali's loader, interleaved.

The works are the rows of `parity.py` that have a counterpart in torchvision, on 256 photographs of 224 x 224, uint8 in
memory: torch's DataLoader gives its workers tensors [3, 224, 224], as `decode_image` makes them, and v2's transform;
torchdali takes the same arrays, and as many threads as there are workers.  Batches of 64; where sizes vary, torch's are
lists, and torchdali's padded.  A measurement makes a loader, takes six batches, and then batches for some seconds:
the CPU time of all processes per batch, and the time that a batch takes.

    python benchmarks/transforms.py --rounds 3 --seconds 1         # a table in Markdown: about seven minutes
    python benchmarks/transforms.py --rounds 1 --seconds 0.2 --only RandAugment
"""

from __future__ import annotations

import argparse
import math
import os
import time
import warnings
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np
import parity
import parity_moves
import torch
from torchvision.transforms import v2
from workers import cpu_seconds

import torchdali as td
from torchdali import transforms as T

WORKERS, BATCH_SIZE, IMAGES, WARM_UP = 2, 64, 256, 6


class Images(torch.utils.data.Dataset[Any]):
    """Images in memory, and torchvision's transform."""

    def __init__(self, arrays: np.ndarray[Any, Any], transform: Any) -> None:
        self.tensors = [torch.from_numpy(array).permute(2, 0, 1).contiguous() for array in arrays]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.tensors)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.transform(self.tensors[index])


def torchvisions(arrays: np.ndarray[Any, Any], transform: Any) -> Iterator[Any]:
    """Batches of torch's loader, for ever."""
    sizes = {tuple(transform(torch.zeros(3, 224, 224 + i, dtype=torch.uint8)).shape) for i in range(8)}
    ragged: Any = {"collate_fn": list} if len(sizes) > 1 and _varies(transform) else {}
    loader = torch.utils.data.DataLoader(
        Images(arrays, transform), BATCH_SIZE, shuffle=True, num_workers=WORKERS, persistent_workers=True, **ragged
    )
    while True:
        yield from loader


def _varies(transform: Any) -> bool:
    return type(transform).__name__ in ("ScaleJitter", "RandomShortestSize", "RandomResize", "RandomZoomOut")


def torchdalis(arrays: np.ndarray[Any, Any], transform: Any) -> Iterator[Any]:
    """Batches of torchdali's loader, for ever."""
    dataset = td.InMemoryDataset(image=arrays)
    loader = td.DataLoader(
        dataset, BATCH_SIZE, shuffle=True, transform=transform, device="cpu", num_threads=WORKERS, output="tuple"
    )
    while True:
        yield from loader


def measure(batches: Iterator[Any], seconds: float) -> tuple[float, float]:
    """Milliseconds per batch: CPU time of all processes, and time."""
    for _ in range(WARM_UP):
        next(batches)
    count, cpu, begin = 0, cpu_seconds(), time.perf_counter()
    while not count or time.perf_counter() - begin < seconds:
        next(batches)
        count += 1
    return (cpu_seconds() - cpu) / count * 1e3, (time.perf_counter() - begin) / count * 1e3


def works() -> dict[str, tuple[Any, Any]]:
    """By name: ours, and torchvision's."""
    found: dict[str, tuple[Any, Any]] = {"nothing": (T.Identity(), v2.Identity())}
    cases = {**parity.cases(), **parity_moves.CASES}
    found |= {name: (ours, theirs) for name, (ours, _, theirs, _) in cases.items() if theirs is not None}
    found.pop("RandomIoUCrop")  # it needs boxes
    mean_std = (parity.MEAN, parity.STD)
    floats = [v2.ToDtype(torch.float32, True), v2.Normalize(*mean_std)]
    elastic = found.pop("ElasticTransform")
    found["the ImageNet recipe with RandAugment and erasing"] = (
        T.Compose([T.RandomResizedCrop(176), T.RandomHorizontalFlip(), T.RandAugment(), T.Normalize(*mean_std),
                   T.RandomErasing(0.1)]),
        v2.Compose([v2.RandomResizedCrop(176), v2.RandomHorizontalFlip(), v2.RandAugment(), *floats,
                    v2.RandomErasing(0.1)]),
    )  # fmt: skip
    return {**found, "ElasticTransform": elastic}  # the longest, last


def cell(values: list[float]) -> str:
    low, middle, high = min(values), median(values), max(values)
    return f"{middle:.3g} ({low:.3g}-{high:.3g})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--seconds", default=1.0, type=float)
    parser.add_argument("--only", help="a part of the names of the works")
    parser.add_argument("--list", action="store_true", help="only name the works")
    args = parser.parse_args()
    if args.list:
        print("\n".join(works()))
        return
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    arrays = np.stack((parity.photos() * (IMAGES // parity.N + 1))[:IMAGES])
    chosen = {name: pair for name, pair in works().items() if not args.only or args.only in name}
    print(f"{os.cpu_count()} CPUs, {WORKERS} workers or threads, {args.rounds} rounds of {args.seconds:g} s, load "
          f"{os.getloadavg()[0]:.0f}; ms per batch of {BATCH_SIZE}: median (lowest-highest)\n")  # fmt: skip
    print("| transform | torchvision, CPU | torchdali, CPU | ratio of CPU | torchvision, time | torchdali, time |")
    print("|---|---|---|---|---|---|")
    for name, (ours, theirs) in chosen.items():
        found: list[list[tuple[float, float]]] = [[], []]
        for turn in range(args.rounds):
            for peer in (0, 1) if turn % 2 else (1, 0):
                batches = torchvisions(arrays, theirs) if peer else torchdalis(arrays, ours)
                found[peer].append(measure(batches, args.seconds))
                batches.close()
        # A short round may end within one tick of the clock of CPU time.
        ratios = [a[0] / b[0] if b[0] else math.nan for a, b in zip(found[1], found[0], strict=True)]
        cells = [[one[k] for one in peer] for k in range(2) for peer in (found[1], found[0])]
        print("| " + " | ".join([name, *map(cell, [*cells[:2], ratios, *cells[2:]])]) + " |", flush=True)


if __name__ == "__main__":
    main()
