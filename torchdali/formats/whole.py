"""The first record of a file, or the first that is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

TRIES = 16  # records that are looked at, until one is whole


def first_whole(count: int, read: Callable[[int], T]) -> T:
    """Read the first record, or the first of 16 that is not damaged.

    Args:
        count: how many records there are.
        read: reads one by its index; raises ValueError for a damaged one.

    Raises:
        ValueError: the first record's, where all are damaged.
    """
    first: ValueError | None = None
    for index in range(min(count, TRIES)):
        try:
            return read(index)
        except ValueError as error:
            first = first or error
    assert first is not None
    raise first
