"""Summaries of objects: one line for `repr`, tables for notebooks.  They read no data, and never raise."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Summary:
    """The summary of an object.

    Attributes:
        title: its class, and what tells it from others.
        facts: what is known of it, by name.
        columns: the heads of a table of its fields.
        rows: the rows of that table; without one there is no table.
    """

    title: str
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()

    def html(self) -> str:
        """Lay it out for a notebook, with all text escaped."""
        parts = [f"<div><strong>{escape(self.title)}</strong>"]
        if self.facts:
            parts.append(_table([], [(f"<th>{escape(k)}</th>", _cell(v)) for k, v in self.facts.items()]))
        if self.rows:
            parts.append(_table(self.columns, [[_cell(value) for value in row] for row in self.rows]))
        return "".join([*parts, "</div>"])


def escape(text: str) -> str:
    """Escape text for HTML."""
    return importlib.import_module("html").escape(text)  # type: ignore[no-any-return]  # `import torchdali` stays light


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [[f"<th>{escape(name)}</th>" for name in heads], *rows] if heads else rows
    inside = "".join("<tr>" + "".join(line) + "</tr>" for line in lines)
    return f"<table>{inside}</table>"


def _cell(text: str) -> str:
    return f'<td style="text-align:left">{escape(text)}</td>'


def never_raises(function: Callable[[T], str]) -> Callable[[T], str]:
    """Let a `__repr__` or `_repr_html_` name at least the class where something raises.

    Debuggers and error messages call them for objects that are half made, or that hold objects of the user's.
    """

    @functools.wraps(function)
    def safe(self: T) -> str:
        try:
            return function(self)
        except Exception as error:
            text = f"<{type(self).__name__}, which can't be shown: {type(error).__name__}>"
            return escape(text) if function.__name__ == "_repr_html_" else text

    return safe


def shown(value: Any, most: int = 200) -> str:
    """Show any value, which may be damaged, in one line of at most `most` characters."""
    try:
        text = repr(value)
    except Exception:  # lists in lists, an integer of thousands of digits, a repr that raises
        text = f"a value of type {type(value).__name__} that can't be shown"
    return " ".join(text[:most].split())


def brief(value: Any) -> str:
    """Show a dataclass with those of its values that are not the defaults: `Boxes(format='xywh')`."""
    told = [
        f"{field.name}={shown(own, 60)}"
        for field in dataclasses.fields(value)
        if (own := getattr(value, field.name)) != field.default
    ]
    return f"{type(value).__name__}({', '.join(told)})"


def how_many(number: int | None, what: str) -> str:
    """Say how many there are: "1,797 samples", "1 sample", or where None is known "samples of unknown number"."""
    if number is None:
        return f"{what}s of unknown number"
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
