"""Check that memory, threads, descriptors, shared memory and child processes stay flat over a long run.

    python benchmarks/soak.py                   # five kinds of run, about 15 minutes
    python benchmarks/soak.py --batches 1000000 --rounds 2000 --kinds batches,breaks
    python benchmarks/soak.py --short           # a minute, as the tests run it

    batches     small batches of real JPEGs, over many epochs
    arrays      a million small batches of arrays, over many epochs
    epochs      epochs of a small set of Python code, in two workers that stay
    iterables   epochs of an iterable, in two workers that are started anew for each
    breaks      rounds that each seek, meet bad samples and break off

For each kind a curve of 40 points shows resident memory, and a table what the process held.  The exit code is 1 if
memory grew by more than 1 % (and 2 MiB) from the second third of the points to the last, or the number of threads,
descriptors, segments of shared memory or children by any.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from torch.utils.data import IterableDataset

import torchdali as td
from torchdali import transforms as T
from torchdali.testing import garble_file, make_image_folder, truncate_file

POINTS = 40
BLOCKS = "▁▂▃▄▅▆▇█"


class Held(NamedTuple):
    """What the process holds: memory in MiB, and counts; its children's memory is added."""

    memory: float
    threads: int
    descriptors: int
    shared: int
    children: int

    @classmethod
    def now(cls) -> Held:
        gc.collect()
        process = psutil.Process()
        children = process.children(recursive=True)
        memory = process.memory_full_info().uss
        for child in children:
            try:
                memory += child.memory_full_info().uss
            except psutil.Error:  # it has just ended
                continue
        shared = sum(len(list(Path("/dev/shm").glob(f"torch_{one.pid}_*"))) for one in (process, *children))
        return cls(memory / 2**20, process.num_threads(), process.num_fds(), shared, len(children))


def curve(values: list[float]) -> str:
    """Draw values as a line of blocks, from the least to the largest."""
    least, span = min(values), max(max(values) - min(values), 1e-9)
    return "".join(BLOCKS[round((value - least) / span * (len(BLOCKS) - 1))] for value in values)


def watch(what: str, count: int, step: Callable[[int], object]) -> dict[str, Any]:
    """Run the steps, look at what the process holds at 40 points, and say whether it grew."""
    points = min(POINTS, count)
    ends = {count * (number + 1) // points for number in range(points)}
    seen: list[Held] = []
    for number in range(1, count + 1):
        step(number)
        if number in ends:
            seen.append(Held.now())
    middle, last = seen[points // 3 : 2 * points // 3], seen[2 * points // 3 :]
    # The least of a third: what a moment needs comes and goes.
    memory = [min(held.memory for held in part) for part in (middle, last)]
    grown = memory[1] - memory[0]
    problems = [f"memory grew by {grown:.1f} MiB"] if grown > max(2.0, 0.01 * memory[0]) else []
    for name in Held._fields[1:]:
        one, other = (min(getattr(held, name) for held in part) for part in (middle, last))
        if other > one:
            problems.append(f"{name} grew from {one} to {other}")
    values = [held.memory for held in seen]
    print(f"\n{what}: {count}\nMiB {min(values):.0f} {curve(values)} {max(values):.0f}")
    print("| after | MiB | threads | descriptors | shared | children |\n|---|---|---|---|---|---|")
    for number in sorted({0, points // 3, 2 * points // 3, points - 1}):
        print(
            f"| {count * (number + 1) // points} | {seen[number].memory:.1f} | "
            + " | ".join(map(str, seen[number][1:]))
            + " |"
        )
    print("; ".join(problems) or "flat", flush=True)
    return {"what": what, "many": count, "problems": problems}


class Rows(IterableDataset[Any]):
    """64 small arrays."""

    def __iter__(self) -> Iterator[Any]:
        yield from ({"x": np.full(100, number, np.float32), "number": number} for number in range(64))


def batches(count: int, folder: Path, engine: str) -> dict[str, Any]:
    transform = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.Normalize((0.5,) * 3, (0.5,) * 3)])
    loader = td.DataLoader(td.ImageFolder(folder), 2, shuffle=True, device="cpu", transform=transform, engine=engine)
    endless = (batch for _ in itertools.count() for batch in loader)
    found = watch(f"batches, engine {loader.engine}", count, lambda _: next(endless))
    endless.close()
    return found


def arrays(count: int, _folder: Path, _engine: str) -> dict[str, Any]:
    rows = np.arange(20_000, dtype=np.float32).reshape(2_000, 10)
    loader = td.DataLoader(td.InMemoryDataset(x=rows, y=list(range(2_000))), 2, shuffle=True, device="cpu")
    endless = (batch for _ in itertools.count() for batch in loader)
    found = watch("batches of arrays", count, lambda _: next(endless))
    endless.close()
    return found


def epochs(count: int, _folder: Path, _engine: str) -> dict[str, Any]:
    rows = [{"x": np.full(100, number, np.float32), "number": number} for number in range(64)]
    with td.DataLoader(
        td.PythonDataset(rows), 8, shuffle=True, device="cpu", num_workers=2, persistent_workers=True
    ) as loader:
        return watch("epochs, two workers that stay", count, lambda _: sum(1 for _ in loader))


def iterables(count: int, _folder: Path, _engine: str) -> dict[str, Any]:
    with td.DataLoader(Rows(), 8, device="cpu", num_workers=2) as loader:
        return watch("epochs of an iterable, two new workers each", count, lambda _: sum(1 for _ in loader))


def breaks(count: int, folder: Path, engine: str) -> dict[str, Any]:
    loader = td.DataLoader(
        td.ImageFolder(folder), 16, shuffle=True, device="cpu", transform=T.RandomResizedCrop(64), engine=engine,
        on_bad_sample="substitute",
    )  # fmt: skip
    for number, (path, _) in enumerate(loader.source.samples):
        if number % 20 == 0:
            (garble_file if number % 40 else truncate_file)(path)

    def disturb(number: int) -> None:
        loader.seek(number, number * 7 % len(loader))
        for _ in itertools.islice(loader, number % 4 + 1):
            loader.state_dict()
        loader.bad_samples.clear()  # it grows by design

    return watch("breaks, seeks and bad samples", count, disturb)


KINDS = {"batches": batches, "arrays": arrays, "epochs": epochs, "iterables": iterables, "breaks": breaks}
SHORT = {"batches": 1500, "arrays": 20_000, "epochs": 30, "iterables": 12, "breaks": 40}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--arrays", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=300)
    parser.add_argument("--iterables", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=600, help="of breaks")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--json", type=Path, help="add a line for each kind to this file")
    args = parser.parse_args()
    long = {
        "batches": args.batches, "arrays": args.arrays, "epochs": args.epochs, "iterables": args.iterables,
        "breaks": args.rounds,
    }  # fmt: skip
    flat = True
    for kind in args.kinds.split(","):
        with tempfile.TemporaryDirectory() as root:
            make_image_folder(root, classes=4, per_class=50)
            found = KINDS[kind]((SHORT if args.short else long)[kind], Path(root), args.engine)
        flat &= not found["problems"]
        if args.json:
            with args.json.open("a") as file:
                file.write(json.dumps(found) + "\n")
    sys.exit(not flat)


if __name__ == "__main__":
    main()
