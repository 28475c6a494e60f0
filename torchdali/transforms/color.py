"""Transforms of brightness, contrast, saturation and hue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..moves import Sizes
from ..rand import Rand
from . import adjust
from .arguments import number_pair, number_range, probability
from .base import Params, Transform
from .channels import permutation_params, permuted
from .recolor import permuted_host, recolored
from .switch import switch

if TYPE_CHECKING:
    from .._dali import Ops

NAMES = ("brightness", "contrast", "saturation", "hue")


def weights(name: str, factor: NDArray[Any], on: Any = True) -> Params:
    """Give what brightness, contrast or saturation by a factor mix, as `adjust.toned` takes it.

    Args:
        name: the one of the three.
        factor: [N].
        on: [N]; where it is not, nothing is mixed.
    """
    own = np.where(on, factor, 1).astype(np.float32)
    rest = np.float32(1) - own
    none = np.zeros_like(own)
    return {"own": own, "grey": rest if name == "saturation" else none, "mean": rest if name == "contrast" else none}


def turns(factors: Mapping[str, NDArray[Any]], order: NDArray[Any]) -> Params:
    """Give the weights of the turns in which brightness, contrast and saturation change a batch.

    Hue has one turn in the middle; whatever a sample's order is, what comes before it and after it finds one.

    Args:
        factors: [N] each, by name.
        order: [N, 4], the numbers of `NAMES` in each sample's order.
    """
    place = np.argsort(order, axis=1)  # of each name
    names = [name for name in NAMES[:3] if name in factors]
    places = {name: place[:, NAMES.index(name)] for name in names}
    after = place[:, 3] if "hue" in factors else np.full(len(order), 4)
    count, rows = len(names) * (2 if "hue" in factors else 1), np.arange(len(order))
    made = {key: np.full((count, len(order)), key == "own", np.float32) for key in ("own", "grey", "mean")}
    for name in names:
        turn = sum((places[other] < places[name]).astype(np.int64) for other in names)
        turn = turn + len(names) * (places[name] > after)
        for key, values in weights(name, factors[name]).items():
            made[key][turn, rows] = values
    used = ["own", *(["grey"] if "saturation" in names else []), *(["mean"] if "contrast" in names else [])]
    return {f"{key}{turn}": made[key][turn] for turn in range(count) for key in used}


def toned(ops: Ops, image: Any, own: Any, grey: Any = None, mean: Any = None) -> Any:
    """Change brightness, contrast or saturation, by torchvision's formula; saturation of grey images stays."""
    return adjust.toned(ops, image, own, grey, mean, ops.dtype_of(image), channels_of(ops, image))


def hued(ops: Ops, image: Any, shift: Any) -> Any:
    """Shift the hue, by torchvision's formula; grey images stay."""
    dtype = ops.dtype_of(image)
    if channels_of(ops, image) == 1:
        return toned(ops, image, shift * 0.0 + 1.0)  # DALI warns of inputs of a pipeline that are not used
    return adjust.hue(ops, image, shift, dtype)


def channels_of(ops: Ops, image: Any) -> int:
    """Count an image's channels.

    Raises:
        ValueError: they are neither 1 nor 3.
    """
    channels = ops.channels_of(image)
    if channels not in (1, 3):
        raise ValueError(f"transforms of colour need images of 1 or 3 channels, got {channels}")
    return channels


@dataclass(frozen=True)
class ColorJitter(Transform):
    """Brightness, contrast, saturation and hue changed at random, in a random order.

    Args:
        brightness, contrast, saturation: the factor is drawn from [max(0, 1 - x), 1 + x], or from (low, high).
        hue: the shift in turns is drawn from [-x, x] with x <= 0.5, or from (low, high).

    Images are uint8, or floats in [0, 1], of 1 or 3 channels.  The CPU form is torchvision's; the DALI form has its
    formulas and its order for each sample: uint8 images differ by 1 at most after each of the four.

    Raises:
        ValueError: an invalid range.
    """

    brightness: float | Sequence[float] | None = None
    contrast: float | Sequence[float] | None = None
    saturation: float | Sequence[float] | None = None
    hue: float | Sequence[float] | None = None

    def __post_init__(self) -> None:
        _ = self._ranges

    @cached_property
    def _ranges(self) -> dict[str, tuple[float, float]]:
        """The ranges of the factors that change anything."""
        ranges = {}
        for name, center in {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0}.items():
            value = getattr(self, name)
            if value is not None:
                limits = (-0.5, 0.5) if name == "hue" else (0, np.inf)
                low, high = number_range(value, name, center, limits)
                if not low == high == center:
                    ranges[name] = low, high
        return ranges

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        params: Params = {name: rand.uniform(low, high) for name, (low, high) in self._ranges.items()}
        if params:
            params["order"] = rand.permutations(4).astype(np.int32)
        return params, sizes

    def dali_params(self, params: Params) -> Params:
        hue = {name: values for name, values in params.items() if name == "hue"}
        return {**hue, **turns(params, params["order"])} if params else {}

    def transform(self, ops: Ops, image: Any, hue: Any = None, **given: Any) -> Any:
        count = sum(name.startswith("own") for name in given)
        before = count if hue is None else count // 2
        for turn in range(count):
            if turn == before:
                image = hued(ops, image, hue)
            image = toned(ops, image, *(given.get(f"{key}{turn}") for key in ("own", "grey", "mean")))
        return image if hue is None or count else hued(ops, image, hue)

    def transform_host(
        self, image: torch.Tensor, out: torch.Tensor | None = None, *, order: Any = (), **factors: Any
    ) -> torch.Tensor:
        for i in order:
            if NAMES[i] in factors:
                image = recolored(image, NAMES[i], factors[NAMES[i]])
        return image


