"""Measure the framework's own host time for a batch of 256, which adds to reading, decoding and torch's operators.

    python benchmarks/host_time.py

Each part of the framework runs alone, in one thread, many times, on data in memory.

    order      the shuffled indices of a step, and its cut for the rank
    seek       the same at a random position among 10^9 samples on 1,024 ranks; not in the sum
    parameters RandomResizedCrop and RandomHorizontalFlip for 256 samples
    collation  output memory from the pool, labels and indices as tensors
    queueing   two hand-overs between threads
    state      state_dict after the batch
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch

import torchdali as td
from torchdali import transforms as T
from torchdali.buffers import Pool
from torchdali.collate import collate_numbers
from torchdali.distributed import Shard
from torchdali.engine.plan import Plan
from torchdali.order import Batching, Shuffled
from torchdali.prefetch import Prefetcher
from torchdali.rand import Rand
from torchdali.state import Position

BATCH = 256


def parts() -> dict[str, Callable[[], object]]:
    """Make the functions to measure; one call of each does the work of one batch."""
    n = 1_281_167
    start = Position(epoch=3)
    steps = itertools.chain.from_iterable(
        Shuffled(n).epoch(7, start).steps(start, Batching(BATCH, Shard(1, 8))) for _ in itertools.count()
    )
    step = next(steps)

    huge = Shuffled(10**9).epoch(7, start)
    places = np.random.default_rng(0)

    def seek() -> object:
        there = Position(3, samples_seen=int(places.integers(9 * 10**8)))
        return next(huge.steps(there, Batching(BATCH, Shard(777, 1024))))

    transform = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize((0.5,) * 3, (0.5,) * 3)])
    plan = Plan(transform, {"image": "encoded", "label": "number"}, "cpu", lambda _: False)
    sizes = np.random.default_rng(0).integers(300, 600, (BATCH, 2))

    def parameters() -> object:
        return plan.draw(plan.first_run, Rand(7, 3, step.rows.keys), {"image": sizes})

    pool, labels, cpu = Pool(), np.zeros(BATCH, np.int64), torch.device("cpu")

    def collation() -> object:
        images = pool.empty((BATCH, 224, 224, 3), torch.float32).permute(0, 3, 1, 2)
        return images, collate_numbers(labels, cpu), collate_numbers(step.rows.indices, cpu)

    first: Prefetcher[int] = Prefetcher(lambda: itertools.repeat(1), 2, "torchdali-bench")
    second: Prefetcher[int] = Prefetcher(lambda: iter(first), 2, "torchdali-bench")
    dataset = td.InMemoryDataset(image=np.zeros((9, 8, 8, 3), np.uint8))
    loader = td.DataLoader(dataset, shuffle=True, device="cpu")
    return {
        "order": lambda: next(steps),
        "seek": seek,
        "parameters": parameters,
        "collation": collation,
        "queueing": lambda: second.get(10.0),
        "state": loader.state_dict,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=300)
    runs = parser.parse_args().runs
    times: dict[str, list[float]] = {name: [] for name in parts()}
    for name, part in parts().items():
        for _ in range(20):
            part()
        for _ in range(runs):
            begin = time.perf_counter()
            part()
            times[name].append((time.perf_counter() - begin) * 1e3)
    print(f"| part | ms for a batch of {BATCH}: median | 95 % |\n|---|---|---|")
    counted = [values for name, values in times.items() if name != "seek"]
    total = [sum(values) for values in zip(*counted, strict=True)]
    for name, values in [*times.items(), ("all", total)]:
        print(f"| {name} | {statistics.median(values):.3f} | {statistics.quantiles(values, n=20)[-1]:.3f} |")


if __name__ == "__main__":
    main()
