"""The contenders of gpu_bench.py: torchdali, DALI's own modes, and the decoder alone."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

CROP = 224
AREA, ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SEED = 0
NUM_THREADS = len(os.sched_getaffinity(0))
BASELINE = "dali-pipeline"
DECODER = "nvjpeg"  # its images are neither of one size nor normalised
OPTIONAL = {"dali-pipeline-roi", DECODER}  # the former's decoder may crash: nvImageCodec#55
Batches = Iterator[tuple[Any, torch.Tensor]]


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def torchdali(
    args: argparse.Namespace,
    notes: dict[str, float],
    engine: str,
    prefetch: int,
    stream: Any = "private",
    copied: bool = True,
) -> Batches:
    """Run torchdali; a pass is so long that its beginning does not count, and `notes` holds the beginning's time.

    Not `copied`: a GPU's pipeline reads the files where they lie, as the CPU's does.
    """
    import torchdali as td
    from torchdali import _dali
    from torchdali import transforms as T

    if not copied:
        feed = _dali.external_source
        _dali.external_source = lambda source, layouts, _: feed(source, layouts, torch.device("cpu"))

    folder = td.ImageFolder(args.root)
    times = -(-(1 << 20) // len(folder))
    loader = td.DataLoader(
        td.FileDataset(folder.paths * times, folder.targets * times),
        batch_size=args.batch_size,
        shuffle=True,
        seed=SEED,
        device=args.device,
        drop_last=True,
        engine=engine,
        prefetch_factor=prefetch,
        stream=stream,
        transform=T.Compose([T.RandomResizedCrop(CROP), T.RandomHorizontalFlip(), T.Normalize(mean=MEAN, std=STD)]),
    )
    for _ in loader:  # the first pass fills the caches that the second one uses
        break
    begin = time.perf_counter()
    while True:
        for images, labels in loader:
            if "new_pass_s" not in notes:
                synchronize(args.device)
                notes["new_pass_s"] = time.perf_counter() - begin
            yield images, labels


def dali_pipeline(
    args: argparse.Namespace, _: dict[str, float], region: bool, load: float | None, affine: bool = True
) -> Batches:
    """Run DALI's pipeline mode with the dynamic executor: decode whole images and crop, or decode the crop only."""
    from nvidia.dali import fn, pipeline_def, types
    from nvidia.dali.plugin.pytorch import DALIGenericIterator

    gpu = args.device == "cuda"
    options: dict[str, Any] = {"device": "mixed", "affine": affine} if gpu else {"device": "cpu"}
    if load is not None and gpu:
        options["hw_decoder_load"] = load

    @pipeline_def(
        batch_size=args.batch_size, num_threads=NUM_THREADS, seed=SEED, exec_dynamic=True, prefetch_queue_depth=2
    )
    def training() -> Any:
        encoded, labels = fn.readers.file(file_root=args.root, random_shuffle=True, name="reader")
        how = {"random_area": AREA, "random_aspect_ratio": ASPECT, "num_attempts": 10}
        size = {"size": [CROP, CROP], "interp_type": types.INTERP_LINEAR, "antialias": True}
        if region:
            images = fn.resize(fn.decoders.image_random_crop(encoded, **how, **options), **size)
        else:
            images = fn.random_resized_crop(fn.decoders.image(encoded, **options), **how, **size)
        images = fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="HWC",
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in STD],
            mirror=fn.random.coin_flip(),
        )
        return images, labels.gpu() if gpu else labels

    loader = DALIGenericIterator(training(device_id=0 if gpu else None), ["images", "labels"], size=-1)
    for (batch,) in loader:
        yield batch["images"].permute(0, 3, 1, 2), batch["labels"]


def ndd_eager(args: argparse.Namespace, _: dict[str, float]) -> Batches:
    """Run DALI's dynamic mode, the operators one after the other, as in its guide."""
    import nvidia.dali.experimental.dynamic as ndd
    from nvidia.dali import types

    device = "gpu" if args.device == "cuda" else "cpu"
    ndd.random.set_seed(SEED)
    reader = ndd.readers.File(file_root=args.root, random_shuffle=True)
    with ndd.EvalContext(num_threads=NUM_THREADS):
        while True:
            for encoded, labels in reader.next_epoch(batch_size=args.batch_size):
                images = ndd.decoders.image(encoded, device=device)
                images = ndd.random_resized_crop(
                    images,
                    size=[CROP, CROP],
                    random_area=AREA,
                    random_aspect_ratio=ASPECT,
                    num_attempts=10,
                    interp_type=types.INTERP_LINEAR,
                    antialias=True,
                )
                images = ndd.crop_mirror_normalize(
                    images,
                    dtype=ndd.float32,
                    output_layout="HWC",
                    mean=[255 * value for value in MEAN],
                    std=[255 * value for value in STD],
                    mirror=ndd.random.coin_flip(batch_size=len(encoded.shape)),
                )
                labels = labels.gpu() if device == "gpu" else labels
                yield images.torch().permute(0, 3, 1, 2), labels.torch()


def nvjpeg(args: argparse.Namespace, _: dict[str, float]) -> Batches:
    """Decode with nvJPEG alone, as torchvision calls it: no resize, no batch, the most that a decoder could give."""
    from torchvision.io import decode_jpeg

    files = sorted(Path(args.root).rglob("*.jpg"))
    encoded = [torch.from_numpy(np.fromfile(path, np.uint8)) for path in files]
    labels = torch.zeros(args.batch_size, dtype=torch.int64, device=args.device)
    while True:
        for at in range(0, len(encoded), args.batch_size):
            some = encoded[at : at + args.batch_size]
            yield decode_jpeg(some, device=args.device), labels[: len(some)]


CONTENDERS: dict[str, Callable[..., Batches]] = {
    "torchdali-auto": partial(torchdali, engine="auto", prefetch=2),
    "torchdali-pipeline": partial(torchdali, engine="pipeline", prefetch=2),
    "torchdali-pipeline-p0": partial(torchdali, engine="pipeline", prefetch=0),
    "torchdali-eager": partial(torchdali, engine="eager", prefetch=2),
    "torchdali-eager-p0": partial(torchdali, engine="eager", prefetch=0),
    BASELINE: partial(dali_pipeline, region=False, load=None),
    "dali-pipeline-roi": partial(dali_pipeline, region=True, load=None),
    "ndd-eager": ndd_eager,
    DECODER: nvjpeg,
}
SWEPT: dict[str, Callable[..., Batches]] = {
    "torchdali-pipeline-p4": partial(torchdali, engine="pipeline", prefetch=4),
    "torchdali-no-copy": partial(torchdali, engine="pipeline", prefetch=2, copied=False),
    "torchdali-current": partial(torchdali, engine="pipeline", prefetch=2, stream="current"),
    "dali-pipeline-free": partial(dali_pipeline, region=False, load=None, affine=False),
}
"""Those that run only where they are named."""
STEPPING = ("torchdali-auto", "torchdali-eager", BASELINE)  # these are also measured beside a training step


def contender(name: str) -> Callable[..., Batches]:
    """Find a contender by its name; `dali-pipeline@0.5` is DALI's pipeline with that `hw_decoder_load`."""
    base, _, load = name.partition("@")
    return partial(dali_pipeline, region=base.endswith("roi"), load=float(load)) if load else (CONTENDERS | SWEPT)[base]
