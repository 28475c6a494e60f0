"""Writes to the terminal: text, tables, JSON and progress."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self


def say(text: str) -> None:
    """Write a result to stdout; bytes in names that are not UTF-8 come out escaped."""
    sys.stdout.write(_printable(text) + "\n")


def note(text: str) -> None:
    """Write a remark to stderr, which does not mix with results."""
    sys.stderr.write(_printable(text) + "\n")
    sys.stderr.flush()


def say_json(value: Any) -> None:
    """Write a result as JSON to stdout."""
    say(json.dumps(value, indent=2))


def table(rows: Sequence[Sequence[Any]]) -> str:
    """Lay out rows in columns: the first one to the left, the others to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    lines = [
        "  ".join(cell.rjust(width) if n else cell.ljust(width) for n, (cell, width) in enumerate(zip(row, widths)))
        for row in texts
    ]
    return "\n".join(line.rstrip() for line in lines)


def _printable(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


class Progress:
    """The progress of long work, on stderr: tqdm's bar on a terminal, else a line per 10 %.

    Args:
        what: the work, in a word.
        total: the number of its parts.
    """

    def __init__(self, what: str, total: int) -> None:
        self._what, self._total, self._done, self._said = what, total, 0, 0
        self._start = time.monotonic()
        self._bar: Any = None
        if sys.stderr.isatty():
            try:
                self._bar = importlib.import_module("tqdm").tqdm(total=total, desc=what, dynamic_ncols=True)
            except ImportError:
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()

    def step(self) -> None:
        """Count one part."""
        self._done += 1
        if self._bar is not None:
            self._bar.update()
            return
        tenths = self._done * 10 // self._total
        if tenths > self._said:
            self._said = tenths
            seconds = time.monotonic() - self._start
            note(f"{self._what}: {self._done} of {self._total} ({tenths * 10} %) after {seconds:.1f} s")
