"""Measure what packing saves: CPU time per image of a loader over JPEG files and over packs of them; interleaved.

The work is that of `compare.py`: RandomResizedCrop(224), flip, normalise, float32 batches of 64, shuffled.  Peers:

    jpeg      ImageFolder's files
    packed    the same, decoded: td.pack(files, path)
    resized   the same, decoded, short side 256: td.pack(files, path, T.Resize(256))

An epoch of 1,000 images of each peer is a round's measurement, by the CPU time of this process, all threads; the files
are in the page cache.  Each round begins with another peer.

    python benchmarks/packed.py
    python benchmarks/packed.py --rounds 1   # a smoke test
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median

from _work import AREA, ASPECT, BATCH_SIZE, CROP, MEAN, STD, ensure_photos, machine

import torchdali as td
from torchdali import transforms as T


def loader(dataset: td.MapDataset) -> td.DataLoader:
    """A training loader."""
    transform = T.Compose([T.RandomResizedCrop(CROP, AREA, ASPECT), T.RandomHorizontalFlip(), T.Normalize(MEAN, STD)])
    return td.DataLoader(dataset, BATCH_SIZE, shuffle=True, transform=transform, device="cpu", num_threads=2)


def epoch(loader: td.DataLoader) -> tuple[float, float]:
    """CPU time and wall time of an epoch, in ms per image."""
    wall, cpu = time.perf_counter(), time.process_time()
    images = 0
    for batch, _ in loader:
        images += len(batch)
        batch[0, 0, 0, 0].item()
    return (time.process_time() - cpu) * 1e3 / images, (time.perf_counter() - wall) * 1e3 / images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", default=7, type=int)
    parser.add_argument("--photos", default=Path.home() / ".cache" / "torchdali" / "bench-jpegs", type=Path)
    arguments = parser.parse_args()
    print(ensure_photos(arguments.photos), machine())
    paths = sorted(path for path in (arguments.photos / "train").rglob("*.jpg") if "_" not in path.stem)
    files = td.FileDataset(paths, [int(path.parent.name[6:]) for path in paths])
    with tempfile.TemporaryDirectory(dir=arguments.photos.parent, prefix="bench-packed-") as folder:
        peers: dict[str, td.MapDataset] = {"jpeg": files}
        epoch(loader(files))  # imports and first uses count nowhere
        for name, transform in {"packed": None, "resized": T.Resize(256)}.items():
            begin = time.process_time()
            peers[name] = td.pack(files, Path(folder) / name, transform)
            spent = (time.process_time() - begin) * 1e3 / len(files)
            size = sum(path.stat().st_size for path in (Path(folder) / name).iterdir()) / len(files)
            print(f"{name}: packed in {spent:.2f} ms of CPU per image, {size / 1e3:.0f} KB per image")
        loaders = {name: loader(dataset) for name, dataset in peers.items()}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in loaders}
        for one in loaders.values():
            epoch(one)
        for number in range(arguments.rounds):
            names = list(loaders)
            for name in names[number % len(names) :] + names[: number % len(names)]:
                found[name].append(epoch(loaders[name]))
        for name, measured in found.items():
            cpu = sorted(one for one, _ in measured)
            ratios = sorted(jpeg / one for (jpeg, _), (one, _) in zip(found["jpeg"], measured, strict=True))
            print(
                f"{name}: CPU ms/image min {cpu[0]:.2f}, median {median(cpu):.2f}, max {cpu[-1]:.2f}; against jpeg "
                f"{ratios[0]:.2f}-{median(ratios):.2f}-{ratios[-1]:.2f}"
            )
        for one in loaders.values():
            one.close()


if __name__ == "__main__":
    main()
