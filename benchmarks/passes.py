"""Measure what a pass costs beside its batches: CPU time per image of short passes, beside one long pass; in turns.

    jpeg   400 JPEGs of 500 x 375, RandomResizedCrop(224), flip, normalise, float32 batches of 64
    png    400 PNGs of 32 x 32, RandomCrop(32, padding=4), flip, normalise, batches of 64

Short passes are epochs of the 400 images, a long one is an epoch over as many images as 20 of them.  CPU time is user +
system, of this process with all its threads; files are in the page cache.  `first` is the time of a short pass's first
batch, and `pass` that of the whole pass, by the clock.

    python benchmarks/passes.py [--work jpeg] [--rounds 5] [--engine auto]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from _work import AREA, ASPECT, BATCH_SIZE, CROP, MEAN, STD, ensure_photos, machine
from PIL import Image

import torchdali as td
from torchdali import transforms as T

IMAGES, PASSES = 400, 20


def loader(work: str, paths: list[Path], engine: str) -> td.DataLoader:
    """A training loader."""
    first = T.RandomResizedCrop(CROP, AREA, ASPECT) if work == "jpeg" else T.RandomCrop(32, padding=4)
    return td.DataLoader(
        td.FileDataset(paths), BATCH_SIZE, shuffle=True, transform=T.Compose([first, T.RandomHorizontalFlip(),
        T.Normalize(MEAN, STD)]), device="cpu", num_threads=2, engine=engine,
    )  # fmt: skip


def passes(loader: td.DataLoader, count: int) -> tuple[float, list[float], list[float]]:
    """CPU time per image in ms, and the time in ms of each pass's first batch, and of each pass."""
    images, firsts, wholes, cpu = 0, [], [], time.process_time()
    for _ in range(count):
        begin = time.perf_counter()
        first = 0.0
        for batch in loader:
            first = first or time.perf_counter() - begin
            images += len(batch[0])
        firsts.append(first * 1e3)
        wholes.append((time.perf_counter() - begin) * 1e3)
    return (time.process_time() - cpu) * 1e3 / images, firsts, wholes


def spread(values: list[float], digits: int) -> str:
    return f"{min(values):.{digits}f}-{median(values):.{digits}f}-{max(values):.{digits}f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=("jpeg", "png"))
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--photos", default=Path.home() / ".cache" / "torchdali" / "bench-jpegs", type=Path)
    arguments = parser.parse_args()
    print(ensure_photos(arguments.photos), machine())
    photos = sorted(path for path in (arguments.photos / "train").rglob("*.jpg") if "_" not in path.stem)[:IMAGES]
    with tempfile.TemporaryDirectory() as folder:
        for work in [arguments.work] if arguments.work else ("jpeg", "png"):
            paths = photos
            if work == "png":
                paths = [Path(folder, f"{path.stem}.png") for path in photos]
                for path, photo in zip(paths, photos, strict=True):
                    Image.open(photo).resize((32, 32)).save(path)
            short = loader(work, paths, arguments.engine)
            long = loader(work, paths * PASSES, arguments.engine)
            passes(short, 2)  # imports and first uses count nowhere
            found: list[tuple[float, float]] = []
            firsts, wholes = [], []
            for number in range(arguments.rounds):
                if number % 2:
                    one = passes(long, 1)[0]
                cpu, begins, all_of_it = passes(short, PASSES)
                if not number % 2:
                    one = passes(long, 1)[0]
                found.append((cpu, one))
                firsts += begins
                wholes += all_of_it
            print(
                f"{work}: CPU ms per image: short {spread([cpu for cpu, _ in found], 3)}, long "
                f"{spread([one for _, one in found], 3)}, short/long {spread([cpu / one for cpu, one in found], 3)}; "
                f"first batch {median(firsts):.1f} ms, pass {median(wholes):.1f} ms",
                flush=True,
            )
            short.close()
            long.close()


if __name__ == "__main__":
    main()
