"""Defines the works that every peer of ``compare.py`` does, makes their data, and measures them.

* ``ensure_photos``: the data set, made once: JPEG files of 500 x 375 or 375 x 500 pixels and 92 kB on average, in class
  folders, cut out of the photographs that scikit-learn and (where installed) scikit-image ship. No network is used.
  Each of the 1,000 images has 20 names (hard links), so that the start of an epoch weighs as little as in training.
* ``WORKS``: ImageNet's training and evaluation input, small images in memory, and a training on the CPU.
* ``measure``: pulls batches of one peer for some seconds and counts images, wall time and CPU time.
* ``machine``: describes hardware and versions, without which a result is worth nothing.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import json
import os
import platform
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import psutil
import torch
from PIL import Image

Batch = tuple[torch.Tensor, torch.Tensor]
"""images float32 ``[N, 3, H, W]`` in any memory format, labels integer of N elements; both on the CPU."""

BATCH_SIZE = 64
CROP = 224
AREA = (0.08, 1.0)
ASPECT = (3 / 4, 4 / 3)
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
SEED = 0
SHORTER = 256  # side, before the centre crop of the evaluation
SMALL = 32
SMALL_IMAGES = 50_000


@dataclass(frozen=True)
class Work:
    """What becomes of each image: `size` is the batch's height and width."""

    name: str
    size: int = CROP
    batch_size: int = BATCH_SIZE
    shuffled: bool = True
    mean: tuple[float, float, float] = MEAN
    std: tuple[float, float, float] = STD
    trains: bool = False


TRAIN = Work("train")
WORKS = {
    "train": TRAIN,
    "evaluate": Work("evaluate", shuffled=False),
    "small": Work("small", SMALL, 128, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)),
    "training": replace(TRAIN, trains=True),
}
"""
    train     read a JPEG, decode, RandomResizedCrop 224, flip, normalise
    evaluate  read a JPEG, decode, Resize 256, CenterCrop 224, normalise
    small     uint8 [32, 32, 3] in memory, RandomCrop(32, padding=4), flip, normalise; batches of 128
    training  the first, for a small CNN that trains on one core meanwhile
"""

NUM_IMAGES = 1000
LINKS = 20  # names per image: epochs as long as real ones, without the disk space
NUM_CLASSES = 10
LONG_SIDE, SHORT_SIDE = 500, 375
MEAN_BYTES = 92_000
WARMUP_BATCHES = 8

SKIMAGE_PHOTOS = ("astronaut.png", "chelsea.png", "coffee.png", "motorcycle_left.png", "rocket.jpg")
"""The colour photographs in scikit-image's wheel; its textures, diagrams and micrographs compress differently."""


@dataclass(frozen=True)
class Photos:
    """The data set that ``ensure_photos`` made; kept beside the images as ``photos.json``."""

    images: int
    mean_bytes: int
    quality: float
    photographs: tuple[str, ...]


def ensure_photos(root: Path) -> Photos:
    """Make the data set at ``root/train`` if it is not there yet, read it once into the page cache, and describe it.

    Deterministic for one set of source photographs. Written to a temporary folder and renamed, so an interrupted run
    leaves nothing that looks complete.
    """
    if not (root / "photos.json").exists():
        if root.exists() and any(root.iterdir()):
            raise ValueError(f"the data folder must be empty or made by this benchmark, got {root}")
        root.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=root.parent, prefix=f".{root.name}-"))
        try:
            _write_photos(scratch)
            scratch.chmod(0o755)
            scratch.replace(root)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    for path in (root / "train").rglob("*.jpg"):
        path.read_bytes()
    stored = json.loads((root / "photos.json").read_text())
    return Photos(**{**stored, "photographs": tuple(stored["photographs"])})


def _write_photos(root: Path) -> None:
    sources = _photographs()
    photographs = list(sources.values())
    quality = _tuned_quality(photographs)
    dither = random.Random(SEED)
    total = 0
    for index in range(NUM_IMAGES):
        folder = root / "train" / f"class_{index % NUM_CLASSES}"
        folder.mkdir(parents=True, exist_ok=True)
        encoded = _jpeg(_cut(photographs, index), int(quality + dither.random()))
        first = folder / f"{index:04d}.jpg"
        first.write_bytes(encoded)
        for link in range(1, LINKS):
            os.link(first, folder / f"{index:04d}_{link:02d}.jpg")
        total += len(encoded)
    photos = Photos(NUM_IMAGES, round(total / NUM_IMAGES), quality, tuple(sources))
    (root / "photos.json").write_text(json.dumps(asdict(photos), indent=2))


def _photographs() -> dict[str, Image.Image]:
    from sklearn.datasets import load_sample_images

    bundle = load_sample_images()
    names = [Path(name).name for name in bundle.filenames]
    pixels = [Image.fromarray(image) for image in bundle.images]
    photographs = {f"sklearn/{name}": image for name, image in zip(names, pixels, strict=True)}
    skimage = importlib.util.find_spec("skimage")
    if skimage is not None and skimage.origin is not None:
        for name in SKIMAGE_PHOTOS:
            path = Path(skimage.origin).parent / "data" / name
            if path.exists():
                photographs[f"skimage/{name}"] = Image.open(path).convert("RGB")
    return dict(sorted(photographs.items()))


