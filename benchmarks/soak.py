"""Check that threads, file descriptors and memory stay flat.

    python benchmarks/soak.py                 # 10,000 batches, then 300 breaks, seeks and bad samples; a few minutes

It reads small real JPEGs in one process: first `--batches` batches over many epochs, then `--rounds` rounds that each
seek, meet bad samples and break off.  A table shows resident memory, threads and descriptors at ten points.  The exit
code is 1 if the last ones exceed the first by more than `--slack` MiB, one thread or one descriptor.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import sys
import tempfile
from collections.abc import Callable

import psutil

import torchdali as td
from torchdali import transforms as T
from torchdali.testing import garble_file, make_image_folder, truncate_file


def watch(what: str, count: int, step: Callable[[int], object], slack: float) -> bool:
    """Run the steps and print what the process holds at ten points; return False if that grew."""
    process = psutil.Process()
    seen: list[tuple[float, int, int]] = []
    print(f"\n| {what} | MiB resident | threads | descriptors |\n|---|---|---|---|")
    for number in range(count):
        step(number)
        if number % (count // 10) == count // 10 - 1:
            gc.collect()
            seen.append((process.memory_info().rss / 2**20, process.num_threads(), process.num_fds()))
            print(f"| {number + 1} | {seen[-1][0]:.0f} | {seen[-1][1]} | {seen[-1][2]} |", flush=True)
    first, last = seen[0], seen[-1]
    return last[0] - first[0] <= slack and last[1] <= first[1] + 1 and last[2] <= first[2] + 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--slack", type=float, default=40.0, help="MiB")
    args = parser.parse_args()
    transform = T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.Normalize((0.5,) * 3, (0.5,) * 3)])

    def make(root: str) -> td.DataLoader:
        return td.DataLoader(
            td.ImageFolder(root),
            batch_size=16,
            shuffle=True,
            device="cpu",
            transform=transform,
            engine=args.engine,
            on_bad_sample="substitute",
        )

    with tempfile.TemporaryDirectory() as root:
        make_image_folder(root, classes=4, per_class=200)
        loader = make(root)
        batches = (batch for _ in itertools.count() for batch in loader)
        flat = [watch(f"batches, engine {loader.engine}", args.batches, lambda _: next(batches), args.slack)]
        batches.close()
        for number, (path, _) in enumerate(loader.source.samples):
            if number % 20 == 0:
                (garble_file if number % 40 else truncate_file)(path)

        def disturb(number: int) -> None:
            loader.seek(number, number * 7 % len(loader))
            for _ in itertools.islice(loader, number % 4 + 1):
                loader.state_dict()

        flat.append(watch("breaks, seeks and bad samples", args.rounds, disturb, args.slack))
        print(f"\n{len(loader.bad_samples)} bad samples were met")
    sys.exit(not all(flat))


if __name__ == "__main__":
    main()
