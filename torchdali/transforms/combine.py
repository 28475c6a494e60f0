"""Transforms of transforms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..moves import Sizes
from ..rand import Rand
from .arguments import is_number, probability
from .base import Transform
from .compose import AnyTransform
from .rounds import Rounds
from .steps import Steps, steps_of

if TYPE_CHECKING:
    from .._dali import Ops


@dataclass(frozen=True)
class Identity(Transform):
    """Does nothing."""

    draws = False

    def transform(self, ops: Ops, image: Any) -> Any:
        return image

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None) -> torch.Tensor:
        return image


def Lambda(lambd: Callable[..., Any], *types: type) -> Callable[..., Any]:
    """Give the function itself: a function is a transform here, so this only checks what it takes.

    Args:
        lambd: a function `f(sample, rand)` of a batch: `sample` holds DALI batches by field, `rand` gives random
            numbers with one row for each sample, and it returns the fields.
        *types: torchvision's, which has no meaning here.

    Raises:
        TypeError: it takes one argument, as torchvision's does, or types are given.
    """
    instead = (
        "write def f(sample, rand): ...; return {**sample, 'image': ...}, where sample['image'] is a batch of DALI, or "
        "a subclass of torchdali.transforms.Transform with transform_host(image, out) for torch's tensors"
    )
    if types:
        raise TypeError(f"Lambda takes no types, since a function here gets all fields of a batch: {instead}")
    if not callable(lambd):
        raise TypeError(f"Lambda takes a function f(sample, rand), got {lambd!r}")
    try:
        signature(lambd).bind(None, None)
    except ValueError:  # of a builtin: its arguments are not known
        return lambd
    except TypeError:
        try:
            signature(lambd).bind(None, None, None)  # a traceable one
        except TypeError:
            raise TypeError(f"Lambda takes a function f(sample, rand) of a batch, got {lambd!r}: {instead}") from None
    return lambd


def _check_some(transforms: Any, whose: str) -> None:
    """Raise unless there is a transform.

    Raises:
        TypeError: something else is among them.
        ValueError: there is none.
    """
    if not steps_of(transforms, whose):
        raise ValueError(f"{whose} needs at least one transform, got none")


def _branch(transform: AnyTransform, whose: str) -> Transform:
    steps = steps_of([transform], whose)
    return steps[0] if len(steps) == 1 else Steps(steps)


@dataclass(frozen=True)
class RandomApply(Rounds):
    """All of some transforms, one after the other, with probability p; else none of them.

    Args:
        transforms: transforms, which may be combined themselves.
        p: the probability.

    Raises:
        TypeError: something else is among the transforms.
        ValueError: none of them, one that changes the element type or the channels, or p is no probability.
    """

    transforms: Sequence[AnyTransform]
    p: float = 0.5

    rounds = 1

    def __post_init__(self) -> None:
        _check_some(self.transforms, "RandomApply")
        probability(self.p)
        self.check_branches()

    @cached_property
    def branches(self) -> Sequence[Transform]:
        return [Steps(steps_of(self.transforms, "RandomApply"))]

    @property
    def _all_take_one(self) -> bool:
        return self.p == 1

    def choose(self, rand: Rand, sizes: Sizes | None) -> tuple[NDArray[Any], Any]:
        return rand.bernoulli(self.p, 1), None


@dataclass(frozen=True)
class RandomChoice(Rounds):
    """One of some transforms, picked at random.

    Args:
        transforms: to pick from; a Compose counts as one.
        p: weights; None: equal ones.

    Raises:
        TypeError: something else is among the transforms.
        ValueError: none of them, one that changes the element type or the channels, or invalid weights.
    """

    transforms: Sequence[AnyTransform]
    p: Sequence[float] | None = None

    rounds = 1
    _all_take_one = True

    def __post_init__(self) -> None:
        _check_some(self.transforms, "RandomChoice")
        if self.p is not None:
            weights = list(self.p)
            if not all(is_number(weight) and weight >= 0 for weight in weights) or not sum(weights) > 0:
                raise ValueError(f"p must hold weights, none negative and not all zero, got {self.p!r}")
            if len(weights) != len(self.transforms):
                raise ValueError(f"p must hold {len(self.transforms)} weights, one for each transform, got {self.p!r}")
        self.check_branches()

    @cached_property
    def branches(self) -> Sequence[Transform]:
        return [_branch(transform, "RandomChoice") for transform in self.transforms]

    def choose(self, rand: Rand, sizes: Sizes | None) -> tuple[NDArray[Any], Any]:
        return rand.choice(len(self.branches), self.p, 1) + 1, None


@dataclass(frozen=True)
class RandomOrder(Rounds):
    """All of some transforms, in a random order for each sample.

    Args:
        transforms: to bring into an order; a Compose counts as one.

    Raises:
        TypeError: something else is among the transforms.
        ValueError: none of them, or one that changes the element type or the channels.
    """

    transforms: Sequence[AnyTransform]

    def __post_init__(self) -> None:
        _check_some(self.transforms, "RandomOrder")
        self.check_branches()

    @property
    def rounds(self) -> int:
        return len(self.branches)

    @cached_property
    def branches(self) -> Sequence[Transform]:
        return [_branch(transform, "RandomOrder") for transform in self.transforms]

    def choose(self, rand: Rand, sizes: Sizes | None) -> tuple[NDArray[Any], Any]:
        return (rand.permutations(len(self.branches)) + 1).astype(np.int64), None