def _cut(photographs: list[Image.Image], index: int) -> Image.Image:
    """Cut image ``index`` of the data set: a window of a photograph, perhaps mirrored; three of four are landscape."""
    rng = random.Random(SEED * NUM_IMAGES + index)
    photograph = photographs[index % len(photographs)]
    width, height = (SHORT_SIDE, LONG_SIDE) if rng.random() < 0.25 else (LONG_SIDE, SHORT_SIDE)
    scale = min(photograph.width / width, photograph.height / height) * rng.uniform(0.6, 1.0)
    left = rng.uniform(0, photograph.width - width * scale)
    top = rng.uniform(0, photograph.height - height * scale)
    window = (left, top, left + width * scale, top + height * scale)
    image = photograph.resize((width, height), Image.Resampling.BICUBIC, box=window)
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else image


def _jpeg(image: Image.Image, quality: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


def _tuned_quality(photographs: list[Image.Image]) -> float:
    """Find the JPEG quality at which a tenth of the images average ``MEAN_BYTES``; its fraction is dithered."""
    images = [_cut(photographs, index) for index in range(NUM_IMAGES // 10)]
    qualities = range(75, 101)
    sizes = [statistics.fmean(len(_jpeg(image, quality)) for image in images) for quality in qualities]
    return float(np.interp(MEAN_BYTES, sizes, qualities))


@dataclass(frozen=True)
class Measurement:
    """One timed window. CPU time is user + system, of the process and its children."""

    images: int
    seconds: float
    images_per_second: float
    cpu_ms_per_image: float
    other_cores: float
    """The number of cores that everything else on the machine kept busy; if it is large, the rate says little."""
    loader_share: float = 1.0
    """The part of the process's CPU time that the training step did not take."""


def small_images() -> tuple[np.ndarray, np.ndarray]:
    """Make images uint8 [SMALL_IMAGES, SMALL, SMALL, 3] and their labels, the same ones each time."""
    rng = np.random.default_rng(SEED)
    return rng.integers(0, 256, (SMALL_IMAGES, SMALL, SMALL, 3), np.uint8), rng.integers(0, 10, SMALL_IMAGES)


def training_step() -> Callable[[torch.Tensor, torch.Tensor], None]:
    """Make a training step of a small CNN, in the caller's thread alone: about 20 ms per image."""
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    layers: list[torch.nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 128)):
        layers += [torch.nn.Conv2d(inputs, outputs, 3, 2, 1), torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers, torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 10))
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels.reshape(-1).long()).backward()
        optimizer.step()

    return step


def measure(batches: Iterator[Batch], seconds: float, work: Work = TRAIN) -> Measurement:
    """Warm up, check that the batches are what was asked for, then consume for at least ``seconds``.

    ``batches`` must not end. The consumer touches one element of each batch; images are counted by the rows delivered.
    """
    for _ in range(WARMUP_BATCHES):
        _check(*next(batches), work)
    for _ in range(WARMUP_BATCHES):  # while batches were checked, others were made ahead: they are used up
        next(batches)
    step = training_step() if work.trains else None
    steps, images, cpu, busy, start = 0.0, 0, _cpu_seconds(), _busy_seconds(), time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        data, labels = next(batches)
        data[0, 0, 0, 0].item()
        images += len(labels)
        if step is not None:
            begin = time.thread_time()
            step(data, labels)
            steps += time.thread_time() - begin
    cpu, busy = _cpu_seconds() - cpu, _busy_seconds() - busy
    other = max(0.0, busy - cpu) / elapsed
    return Measurement(images, elapsed, images / elapsed, 1000 * cpu / images, other, max(0.0, 1 - steps / cpu))


def _check(data: torch.Tensor, labels: torch.Tensor, work: Work) -> None:
    expected = (work.batch_size, 3, work.size, work.size)
    if len(labels) != len(data):
        raise ValueError(f"a label for each image was expected, got {len(labels)} for {len(data)}")
    if tuple(data.shape) != expected or data.dtype != torch.float32:
        raise ValueError(f"images must be float32 of shape {expected}, got {data.dtype} of shape {tuple(data.shape)}")
    low, high, spread = data.min().item(), data.max().item(), data.std().item()
    if not (-2.2 < low < -1 and 1 < high < 2.7 and 0.5 < spread < 2):  # of all works
        raise ValueError(f"images must be normalised, got values from {low:.2f} to {high:.2f}, deviation {spread:.2f}")


def _cpu_seconds() -> float:
    """Measure the CPU time so far of this process, its ended children and its living descendants."""
    process = psutil.Process()
    times = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return float(sum(each.user + each.system + each.children_user + each.children_system for each in times))


def _busy_seconds() -> float:
    """Measure the CPU time so far of the whole machine, stolen time included."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq + times.steal)


def machine() -> dict[str, str | int | float]:
    """Describe hardware, load and versions, as flat strings and numbers."""
    versions: dict[str, str | int | float] = {"python": platform.python_version()}
    for installed in importlib.metadata.distributions():
        name = installed.metadata["Name"]
        if name in {"torch", "torchvision", "torchdali", "pillow"} or name.startswith("nvidia-dali"):
            versions[name] = installed.version
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "load_average": os.getloadavg()[0],
        **versions,
    }


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
