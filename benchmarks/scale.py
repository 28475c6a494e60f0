"""Measure the framework's own cost against the size of the work: samples, batch size, threads and ranks.

    python benchmarks/scale.py                  # about a minute
    python benchmarks/scale.py --part host      # the parts of a batch of 256, in numbers

Each part of the framework runs alone, in one thread, many times, on data in memory; only `threads` runs whole loaders.
Curves are of the lower quartile of the calls, fitted as t = a + b * x (least squares of relative errors), and as
t ~ x^p between their ends: p near 0 means that the size does not matter, p near 1 that each piece costs the same.

    order      the shuffled indices of a step, and its cut for the rank
    seek       the same at a random position
    parameters RandomResizedCrop and RandomHorizontalFlip for the samples of a batch
    collation  output memory from the pool, labels and indices as tensors
    queueing   two hand-overs between threads
    state      state_dict after the batch
    clocks     what `loader.stats()` counts of a batch
    agreement  the comparison of what all ranks have told at a pass's start, on the rank that compares
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import tarfile
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch

import torchdali as td
from torchdali import agreement, clock
from torchdali import transforms as T
from torchdali.buffers import Pool
from torchdali.collate import collate_numbers
from torchdali.distributed import Shard
from torchdali.engine.plan import Plan
from torchdali.formats.webdataset import tar_index
from torchdali.kinds import ENCODED, NUMBER, as_kind
from torchdali.order import Batching, Shuffled
from torchdali.prefetch import Prefetcher
from torchdali.rand import Rand
from torchdali.state import Position
from torchdali.storage import open_storage

BATCH = 256
IMAGENET = 1_281_167
SAMPLES = [10**k for k in range(4, 10)]
SIZES = [4**k for k in range(7)]
RANKS = [1, 4, 16, 64, 256, 1024]
SWITCHES = 16  # of clocks, in a batch with decoding and a transform
Part = Callable[[], object]


def steps(n: int, batch: int, ranks: int) -> tuple[Part, Part]:
    """Make the functions that take the next step, and one at a random position."""
    shuffled, batching = Shuffled(n), Batching(batch, Shard(ranks // 2, ranks), drop_last=True)

    def endless() -> Iterator[object]:
        for epoch in itertools.count():
            yield from shuffled.epoch(7, Position(epoch)).steps(Position(epoch), batching)

    found = endless()
    whole, places, epoch = batching.global_size, np.random.default_rng(0), shuffled.epoch(7, Position(3))

    def seek() -> object:
        there = Position(3, samples_seen=int(places.integers(max(n - whole, 1))))
        return next(epoch.steps(there, batching))

    return lambda: next(found), seek


def parts(batch: int = BATCH) -> dict[str, Part]:
    """Make the functions to measure; one call of each does the work of one batch."""
    order, seek = steps(max(IMAGENET, 8 * batch), batch, 8)
    keys = np.arange(batch, dtype=np.uint64)
    transform = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.Normalize((0.5,) * 3, (0.5,) * 3)])
    plan = Plan(transform, {"image": as_kind(ENCODED), "label": as_kind(NUMBER)}, "cpu", lambda _: False)
    sizes = np.random.default_rng(0).integers(300, 600, (batch, 2))
    pool, labels, cpu = Pool(), np.zeros(batch, np.int64), torch.device("cpu")

    def parameters() -> object:
        return plan.draw_first(Rand(7, 3, keys), plan.host.enter({}, {"image": sizes}))

    def collation() -> object:
        images = pool.empty((batch, 32, 32, 3), torch.float32).permute(0, 3, 1, 2)
        return images, collate_numbers(labels, cpu), collate_numbers(labels, cpu)

    first: Prefetcher[int] = Prefetcher(lambda: itertools.repeat(1), 2, "torchdali-bench")
    second: Prefetcher[int] = Prefetcher(lambda: iter(first), 2, "torchdali-bench")
    first.start()
    second.start()
    dataset = td.InMemoryDataset(image=np.zeros((9, 8, 8, 3), np.uint8))
    loader = td.DataLoader(dataset, shuffle=True, device="cpu")
    recorder = clock.Recorder()
    own = recorder.begin("bench")

    def clocks() -> None:
        before = clock.take_over(own, clock.WAIT)
        for _ in range(SWITCHES // 2):
            clock.switch(clock.DECODE)
            clock.switch(clock.STORAGE)
        for name in ("batches", "samples", "bytes"):
            clock.count(name)
        clock.give_back(before, clock.STEP)

    return {
        "order": order,
        "seek": seek,
        "parameters": parameters,
        "collation": collation,
        "queueing": lambda: second.get(10.0),
        "state": loader.state_dict,
        "clocks": clocks,
    }


def timed(part: Part, runs: int) -> list[float]:
    """Give the milliseconds of some calls, after a tenth as many that are not counted."""
    for _ in range(max(runs // 10, 3)):
        part()
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        part()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def typical(times: list[float]) -> float:
    """Give the lower quartile: other programs on the machine only add."""
    return statistics.quantiles(times, n=4)[0]


def fitted(xs: list[int], times: list[float]) -> str:
    """Describe a curve: t = a + b * x by relative least squares, and the exponent between its ends."""
    x, t = np.array(xs, np.float64), np.array(times)
    design = np.stack([1 / t, x / t], 1)
    (a, b), *_ = np.linalg.lstsq(design, np.ones(len(x)), rcond=None)
    power = np.log(t[-1] / t[0]) / np.log(x[-1] / x[0])
    slope = "flat" if abs(b) * x[-1] < 0.2 * a else f"{a:.3f} + {1000 * b:.2g} x / 1000"
    return f"{slope}; x^{power:.2f}"


def curve(what: str, xs: list[int], rows: dict[str, list[float]]) -> str:
    """Make a table: a row for each part, a column for each size, and the fit."""
    lines = [f"| ms | {' | '.join(f'{x:,}' for x in xs)} | fit |", "|---" * (len(xs) + 2) + "|"]
    lines += [
        f"| {name} | {' | '.join(f'{one:.3f}' for one in times)} | {fitted(xs, times)} |"
        for name, times in rows.items()
    ]
    return f"\n{what}\n\n" + "\n".join(lines)


def by_samples(runs: int) -> dict[str, list[float]]:
    made = [steps(n, BATCH, 8) for n in SAMPLES]
    return {
        "order": [typical(timed(order, runs)) for order, _ in made],
        "seek": [typical(timed(seek, runs)) for _, seek in made],
    }


def by_batch_size(runs: int) -> dict[str, list[float]]:
    rows: dict[str, list[float]] = {}
    for size in SIZES:
        for name, part in parts(size).items():
            if name == "queueing":  # it hands over references
                continue
            rows.setdefault(name, []).append(typical(timed(part, runs)))
    return rows


def by_ranks(runs: int) -> dict[str, list[float]]:
    rows: dict[str, list[float]] = {"order": [], "seek": [], "agreement": []}
    for ranks in RANKS:
        order, seek = steps(10**9, BATCH, ranks)
        facts = [
            {"version": 3, "epoch": 3, "samples_seen": 0, "seed": 7, "dataset": "x" * 60, "batch_size": BATCH}
        ] * ranks
        texts = [json.dumps([one, ""]) for one in facts]

        def agree(texts: list[str] = texts, ranks: int = ranks) -> object:
            told = [json.loads(text) for text in texts]
            return agreement._fault([own for own, _ in told], [gpu for _, gpu in told], range(ranks))

        for name, part in (("order", order), ("seek", seek), ("agreement", agree)):
            rows[name].append(typical(timed(part, max(runs // (1 + ranks // 64), 5))))
    return rows


def by_threads(seconds: float) -> tuple[list[int], list[float]]:
    """Run loaders with some numbers of threads: samples per second, images 96 x 96 in memory, resized to 64."""
    cores = len(os.sched_getaffinity(0))
    counts = sorted({1, 2, *(2**k for k in range(2, 8) if 2**k <= cores), cores})
    images = np.random.default_rng(0).integers(0, 256, (2048, 96, 96, 3), np.uint8)
    transform = T.Compose([T.RandomResizedCrop(64), T.RandomHorizontalFlip(), T.Normalize((0.5,) * 3, (0.5,) * 3)])
    rates = []
    for count in counts:
        dataset = td.InMemoryDataset(image=images)
        loader = td.DataLoader(dataset, 64, shuffle=True, transform=transform, device="cpu", num_threads=count)
        for _ in loader:
            pass
        samples, begin = 0, time.perf_counter()
        while time.perf_counter() - begin < seconds:
            for (batch,) in loader:
                samples += len(batch)
        rates.append(samples / (time.perf_counter() - begin))
    return counts, rates


def bytes_per_sample() -> dict[str, float]:
    """Measure the memory of what a dataset keeps for each sample."""
    n = 100_000
    tracemalloc.start()
    paths = [f"/data/imagenet/train/n0{i % 1000:07d}/n0{i % 1000:07d}_{i}.JPEG" for i in range(n)]
    labels = [i % 1000 for i in range(n)]
    files = tracemalloc.get_traced_memory()[0] / n
    tracemalloc.stop()
    del paths, labels
    n = 1000
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(Path(folder) / "a.tar", "w") as tar:
            for number in range(2 * n):
                tar.addfile(tarfile.TarInfo(f"{number // 2:09d}.{('jpg', 'cls')[number % 2]}"))
        index = tar_index(open_storage(Path(folder) / "a.tar"), folder)
    return {
        "paths and labels of files": files,
        "an index of tars, two parts in a sample": sum(column.nbytes for column in index.values()) / n,
    }


def host_table(runs: int) -> str:
    times = {name: timed(part, runs) for name, part in parts().items()}
    lines = [f"| part | ms per batch of {BATCH}: median | 95 % |", "|---|---|---|"]
    total = [sum(values) for values in zip(*(v for name, v in times.items() if name != "seek"), strict=True)]
    for name, values in [*times.items(), ("all but seek", total)]:
        lines.append(f"| {name} | {statistics.median(values):.3f} | {statistics.quantiles(values, n=20)[-1]:.3f} |")
    return "\n".join(lines)


PARTS = ("host", "samples", "batch", "ranks", "threads", "memory")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--part", choices=PARTS, action="append", help="only this part; may be repeated")
    parser.add_argument("--runs", type=int, default=300, help="calls of each part")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each number of threads")
    parser.add_argument("--json", type=Path, help="write the curves to this file")
    args = parser.parse_args()
    wanted = args.part or PARTS
    found: dict[str, object] = {}
    if "host" in wanted:
        print(host_table(args.runs), flush=True)
    curves: list[tuple[str, str, list[int], Callable[[int], dict[str, list[float]]]]] = [
        ("samples", f"Samples of the dataset; batches of {BATCH} on 8 ranks", SAMPLES, by_samples),
        ("batch", "Batch size", SIZES, by_batch_size),
        ("ranks", f"Ranks, each with batches of {BATCH}, 10^9 samples", RANKS, by_ranks),
    ]
    for name, title, xs, measure in curves:
        if name in wanted:
            rows = measure(args.runs)
            found[name] = {"x": xs, "ms": rows}
            print(curve(title, xs, rows), flush=True)
    if "threads" in wanted:
        counts, rates = by_threads(args.seconds)
        found["threads"] = {"x": counts, "samples_per_second": rates}
        print("\nThreads\n\n| threads | samples/s | of the rate with one |\n|---|---|---|")
        for count, rate in zip(counts, rates, strict=True):
            print(f"| {count} | {rate:,.0f} | {rate / rates[0]:.2f} |")
    if "memory" in wanted:
        kept = bytes_per_sample()
        found["memory"] = kept
        print("\nMemory\n\n| kept for each sample | bytes |\n|---|---|")
        for what, size in kept.items():
            print(f"| {what} | {size:.0f} |")
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
