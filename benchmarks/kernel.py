"""The kernels in C beside torch's, with the same bits: CPU time per image of a loader over images in memory.

    python benchmarks/kernel.py [--rounds 5]

Each measurement is a process of its own; a round measures all of them, one after the other.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def measure(work: str) -> float:
    """Microseconds of CPU time per image, of all threads, after a pass to warm up."""
    import numpy as np

    import torchdali as td
    from torchdali import transforms as T

    rng = np.random.default_rng(0)
    flip, normalize = T.RandomHorizontalFlip(), T.Normalize(MEAN, STD)
    if work == "small":
        images, batch, passes = rng.integers(0, 256, (8192, 32, 32, 3), dtype=np.uint8), 128, 4
        steps = [T.RandomCrop(32, padding=4), flip, normalize]
    else:
        images, batch, passes = rng.integers(0, 256, (1024, 375, 500, 3), dtype=np.uint8), 64, 2
        first = {"train": [T.RandomResizedCrop(224), flip], "evaluate": [T.Resize(256), T.CenterCrop(224)]}
        steps = [*first[work], normalize]
    data = td.InMemoryDataset(image=images, label=np.arange(len(images)))
    loader = td.DataLoader(
        data, batch_size=batch, shuffle=True, device="cpu", num_threads=2, transform=T.Compose(steps)
    )
    for _ in loader:
        pass
    count, begin = 0, time.process_time()
    for _ in range(passes):
        for _, label in loader:
            count += len(label)
    return (time.process_time() - begin) / count * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(measure(args.measure))
        return
    for work in ("small", "train", "evaluate"):
        found: dict[str, list[float]] = {"1": [], "0": []}
        for _ in range(args.rounds):
            for native, values in found.items():
                command = [sys.executable, __file__, "--measure", work]
                environment = {**os.environ, "TORCHDALI_NATIVE": native}
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=600)
                values.append(float(done.stdout))
        ratios = [torch / ours for ours, torch in zip(found["1"], found["0"], strict=True)]
        ours, torch = (statistics.median(found[key]) for key in "10")
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        print(f"{work:9s} {ours:7.1f} us in C, {torch:7.1f} us in torch: {spread} times", flush=True)


if __name__ == "__main__":
    main()
