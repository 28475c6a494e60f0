"""Writes to the terminal: text, tables and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any


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
