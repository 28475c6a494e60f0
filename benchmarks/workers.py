"""Measure Python code in worker processes: the cost of transport, and where workers pay; interleaved.

Transport: the CPU time of all processes per sample.  The samples, of about 100 KB (encoded files) and 150 KB (decoded
images), differ in size and cost nothing to make; they count when they are single arrays in the consumer's process.
Peers: torchdali's workers, with the seeding of each sample, and torch's DataLoader with `collate_fn=list`, with tensors
or arrays.

Small samples: the CPU time of all processes per sample of a dataset that costs nothing, as a batch of the default
collate function, by torch's DataLoader and by torchdali.

Images: images per second, with the same dataset of JPEG files and the same resize to 224 x 224:

    torch      torch.utils.data.DataLoader, workers read, decode (PIL) and resize (torchvision on tensors, antialiased)
    workers    torchdali, workers read the bytes, DALI decodes here
    threads    torchdali.FileDataset, threads read, DALI decodes here
    dali       DALI's fn.external_source(parallel=True), workers read the bytes, DALI decodes and resizes

    python benchmarks/workers.py
    python benchmarks/workers.py --rounds 1 --seconds 0.5   # a smoke test
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import torch
from _work import BATCH_SIZE, ensure_photos

WORKERS = 2
SIZE = 224


class Samples(torch.utils.data.Dataset[Any]):
    """A dataset of samples that cost nothing to make."""

    def __init__(self, size: int, tensors: bool = False) -> None:
        self.data = np.random.default_rng(0).integers(0, 256, size, dtype=np.uint8)
        self.tensors = tensors

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> tuple[Any, int]:
        data = self.data[index % 64 :]
        return (torch.from_numpy(data) if self.tensors else data), index


class Small(torch.utils.data.Dataset[Any]):
    """A dataset of small samples of one form, which cost nothing to make."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.images = np.random.default_rng(0).integers(0, 256, (4096, 32, 32, 3), dtype=np.uint8)
        self.floats = torch.rand(256, 3, 32, 32)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Any:
        image = self.images[index % 4096]
        if self.form == "number":
            return index
        if self.form == "tensor, number":
            return self.floats[index % 256], index
        if self.form == "dict":
            return {"image": image, "label": index, "weight": float(index)}
        if self.form == "nested":
            return image, {"a": index, "b": 2.5, "c": {"d": np.arange(4)}}
        return image, index


FORMS = ("array, number", "tensor, number", "dict", "nested", "number")


class Decoded(torch.utils.data.Dataset[Any]):
    """A dataset of images, decoded and resized as torch users do it."""

    def __init__(self, paths: list[str]) -> None:
        from torchvision.transforms import v2

        self.paths = paths
        self.transform = v2.Compose([v2.PILToTensor(), v2.Resize((SIZE, SIZE), antialias=True)])

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        with Image.open(self.paths[index]) as image:
            return self.transform(image.convert("RGB")), index


