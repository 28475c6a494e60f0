"""Transforms of other libraries, told by their modules' names: what to write for them."""

from __future__ import annotations

from typing import Any

import torch

_BY_NAMES = (
    "it takes its pictures by names: write torchdali.transforms.PerSample(lambda sample: "
    '(transform(image=sample[0])["image"], *sample[1:]), form="numpy") for samples of (image, label)'
)
_BATCHES = (
    "it acts on whole batches of floats: write DataLoader(..., batch_transform=lambda batch: (augment(batch[0]), "
    "*batch[1:])), after ToDtype(torch.float32, scale=True)"
)
_INSTEAD = {
    "albumentations": _BY_NAMES,
    "kornia": _BATCHES,
    "imgaug": (
        'write torchdali.transforms.PerSample(lambda sample: (transform(image=sample[0]), *sample[1:]), form="numpy")'
    ),
    "monai": "write torchdali.transforms.PerSample(transform), which calls it for each sample",
}


def foreign(transform: Any) -> str:
    """Say what to write for a transform of another library, as the end of a sentence; "" for any other."""
    if isinstance(transform, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        return "a scripted transform can't be read: give the transforms as they were before torch.jit.script"
    for kind in type(transform).__mro__:
        library = (kind.__module__ or "").partition(".")[0]
        if library in _INSTEAD:
            return _INSTEAD[library]
    return ""
