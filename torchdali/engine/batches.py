"""The torch part on a GPU: batches of images, which stay on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..batch import Column
from ..forms.image import Images, together
from ..transforms.base import Params, Transform, in_batches
from ..transforms.sound import is_sound


def on_device(values: Column | torch.Tensor, device: torch.device, steps: bool = True) -> Images:
    """Copy images [H, W, C], or clips [F, H, W, C], into memory of torch's on a GPU, with their channels first.

    Args:
        values: arrays, or tensors: on a GPU they may be DALI's memory, which ends with its session.
        device: the GPU.
        steps: some follow, which are fastest on planes: the channels come first in memory too.
    """

    def there(value: torch.Tensor) -> torch.Tensor:
        moved = value.to(device, non_blocking=True).movedim(-1, -3)
        ours = not value.is_cuda  # else it may be DALI's memory
        return moved if ours and not steps else moved.clone(memory_format=torch.contiguous_format)

    if not isinstance(values, torch.Tensor):
        tensors = [
            value if isinstance(value, torch.Tensor) else torch.from_numpy(np.asarray(value)) for value in values
        ]
        if len({tensor.shape for tensor in tensors}) > 1:
            return [there(tensor) for tensor in tensors]
        values = torch.stack(tensors)
    return there(values)


def in_torch(images: Images, steps: Sequence[tuple[Transform, Params]]) -> Images:
    """Put images through steps, in torch on their own device.

    Args:
        images: [N, C, H, W], or a list of [C, H, W]; of clips [N, F, C, H, W], or a list, whose frames all get the
            sample's params.
        steps: with the params of all samples.
    """
    steps = [(step, params) for step, params in steps if not is_sound(step)]
    if not steps or images[0].ndim == 3:
        for step, params in steps:
            images = in_batches(step, images, params)
        return images
    count, frames = len(images), len(images[0])
    flat: Images = [frame for clip in images for frame in clip]
    if isinstance(images, torch.Tensor):
        flat = images.flatten(0, 1)
    for step, params in steps:
        flat = in_batches(step, flat, {key: np.repeat(values, frames, axis=0) for key, values in params.items()})
    if isinstance(flat, torch.Tensor):
        return flat.view(count, frames, *flat.shape[1:])
    return together([torch.stack(flat[i * frames : (i + 1) * frames]) for i in range(count)])
