"""Finds the first record of a file that is not damaged."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

TRIES = 16  # records that are read until one is whole


def first_whole(count: int, read: Callable[[int], T]) -> T:
    """Read the first record that is not damaged, among the first 16.

    Args:
        count: the number of records.
        read: reads a record by its index; raises ValueError for a damaged one.

    Raises:
        ValueError: all of them are damaged; the first record's error.
    """
    first: ValueError | None = None
    for index in range(min(count, TRIES)):
        try:
            return read(index)
        except ValueError as error:
            first = first or error
    assert first is not None
    raise first
