"""The quick way from a sample to the values of its columns: a structure as functions, made once and not looked up.

It takes samples whose containers have the types of the first one's, and leaves all others to `sample`, which looks into
each container anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Take = Callable[[Any, list[Any]], None]
"""Appends the values that lie in a value; UnlikeError says that it is for the long way, others are the values'."""


class UnlikeError(Exception):
    """A container is of another type or size than the first sample's, or lacks a key."""


def quick_way(frame: Any, converts: Mapping[str, Callable[[Any], Any]]) -> Take | None:
    """Make the function that takes a sample's values, in the order of the frame; None: it has no quick way.

    Args:
        frame: a sample with names in place of the values.
        converts: for each name, the function that converts its values.
    """
    if isinstance(frame, str):
        return _take_value(converts[frame])
    kind = type(frame)
    if kind is dict:
        keys, parts = list(frame), list(frame.values())
    elif kind in (tuple, list) or (isinstance(frame, tuple) and hasattr(frame, "_fields")):
        keys, parts = list(range(len(frame))), list(frame)
    else:
        return None
    if kind is not dict and all(isinstance(part, str) for part in parts):
        return _take_values(kind, [converts[part] for part in parts])
    takes = [quick_way(part, converts) for part in parts]
    if any(take is None for take in takes):
        return None
    return _take_parts(kind, [(key, take) for key, take in zip(keys, takes, strict=True) if take is not None])


def _take_value(convert: Callable[[Any], Any]) -> Take:
    def take(value: Any, row: list[Any]) -> None:
        row.append(convert(value))

    return take


def _take_values(kind: Any, converts: list[Callable[[Any], Any]]) -> Take:
    """Take a tuple or list of values."""
    size = len(converts)

    def take(value: Any, row: list[Any]) -> None:
        found: Any = type(value)
        if found is not kind or len(value) != size:
            raise UnlikeError
        row += [convert(one) for convert, one in zip(converts, value, strict=True)]

    return take


def _take_parts(kind: Any, parts: list[tuple[Any, Take]]) -> Take:
    """Take a container of containers, or a dict; a dict may have more keys than the first sample's."""
    keys = {key for key, _ in parts}

    def take(value: Any, row: list[Any]) -> None:
        found: Any = type(value)
        if found is not kind or not (value.keys() >= keys if kind is dict else len(value) == len(keys)):
            raise UnlikeError
        for key, part in parts:
            part(value[key], row)

    return take
