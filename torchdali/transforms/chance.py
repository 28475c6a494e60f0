"""The base of transforms that act on a sample with a probability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..moves import Sizes
from ..rand import Rand
from .arguments import probability
from .base import Params, Transform

if TYPE_CHECKING:
    from .._dali import Ops


class Chance(Transform):
    """Acts on a sample with probability `p`.

    The param `on` says for which samples; a subclass draws its other params for all of them.
    """

    p: float

    def __post_init__(self) -> None:
        probability(self.p)

    @property
    def draws(self) -> bool:
        return 0 < self.p < 1

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        return {"on": rand.bernoulli(self.p)}, sizes


def bits(ops: Ops, on: Any) -> Any:
    """0 or 255 of 0 or 1, as uint8: a mask for `&`, `|` and `^` with images."""
    return ops.beside(ops.cast(on * 255, dtype=ops.as_dtype(torch.uint8)))


def chosen(on: Any, changed: Any, image: Any) -> Any:
    """`changed` where `on` is 1, and `image` where it is 0; for floats, without rounding."""
    return changed * on + image * (1 - on)
