"""The rules of translation, one per transform of torchvision: torchdali's transforms, and the picture after it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import torch

from .. import transforms as T
from ..transforms.arguments import mode_name
from ..transforms.base import Transform
from .geometry import GEOMETRY
from .picture import Picture
from .timm import TIMM

Rule = Callable[[Any, Picture], list[Transform]]
"""rule(transform, picture before it) gives transforms, and changes the picture."""


def name_of(transform: Any) -> str | None:
    """Give the name of a class of torchvision or timm that is known; None for any other: a subclass may do anything."""
    kind = type(transform)
    known = kind.__module__.startswith("torchvision.transforms") or kind.__name__ in _TIMM
    return kind.__name__ if known else f"timm.{kind.__name__}" if kind.__module__.startswith("timm.") else None


_TIMM = ("MaybeToTensor", "MaybePILToTensor")  # of timm.data.transforms: a tensor stays as it is


def is_v2(transform: Any) -> bool:
    return ".v2." in type(transform).__module__


def numbers(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Sequence) else (value,)


def _size(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence) else value


def _resize(t: Any, at: Picture) -> list[Transform]:
    return [T.Resize(_size(t.size), at.mode(t.interpolation), t.max_size, at.antialias(t.antialias))]


def _random_resized_crop(t: Any, at: Picture) -> list[Transform]:
    mode, antialias = at.mode(t.interpolation), at.antialias(t.antialias)
    return [T.RandomResizedCrop(_size(t.size), tuple(t.scale), tuple(t.ratio), mode, antialias)]


def _center_crop(t: Any, _: Picture) -> list[Transform]:
    return [T.CenterCrop(_size(t.size))]


def _random_crop(t: Any, at: Picture) -> list[Transform]:
    padding = None if t.padding is None else numbers(t.padding)
    if padding and is_v2(t):
        left, right, top, bottom = padding  # v2 keeps them in another order than it takes them
        padding = (left, top, right, bottom)
    return [T.RandomCrop(_size(t.size), padding, t.pad_if_needed, at.fill(t.fill), t.padding_mode)]


def padded_crop(pad: T.Pad, crop: T.RandomCrop) -> T.RandomCrop | None:
    """Join a Pad and the RandomCrop after it into one RandomCrop; None: the crop has a padding of its own."""
    if crop.padding is not None or crop.pad_if_needed:
        return None
    return T.RandomCrop(crop.size, numbers(pad.padding), False, pad.fill, pad.padding_mode)


def _horizontal_flip(t: Any, _: Picture) -> list[Transform]:
    return [T.RandomHorizontalFlip(t.p)]


def _vertical_flip(t: Any, _: Picture) -> list[Transform]:
    return [T.RandomVerticalFlip(t.p)]


def _color_jitter(t: Any, _: Picture) -> list[Transform]:
    return [T.ColorJitter(t.brightness, t.contrast, t.saturation, t.hue)]


def _gaussian_blur(t: Any, _: Picture) -> list[Transform]:
    return [T.GaussianBlur(_size(t.kernel_size), tuple(t.sigma))]


def _grayscale(t: Any, at: Picture) -> list[Transform]:
    at.channels = t.num_output_channels
    return [T.Grayscale(t.num_output_channels)]


def _rgb(_: Any, at: Picture) -> list[Transform]:
    if at.channels == 3:
        return []
    at.channels = 3
    return [T.RGB()]


def _same(*names: str) -> Rule:
    """Translate a transform that takes the same arguments here, and keeps them under their names."""

    def rule(t: Any, _: Picture) -> list[Transform]:
        made: Transform = getattr(T, type(t).__name__)(**{name: _size(getattr(t, name)) for name in names})
        return [made]

    return rule


def _of_tensors(rule: Rule) -> Rule:
    def checked(t: Any, at: Picture) -> list[Transform]:
        at.is_tensor()
        return rule(t, at)

    return checked


def _erasing(t: Any, at: Picture) -> list[Transform]:
    at.is_tensor()
    value = "random" if t.value is None else t.value  # as v2 keeps it
    value = tuple(value) if isinstance(value, list) else value
    value = value[0] if isinstance(value, tuple) and len(value) == 1 else value
    return [T.RandomErasing(t.p, tuple(t.scale), tuple(t.ratio), value, t.inplace)]


def _operations(*names: str) -> Rule:
    """Translate AutoAugment and its kin."""

    def rule(t: Any, at: Picture) -> list[Transform]:
        given = {name: getattr(t, name) for name in names}
        if isinstance(given.get("policy"), Enum):
            given["policy"] = given["policy"].value
        made = getattr(T, type(t).__name__)
        return [made(**given, interpolation=mode_name(t.interpolation), fill=at.fill(t.fill))]

    return rule


def _normalize(t: Any, at: Picture) -> list[Transform]:
    at.is_tensor()
    if at.dtype not in (torch.float32, None):
        raise ValueError(
            f"the image is {at.dtype} here, and Normalize takes and gives torch.float32: "
            "write ToDtype(torch.float32, scale=True) before it"
        )
    given = [value.tolist() if hasattr(value, "tolist") else value for value in (t.mean, t.std)]
    return [T.Normalize(numbers(given[0]), numbers(given[1]), t.inplace)]


def _to(dtype: torch.dtype | None, scale: bool, at: Picture) -> list[Transform]:
    if dtype is None or dtype == at.dtype:
        return []
    step = T.ToDtype(dtype, scale)
    at.dtype = dtype
    return [step]


def _to_tensor(t: Any, at: Picture) -> list[Transform]:
    if at.form in ("image", "tensor"):
        if is_v2(t):
            return []
        raise ValueError("torchvision's ToTensor refuses a tensor, which the image is here: leave it out")
    at.form = "tensor"
    return _to(torch.get_default_dtype(), True, at)


def _pil_to_tensor(t: Any, at: Picture) -> list[Transform]:
    if at.form in ("image", "tensor"):
        if is_v2(t):
            return []
        raise ValueError("torchvision's PILToTensor refuses a tensor, which the image is here: leave it out")
    at.form = "tensor"
    return []


def _maybe_to_tensor(t: Any, at: Picture) -> list[Transform]:
    return [] if at.form in ("image", "tensor") else _to_tensor(t, at)


def _maybe_pil_to_tensor(t: Any, at: Picture) -> list[Transform]:
    return [] if at.form in ("image", "tensor") else _pil_to_tensor(t, at)


def _to_image(_: Any, at: Picture) -> list[Transform]:
    at.form = "image"
    return []


def _to_pure_tensor(_: Any, at: Picture) -> list[Transform]:
    at.form = "tensor" if at.form == "image" else at.form
    return []


def _to_pil_image(t: Any, at: Picture) -> list[Transform]:
    if at.dtype not in (torch.uint8, None):
        raise ValueError(f"the image is {at.dtype} here: put ToDtype(torch.uint8, scale=True) before it")
    if t.mode not in (None, "RGB"):
        raise ValueError(f"images are RGB: leave mode={t.mode!r} out")
    at.form = "pil"
    return []


def _to_dtype(t: Any, at: Picture) -> list[Transform]:
    dtype = at.target(t.dtype)
    if dtype is not None:
        at.is_tensor()
    masks = T.ToDtype(t.dtype).masks if at.alone and isinstance(t.dtype, dict) else None
    return [*([] if masks is None else [T.ToDtype(None, masks=masks)]), *_to(dtype, t.scale, at)]


def _convert_image_dtype(t: Any, at: Picture) -> list[Transform]:
    at.is_tensor()
    return _to(t.dtype, True, at)


def _image_classification(t: Any, at: Picture) -> list[Transform]:
    """Translate the preset that a model's `weights.transforms()` returns."""
    mode, antialias = at.mode(t.interpolation), at.antialias(t.antialias)
    steps: list[Transform] = [
        T.Resize(_size(t.resize_size), mode, antialias=antialias),
        T.CenterCrop(_size(t.crop_size)),
    ]
    at.form = "tensor" if at.form == "pil" else at.form
    return [*steps, *_to(torch.float32, True, at), *_normalize(_Preset(t.mean, t.std), at)]


