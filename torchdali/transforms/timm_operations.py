"""The operations of timm's `auto_augment.py`: their strengths, and Pillow's kernels, which timm calls."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..moves import Sizes
from .base import Params
from .blur import blurred_host
from .operations import AutoContrast, Bits, Equalize, Geometric, Operation, Sharpness, SolarizeAdd, Strengths, Tone

if TYPE_CHECKING:
    from PIL import Image

    from .._dali import Ops

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Levels:
    """What strengths follow from.

    Attributes:
        part: [N, rounds], the magnitude by 10.
        sign: [N, rounds], 1 or -1.
        unit: [N, rounds] in [0, 1), for strengths that are drawn.
        sizes: [N, 2] of the images.
        translate_pct: translations of part 1, as a part of the image's size.
        translate_const: the same in pixels.
    """

    part: Floats
    sign: Floats
    unit: Floats
    sizes: Sizes
    translate_pct: float
    translate_const: float

    @property
    def signed(self) -> Floats:
        return self.sign * self.part

    def steps(self, most: int) -> Floats:
        """The part of a number, cut off to an integer."""
        return np.floor(self.part * most)


def _threshold(value: Floats) -> Floats:
    return (value - 0.5) / 255  # between two values


def _growing(at: Levels) -> Floats:
    return np.maximum(0.1, 1 + at.signed * 0.9) - 1


def _plain(at: Levels) -> Floats:
    return at.part * 1.8 + 0.1 - 1


def _none(at: Levels) -> Floats:
    return np.zeros(at.part.shape)


_Level = Callable[[Levels], Floats]
_TONES = ("Color", "Contrast", "Brightness", "Sharpness")

LEVELS: dict[str, tuple[str, _Level]] = {
    **{name: (name, _none) for name in ("AutoContrast", "Equalize", "Invert")},
    "Rotate": ("Rotate", lambda at: at.signed * 30),
    "Posterize": ("Posterize", lambda at: at.steps(4)),
    "PosterizeIncreasing": ("Posterize", lambda at: np.maximum(4 - at.steps(4), 0)),
    "PosterizeOriginal": ("Posterize", lambda at: at.steps(4) + 4),
    "Solarize": ("Solarize", lambda at: _threshold(np.minimum(256, at.steps(256)))),
    "SolarizeIncreasing": ("Solarize", lambda at: _threshold(256 - np.minimum(256, at.steps(256)))),
    "SolarizeAdd": ("SolarizeAdd", lambda at: np.minimum(128, at.steps(110))),
    **{name: (name, _plain) for name in _TONES},
    **{f"{name}Increasing": (name, _growing) for name in _TONES},
    "ShearX": ("ShearX", lambda at: at.signed * 0.3),
    "ShearY": ("ShearY", lambda at: at.signed * 0.3),
    "TranslateX": ("TranslateX", lambda at: at.signed * at.translate_const),
    "TranslateY": ("TranslateY", lambda at: at.signed * at.translate_const),
    "TranslateXRel": ("TranslateX", lambda at: at.signed * at.translate_pct * at.sizes[:, 1:]),
    "TranslateYRel": ("TranslateY", lambda at: at.signed * at.translate_pct * at.sizes[:, :1]),
    "Desaturate": ("Color", lambda at: -np.clip(0.5 + 0.5 * at.part, 0.5, 1)),
    "GaussianBlur": ("GaussianBlur", lambda at: np.clip(0.1 + 1.9 * at.part, 0.1, 2)),
    "GaussianBlurRand": ("GaussianBlur", lambda at: 0.1 + (2 * np.clip(at.part, 0, 1) - 0.1) * at.unit),
}
"""By timm's names: the operation's name here, and its strength."""


def strengths_of(names: NDArray[Any], at: Levels) -> tuple[NDArray[Any], Floats]:
    """The operations here, and their strengths, of timm's names [N, rounds]; "Identity" stays."""
    found, strengths = np.array(names, dtype="U16"), np.zeros(names.shape)
    for name in set(names.ravel().tolist()) - {"Identity"}:
        mine = names == name
        found[mine] = LEVELS[name][0]
        strengths[mine] = np.broadcast_to(LEVELS[name][1](at), names.shape)[mine]
    return found, strengths


RANDOM = ("bilinear", "bicubic")
"""The interpolations that "random" means: each operation draws one."""


def by_pillow(image: torch.Tensor, change: Callable[[Image.Image], Image.Image]) -> torch.Tensor:
    """Change an image [C, H, W], uint8 of 1 or 3 channels, with Pillow.

    Raises:
        ValueError: it has another number of channels.
    """
    from PIL import Image

    if len(image) not in (1, 3):
        raise ValueError(f"timm's operations take images of 1 or 3 channels, got {len(image)}")
    array = image.permute(1, 2, 0).numpy()
    made = change(Image.fromarray(np.ascontiguousarray(array if len(image) == 3 else array[..., 0])))
    return torch.from_numpy(np.array(made).reshape(made.height, made.width, -1)).permute(2, 0, 1)


