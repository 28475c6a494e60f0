"""The host part of images: torch's kernels, sample by sample, straight into the rows of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import Column
from ..buffers import Pool
from ..moves import Sizes
from ..transforms.base import Params, Transform
from .pictures import make_pictures

_LARGE = 1 << 20
"""Numbers of a batch that the kernel makes in several threads: it makes fewer in the time that threads need to meet."""


class Target(NamedTuple):
    """The steps that an image makes, and where it arrives.

    Attributes:
        steps: transforms with the params of all samples.
        sizes: [N, 2], of the images after them.
        extent: the batch's height and width.
        fill: fills up what a smaller image leaves.
    """

    steps: list[tuple[Transform, Params]]
    sizes: Sizes
    extent: tuple[int, ...]
    fill: float


Each = Callable[[Callable[[range], None], int], None]
"""Calls a function for parts of a range, several at a time."""


def make_images(images: Column, target: Target, pool: Pool, each: Each) -> torch.Tensor:
    """Make a batch of images, or of clips frame by frame: [N, H, W, C] or [N, F, H, W, C].

    Each sample is transformed straight into its row of a pooled batch, while it is in the CPU's cache.

    Args:
        images: arrays [H, W, C] or [F, H, W, C]; or tensors [C, H, W].
        target: what becomes of them.
        pool: gives the batch's memory.
        each: runs a function for all samples.
    """
    forms = [step.bind(params) for step, params in target.steps]
    *inner, last = forms or [_same]
    first = images[0]
    dtype = first.dtype if isinstance(first, torch.Tensor) else torch.from_numpy(first[:0]).dtype
    channels, frames = (first.shape[0], ()) if isinstance(first, torch.Tensor) else (first.shape[-1], first.shape[:-3])
    for step, _ in target.steps:
        dtype, channels = step.out_dtype(dtype), step.out_channels(channels)
    extent = target.extent
    batch = pool.empty((len(images), *frames, *extent, channels), dtype)
    padded = bool((target.sizes != extent).any())
    pictures = make_pictures(images, target.steps)
    if pictures is not None:
        if padded:
            batch.fill_(target.fill)
        if batch.numel() < _LARGE:
            pictures.write(range(len(images)), batch)
        else:
            each(lambda part: pictures.write(part, batch), len(images))
        return batch
    sizes = target.sizes.tolist()

    def transform(image: torch.Tensor, out: torch.Tensor, i: int) -> None:
        for form in inner:
            image = form(image, None, i)
        image = last(image, out, i)
        if image is not out:
            out.copy_(image)

    def run(part: range) -> None:
        for i in part:
            height, width = sizes[i]
            image = images[i]
            row = batch[i]
            if padded and (height, width) != extent:
                row.fill_(target.fill)
                row = row[..., :height, :width, :]
            if isinstance(image, torch.Tensor):
                transform(image, row.permute(2, 0, 1), i)
            elif not frames:
                transform(torch.from_numpy(image).permute(2, 0, 1), row.permute(2, 0, 1), i)
            else:
                for f in range(frames[0]):
                    frame = torch.from_numpy(image[f]).permute(2, 0, 1)
                    transform(frame, row[f].permute(2, 0, 1), i)

    each(run, len(images))
    return batch


def transform_images(
    images: Sequence[NDArray[Any]], steps: Sequence[tuple[Transform, Params]], each: Each
) -> list[torch.Tensor]:
    """Transform images [H, W, C] that several views share: tensors [C, H, W]."""
    forms = [step.bind(params) for step, params in steps]
    made: list[Any] = [None] * len(images)

    def run(part: range) -> None:
        for i in part:
            image = torch.from_numpy(images[i]).permute(2, 0, 1)
            for form in forms:
                image = form(image, None, i)
            made[i] = image

    each(run, len(images))
    return made


def _same(image: torch.Tensor, _out: torch.Tensor | None, _i: int) -> torch.Tensor:
    return image


def sizes_of(images: Column) -> Sizes:
    """Height and width of images: arrays [..., H, W, C], or tensors [C, H, W]."""
    return np.array(
        [image.shape[1:] if isinstance(image, torch.Tensor) else image.shape[-3:-1] for image in images], np.int64
    )
