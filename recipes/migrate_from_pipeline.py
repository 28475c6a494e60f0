"""Compare a DALI pipeline with the loader that replaces it, side by side.

    python recipes/migrate_from_pipeline.py --config configs/migrate_from_pipeline/digits.yaml

The data are a folder of images, root/train/<class>/* and root/val/<class>/*. There are two ways to migrate. `augment`
keeps DALI's operators: the body of the pipeline, line by line, in dynamic mode. `make_loader` without it writes
torchvision's transforms instead. docs/coming-from.md has a table of everything that changes.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import jsonargparse
import numpy as np
import nvidia.dali.experimental.dynamic as ndd
import torch
from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

import torchdali as td
from torchdali import transforms as T
from torchdali.configs import ArgumentParser


@dataclass(frozen=True)
class DataConfig:
    root: str  # holds train/<class>/* and val/<class>/*
    batch_size: int = 64
    image_size: int = 224
    resize: int = 256  # the shorter side, before the crop of image_size
    flip: float = 0.5  # in training: the probability of a mirrored image
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class RunConfig:
    output: str  # the JSON file of results
    seed: int = 0
    num_threads: int = 2
    device: str = "auto"  # "auto": cuda if there is one, else cpu


# Before: a pipeline, as DALI's examples have it


def normalized_crop(data: DataConfig) -> dict[str, Any]:
    """Give the options of `crop_mirror_normalize`, which is the same operator in both modes."""
    normal = {"mean": [255 * value for value in data.mean], "std": [255 * value for value in data.std]}
    return {"crop": [data.image_size] * 2, "output_layout": "CHW", **normal}


@pipeline_def
def pipeline(data: DataConfig, device: str, reader: dict[str, Any], place: Any) -> Any:
    """Define the pipeline; `place` says where to crop and mirror: "random", "centre", or batches of x, y and mirror."""
    encoded, labels = fn.readers.file(name="reader", **reader)
    images = fn.decoders.image(encoded, device="mixed" if device == "cuda" else "cpu")
    images = fn.resize(images, resize_shorter=data.resize)
    if place == "random":
        x, y = fn.random.uniform(range=[0.0, 1.0]), fn.random.uniform(range=[0.0, 1.0])
        mirror = fn.random.coin_flip(probability=data.flip)
    elif place == "centre":
        x, y, mirror = 0.5, 0.5, 0
    else:
        x, y, mirror = (fn.external_source(source=batches, cycle="quiet") for batches in place)
    images = fn.crop_mirror_normalize(images, crop_pos_x=x, crop_pos_y=y, mirror=mirror, **normalized_crop(data))
    return images, labels, fn.pad(fn.get_property(encoded, key="source_info"))


def make_pipeline(data: DataConfig, run: RunConfig, place: Any, checkpoint: str | None = None, **reader: Any) -> Any:
    options = {"batch_size": data.batch_size, "num_threads": run.num_threads, "seed": run.seed}
    options |= {"device_id": 0 if run.device == "cuda" else None, "checkpoint": checkpoint}
    pipe = pipeline(data, run.device, reader, place, enable_checkpointing=isinstance(place, str), **options)
    names = ["image", "label", "path"]
    return DALIGenericIterator(pipe, names, reader_name="reader", last_batch_policy=LastBatchPolicy.PARTIAL)


def batches_of(iterator: Any, root: str) -> Iterator[dict[str, Any]]:
    """Turn the iterator's outputs, for one GPU, into dicts like torchdali's."""
    for (batch,) in iterator:
        paths = [bytes(row).rstrip(b"\0").decode() for row in batch["path"].numpy()]  # below file_root, or as in files
        paths = [path if path.startswith(root) else os.path.join(root, path) for path in paths]
        yield {"image": batch["image"], "label": batch["label"].squeeze(1), "path": paths}


# After: the loader


def augment(sample: dict[str, Any], rand: Any, data: DataConfig, random: bool) -> dict[str, Any]:
    """Do what the pipeline does: `fn` is now `ndd`, "mixed" is the loader's device, random numbers come from `rand`."""
    images = ndd.decoders.image(sample["image"], device=rand.device)
    images = ndd.resize(images, resize_shorter=data.resize)
    low, high, flip = (0.0, 1.0, data.flip) if random else (0.5, 0.5, 0.0)
    x, y, mirror = rand.uniform(low, high), rand.uniform(low, high), rand.bernoulli(flip)
    images = ndd.crop_mirror_normalize(images, crop_pos_x=x, crop_pos_y=y, mirror=mirror, **normalized_crop(data))
    return {**sample, "image": images, "x": x, "y": y, "mirror": mirror}