class _Pillows(Operation):
    """An operation whose form on the CPU is Pillow's; on a GPU it is torchvision's."""

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, **params: Any) -> torch.Tensor:
        if image.is_cuda:
            return super().transform_host(image, **params)
        name, strength = self.names[int(params["operation"])], float(params["strength"])
        return by_pillow(image, lambda picture: self.pillow(picture, name, strength, params))

    def pillow(self, picture: Image.Image, name: str, strength: float, own: dict[str, Any]) -> Image.Image:
        """One operation, by Pillow."""
        raise NotImplementedError


@dataclass(frozen=True)
class PillowGeometric(_Pillows, Geometric):
    """Shears, translations and rotations by Pillow, whose interpolations are three; bicubic is bilinear elsewhere."""

    whole: bool = False

    def params(self, operation: NDArray[np.int32], strength: Strengths, sizes: Sizes) -> Params:
        mode = np.full(len(operation), RANDOM.index("bilinear"), np.int32)
        return {**super().params(operation, strength, sizes), "mode": mode}

    def pillow(self, picture: Image.Image, name: str, strength: float, own: dict[str, Any]) -> Image.Image:
        from PIL import Image

        resampling = {0: Image.Resampling.BILINEAR, 1: Image.Resampling.BICUBIC, 2: Image.Resampling.NEAREST}
        fill = tuple(int(value) for value in self.fill_values())
        if picture.mode == "L":
            fill = fill[:1]
        given: Any = {"resample": resampling[int(own["mode"])], "fillcolor": fill if len(fill) > 1 else fill[0]}
        if picture.mode == "RGB" and len(fill) == 1:
            given["fillcolor"] = fill * 3
        if name == "Rotate":
            return picture.rotate(strength, **given)
        rows = {
            "ShearX": (1, strength, 0, 0, 1, 0),
            "ShearY": (1, 0, 0, strength, 1, 0),
            "TranslateX": (1, 0, -strength, 0, 1, 0),
            "TranslateY": (1, 0, 0, 0, 1, -strength),
        }
        return picture.transform(picture.size, Image.Transform.AFFINE, rows[name], **given)


@dataclass(frozen=True)
class PillowTone(_Pillows, Tone):
    """Brightness, saturation and contrast by Pillow."""

    def pillow(self, picture: Image.Image, name: str, strength: float, own: dict[str, Any]) -> Image.Image:
        from PIL import ImageEnhance

        made: Image.Image = getattr(ImageEnhance, name)(picture).enhance(1 + strength)
        return made


@dataclass(frozen=True)
class PillowSharpness(_Pillows, Sharpness):
    """Sharper or softer by Pillow."""

    def pillow(self, picture: Image.Image, name: str, strength: float, own: dict[str, Any]) -> Image.Image:
        from PIL import ImageEnhance

        return ImageEnhance.Sharpness(picture).enhance(1 + strength)


@dataclass(frozen=True)
class PillowAutoContrast(_Pillows, AutoContrast):
    """Each channel stretched by Pillow."""

    def pillow(self, picture: Image.Image, name: str, strength: float, own: dict[str, Any]) -> Image.Image:
        from PIL import ImageOps

        return ImageOps.autocontrast(picture)


@dataclass(frozen=True)
class PillowEqualize(_Pillows, Equalize):
    """The histogram of each channel made flat by Pillow, whose rule torchvision has too."""

    def pillow(self, picture: Image.Image, name: str, strength: float, own: dict[str, Any]) -> Image.Image:
        from PIL import ImageOps

        return ImageOps.equalize(picture)


@dataclass(frozen=True)
class PillowBlur(_Pillows):
    """A blur of a radius, which is the standard deviation; Pillow makes it of three boxes."""

    names = ("GaussianBlur",)

    def numbers(self, operation: NDArray[np.int32], strength: Strengths, sizes: Sizes) -> Params:
        return {"sigma": np.maximum(strength, 0.01).astype(np.float32)}

    def transform(self, ops: Ops, image: Any, sigma: Any) -> Any:
        return ops.gaussian_blur(image, sigma=sigma)

    def apply(self, image: torch.Tensor, name: str, strength: float) -> torch.Tensor:
        size = 2 * math.ceil(3 * strength) + 1
        return blurred_host(image, (size, size), max(strength, 0.01))

    def pillow(self, picture: Image.Image, name: str, strength: float, own: dict[str, Any]) -> Image.Image:
        from PIL import ImageFilter

        return picture.filter(ImageFilter.GaussianBlur(strength))


def families(interpolation: str, fill: Any) -> list[Operation]:
    """All operations, by family.

    Args:
        interpolation: "nearest", "bilinear", "bicubic" or "random".
        fill: of what geometric ones move in.
    """
    warp = PillowGeometric("nearest" if interpolation == "nearest" else "bilinear", fill)
    return [
        *(warp, PillowTone(), PillowSharpness(), Bits(), SolarizeAdd()),
        *(PillowAutoContrast(), PillowEqualize(), PillowBlur()),
    ]
