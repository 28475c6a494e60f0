"""One option of a loader, as an attribute."""

from __future__ import annotations

from typing import Any

from .trainers.asking import TRAINERS, trainer_asks

_SAME = object()


class Option:
    """An attribute that tells the value of an option, and can't be set.

    Args:
        for_trainers: the value that trainers see instead, see `trainers.asking`.
    """

    def __init__(self, for_trainers: Any = _SAME) -> None:
        self._for_trainers = for_trainers

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, loader: Any, owner: type | None = None) -> Any:
        if loader is None:
            return self
        if self._for_trainers is not _SAME and trainer_asks():
            return self._for_trainers
        return getattr(loader.options, self._name)

    def __set__(self, loader: Any, value: Any) -> None:
        if self._name == "worker_init_fn" and _module(value).partition(".")[0] in TRAINERS:
            return  # it seeds workers by their rank, and each sample is seeded here already
        raise fixed(self._name)


def fixed(name: str) -> ValueError:
    """The error of an attribute that can't be set."""
    return ValueError(
        f"{name} can't be changed after the loader is made: make another loader, and continue there by load_state_dict"
    )


def _module(function: Any) -> str:
    """The module of a function, or of the one inside a partial."""
    return str(getattr(getattr(function, "func", function), "__module__", ""))
