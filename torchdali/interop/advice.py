"""Advice on transforms of torchvision that have no counterpart here: the code to write instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def advice(transform: Any) -> str:
    """Say what to write instead, as the end of a sentence: code, where an operator of DALI does the same."""
    name = type(transform).__name__
    if not type(transform).__module__.startswith("torchvision.transforms"):
        return "write what it does as a function f(sample, rand) over DALI batches"
    if name in _OPERATORS:
        return f"in a function, write image = {operator(transform)}"
    return _SENTENCES.get(name, "write it as a function f(sample, rand) over DALI batches, or leave it out")


def operator(transform: Any) -> str | None:
    """Give an expression of DALI's operators over `image` (uint8) and `rand`; None where there is none."""
    code = _OPERATORS.get(type(transform).__name__)
    return None if code is None else code(transform)


def _range(values: Any) -> str:
    low, high = values
    return f"rand.uniform({low:g}, {high:g})"


def _rotation(t: Any) -> str:
    return f"ndd.rotate(image, angle={_range(t.degrees)}, keep_size={not t.expand}, fill_value=0)"


def _affine(t: Any) -> str:
    return (
        f"ndd.warp_affine(image, ndd.transforms.rotation(angle={_range(t.degrees)}, center=[112, 112]), fill_value=0)"
        "  # more of them: matrix= of ndd.transforms.scale, shear and translation"
    )


def _zoom_out(t: Any) -> str:
    low, high = t.side_range
    return (
        f"ndd.paste(image, ratio=1 + rand.uniform({low - 1:g}, {high - 1:g}) * rand.bernoulli({t.p:g}), "
        "paste_x=rand.uniform(), paste_y=rand.uniform(), fill_value=0)"
    )


def _random_resize(t: Any) -> str:
    return f"ndd.resize(image, resize_shorter=rand.integers({t.min_size}, {t.max_size}))"


def _shortest_size(t: Any) -> str:
    longest = f", max_size={t.max_size}" if t.max_size else ""
    return f"ndd.resize(image, resize_shorter=rand.choice({[float(size) for size in t.min_size]}){longest})"


_OPERATORS: dict[str, Callable[[Any], str]] = {
    "RandomAffine": _affine,
    "RandomResize": _random_resize,
    "RandomRotation": _rotation,
    "RandomShortestSize": _shortest_size,
    "RandomZoomOut": _zoom_out,
}

_BATCH = "write DataLoader(..., batch_transform=...) with it"
_DETECTION = "leave it out: it acts on boxes, masks or key points, and these samples have labels"
_MANY = "it makes several images of one: let a function return more fields, {**sample, 'left': ..., 'right': ...}"

_SENTENCES = {
    "ConvertImageDtype": "write ToDtype(dtype, scale=True)",
    "CutMix": _BATCH,
    "ElasticTransform": "DALI has no such operator on the CPU: leave it out, or apply it to the loader's batches",
    "FiveCrop": _MANY,
    "Lambda": "write what it does as a function f(sample, rand) over DALI batches",
    "LinearTransformation": "leave it out, and multiply the loader's batches by the matrix on their device",
    "MixUp": _BATCH,
    "Pad": "put it directly before a RandomCrop without padding, which then pads, or leave it out",
    "RandomIoUCrop": _DETECTION,
    "RandomPerspective": "in a function, write ndd.experimental.warp_perspective(image, matrix) with matrices of yours",
    "SanitizeBoundingBoxes": _DETECTION,
    "SanitizeKeyPoints": _DETECTION,
    "ScaleJitter": "in a function, write ndd.resize(image, resize_shorter=rand.uniform(low, high))",
    "TenCrop": _MANY,
    "UniformTemporalSubsample": "leave it out: it acts on videos",
}
