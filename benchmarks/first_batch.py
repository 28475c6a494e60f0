"""Measure the time to a fresh loader's first batch, in processes of their own, in turns.

    first    from the loader's construction to its first batch; everything is imported before
    third    to the third batch: what a loader begins late shows there
    process  from the process's start to the first batch, imports included

Batches of 64 out of 20,000 JPEGs of 500 x 375 go through RandomResizedCrop(224), flip and normalise; files are in the
page cache.

    python benchmarks/first_batch.py [--peers torchdali dali-pipeline] [--rounds 15]
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import psutil
from _peers import BASELINE, PEERS
from _work import TRAIN, ensure_photos, machine

IMPORTED = {
    "torchdali": ("torchdali.datasets.files", "torchdali.loader", "torchdali.transforms", "nvidia.dali.fn"),
    BASELINE: ("nvidia.dali.fn", "nvidia.dali.plugin.pytorch"),
    "torch": ("torchvision.datasets", "torchvision.io", "torchvision.transforms.v2"),
}
NAMES = ("first", "third", "process")


def times(peer: str, photos: Path) -> tuple[float, float, float]:
    """Measure a peer in this process, in seconds."""
    for name in IMPORTED[peer]:
        importlib.import_module(name)
    begin = time.perf_counter()
    batches = PEERS[peer](photos / "train", TRAIN)
    next(batches)[0][0, 0, 0, 0].item()
    first, process = time.perf_counter() - begin, time.time() - psutil.Process().create_time()
    next(batches)
    next(batches)
    return first, time.perf_counter() - begin, process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", nargs="+", default=["torchdali", BASELINE], choices=IMPORTED)
    parser.add_argument("--rounds", default=15, type=int)
    parser.add_argument("--photos", default=Path.home() / ".cache" / "torchdali" / "bench-jpegs", type=Path)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(*times(arguments.child, arguments.photos))
        return
    print(ensure_photos(arguments.photos), machine())
    found: dict[str, list[list[float]]] = {peer: [] for peer in arguments.peers}
    with tempfile.TemporaryDirectory() as folder:
        # Our modules' bytecode is kept like that of installed packages, whatever the environment says.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        for number in range(arguments.rounds + 1):
            for peer in arguments.peers if number % 2 else reversed(arguments.peers):
                command = [sys.executable, __file__, "--child", peer, "--photos", str(arguments.photos)]
                done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120, env=environment)
                if number:  # the first round writes the bytecode
                    found[peer].append([float(word) for word in done.stdout.split()[-3:]])
    for peer, rounds in found.items():
        for name, values in zip(NAMES, map(sorted, zip(*rounds, strict=True)), strict=True):
            print(f"{peer} {name}: {values[0]:.3f}-{median(values):.3f}-{values[-1]:.3f} s")


if __name__ == "__main__":
    main()
