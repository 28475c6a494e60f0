"""The peers of `bench`, for the same work: torch's DataLoader with torchvision, and DALI's pipeline mode."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import _dali
from ..datasets import FileDataset
from ..loader import DataLoader
from ..transforms import Compose
from .command import UsageError

PEERS = {"torch": "torch's DataLoader", "dali": "DALI's pipeline mode"}
STEPS = ("RandomResizedCrop", "Resize", "CenterCrop", "RandomHorizontalFlip", "Normalize")
"""The transforms that peers have too, by name."""

Peer = Callable[[int, int], Iterator[int]]
"""Gives the samples so far, after each batch, for a number of threads or workers and a batch size."""


def make_peer(name: str, loader: DataLoader) -> Peer:
    """Make the peer that does the work of a loader; its `__name__` is `name`.

    Raises:
        UsageError: the peer can't do this work.
    """
    steps = _steps(loader.transform)
    odd = [type(step).__name__ for step in steps if type(step).__name__ not in STEPS]
    if odd:
        raise UsageError(f"--peer compares {', '.join(STEPS)}, and this transform has {odd[0]}: leave --peer out")
    if not loader.source.described or not any(kind.encoded for kind in loader.source.kinds.values()):
        raise UsageError("--peer compares datasets of image files, and this one has none: leave --peer out")
    if not {"RandomResizedCrop", "CenterCrop"} & {type(step).__name__ for step in steps}:
        raise UsageError("--peer compares batches of images of one size: write --transform train or eval")
    made = _torch(loader, steps) if name == "torch" else _pipeline(loader, steps)
    made.__name__ = name
    return made


def _steps(transform: Any) -> list[Any]:
    if transform is None:
        return []
    if isinstance(transform, Compose):
        return [step for one in transform.transforms for step in _steps(one)]
    return [transform]


def _word(step: Any) -> str:
    """Give an interpolation's word; it may be torchvision's InterpolationMode."""
    return str(getattr(step.interpolation, "value", step.interpolation))


# torch


class Samples(torch.utils.data.Dataset[Any]):
    """The images of a dataset of torchdali, decoded by Pillow and transformed by torchvision.

    Args:
        dataset: the dataset; its samples begin with the image.
        transform: torchvision's.
    """

    def __init__(self, dataset: Any, transform: Any) -> None:
        self._dataset, self._transform = dataset, transform

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        sample = self._dataset[index]
        image = next(part for part in sample if isinstance(part, torch.Tensor) and part.ndim == 3)
        return self._transform(image)


def _torch(loader: DataLoader, steps: list[Any]) -> Peer:
    from torchvision.transforms import v2

    made: list[Any] = []
    for step in steps:
        values = {field.name: getattr(step, field.name) for field in dataclasses.fields(step)}
        if "interpolation" in values:
            values["interpolation"] = v2.InterpolationMode(_word(step))
        made += [v2.ToDtype(torch.float32, scale=True)] if type(step).__name__ == "Normalize" else []
        made.append(getattr(v2, type(step).__name__)(**values))
    samples = Samples(loader.dataset, v2.Compose(made))

    @functools.cache  # its workers stay from round to round
    def batches(workers: int, batch_size: int) -> Any:
        # The default's fork would copy DALI's threads, and locks that they hold.
        return torch.utils.data.DataLoader(
            samples,
            batch_size,
            shuffle=loader.shuffle,
            num_workers=workers,
            persistent_workers=True,
            multiprocessing_context="forkserver",
        )

    def run(workers: int, batch_size: int) -> Iterator[int]:
        total = 0
        while True:
            for images in batches(workers, batch_size):
                total += len(images)
                yield total

    return run


# DALI


def _pipeline(loader: DataLoader, steps: list[Any]) -> Peer:
    dataset = loader.dataset
    if not isinstance(dataset, FileDataset) or list(dataset.files) != ["image"]:
        raise UsageError(f"--peer dali compares files of images, got {type(dataset).__name__}: write --peer torch")
    fn, types = _dali.pipeline_mode()
    names = [type(step).__name__ for step in steps]

    def words(step: Any) -> dict[str, Any]:
        word = _word(step)
        modes = {"bilinear": types.INTERP_LINEAR, "bicubic": types.INTERP_CUBIC, "nearest": types.INTERP_NN}
        if word not in modes:
            raise UsageError(f"--peer dali knows no interpolation {word!r}: write --peer torch")
        return {"interp_type": modes[word], "antialias": bool(step.antialias)}

    def pair(size: Any) -> list[int]:
        return [size, size] if isinstance(size, int) else [*size] if len(size) == 2 else [*size, *size]

    def run(threads: int, batch_size: int) -> Iterator[int]:
        running = _dali.pipeline(batch_size, threads, torch.device("cpu"))
        with running:
            files, _ = fn.readers.file(files=dataset.paths, random_shuffle=loader.shuffle)
            images: Any = None if names[:1] == ["RandomResizedCrop"] else fn.decoders.image(files)
            last: dict[str, Any] = {}  # one operator crops, flips and normalises
            for step, name in zip(steps, names, strict=True):
                if name == "RandomResizedCrop":
                    if images is None:
                        area = {"random_area": list(step.scale), "random_aspect_ratio": list(step.ratio)}
                        images = fn.decoders.image_random_crop(files, num_attempts=10, **area)
                    images = fn.resize(images, size=pair(step.size), **words(step))
                elif name == "Resize":
                    whole = not isinstance(step.size, int) and len(step.size) == 2
                    size = {"size": pair(step.size)} if whole else {"resize_shorter": pair(step.size)[0]}
                    images = fn.resize(images, **size, **words(step))
                elif name == "CenterCrop":
                    last["crop"] = pair(step.size)
                elif name == "RandomHorizontalFlip":
                    last["mirror"] = fn.random.coin_flip(probability=step.p)
                else:
                    scaled = {key: [255 * value for value in getattr(step, key)] for key in ("mean", "std")}
                    last |= {"dtype": types.FLOAT, "output_layout": "CHW", **scaled}
            images = fn.crop_mirror_normalize(images, **{"dtype": types.UINT8, "output_layout": "HWC", **last})
            running.set_outputs(images)
        running.build()
        total = 0
        while True:
            (made,) = running.run()
            total += len(made)
            yield total

    return run