@dataclass(frozen=True)
class RandomPhotometricDistort(Transform):
    """Brightness, contrast, saturation, hue and the order of the channels changed, each with probability p.

    Liu et al., "SSD: Single Shot MultiBox Detector", 2016, as torchvision has it: contrast comes before saturation and
    hue or after them.

    Args:
        brightness, contrast, saturation: the factor is drawn from (low, high).
        hue: the shift in turns is drawn from (low, high) within [-0.5, 0.5].
        p: of each change.

    Images are uint8, or floats in [0, 1], of 1 or 3 channels.  The CPU form is torchvision's; the DALI form has its
    formulas: uint8 images differ by 1 at most after each of the five.

    Raises:
        ValueError: an invalid range, or p is no probability.
    """

    brightness: Sequence[float] = (0.875, 1.125)
    contrast: Sequence[float] = (0.5, 1.5)
    saturation: Sequence[float] = (0.5, 1.5)
    hue: Sequence[float] = (-0.05, 0.05)
    p: float = 0.5

    def __post_init__(self) -> None:
        for name in NAMES:
            number_pair(getattr(self, name), name, (-0.5, 0.5) if name == "hue" else (0, np.inf))
        probability(self.p)

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        params: Params = {}
        for name in NAMES:
            params[f"{name}_on"] = rand.bernoulli(self.p)
            params[name] = rand.uniform(*getattr(self, name))
        params["before"] = rand.bernoulli(0.5)
        permutation = rand.permutations(3)
        permutation = np.where(rand.bernoulli(self.p)[:, None] == 1, permutation, np.arange(3))
        return {**params, **permutation_params(permutation)}, sizes

    def dali_params(self, params: Params) -> Params:
        contrast, before = params["contrast_on"] == 1, params["before"] == 1
        made: Params = {}
        for turn, name, on in (
            ("brightness", "brightness", params["brightness_on"] == 1),
            ("first", "contrast", contrast & before),
            ("saturation", "saturation", params["saturation_on"] == 1),
            ("last", "contrast", contrast & ~before),
        ):
            given = weights(name, params[name], on)
            key = {"contrast": "mean", "saturation": "grey"}.get(name)
            made |= {f"{turn}:own": given["own"], **({f"{turn}:{key}": given[key]} if key else {})}
        return {**made, **{name: params[name] for name in ("hue", "hue_on", "matrix")}}

    def transform(self, ops: Ops, image: Any, *, hue: Any, hue_on: Any, matrix: Any, **given: Any) -> Any:
        def turn(image: Any, name: str) -> Any:
            return toned(ops, image, *(given.get(f"{name}:{key}") for key in ("own", "grey", "mean")))

        for name in ("brightness", "first", "saturation"):
            image = turn(image, name)
        image = switch(ops, hue_on, [lambda ops, image, shift: hued(ops, image, shift)], image, [{"shift": hue}])
        return permuted(ops, turn(image, "last"), matrix)

    def transform_host(
        self, image: torch.Tensor, out: torch.Tensor | None = None, *, before: Any, permutation: Any, **params: Any
    ) -> torch.Tensor:
        turns = (("brightness", 1), ("contrast", before), ("saturation", 1), ("hue", 1), ("contrast", 1 - before))
        for name, on in turns:
            if params[f"{name}_on"] and on:
                image = recolored(image, name, params[name])
        return image if len(image) == 1 or permutation == [0, 1, 2] else permuted_host(image, permutation)
