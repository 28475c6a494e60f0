"""Advice on transforms of torchvision that have no counterpart here: what to write instead."""

from __future__ import annotations

from typing import Any

from .. import transforms as T
from ..transforms.foreign import foreign
from .timm import ADVICE


def advice(transform: Any) -> str:
    """Say what to write instead, as the end of a sentence."""
    name = type(transform).__name__
    if type(transform).__module__.startswith("timm."):
        return ADVICE.get(f"timm.{name}", "write it as torchdali.transforms.PerSample(...) around it")
    if instead := foreign(transform):
        return instead
    if not type(transform).__module__.startswith("torchvision.transforms"):
        known = _REFERENCES.get(name) or (
            f"write torchdali.transforms.{name} if it does the same, or" if name in T.__all__ else "write it as"
        )
        return known if name in _REFERENCES else f"{known} torchdali.transforms.PerSample(f), which {_CALLS}"
    return _SENTENCES.get(name, "write it as torchdali.transforms.PerSample(...) around it, or leave it out")


_CALLS = "calls f(sample) for each sample; of (image, label), f is lambda sample: (f(sample[0]), *sample[1:])"
_REFERENCES = {
    "ConvertBCHWtoCBHW": "leave it out, and write clips.movedim(1, 2) of the loader's batches",
    "FixedSizeCrop": "write torchdali.transforms.RandomCrop(size, pad_if_needed=True, fill=...)",
}
"""For classes of torchvision's references, which users have as files of their own."""

_BATCH = "write DataLoader(..., batch_transform=...) with it"
_DETECTION = "leave it out: it acts on boxes, masks or key points, and these samples have labels"
_MANY = "it makes several images of one: write it as the last transform of the loader, as torchdali has it too"

_SENTENCES = {
    "ConvertImageDtype": "write ToDtype(dtype, scale=True)",
    "CutMix": _BATCH,
    "FiveCrop": _MANY,
    "Lambda": "write torchdali.transforms.PerSample(lambda sample: (f(sample[0]), *sample[1:])) of (image, label)",
    "LinearTransformation": "leave it out, and multiply the loader's batches by the matrix on their device",
    "MixUp": _BATCH,
    "RandomIoUCrop": _DETECTION,
    "SanitizeBoundingBoxes": _DETECTION,
    "SanitizeKeyPoints": _DETECTION,
    "TenCrop": _MANY,
    "UniformTemporalSubsample": "leave it out: it acts on videos, and these samples are images",
}
