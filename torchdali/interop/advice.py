"""Advice on transforms of torchvision that have no counterpart here: what to write instead."""

from __future__ import annotations

from typing import Any

from .timm import ADVICE


def advice(transform: Any) -> str:
    """Say what to write instead, as the end of a sentence."""
    name = type(transform).__name__
    if type(transform).__module__.startswith("timm."):
        return ADVICE.get(f"timm.{name}", "write it as torchdali.transforms.PerSample(...) around it")
    if not type(transform).__module__.startswith("torchvision.transforms"):
        return "write it as torchdali.transforms.PerSample(f), which calls f(sample) for each sample"
    return _SENTENCES.get(name, "write it as torchdali.transforms.PerSample(...) around it, or leave it out")


_BATCH = "write DataLoader(..., batch_transform=...) with it"
_DETECTION = "leave it out: it acts on boxes, masks or key points, and these samples have labels"
_MANY = "it makes several images of one: write it as the last transform of the loader, as torchdali has it too"

_SENTENCES = {
    "ConvertImageDtype": "write ToDtype(dtype, scale=True)",
    "CutMix": _BATCH,
    "FiveCrop": _MANY,
    "Lambda": "write torchdali.transforms.PerSample(f) with a function of a sample",
    "LinearTransformation": "leave it out, and multiply the loader's batches by the matrix on their device",
    "MixUp": _BATCH,
    "RandomIoUCrop": _DETECTION,
    "SanitizeBoundingBoxes": _DETECTION,
    "SanitizeKeyPoints": _DETECTION,
    "TenCrop": _MANY,
    "UniformTemporalSubsample": "leave it out: it acts on videos, and these samples are images",
}