class Encoded(Decoded):
    """A dataset of the files' bytes, which the loader decodes."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __getitem__(self, index: int) -> tuple[np.ndarray[Any, Any], int]:  # type: ignore[override]
        return np.fromfile(self.paths[index], np.uint8), index


class Callback:
    """A callback that gives the files' bytes to DALI."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths

    def __call__(self, info: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        index = info.idx_in_epoch % len(self.paths)
        return np.fromfile(self.paths[index], np.uint8), np.array([index], np.int32)


def cpu_seconds() -> float:
    """Measure the CPU time of this process and its descendants."""
    process = psutil.Process()
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def forever(loader: Any) -> Iterator[int]:
    while True:
        for batch in loader:
            yield len(batch[-1])


def torchdali(dataset: Any, **options: Any) -> Iterator[int]:
    import torchdali as td

    return forever(td.DataLoader(dataset, BATCH_SIZE, device="cpu", **options))


def torchs(dataset: Any, **options: Any) -> Iterator[int]:
    loader = torch.utils.data.DataLoader(dataset, BATCH_SIZE, num_workers=WORKERS, persistent_workers=True, **options)
    if "collate_fn" not in options:
        return forever(loader)
    return (len(batch) for _ in iter(int, 1) for batch in loader)


def pools(dataset: Any) -> Iterator[int]:
    """Yield the results that the loader's first stage gets."""
    from torchdali.python.mapped_job import MapJob, MapRead
    from torchdali.python.sample import Structure
    from torchdali.workers import Task, WorkerPool

    structure = Structure.of(dataset[0])
    pool = WorkerPool(MapJob(dataset), WORKERS)

    def tasks() -> Iterator[Task]:
        for number in iter(range(1 << 30)):
            rows = list(range(number * BATCH_SIZE, (number + 1) * BATCH_SIZE))
            yield Task(number, MapRead(0, 0, rows, rows, structure))

    for result in pool.run(tasks()):
        yield len(next(iter(result.columns.values())))
        result.release()


def dalis(paths: list[str]) -> Iterator[int]:
    from nvidia.dali import Pipeline, fn

    pipe = Pipeline(BATCH_SIZE, WORKERS, None, py_num_workers=WORKERS, py_start_method="spawn", exec_dynamic=True)
    with pipe:
        encoded, label = fn.external_source(Callback(paths), num_outputs=2, batch=False, parallel=True)
        pipe.set_outputs(fn.resize(fn.decoders.image(encoded), size=[SIZE, SIZE]), label)
    pipe.start_py_workers()
    pipe.build()
    while True:
        for output in pipe.run():
            torch.from_dlpack(output.as_tensor()).clone()
        yield BATCH_SIZE


def measure(batches: Iterator[int], seconds: float) -> tuple[float, float]:
    """Measure samples per second, and CPU microseconds per sample."""
    for _ in range(12):
        next(batches)
    samples, cpu, begin = 0, cpu_seconds(), time.perf_counter()
    while (elapsed := time.perf_counter() - begin) < seconds:
        samples += next(batches)
    return samples / elapsed, (cpu_seconds() - cpu) / samples * 1e6


def row(name: str, values: dict[str, list[float]], base: str) -> str:
    cells = []
    for peer, found in values.items():
        ratios = sorted(a / b for a, b in zip(found, values[base], strict=True))
        cells.append(f"{peer} {median(found):.0f} ({ratios[0]:.2f}-{median(ratios):.2f}-{ratios[-1]:.2f})")
    return f"{name:22} " + "   ".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--seconds", default=3.0, type=float)
    parser.add_argument("--photos", default=Path.home() / ".cache" / "torchdali" / "bench-jpegs", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    import torchdali as td
    from torchdali import transforms as T

    ensure_photos(args.photos)
    paths = sorted(map(str, args.photos.rglob("*_0[1-4].jpg")))
    for size in (100_000, 150_000):
        costs: dict[str, list[float]] = {"torch": [], "torch, numpy": [], "torchdali": []}
        transports = {
            "torch": partial(torchs, Samples(size, tensors=True), collate_fn=list),
            "torch, numpy": partial(torchs, Samples(size), collate_fn=list),
            "torchdali": partial(pools, Samples(size)),
        }
        for turn in range(args.rounds):
            for peer in sorted(transports, reverse=bool(turn % 2)):
                batches = transports[peer]()
                costs[peer].append(measure(batches, args.seconds)[1])
                del batches
        print(row(f"CPU us, {size // 1000} KB", costs, "torch"), flush=True)

    def batches(loader: Any) -> Iterator[int]:
        return (BATCH_SIZE for _ in iter(int, 1) for _ in loader)

    ours = {"num_workers": WORKERS, "persistent_workers": True}
    for form in FORMS:
        costs = {"torch": [], "torchdali": []}
        for turn in range(args.rounds):
            for peer in sorted(costs, reverse=bool(turn % 2)):
                data = Small(form)
                loader: Any = torch.utils.data.DataLoader(data, BATCH_SIZE, shuffle=True, **ours)  # type: ignore[arg-type]
                if peer == "torchdali":
                    loader = td.DataLoader(data, BATCH_SIZE, shuffle=True, device="cpu", **ours)  # type: ignore[arg-type]
                costs[peer].append(measure(batches(loader), args.seconds)[1])
                del loader
        print(row(f"CPU us, {form}", costs, "torch"), flush=True)

    rates: dict[str, list[float]] = {"torch": [], "workers": [], "threads": [], "dali": []}
    images = {"transform": T.Resize((SIZE, SIZE)), "num_threads": WORKERS}
    makers = {
        "torch": lambda: torchs(Decoded(paths)),
        "workers": lambda: torchdali(Encoded(paths), num_workers=WORKERS, persistent_workers=True, **images),
        "threads": lambda: torchdali(td.FileDataset(paths, list(range(len(paths)))), **images),
        "dali": lambda: dalis(paths),
    }
    for turn in range(args.rounds):
        order = list(makers)
        for peer in order[turn % 4 :] + order[: turn % 4]:
            batches = makers[peer]()
            rates[peer].append(measure(batches, args.seconds)[0])
            del batches
    print(row("images/s", rates, "torch"))
    print(
        f"medians, and the ratio to torch in the same round: min-median-max; {os.cpu_count()} CPUs, {WORKERS} workers"
    )


if __name__ == "__main__":
    sys.exit(main())
