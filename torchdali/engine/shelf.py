"""The shelf of a loader: what is dear to make lies on it between two passes."""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from .. import _dali
from ..source import L, Lasting

_shelves: weakref.WeakSet[Shelf] = weakref.WeakSet()


class Shelf:
    """Keeps things from one pass for the next: DALI's contexts with their decoders, a traced pipeline, batches' memory.

    A pass takes a thing from it and puts it back when it is done with it, so two passes that are open at a time never
    share one; there is one of a name at most, and another one that comes back is dropped.  Any thread may use it.

    Args:
        key: what everything on it depends on: a pass with another key needs another shelf.
        device: of the loader.
    """

    def __init__(self, key: Any, device: torch.device) -> None:
        self.key = key
        self._things: dict[str, Any] = {}  # used without a lock: a garbage collection may put things, too
        self._close = weakref.finalize(self, _empty, self._things, device)
        _shelves.add(self)

    def take(self, name: str) -> Any:
        """Take a thing from the shelf; None: there is none."""
        return self._things.pop(name, None)

    def put(self, name: str, thing: Lasting) -> None:
        """Put a thing back, unless it can't serve again, one like it is there, or the shelf is closed."""
        if self._close.alive and thing.rest():
            self._things.setdefault(name, thing)
            if not self._close.alive:  # meanwhile
                self._things.clear()

    @contextmanager
    def lend(self, name: str, make: Callable[[], L]) -> Iterator[L]:
        """Lend a thing for a block, made where there is none; it comes back unless an error ends the block."""
        thing: L = self.take(name) or make()
        try:
            yield thing
        except GeneratorExit:  # the pass was broken, between two batches
            self.put(name, thing)
            raise
        self.put(name, thing)

    def close(self) -> None:
        """Drop everything, and what comes back later; may be called twice, and from any thread."""
        self._close()


def close_all() -> None:
    """Close the shelves of all loaders."""
    for shelf in list(_shelves):
        shelf.close()


def _empty(things: dict[str, Any], device: torch.device) -> None:
    if things:
        with _dali.on_device(device):  # of its memory, wherever a garbage collection runs
            things.clear()


def _leave_behind() -> None:
    """In a forked process, let nothing come from a shelf, nor be destroyed: DALI's threads did not come along."""
    for shelf in list(_shelves):
        for thing in shelf._things.values():
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
        shelf._things.clear()


os.register_at_fork(after_in_child=_leave_behind)
