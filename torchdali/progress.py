"""The progress of long work, on stderr: tqdm's bar, or a line for each tenth where tqdm is not installed."""

from __future__ import annotations

import importlib
import sys
import time
import warnings
from contextlib import AbstractContextManager
from typing import Any

SELDOM = 10.0  # seconds between two lines of tqdm in a file of logs


class _NoBar(AbstractContextManager["_NoBar"]):
    """Stands for a bar that is not shown."""

    def update(self, done: int = 1) -> None:
        """Take note of progress."""

    def __exit__(self, *_: object) -> None:
        pass


class _Lines(_NoBar):
    """Writes a line for each tenth."""

    def __init__(self, what: str, total: int, done: int) -> None:
        self._what, self._total, self._done, self._start = what, total, done, time.monotonic()

    def update(self, done: int = 1) -> None:
        before, self._done = self._done, self._done + done
        if self._done * 10 // self._total > before * 10 // self._total:
            share, seconds = self._done * 100 // self._total, time.monotonic() - self._start
            sys.stderr.write(f"{self._what}: {self._done} of {self._total} ({share} %) after {seconds:.1f} s\n")
            sys.stderr.flush()


def progress_bar(what: str, total: int, unit: str, show: bool = True, done: int = 0) -> AbstractContextManager[Any]:
    """Make a progress bar, a context manager with `update(n)`.

    Args:
        what: the work, in a word.
        total: the amount of work.
        unit: "B" for bytes, or what is counted.
        show: False: nothing is shown.
        done: the amount that was done before.
    """
    if not show or not total:
        return _NoBar()
    try:
        importlib.import_module("tqdm")
        with warnings.catch_warnings():  # it says that a notebook's widgets are missing, and shows text
            warnings.simplefilter("ignore")
            tqdm = importlib.import_module("tqdm.auto").tqdm
    except ImportError:
        return _Lines(what, total, done)
    bar: AbstractContextManager[Any] = tqdm(
        total=total,
        initial=done,
        desc=what,
        unit=unit if unit == "B" else f" {unit}",
        unit_scale=unit == "B",
        dynamic_ncols=True,
        mininterval=0.1 if sys.stderr.isatty() else SELDOM,
    )
    return bar
