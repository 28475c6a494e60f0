"""Progress bars of long work."""

from __future__ import annotations

import importlib
from contextlib import AbstractContextManager
from typing import Any


class _NoBar(AbstractContextManager["_NoBar"]):
    """Stands for a bar that is not shown."""

    def update(self, done: int) -> None:
        """Take note of progress."""

    def __exit__(self, *_: object) -> None:
        pass


def progress_bar(total: int, unit: str, show: bool, done: int = 0) -> AbstractContextManager[Any]:
    """Make a progress bar, a context manager with `update(n)`; it shows nothing where tqdm is not installed.

    Args:
        total: the amount of work.
        unit: "B" for bytes, or what is counted.
        show: False: nothing is shown.
        done: the amount that was done before.
    """
    if not show:
        return _NoBar()
    try:
        tqdm = importlib.import_module("tqdm").tqdm
    except ImportError:
        return _NoBar()
    bar: AbstractContextManager[Any] = tqdm(total=total, initial=done, unit=unit, unit_scale=unit == "B")
    return bar
