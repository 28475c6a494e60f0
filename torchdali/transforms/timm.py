"""RandAugment as timm has it, by its notation: `rand-m9-mstd0.5-inc1`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..moves import Sizes
from ..rand import Rand
from .auto_augment import Chosen, Operations
from .base import is_integer, is_number, mode_name, probability
from .operations import AutoContrast, Bits, Equalize, Geometric, Operation, Sharpness, SolarizeAdd, Tone

_NAMES = (
    *("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color", "Contrast"),
    *("Brightness", "Sharpness", "ShearX", "ShearY", "TranslateX", "TranslateY"),
)


@dataclass(frozen=True)
class TimmRandAugment(Operations):
    """Operations of a random strength, each done with a probability, as timm's `rand_augment_transform` makes them.

    Cubuk et al., "RandAugment", 2020, with the operations and strengths of timm's `auto_augment.py`.

    Args:
        magnitude: the strength, from 0 to 10.
        num_layers: operations drawn for each sample.
        prob: of each of them to be done.
        magnitude_std: the strength is drawn from a normal distribution of this deviation; infinity: uniformly from 0 to
            the strength.
        magnitude_max: the largest strength that is drawn.
        increasing: all operations grow stronger with the strength ("inc1").
        translate_pct: translations at strength 10, as a part of the image's size.
        interpolation: of shears, translations and rotations, "nearest" or "bilinear"; timm's default, "random",
            takes bilinear or bicubic ones by chance.
        fill: of what they move in: a number, one for each channel, or None for zeros.

    Images are uint8, of 1 or 3 channels.  The kernels are torchvision's, where timm has Pillow's.

    Raises:
        ValueError: an invalid argument.
    """

    magnitude: float = 10
    num_layers: int = 2
    prob: float = 0.5
    magnitude_std: float = 0.0
    magnitude_max: float = 10
    increasing: bool = False
    translate_pct: float = 0.45
    interpolation: Any = "bilinear"
    fill: Any = (128, 128, 128)

    def __post_init__(self) -> None:
        super().__post_init__()
        probability(self.prob)
        if not is_integer(self.num_layers, 0):
            raise ValueError(f"num_layers must be an integer, not negative, got {self.num_layers!r}")
        for name in ("magnitude", "magnitude_std", "magnitude_max", "translate_pct"):
            if not is_number(value := getattr(self, name)) or not value >= 0:
                raise ValueError(f"{name} must not be negative, got {value!r}")

    @property
    def rounds(self) -> int:
        return int(self.num_layers)

    def families(self) -> list[Operation]:
        warp = Geometric(mode_name(self.interpolation), self.fill, whole=False)
        return [warp, Tone(), Sharpness(), Bits(), SolarizeAdd(), AutoContrast(), Equalize()]

    def operations(self, rand: Rand, sizes: Sizes) -> Chosen:
        shape = self.rounds
        names = rand.choice(_NAMES, shape=shape)
        names = np.where(rand.bernoulli(self.prob, shape) == 1, names, "Identity")
        if np.isinf(self.magnitude_std):
            level = rand.uniform(0, self.magnitude, shape).astype(np.float64)
        else:
            level = rand.normal(self.magnitude, self.magnitude_std, shape).astype(np.float64)
        part = np.clip(level, 0, self.magnitude_max) / 10
        sign = (1 - 2 * rand.bernoulli(0.5, shape)).astype(np.float64)
        return Chosen(names, self._strengths(names, part, sign, sizes))

    def _strengths(
        self, names: NDArray[Any], part: NDArray[np.float64], sign: NDArray[np.float64], sizes: Sizes
    ) -> NDArray[np.float64]:
        """The strengths, of parts of the strongest one."""
        bits, threshold = (part * 4).astype(np.int64), np.minimum(256, (part * 256).astype(np.int64))
        if self.increasing:
            bits, threshold = 4 - bits, 256 - threshold
            factor = np.maximum(0.1, 1 + sign * part * 0.9)
        else:
            factor = part * 1.8 + 0.1
        of: dict[str, Any] = {
            "Rotate": sign * part * 30,
            **dict.fromkeys(("ShearX", "ShearY"), sign * part * 0.3),
            "TranslateX": sign * part * self.translate_pct * sizes[:, 1:],
            "TranslateY": sign * part * self.translate_pct * sizes[:, :1],
            **dict.fromkeys(("Color", "Contrast", "Brightness", "Sharpness"), factor - 1),
            "Posterize": np.maximum(bits, 0),
            "Solarize": (np.maximum(threshold, 0) - 0.5) / 255,  # between two values
            "SolarizeAdd": np.minimum(128, (part * 110).astype(np.int64)),
        }
        found = np.zeros(names.shape)
        for name, values in of.items():
            found = np.where(names == name, values, found)
        return found


def rand_augment_transform(config_str: str, hparams: Mapping[str, Any] | None = None) -> TimmRandAugment:
    """Make timm's RandAugment of its notation, with timm's name and arguments.

    Args:
        config_str: "rand", then any of these, joined by "-": "m9" the strength, "n2" the number of operations, "p0.5"
            the probability of each, "mstd0.5" the deviation of the strength (over 100: uniform), "mmax10" the largest
            one, "inc1" for operations that all grow stronger.  For example "rand-m9-mstd0.5-inc1".
        hparams: timm's: "img_mean" is the fill, "translate_pct", "interpolation", "magnitude_std", "magnitude_max";
            others are not used.

    Raises:
        ValueError: another notation; the error says which part is meant.
    """
    head, *parts = str(config_str).split("-")
    if head != "rand":
        raise ValueError(
            f'config_str must begin with "rand", such as "rand-m9-mstd0.5-inc1", got {config_str!r}; for other '
            "policies write AutoAugment, AugMix or TrivialAugmentWide"
        )
    hparams = hparams or {}
    options: dict[str, Any] = {}
    words = {"m": "magnitude", "n": "num_layers", "p": "prob", "mstd": "magnitude_std", "mmax": "magnitude_max"}
    for part in parts:
        found = re.fullmatch(r"([a-z]+)(\d+(?:\.\d+)?|inf)", part)
        if found is None or found[1] not in (*words, "inc"):
            raise ValueError(
                f"{part!r} of {config_str!r} is none of m9, n2, p0.5, mstd0.5, mmax10 and inc1 (any numbers)"
            )
        number = float(found[2])
        if found[1] == "inc":
            options["increasing"] = bool(number)
        elif found[1] == "n":
            options["num_layers"] = int(number)
        else:
            options[words[found[1]]] = number
    if options.get("magnitude_std", 0) > 100:
        options["magnitude_std"] = float("inf")
    names = {"img_mean": "fill", "translate_pct": "translate_pct", "interpolation": "interpolation"}
    given = {names[key]: value for key, value in hparams.items() if key in names}
    given |= {key: hparams[key] for key in ("magnitude_std", "magnitude_max") if hparams.get(key) is not None}
    return TimmRandAugment(**{**options, **given})
