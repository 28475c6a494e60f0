"""Whether the samples of a field have one shape, as far as some samples show it that are spread over the dataset.

These are the same samples whichever batch a pass begins with, so the types of batches are the same after a resume.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ..batch import Column
from ..checks import last_part
from ..kinds import Boxes, Points
from .sample import Leaf, Structure

LOOKED = 16
"""The number of samples that are looked at."""


def spread(n: int) -> list[int]:
    """Choose samples of a dataset of n: the first, the last, and others between them."""
    return sorted({part * (n - 1) // (LOOKED - 1) for part in range(LOOKED)}) if n else []


def in_question(leaf: Leaf) -> bool:
    """Tell whether samples have to show if a field has one shape: neither its kind nor its group says it."""
    kind = leaf.kind
    rows = kind.group or isinstance(kind, (Boxes, Points))  # as many as there are objects
    return kind.held in ("array", "image") and kind.ragged is None and not rows


def uniform_fields(structure: Structure, rows: Iterable[Column], told: Collection[str]) -> dict[str, bool]:
    """Tell of fields in question whether their samples have one shape.

    Args:
        structure: the structure of a sample.
        rows: the values of some samples, see `Structure.values`; no more are taken than are needed.
        told: the fields that are not in question, by their names or the last parts of them.
    """
    asked = [
        number
        for number, leaf in enumerate(structure.leaves)
        if in_question(leaf) and not {leaf.name, last_part(leaf.name)} & set(told)
    ]
    shapes: dict[int, set[tuple[int, ...]]] = {number: set() for number in asked}
    if asked:
        for row in rows:
            for number in asked:
                shapes[number].add(tuple(row[number].shape))
            if all(len(found) > 1 for found in shapes.values()):
                break
    return {structure.leaves[number].name: len(found) < 2 for number, found in shapes.items()}
