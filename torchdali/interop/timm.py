"""The rules of translation for timm's transforms, as `timm.data.create_transform` puts them together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .. import transforms as T
from ..transforms.base import Transform, mode_name
from .picture import Picture

_OPERATIONS = (
    *("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color", "Contrast"),
    *("Brightness", "Sharpness", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
)
"""Those of RandAugment; some have another name where they all grow stronger with the strength."""


def _resized_crop(t: Any, _: Picture) -> list[Transform]:
    ranges = tuple(t.size), tuple(t.scale), tuple(t.ratio)
    if not isinstance(t.interpolation, Sequence):
        return [T.RandomResizedCrop(*ranges, mode_name(t.interpolation))]
    return [T.RandomChoice([T.RandomResizedCrop(*ranges, mode_name(mode)) for mode in t.interpolation])]


def _rand_augment(t: Any, _: Picture) -> list[Transform]:
    """Translate RandAugment; its kernels take the nearest pixel or bilinear ones, and bilinear for anything else."""
    names = [op.name.removesuffix("Increasing") for op in t.ops]
    first = t.ops[0]
    told = {(op.prob, op.magnitude, op.magnitude_std, op.magnitude_max) for op in t.ops}
    if t.choice_weights is not None or sorted(names) != sorted(_OPERATIONS) or len(told) > 1:
        raise ValueError('it has operations of its own: write TimmRandAugment(...), or "rand-m9-mstd0.5-inc1"')
    resample = first.kwargs["resample"]
    mode = "bilinear" if isinstance(resample, Sequence) else mode_name(resample)
    fill = first.kwargs["fillcolor"]
    return [
        T.TimmRandAugment(
            first.magnitude,
            t.num_layers,
            first.prob,
            first.magnitude_std,
            first.magnitude_max or 10,
            any(op.name.endswith("Increasing") for op in t.ops),
            first.hparams.get("translate_pct", 0.45),
            mode if mode == "nearest" else "bilinear",
            tuple(fill) if isinstance(fill, Sequence) else fill,
        )
    ]


def _erasing(t: Any, at: Picture) -> list[Transform]:
    at.is_tensor()
    if t.max_count != 1 or t.rand_color or t.num_splits > 1:
        raise ValueError(
            'it erases several rectangles, or by colours of their own: write count=1 and "const" or "pixel"'
        )
    ratio = tuple(math.exp(end) for end in t.log_aspect_ratio)
    return [T.RandomErasing(t.probability, (t.min_area, t.max_area), ratio, "random" if t.per_pixel else 0.0)]


def _crop_or_pad(t: Any, _: Picture) -> list[Transform]:
    if t.fill or t.padding_mode != "constant":
        raise ValueError("CenterCrop pads with zeros: write Pad before it")
    return [T.CenterCrop(tuple(t.size))]


def _to_numpy(_: Any, at: Picture) -> list[Transform]:
    at.form = "tensor"
    return []


TIMM: dict[str | None, Callable[[Any, Picture], list[Transform]]] = {
    "timm.CenterCropOrPad": _crop_or_pad,
    "timm.RandAugment": _rand_augment,
    "timm.RandomErasing": _erasing,
    "timm.RandomResizedCropAndInterpolation": _resized_crop,
    "timm.ToNumpy": _to_numpy,
}

ADVICE = {
    "timm.AugMixAugment": "write AugMix(severity, mixture_width, chain_depth)",
    "timm.AutoAugment": 'write AutoAugment("imagenet"), the policy that timm calls "original"',
    "timm.RandomCropOrPad": "write RandomCrop(size, pad_if_needed=True)",
    "timm.ResizeKeepRatio": "write Resize(size) for the shorter edge, or ScaleJitter",
    "timm.ToTensor": "write ToDtype(dtype)",
    "timm.TrimBorder": "write CenterCrop(size)",
}
"""The words to write instead of others."""
