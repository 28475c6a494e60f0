"""Compose, and what else may stand where a transform is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Never, TypeAlias

import torch

from ..elsewhere import TRANSFORMS, Uncalled
from .base import Transform
from .foreign import foreign


class Holder(Uncalled):
    """Base of what holds transforms and is none itself: `Compose`, `Views`."""


class Compose(Holder):
    """Transforms one after the other.

    Args:
        transforms: torchdali's transforms, functions `f(sample, rand)`, and other Composes.

    Raises:
        TypeError: something else is among them.
    """

    def __init__(self, transforms: Sequence[AnyTransform], *more: Never) -> None:
        check_list("Compose", transforms, more)
        for transform in transforms:
            check_transform(transform)
        self.transforms: list[Any] = list(transforms)

    def __repr__(self) -> str:
        return f"Compose({self.transforms})"


def check_list(name: str, transforms: Any, more: Sequence[Any], dicts: bool = False) -> None:
    """Raise unless what a holder was given is one list, or dict, of transforms.

    Args:
        name: of the holder.
        transforms: its first argument.
        more: further arguments, which there should be none of.
        dicts: it also takes a dict.

    Raises:
        TypeError: it says what to write instead.
    """
    if more or not isinstance(transforms, (list, tuple, *((Mapping,) if dicts else ()))):
        given = f"{1 + len(more)} of them" if more else type(transforms).__name__
        kinds = "a list or a dict" if dicts else "a list"
        raise TypeError(f"{name} takes {kinds} of transforms, got {given}: write {name}([...])")


AnyTransform: TypeAlias = "Transform | Callable[..., Any] | Holder"


def check_transform(transform: Any) -> None:
    """Raise unless this is a transform, a Compose, or can be called as a function `f(sample, rand)`.

    Raises:
        TypeError: it says what to write instead.
    """
    if isinstance(transform, (Transform, Holder)):
        return
    kind = transform if isinstance(transform, type) else type(transform)
    if instead := foreign(transform):
        raise TypeError(f"transform must be a torchdali transform, got {kind.__module__}.{kind.__name__}: {instead}")
    known = {"Compose", *(cls.__name__ for cls in _subclasses(Transform))}
    if kind.__module__.startswith("torchvision."):
        name, whole = kind.__name__, ", or torchdali.from_torchvision(...) around it, which translates it"
        instead = (
            f"write torchdali.transforms.{kind.__name__} with the same arguments{whole if name == 'Compose' else ''}"
            if name in known
            else TRANSFORMS.get(name)
            or f"torchdali has no such transform: write torchdali.transforms.PerSample({name}(...))"
        )
        raise TypeError(f"{kind.__module__}.{kind.__name__} works on single tensors; {instead}")
    if isinstance(transform, torch.nn.Module):
        raise TypeError(
            f"transform must be a torchdali transform or a function f(sample, rand) over DALI batches, got the torch "
            f"module {kind.__name__}: call it on the batch in your loop, or write "
            f"torchdali.transforms.PerSample({kind.__name__}(...))"
        )
    if isinstance(transform, type) and kind.__name__ in known:
        raise TypeError(f"transform must be an object, got the class: write {kind.__name__}(...)")
    if isinstance(transform, (list, tuple)):
        raise TypeError("transform must be one transform: write Compose([...]) around the list")
    if isinstance(transform, type) or not callable(transform):
        raise TypeError(f"transform must be a torchdali transform or a function f(sample, rand), got {transform!r}")


def _subclasses(cls: type[Transform]) -> Iterator[type[Transform]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
