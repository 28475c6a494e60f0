"""An option of a loader, as a read-only attribute."""

from __future__ import annotations

from typing import Any

from .trainers.asking import TRAINERS, trainer_asks

_SAME = object()


class Attribute:
    """An attribute that holds the value of a loader's option, and can't be set.

    Args:
        for_trainers: the value that trainers see instead (see `trainers.asking`).
        without_workers: the value in place of the default where there are no workers: torch's, whose loader takes no
            other there.  Code that builds a torch loader of this one's attributes hands it over.
    """

    def __init__(self, for_trainers: Any = _SAME, without_workers: Any = _SAME) -> None:
        self._for_trainers, self._without_workers = for_trainers, without_workers

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, loader: Any, owner: type | None = None) -> Any:
        if loader is None:
            return self
        if self._for_trainers is not _SAME and trainer_asks():
            return self._for_trainers
        value = getattr(loader.options, self._name)
        if self._without_workers is not _SAME and not loader.options.num_workers:
            return self._without_workers if value == loader.options.default(self._name) else value
        return value

    def __set__(self, loader: Any, value: Any) -> None:
        if self._name == "worker_init_fn" and _module(value).partition(".")[0] in TRAINERS:
            return  # a trainer's function seeds each worker by its rank; here each sample is seeded already
        raise fixed(self._name)


def fixed(name: str) -> ValueError:
    """Make the error for an attribute that can't be set."""
    if name == "batch_sampler":  # it is replaced by loaders of torch that keep their workers from epoch to epoch
        return ValueError(
            "batch_sampler can't be changed after the loader is made: to keep the workers, write "
            "persistent_workers=True, and for other batches make another loader, and load the state into it"
        )
    if name == "collate_fn":  # sentence-transformers' fit sets its own
        return ValueError(
            "collate_fn can't be changed after the loader is made: write the same function as collate_fn= where you "
            "make it; or make another loader, and load the state into it"
        )
    if name in _WAYS:
        return ValueError(f"{name} can't be set: {_WAYS[name]}")
    return ValueError(
        f"{name} can't be changed after the loader is made: make another loader, and load the state into it"
    )


_TELLS = "it tells how the loader works, so give your own attribute another name"
_WAYS = {
    "epoch": "write loader.set_epoch(epoch)",
    "step": "write loader.seek(epoch, step)",
    **dict.fromkeys(("bad_samples", "box_formats", "engine_reason", "order_length", "strided"), _TELLS),
}


def _module(function: Any) -> str:
    """Name the module of a function, or of the function inside a partial."""
    return str(getattr(getattr(function, "func", function), "__module__", ""))
