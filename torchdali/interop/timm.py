"""The rules of translation for timm's transforms, as `timm.data.create_transform` puts them together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import transforms as T
from ..transforms.arguments import mode_name
from ..transforms.base import Transform
from ..transforms.timm_policies import AUG_MIX_NAMES, RAND_SETS, TIMM_POLICIES
from .picture import Picture


def _by_modes(modes: Any, at: Picture, make: Callable[[str], Transform]) -> list[Transform]:
    """Make a transform of an interpolation; of several, "random", one of these."""
    if not isinstance(modes, Sequence) or isinstance(modes, str):
        return [make(at.mode(modes))]
    return [T.RandomChoice([make(at.mode(mode)) for mode in modes])]


def _resized_crop(t: Any, at: Picture) -> list[Transform]:
    ranges = tuple(t.size), tuple(t.scale), tuple(t.ratio)
    return _by_modes(t.interpolation, at, lambda mode: T.RandomResizedCrop(*ranges, mode))


def _keep_ratio(t: Any, at: Picture) -> list[Transform]:
    scales = t.random_scale_prob, tuple(t.random_scale_range), bool(t.random_scale_area)
    aspects = t.random_aspect_prob, tuple(t.random_aspect_range)
    return _by_modes(
        t.interpolation, at, lambda mode: T.ResizeKeepRatio(tuple(t.size), t.longest, mode, *scales, *aspects)
    )


def _told(operations: Sequence[Any]) -> dict[str, Any]:
    """The arguments that all operations of timm share.

    Raises:
        ValueError: they differ.
    """
    first = operations[0]
    kept = ("magnitude_std", "magnitude_max", "kwargs")
    if any([getattr(op, name) for name in kept] != [getattr(first, name) for name in kept] for op in operations):
        raise ValueError("its operations differ in magnitude_std, magnitude_max, fill or interpolation: give all one")
    resample, fill = first.kwargs["resample"], first.kwargs["fillcolor"]
    translations = {name: first.hparams[name] for name in ("translate_pct", "translate_const") if name in first.hparams}
    return {
        "magnitude_std": first.magnitude_std,
        "magnitude_max": first.magnitude_max or 10,
        "interpolation": "random" if isinstance(resample, Sequence) else mode_name(resample),
        "fill": tuple(fill) if isinstance(fill, Sequence) else fill,
        **translations,
    }


def _one(operations: Sequence[Any], name: str) -> Any:
    """The value of an attribute that all operations share.

    Raises:
        ValueError: they differ.
    """
    values = {getattr(op, name) for op in operations}
    if len(values) > 1:
        raise ValueError(f"its operations differ in {name}: give all the same, or write TimmAutoAugment(rows)")
    return values.pop()


def _rand_augment(t: Any, _: Picture) -> list[Transform]:
    names = tuple(op.name for op in t.ops)
    options: dict[str, Any] = {"transforms": names}
    if t.choice_weights is not None:
        weights = [float(weight) for weight in t.choice_weights]
        options = {"transforms": dict(zip(names, weights, strict=True))}
        for known in ("weights", "3aw"):
            of = RAND_SETS[known]
            assert isinstance(of, dict)
            if tuple(of) == names and np.allclose(np.array([*of.values()]) / sum(of.values()), weights):
                options = {"transforms": known}
    elif names in (RAND_SETS["plain"], RAND_SETS["increasing"]):
        options = {"increasing": names == RAND_SETS["increasing"]}
    elif names == RAND_SETS["3a"]:
        options = {"transforms": "3a"}
    told = _told(t.ops)
    return [T.TimmRandAugment(_one(t.ops, "magnitude"), t.num_layers, _one(t.ops, "prob"), **options, **told)]


def _auto_augment(t: Any, _: Picture) -> list[Transform]:
    rows = tuple(tuple((op.name, op.prob, op.magnitude) for op in row) for row in t.policy)
    if not rows or not all(rows):
        raise ValueError("its policy holds no operations")
    named = next((name for name, policy in TIMM_POLICIES.items() if policy == rows), None)
    return [T.TimmAutoAugment(named or rows, **_told([op for row in t.policy for op in row]))]


def _aug_mix(t: Any, _: Picture) -> list[Transform]:
    if not t.ops or _one(t.ops, "prob") != 1:
        raise ValueError("its operations are done by chance, and here always: give them prob=1")
    names = tuple(op.name for op in t.ops)
    transforms = None if names == AUG_MIX_NAMES else names
    return [
        T.TimmAugMix(
            _one(t.ops, "magnitude"), t.alpha, t.width, t.depth, bool(t.blended), transforms=transforms, **_told(t.ops)
        )
    ]


def _erasing(t: Any, at: Picture) -> list[Transform]:
    """Translate RandomErasing, whose `num_splits` acts on whole batches only."""
    at.is_tensor()
    low, high = (math.exp(end) for end in t.log_aspect_ratio)
    mode = "rand" if t.rand_color else "pixel" if t.per_pixel else "const"
    if t.min_count == t.max_count == 1 and mode != "rand":  # torchvision's is such a one
        value = "random" if mode == "pixel" else 0.0
        return [T.RandomErasing(t.probability, (t.min_area, t.max_area), (low, high), value)]
    return [T.TimmRandomErasing(t.probability, t.min_area, t.max_area, low, high, mode, t.min_count, t.max_count)]


def _center_crop_or_pad(t: Any, at: Picture) -> list[Transform]:
    if t.padding_mode == "constant" and not t.fill:
        return [T.CenterCrop(tuple(t.size))]
    return [T.CenterCropOrPad(tuple(t.size), at.fill(t.fill), t.padding_mode)]


def _random_crop_or_pad(t: Any, at: Picture) -> list[Transform]:
    return [T.RandomCropOrPad(tuple(t.size), at.fill(t.fill), t.padding_mode)]


def _trim_border(t: Any, _: Picture) -> list[Transform]:
    return [T.TrimBorder(t.border_size)]


def _to_numpy(_: Any, at: Picture) -> list[Transform]:
    at.form = "tensor"
    return []


def _to_tensor(t: Any, at: Picture) -> list[Transform]:
    """Translate ToTensor, which keeps the values."""
    if at.form in ("image", "tensor"):
        raise ValueError("timm's ToTensor refuses a tensor, which the image is here: leave it out")
    at.form, before = "tensor", at.dtype
    at.dtype = t.dtype
    return [] if before == t.dtype else [T.ToDtype(t.dtype)]


TIMM: dict[str | None, Callable[[Any, Picture], list[Transform]]] = {
    "timm.AugMixAugment": _aug_mix,
    "timm.AutoAugment": _auto_augment,
    "timm.CenterCropOrPad": _center_crop_or_pad,
    "timm.RandAugment": _rand_augment,
    "timm.RandomCropOrPad": _random_crop_or_pad,
    "timm.RandomErasing": _erasing,
    "timm.RandomResizedCropAndInterpolation": _resized_crop,
    "timm.ResizeKeepRatio": _keep_ratio,
    "timm.ToNumpy": _to_numpy,
    "timm.ToTensor": _to_tensor,
    "timm.TrimBorder": _trim_border,
}

_SEQUENCE = (
    "its patches are a dict of a length of each image's own: leave naflex and patchify out, and cut the loader's "
    "batches into patches by torch.nn.functional.unfold"
)
ADVICE = {
    **{
        f"timm.{name}": _SEQUENCE
        for name in (
            *("Patchify", "ResizeToSequence", "ResizeKeepRatioToSequence", "CenterCropToSequence"),
            *("RandomCropToSequence", "RandomResizedCropToSequence"),
        )
    },
    "timm.AugmentOp": "write TimmAutoAugment([[(name, probability, magnitude)]])",
    "timm.RandomPad": "write RandomCropOrPad(size), which also cuts larger images",
    "timm.TfPreprocessTransform": "it decodes by TensorFlow: leave tf_preprocessing out",
}
"""The words to write instead of others."""