def _object_detection(_: Any, at: Picture) -> list[Transform]:
    at.form = "tensor" if at.form == "pil" else at.form
    return _to(torch.float32, True, at)


def _semantic_segmentation(t: Any, at: Picture) -> list[Transform]:
    mode, antialias = at.mode(t.interpolation), at.antialias(t.antialias)
    steps: list[Transform] = [T.Resize(_size(t.resize_size), mode, antialias=antialias)] if t.resize_size else []
    at.form = "tensor" if at.form == "pil" else at.form
    return [*steps, *_to(torch.float32, True, at), *_normalize(_Preset(t.mean, t.std), at)]


def _video_classification(t: Any, at: Picture) -> list[Transform]:
    """Clips are tensors; they leave as [N, F, C, H, W], and torchvision's models take them by `movedim(1, 2)`."""
    at.form = "tensor"
    size = T.Resize(_size(t.resize_size), mode_name(t.interpolation), antialias=False)
    steps: list[Transform] = [size, T.CenterCrop(_size(t.crop_size))]
    return [*steps, *_to(torch.float32, True, at), *_normalize(_Preset(t.mean, t.std), at)]


def _optical_flow(_: Any, at: Picture) -> list[Transform]:
    at.form = "tensor" if at.form == "pil" else at.form
    return [*_to(torch.float32, True, at), *_normalize(_Preset((0.5,) * 3, (0.5,) * 3), at)]