def make_loader(split: str, data: DataConfig, run: RunConfig, keep_operators: bool = False) -> td.DataLoader:
    train = split == "train"
    crop = T.RandomCrop(data.image_size) if train else T.CenterCrop(data.image_size)
    flip = [T.RandomHorizontalFlip(data.flip)] if train else []
    transforms = T.Compose([T.Resize(data.resize), crop, *flip, T.Normalize(mean=data.mean, std=data.std)])
    return td.DataLoader(
        td.ImageFolder(f"{data.root}/{split}", fields=("image", "label", "path")),
        batch_size=data.batch_size,
        shuffle=train,
        transform=partial(augment, data=data, random=train) if keep_operators else transforms,
        seed=run.seed,
        num_threads=run.num_threads,
        device=run.device,
        output="dict",
    )


# Side by side

Batches = list[dict[str, Any]]


def same(one: Batches, other: Batches) -> bool:
    """Tell whether the same files came in the same order, with the same labels and pixels, bit for bit."""

    def equal(a: dict[str, Any], b: dict[str, Any]) -> bool:
        tensors = all(torch.equal(a[name].cpu(), b[name].cpu()) for name in ("image", "label"))
        return tensors and a["path"] == b["path"]

    return len(one) == len(other) and all(map(equal, one, other))


def evaluation(data: DataConfig, run: RunConfig) -> dict[str, Any]:
    """Compare an epoch of evaluation: nothing is random, so with DALI's operators everything must be equal.

    torchvision's transforms round and filter differently, so their distance is measured.
    """
    root = f"{data.root}/val"
    kept, transforms = (list(make_loader("val", data, run, keep_operators)) for keep_operators in (True, False))
    before = list(batches_of(make_pipeline(data, run, "centre", file_root=root), root))
    distances = [(a["image"] - b["image"]).abs().mean().item() for a, b in zip(before, transforms, strict=True)]
    return {"evaluation": same(before, kept), "evaluation, transforms: mean distance": round(max(distances), 4)}


def training(data: DataConfig, run: RunConfig) -> dict[str, Any]:
    """Compare an epoch of training: each side has every file once, in an order and with random numbers of its own.

    Where the pipeline gets the order and the numbers that the loader drew, the pixels are equal. On both sides, new
    objects resume from a checkpoint in the middle of the epoch and give the rest of it.
    """
    root = f"{data.root}/train"
    reader = {"file_root": root, "random_shuffle": True}
    before = list(batches_of(make_pipeline(data, run, "random", **reader), root))
    kept = list(make_loader("train", data, run, True))
    files = [sorted(path for batch in epoch for path in batch["path"]) for epoch in (before, kept)]

    paths, labels = ([value for batch in kept for value in batch[name]] for name in ("path", "label"))
    # An external source can't end with part of a batch.
    place = [[np.resize(batch[name].cpu(), data.batch_size) for batch in kept] for name in ("x", "y", "mirror")]
    replayed = make_pipeline(data, run, place, files=paths, labels=[int(label) for label in labels])

    half = len(kept) // 2
    pipe, loader = make_pipeline(data, run, "random", **reader), make_loader("train", data, run, True)
    for iterator in (batches_of(pipe, root), iter(loader)):
        for _ in range(half):
            next(iterator)
    state = json.dumps(loader.state_dict())  # a few numbers, and nothing of DALI's
    pipe = make_pipeline(data, run, "random", checkpoint=pipe.checkpoints()[0], **reader)
    loader = make_loader("train", data, run, True)
    loader.load_state_dict(json.loads(state))
    return {
        "training: the same files, each once": files[0] == files[1] == sorted(set(files[0])),
        "training, with the same numbers": same(list(batches_of(replayed, root)), kept),
        "the pipeline, resumed": same(list(batches_of(pipe, root)), before[half:]),
        "the loader, resumed": same(list(loader), kept[half:]),
    }


def main(data: DataConfig, run: RunConfig) -> None:
    if run.device == "auto":
        run = replace(run, device="cuda" if torch.cuda.is_available() else "cpu")
    found = evaluation(data, run) | training(data, run)
    for name, value in found.items():
        print(f"{name:40} {'equal' if value is True else 'DIFFERENT' if value is False else value}")
    Path(run.output).parent.mkdir(parents=True, exist_ok=True)
    Path(run.output).write_text(json.dumps(found, indent=2) + "\n")
    if any(value is False for value in found.values()):
        raise SystemExit("the pipeline and the loader differ")


if __name__ == "__main__":
    jsonargparse.auto_cli(main, parser_class=ArgumentParser)
