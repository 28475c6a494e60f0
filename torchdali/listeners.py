"""Datasets that ask for the epoch by a method `set_epoch`, and who tells them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from weakref import ref

import torch
from torch.utils.data import get_worker_info

from .generators import HeldGenerators
from .seeding import preserved, seed_all

# By id, with the dataset itself: several loaders may read one dataset in turn.
_told: dict[int, tuple[ref[Any], int, int]] = {}


class Listeners:
    """The datasets that are told the epoch: the dataset itself, or those that it holds.

    Args:
        dataset: has `set_epoch`, or holds others as `dataset` or `datasets`, as torch's Subset and ConcatDataset do.
    """

    def __init__(self, dataset: Any) -> None:
        self._listeners = list({id(one): one for one in _listeners(dataset)}.values())
        for listener in self._listeners:
            own_epoch(listener)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def tell(self, seed: int, key: int, again: bool = False) -> None:
        """Tell the epoch where another pass was told before; the global random generators are seeded for it.

        Args:
            seed: the loader's.
            key: the pass, `state.Position.key`.
            again: tell it even so: the user may have told another one.
        """
        for listener in self._listeners:
            if again or not _knows(listener, seed, key):
                held = HeldGenerators(listener)
                with preserved(), held.preserved():
                    held.seed(seed_all(seed, key))
                    listener.set_epoch(key % 2**32)
                with suppress(TypeError):  # there are no weak references to it: it is told each time
                    _told[id(listener)] = ref(listener), seed, key


def own_epoch(listener: Any) -> None:
    """In a worker, give a dataset a counter of epochs of its own, where its copies share one in shared memory.

    Each worker tells its copy the epoch.  Hugging Face's count by `self._epoch += epoch - self._epoch`, and two workers
    that do so at once count twice.
    """
    if get_worker_info() is None:
        return
    for name, value in list(getattr(listener, "__dict__", {}).items()):
        if "epoch" in name and isinstance(value, torch.Tensor) and value.is_shared():  # type: ignore[no-untyped-call]
            setattr(listener, name, value.clone())


def _knows(listener: Any, seed: int, key: int) -> bool:
    told = _told.get(id(listener))
    return told is not None and told[0]() is listener and told[1:] == (seed, key)


def _listeners(dataset: Any) -> Iterator[Any]:
    if callable(getattr(dataset, "set_epoch", None)):
        yield dataset
        return
    held = getattr(dataset, "__dict__", {})
    if "dataset" in held:
        yield from _listeners(held["dataset"])
    parts = held.get("datasets")
    for part in parts.values() if isinstance(parts, dict) else parts if isinstance(parts, (list, tuple)) else ():
        yield from _listeners(part)
