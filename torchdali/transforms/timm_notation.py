"""timm's notation of its augmentations: `rand-m9-mstd0.5-inc1`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from .arguments import mode_name
from .base import Transform
from .timm import TimmAugMix, TimmAutoAugment, TimmRandAugment

_HPARAMS = {"img_mean": "fill"} | {name: name for name in ("translate_pct", "translate_const", "interpolation")}


def _read(config_str: str, words: Mapping[str, str], example: str) -> tuple[str, dict[str, Any]]:
    """Read a notation: its first word, and the numbers of the others by the arguments that they stand for."""
    head, *parts = str(config_str).split("-")
    options: dict[str, Any] = {}
    for part in parts:
        found = re.fullmatch(r"([a-z]+?)(\d+(?:\.\d+)?|inf)", part)
        if part[:1] == "t" and "t" in words:
            options[words["t"]] = part[1:]
        elif found is None or found[1] not in words:
            raise ValueError(f"{part!r} of {config_str!r} is none of {example} (any numbers)")
        else:
            options[words[found[1]]] = float(found[2])
    return head, options


def _whole(options: dict[str, Any], *names: str) -> None:
    options.update({name: int(options[name]) for name in names if name in options})


def _given(hparams: Mapping[str, Any] | None) -> dict[str, Any]:
    hparams = hparams or {}
    given = {_HPARAMS[key]: value for key, value in hparams.items() if key in _HPARAMS}
    if given.get("interpolation", "random") != "random":
        given["interpolation"] = mode_name(given["interpolation"])
    return given | {key: hparams[key] for key in ("magnitude_std", "magnitude_max") if hparams.get(key) is not None}


def rand_augment_transform(
    config_str: str, hparams: Mapping[str, Any] | None = None, transforms: Any = None
) -> TimmRandAugment:
    """Make timm's RandAugment of its notation, with timm's name and arguments.

    Args:
        config_str: "rand", then any of these, joined by "-": "m9" the strength, "n2" the number of operations, "p0.5"
            the probability of each, "mstd0.5" the deviation of the strength (over 100: uniform), "mmax10" the largest
            one, "inc1" for operations that all grow stronger, "t3a", "t3aw" or "tweights" for a set of operations.  For
            example "rand-m9-mstd0.5-inc1".
        hparams: timm's: "img_mean" is the fill, "translate_pct", "translate_const", "interpolation", "magnitude_std",
            "magnitude_max"; others are not used.
        transforms: as in TimmRandAugment.

    Raises:
        ValueError: another notation; the error says which part is meant.
    """
    words = {"m": "magnitude", "n": "num_layers", "p": "prob", "mstd": "magnitude_std", "mmax": "magnitude_max"}
    words |= {"inc": "increasing", "t": "transforms"}
    head, options = _read(config_str, words, "m9, n2, p0.5, mstd0.5, mmax10, inc1 and t3a")
    if head != "rand":
        raise ValueError(
            f'config_str must begin with "rand", such as "rand-m9-mstd0.5-inc1", got {config_str!r}; for others write '
            "auto_augment_transform or augment_and_mix_transform"
        )
    _whole(options, "num_layers")
    if "increasing" in options:
        options["increasing"] = bool(options["increasing"])
    if options.get("magnitude_std", 0) > 100:
        options["magnitude_std"] = math.inf
    named = options.get("transforms")
    if named is not None and named not in ("3a", "3aw", "weights"):
        del options["transforms"]  # as timm, which then takes all operations
    given = {} if transforms is None else {"transforms": transforms}
    return TimmRandAugment(**{**options, **_given(hparams), **given})


def auto_augment_transform(config_str: str, hparams: Mapping[str, Any] | None = None) -> TimmAutoAugment:
    """Make timm's AutoAugment of its notation, with timm's name and arguments.

    Args:
        config_str: "original", "originalr", "v0", "v0r" or "3a"; "mstd0.5" after it is the deviation of the strength.
            For example "original-mstd0.5".
        hparams: as of `rand_augment_transform`.

    Raises:
        ValueError: another notation; the error says which part is meant.
    """
    head, options = _read(config_str, {"mstd": "magnitude_std"}, "mstd0.5")
    return TimmAutoAugment(head, **{**options, **_given(hparams)})


def augment_and_mix_transform(config_str: str, hparams: Mapping[str, Any] | None = None) -> TimmAugMix:
    """Make timm's AugMix of its notation, with timm's name and arguments.

    Args:
        config_str: "augmix", then any of these, joined by "-": "m3" the strength, "w3" the number of chains, "d2" their
            length (without: 1 to 3), "a1" the distributions' parameter, "b1" for blending, "mstd0.5" the deviation of
            the strength.  For example "augmix-m5-w4-d2".
        hparams: as of `rand_augment_transform`.

    Raises:
        ValueError: another notation; the error says which part is meant.
    """
    words = {"m": "magnitude", "w": "width", "d": "depth", "a": "alpha", "b": "blended", "mstd": "magnitude_std"}
    head, options = _read(config_str, words, "m3, w3, d2, a1, b1 and mstd0.5")
    if head != "augmix":
        raise ValueError(f'config_str must begin with "augmix", such as "augmix-m5-w4-d2", got {config_str!r}')
    _whole(options, "width", "depth")
    if "blended" in options:
        options["blended"] = bool(options["blended"])
    return TimmAugMix(**{**options, **_given(hparams)})


def timm_transform(config_str: str, hparams: Mapping[str, Any] | None = None) -> Transform:
    """Make what timm's `auto_augment=` means: RandAugment, AugMix or AutoAugment, by how the notation begins.

    Raises:
        ValueError: another notation.
    """
    if config_str.startswith("rand"):
        return rand_augment_transform(config_str, hparams)
    if config_str.startswith("augmix"):
        return augment_and_mix_transform(config_str, hparams)
    return auto_augment_transform(config_str, hparams)
