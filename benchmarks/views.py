"""Measure two views of each image, as SimCLR trains on them: torch's DataLoader with workers and torchdali, in turns.

A view: RandomResizedCrop(224), a flip, ColorJitter(0.8, 0.8, 0.8, 0.2) with p = 0.8, RandomGrayscale(0.2),
GaussianBlur(23, (0.1, 2)) with p = 0.5, normalised.  Both decode each JPEG of 500 x 375 once, torch's workers by
torchvision.io.decode_jpeg, and both give batches of 64 samples.  Each measurement is a process of its own.

    python benchmarks/views.py --rounds 3 --seconds 5        # a minute
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch
from _work import BATCH_SIZE, CROP, MEAN, STD, ensure_photos, machine
from workers import cpu_seconds

WORKERS, KERNEL, SIGMA, WARM_UP = 2, 23, (0.1, 2.0), 4
COLOURS = (0.8, 0.8, 0.8, 0.2)


class Files(torch.utils.data.Dataset[Any]):
    """JPEG files, and two views of each by torchvision."""

    def __init__(self, folder: Path) -> None:
        from torchvision.transforms import v2

        self.files = sorted(map(str, folder.rglob("*.jpg")))
        jitter, blur = v2.ColorJitter(*COLOURS), v2.GaussianBlur(KERNEL, SIGMA)
        self.view = v2.Compose(
            [v2.RandomResizedCrop(CROP, antialias=True), v2.RandomHorizontalFlip(), v2.RandomApply([jitter], 0.8),
             v2.RandomGrayscale(0.2), v2.RandomApply([blur], 0.5), v2.ToDtype(torch.float32, True),
             v2.Normalize(MEAN, STD)]
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> list[torch.Tensor]:
        from torchvision.io import decode_jpeg, read_file

        image = decode_jpeg(read_file(self.files[index]))
        return [self.view(image), self.view(image)]


def torchs(folder: Path) -> Any:
    options: Any = {"shuffle": True, "num_workers": WORKERS, "persistent_workers": True}
    return torch.utils.data.DataLoader(Files(folder), BATCH_SIZE, **options)


def torchdalis(folder: Path) -> Any:
    import torchdali as td
    from torchdali import transforms as T

    jitter, blur = T.ColorJitter(*COLOURS), T.GaussianBlur(KERNEL, SIGMA)
    view = T.Compose(
        [T.RandomResizedCrop(CROP), T.RandomHorizontalFlip(), T.RandomApply([jitter], 0.8), T.RandomGrayscale(0.2),
         T.RandomApply([blur], 0.5), T.Normalize(MEAN, STD)]
    )  # fmt: skip
    options: Any = {"shuffle": True, "device": "cpu", "num_threads": WORKERS}
    return td.DataLoader(td.ImageFolder(folder), BATCH_SIZE, transform=T.Views([view, view]), **options)


PEERS = {"torchdali": torchdalis, "torch": torchs}


def batches_of(loader: Any) -> Iterator[int]:
    """Yield the samples of each batch, for ever."""
    while True:
        for batch in loader:
            views = batch[0] if isinstance(batch[0], list) else batch
            assert all(view.shape[1:] == (3, CROP, CROP) and view.dtype == torch.float32 for view in views)
            yield len(views[0])


def measure(peer: str, folder: Path, seconds: float) -> tuple[float, float]:
    """Samples per second, and the CPU time per sample of all processes, in ms."""
    torch.set_num_threads(1)
    batches = batches_of(PEERS[peer](folder))
    for _ in range(WARM_UP):
        next(batches)
    count, cpu, begin = 0, cpu_seconds(), time.perf_counter()
    while not count or time.perf_counter() - begin < seconds:
        count += next(batches)
    return count / (time.perf_counter() - begin), (cpu_seconds() - cpu) / count * 1e3


def spread(values: list[float], digits: int) -> str:
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--seconds", default=5.0, type=float)
    parser.add_argument("--photos", default=Path.home() / ".cache" / "torchdali" / "bench-jpegs", type=Path)
    parser.add_argument("--one", choices=PEERS, help="measure this peer in this process")
    args = parser.parse_args()
    if args.one:
        print(*measure(args.one, args.photos / "train", args.seconds), flush=True)
        os._exit(0)  # workers need not be waited for
    print(ensure_photos(args.photos), machine())
    found: dict[str, list[tuple[float, float]]] = {peer: [] for peer in PEERS}
    for turn in range(args.rounds):
        for peer in list(PEERS)[:: 1 if turn % 2 else -1]:
            line = [sys.executable, __file__, "--one", peer, "--seconds", str(args.seconds), "--photos", args.photos]
            done = subprocess.run(line, capture_output=True, text=True, timeout=120 + args.seconds, check=True)
            rate, cpu = map(float, done.stdout.split()[-2:])
            found[peer].append((rate, cpu))
    print("\n| peer | samples/s | CPU ms per sample | ratio of rates |\n|---|---|---|---|")
    for peer, values in found.items():
        ratios = [one[0] / other[0] for one, other in zip(values, found["torch"], strict=True)]
        cells = [spread([rate for rate, _ in values], 0), spread([cpu for _, cpu in values], 1), spread(ratios, 2)]
        print(f"| {peer} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