@dataclass(frozen=True)
class _Preset:
    mean: Any
    std: Any
    inplace: bool = False


RULES: dict[str | None, Rule] = {
    "AugMix": _operations("severity", "mixture_width", "chain_depth", "alpha", "all_ops"),
    "AutoAugment": _operations("policy"),
    "CenterCrop": _center_crop,
    "ColorJitter": _color_jitter,
    "ConvertImageDtype": _convert_image_dtype,
    "GaussianBlur": _gaussian_blur,
    "GaussianNoise": _of_tensors(_same("mean", "sigma", "clip")),
    "Grayscale": _grayscale,
    "JPEG": _same("quality"),
    "ImageClassification": _image_classification,
    "MaybePILToTensor": _maybe_pil_to_tensor,
    "MaybeToTensor": _maybe_to_tensor,
    "Normalize": _normalize,
    "ObjectDetection": _object_detection,
    "OpticalFlow": _optical_flow,
    "PILToTensor": _pil_to_tensor,
    "RGB": _rgb,
    "RandAugment": _operations("num_ops", "magnitude", "num_magnitude_bins"),
    "RandomAdjustSharpness": _same("sharpness_factor", "p"),
    "RandomAutocontrast": _same("p"),
    "RandomChannelPermutation": _same(),
    "RandomEqualize": _same("p"),
    "RandomErasing": _erasing,
    "RandomGrayscale": _same("p"),
    "RandomInvert": _same("p"),
    "RandomPhotometricDistort": _same("brightness", "contrast", "saturation", "hue", "p"),
    "RandomPosterize": _same("bits", "p"),
    "RandomSolarize": _same("threshold", "p"),
    "RandomCrop": _random_crop,
    "RandomHorizontalFlip": _horizontal_flip,
    "RandomResizedCrop": _random_resized_crop,
    "RandomVerticalFlip": _vertical_flip,
    "Resize": _resize,
    "SemanticSegmentation": _semantic_segmentation,
    "ToDtype": _to_dtype,
    "ToImage": _to_image,
    "ToPILImage": _to_pil_image,
    "ToPureTensor": _to_pure_tensor,
    "ToTensor": _to_tensor,
    "TrivialAugmentWide": _operations("num_magnitude_bins"),
    "VideoClassification": _video_classification,
    **GEOMETRY,
    **TIMM,
}
