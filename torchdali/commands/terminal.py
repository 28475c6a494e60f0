"""Writes to the terminal: text, tables and JSON."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from typing import Any


def say(text: str) -> None:
    """Write a result to stdout; bytes in names that are not UTF-8, and control characters, come out escaped."""
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


def one_line(text: str) -> str:
    """Escape the line ends of a name."""
    return text.replace("\r", "\\r").replace("\n", "\\n")


# A file's name must not move the cursor, colour the terminal or turn its line around.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def _printable(text: str) -> str:
    text = text.encode("utf-8", "backslashreplace").decode()
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
