"""Transforms of brightness, contrast, saturation and hue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..forms.image import functional
from ..moves import Sizes
from ..rand import Rand
from . import adjust
from .base import Params, Transform, number_pair, number_range, probability
from .channels import permutation_params, permuted
from .switch import switch

if TYPE_CHECKING:
    from .._dali import Ops

NAMES = ("brightness", "contrast", "saturation", "hue")


def adjusted(ops: Ops, image: Any, name: str, factor: Any) -> Any:
    """One of the four, by torchvision's formula; saturation and hue of grey images stay."""
    dtype, channels = ops.dtype_of(image), ops.channels_of(image)
    if channels not in (1, 3):
        raise ValueError(f"{name} needs images of 1 or 3 channels, got {channels}")
    if name == "brightness":
        return adjust.brightness(ops, image, factor, dtype)
    if name == "contrast":
        return adjust.contrast(ops, image, factor, dtype, channels)
    if channels == 1:
        return adjust.unchanged(ops, image, factor, dtype)
    form = adjust.saturation if name == "saturation" else adjust.hue
    return form(ops, image, factor, dtype)


def adjusted_host(image: torch.Tensor, name: str, factor: Any) -> torch.Tensor:
    """One of the four, by torchvision's kernel."""
    kernels = functional()
    if name == "hue":  # it works channel by channel, which is slower with channels last
        image = image.contiguous()
    changed: torch.Tensor = getattr(kernels, f"adjust_{name}_image")(image, float(factor))
    return changed


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

    def dali_params(self, params: Params) -> list[str]:
        return [name for name in params if name != "order" or len(params) > 2]

    def transform(self, ops: Ops, image: Any, order: Any = None, **factors: Any) -> Any:
        if order is None:  # of one factor, or of none
            for name, factor in factors.items():
                image = adjusted(ops, image, name, factor)
            return image
        names = [name for name in NAMES if name in factors]
        branches = [lambda ops, image, factor, name=name: adjusted(ops, image, name, factor) for name in names]
        params = [{"factor": factors[name]} for name in names]
        for turn in range(4):
            number = ops.reductions.max(ops.slice(order, turn, 1, axes=[0]))
            which: Any = 0
            for branch, name in enumerate(names, start=1):
                which = (number == NAMES.index(name)) * branch + which
            image = switch(ops, which, branches, image, params)
        return image

    def transform_host(
        self, image: torch.Tensor, out: torch.Tensor | None = None, *, order: Any = (), **factors: Any
    ) -> torch.Tensor:
        for i in order:
            if NAMES[i] in factors:
                image = adjusted_host(image, NAMES[i], factors[NAMES[i]])
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

    def dali_params(self, params: Params) -> list[str]:
        return [name for name in params if name != "permutation"]

    def transform(self, ops: Ops, image: Any, before: Any, matrix: Any, **params: Any) -> Any:
        turns = (("brightness", 1), ("contrast", before), ("saturation", 1), ("hue", 1), ("contrast", 1 - before))
        for name, on in turns:
            branch = lambda ops, image, factor, name=name: adjusted(ops, image, name, factor)  # noqa: E731
            image = switch(ops, params[f"{name}_on"] * on, [branch], image, [{"factor": params[name]}])
        return permuted(ops, image, matrix)

    def transform_host(
        self, image: torch.Tensor, out: torch.Tensor | None = None, *, before: Any, permutation: Any, **params: Any
    ) -> torch.Tensor:
        turns = (("brightness", 1), ("contrast", before), ("saturation", 1), ("hue", 1), ("contrast", 1 - before))
        for name, on in turns:
            if params[f"{name}_on"] and on:
                image = adjusted_host(image, name, params[name])
        return image if len(image) == 1 or permutation == [0, 1, 2] else image[permutation]
