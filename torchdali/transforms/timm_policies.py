"""timm's policies of AutoAugment, and its sets of RandAugment's operations, by timm's names.

They are those of `timm/data/auto_augment.py`, where each names its source.
"""

from __future__ import annotations

Row = tuple[tuple[str, float, float], ...]
"""Operations (name, probability, magnitude); each sample takes all of one row."""


def _rows(text: str, **names: str) -> tuple[Row, ...]:
    rows = []
    for line in text.strip().splitlines():
        parts = [part.split() for part in line.split(",")]
        rows.append(tuple((names.get(name, name), float(p), float(magnitude)) for name, p, magnitude in parts))
    return tuple(rows)


_ORIGINAL = """
    Posterize 0.4 8, Rotate 0.6 9
    Solarize 0.6 5, AutoContrast 0.6 5
    Equalize 0.8 8, Equalize 0.6 3
    Posterize 0.6 7, Posterize 0.6 6
    Equalize 0.4 7, Solarize 0.2 4
    Equalize 0.4 4, Rotate 0.8 8
    Solarize 0.6 3, Equalize 0.6 7
    Posterize 0.8 5, Equalize 1.0 2
    Rotate 0.2 3, Solarize 0.6 8
    Equalize 0.6 8, Posterize 0.4 6
    Rotate 0.8 8, Color 0.4 0
    Rotate 0.4 9, Equalize 0.6 2
    Equalize 0.0 7, Equalize 0.8 8
    Invert 0.6 4, Equalize 1.0 8
    Color 0.6 4, Contrast 1.0 8
    Rotate 0.8 8, Color 1.0 2
    Color 0.8 8, Solarize 0.8 7
    Sharpness 0.4 7, Invert 0.6 8
    ShearX 0.6 5, Equalize 1.0 9
    Color 0.4 0, Equalize 0.6 3
    Equalize 0.4 7, Solarize 0.2 4
    Solarize 0.6 5, AutoContrast 0.6 5
    Invert 0.6 4, Equalize 1.0 8
    Color 0.6 4, Contrast 1.0 8
    Equalize 0.8 8, Equalize 0.6 3
"""
_V0 = """
    Equalize 0.8 1, ShearY 0.8 4
    Color 0.4 9, Equalize 0.6 3
    Color 0.4 1, Rotate 0.6 8
    Solarize 0.8 3, Equalize 0.4 7
    Solarize 0.4 2, Solarize 0.6 2
    Color 0.2 0, Equalize 0.8 8
    Equalize 0.4 8, SolarizeAdd 0.8 3
    ShearX 0.2 9, Rotate 0.6 8
    Color 0.6 1, Equalize 1.0 2
    Invert 0.4 9, Rotate 0.6 0
    Equalize 1.0 9, ShearY 0.6 3
    Color 0.4 7, Equalize 0.6 0
    Posterize 0.4 6, AutoContrast 0.4 7
    Solarize 0.6 8, Color 0.6 9
    Solarize 0.2 4, Rotate 0.8 9
    Rotate 1.0 7, TranslateYRel 0.8 9
    ShearX 0.0 0, Solarize 0.8 4
    ShearY 0.8 0, Color 0.6 4
    Color 1.0 0, Rotate 0.6 2
    Equalize 0.8 4, Equalize 0.0 8
    Equalize 1.0 4, AutoContrast 0.6 2
    ShearY 0.4 7, SolarizeAdd 0.6 7
    Posterize 0.8 2, Solarize 0.6 10
    Solarize 0.6 8, Equalize 0.6 1
    Color 0.8 6, Rotate 0.4 5
"""
_3A = """
    Solarize 1.0 5
    Desaturate 1.0 10
    GaussianBlurRand 1.0 10
"""

TIMM_POLICIES = {
    "original": _rows(_ORIGINAL, Posterize="PosterizeOriginal"),
    "originalr": _rows(_ORIGINAL, Posterize="PosterizeIncreasing"),
    "v0": _rows(_V0),
    "v0r": _rows(_V0, Posterize="PosterizeIncreasing"),
    "3a": _rows(_3A),
}

_NAMES = (
    *("AutoContrast", "Equalize", "Invert", "Rotate", "Posterize", "Solarize", "SolarizeAdd", "Color", "Contrast"),
    *("Brightness", "Sharpness", "ShearX", "ShearY", "TranslateXRel", "TranslateYRel"),
)
_GROWING = ("Posterize", "Solarize", "Color", "Contrast", "Brightness", "Sharpness")


def grown(names: tuple[str, ...]) -> tuple[str, ...]:
    """The same operations, where all grow stronger with the magnitude."""
    return tuple(f"{name}Increasing" if name in _GROWING else name for name in names)


RAND_SETS: dict[str, tuple[str, ...] | dict[str, float]] = {
    "plain": _NAMES,
    "increasing": grown(_NAMES),
    "3a": ("SolarizeIncreasing", "Desaturate", "GaussianBlur"),
    "3aw": {
        **dict.fromkeys(("SolarizeIncreasing", "Desaturate", "GaussianBlur"), 6.0),
        "Rotate": 3.0,
        "ShearX": 2.0,
        "ShearY": 2.0,
        **dict.fromkeys(
            ("PosterizeIncreasing", "AutoContrast", "ColorIncreasing", "SharpnessIncreasing", "ContrastIncreasing"), 1.0
        ),
        **dict.fromkeys(("BrightnessIncreasing", "Equalize", "Invert"), 1.0),
    },
    "weights": {
        "Rotate": 3.0,
        "ShearX": 2.0,
        "ShearY": 2.0,
        "TranslateXRel": 1.0,
        "TranslateYRel": 1.0,
        **dict.fromkeys(("ColorIncreasing", "SharpnessIncreasing", "AutoContrast"), 0.25),
        **dict.fromkeys(("SolarizeIncreasing", "SolarizeAdd", "ContrastIncreasing", "BrightnessIncreasing"), 0.05),
        **dict.fromkeys(("Equalize", "PosterizeIncreasing", "Invert"), 0.05),
    },
}
"""RandAugment's sets: names with equal chances, or with weights; then no sample draws one twice."""

AUG_MIX_NAMES = (
    *("AutoContrast", "ColorIncreasing", "ContrastIncreasing", "BrightnessIncreasing", "SharpnessIncreasing"),
    *("Equalize", "Rotate", "PosterizeIncreasing", "SolarizeIncreasing", "ShearX", "ShearY"),
    *("TranslateXRel", "TranslateYRel"),
)
