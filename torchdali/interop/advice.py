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


def _mixed(changed: Callable[[Any], str]) -> Callable[[Any], str]:
    """Apply an expression with the transform's probability."""

    def code(t: Any) -> str:
        return f"ndd.cast(image + rand.bernoulli({t.p:g}) * ({changed(t)} - image * 1.0), dtype=ndd.uint8)"

    return code


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


def _grayscale(_: Any) -> str:
    return (
        "ndd.color_space_conversion(image, image_type=types.RGB, output_type=types.GRAY)"
        "  # from nvidia.dali import types"
    )


def _random_grayscale(t: Any) -> str:
    return f"ndd.color_twist(image, saturation=rand.choice([0.0, 1.0], p=[{t.p:g}, {1 - t.p:g}]))"


def _erasing(t: Any) -> str:
    edges = ", ".join(f"{area**0.5:.2g}" for area in t.scale)
    return (
        "ndd.erase(image, anchor=rand.uniform(0, 0.8, shape=2), "
        f"shape=rand.uniform({edges}, shape=2) * rand.bernoulli({t.p:g}), "
        "axes=[0, 1], normalized=True, fill_value=0)"
    )


def _jpeg(t: Any) -> str:
    low, high = t.quality
    return f"ndd.jpeg_compression_distortion(image, quality=rand.integers({low}, {high + 1}))"


def _noise(t: Any) -> str:
    return f"ndd.noise.gaussian(image, mean={255 * t.mean:g}, stddev={255 * t.sigma:g}, rng=rand.ndd)"


def _posterize(t: Any) -> str:
    mask = 256 - 2 ** (8 - t.bits)
    return f"ndd.cast(image & rand.choice([{mask}, 255], p=[{t.p:g}, {1 - t.p:g}]), dtype=ndd.uint8)"


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
    "GaussianNoise": _noise,
    "Grayscale": _grayscale,
    "JPEG": _jpeg,
    "RandomAffine": _affine,
    "RandomEqualize": _mixed(lambda _: "ndd.equalize(image)"),
    "RandomErasing": _erasing,
    "RandomGrayscale": _random_grayscale,
    "RandomInvert": _mixed(lambda _: "(255 - image)"),
    "RandomPosterize": _posterize,
    "RandomResize": _random_resize,
    "RandomRotation": _rotation,
    "RandomShortestSize": _shortest_size,
    "RandomSolarize": _mixed(lambda t: f"(image + (255.0 - 2.0 * image) * (image >= {t.threshold:g}))"),
    "RandomZoomOut": _zoom_out,
}

_POLICY = "compose operators of DALI with rand.choice and rand.bernoulli in a function, or leave it out here"
_BATCH = "write DataLoader(..., batch_transform=...) with it"
_DETECTION = "leave it out: it acts on boxes, masks or key points, and these samples have labels"
_CHANCE = "in a function, compute both and take one by rand.bernoulli: ndd.cast(image * (1 - on) + other * on, ...)"
_MANY = "it makes several images of one: let a function return more fields, {**sample, 'left': ..., 'right': ...}"

_SENTENCES = {
    "AugMix": _POLICY,
    "AutoAugment": _POLICY,
    "ConvertImageDtype": "write ToDtype(dtype, scale=True)",
    "CutMix": _BATCH,
    "ElasticTransform": "DALI has no such operator on the CPU: leave it out, or apply it to the loader's batches",
    "FiveCrop": _MANY,
    "Lambda": "write what it does as a function f(sample, rand) over DALI batches",
    "LinearTransformation": "leave it out, and multiply the loader's batches by the matrix on their device",
    "MixUp": _BATCH,
    "Pad": "put it directly before a RandomCrop without padding, which then pads, or leave it out",
    "RandAugment": _POLICY,
    "RandomAdjustSharpness": "in a function, mix the image with ndd.gaussian_blur(image, window_size=3) of it",
    "RandomApply": _CHANCE,
    "RandomAutocontrast": "in a function, stretch the image between its ndd.reductions.min and ndd.reductions.max",
    "RandomChannelPermutation": "in a function, cut channels by ndd.slice(image, axes=[2], ...), join by ndd.cat",
    "RandomChoice": "in a function, compute all and take one by rand.choice: ndd.cast(a * (1 - on) + b * on, ...)",
    "RandomIoUCrop": _DETECTION,
    "RandomOrder": "choose one order and write the transforms in it",
    "RandomPerspective": "in a function, write ndd.experimental.warp_perspective(image, matrix) with matrices of yours",
    "RandomPhotometricDistort": "write ColorJitter with the same ranges, which comes close",
    "SanitizeBoundingBoxes": _DETECTION,
    "SanitizeKeyPoints": _DETECTION,
    "ScaleJitter": "in a function, write ndd.resize(image, resize_shorter=rand.uniform(low, high))",
    "TenCrop": _MANY,
    "TrivialAugmentWide": _POLICY,
    "UniformTemporalSubsample": "leave it out: it acts on videos",
}
