"""The fields of a source: their names, their kinds, and the checks of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .batch import Column, Columns, Held
from .kinds import NUMBER, OBJECT, AnyKind, Kind, as_kind, tell

BESIDE: dict[str, Kind] = {"index": NUMBER, "path": OBJECT, "valid": NUMBER}
"""Fields that any loader adds on request: they are not part of the data."""

ALWAYS: dict[str, Kind] = {name: kind for name, kind in BESIDE.items() if name != "path"}
"""The fields of `BESIDE` that even a source without files has."""


class Fields(NamedTuple):
    """The fields of a sample, in the order in which a batch has them.

    Attributes:
        names: the fields.
        kinds: what each one holds.
    """

    names: tuple[str, ...]
    kinds: dict[str, Kind]

    @classmethod
    def choose(cls, names: Sequence[str], known: Mapping[str, AnyKind]) -> Fields:
        """Choose fields among a source's own and `BESIDE`.

        Args:
            names: as the user writes them.
            known: the source's own, with their kinds.

        Raises:
            ValueError: an unknown or repeated name, or a source's own field with a name of `BESIDE`.
        """
        if taken := [name for name in known if name in BESIDE]:
            raise ValueError(f"the names {', '.join(BESIDE)} have a meaning of their own, got the column {taken[0]!r}")
        possible = {**known, **BESIDE}
        if isinstance(names, str) or not names or _repeats(names) or not set(names) <= set(possible):
            raise ValueError(f"fields must be different ones of {', '.join(possible)}, got {names!r}")
        return cls(tuple(names), {name: as_kind(possible[name]) for name in names})

    def fill(
        self,
        columns: Columns,
        indices: NDArray[np.int64],
        path: Callable[[int], str | None],
        valid: NDArray[np.bool_] | None = None,
    ) -> Columns:
        """Put columns in the order of the fields, and add those of `BESIDE` that are among them.

        Args:
            columns: the source's own, by name.
            indices: int64 [n], the indices of the samples.
            path: gives the file of a sample.
            valid: bool [n], False where a row only fills up the batch; None: all are True.
        """
        beside: dict[str, Callable[[], Column]] = {
            "index": lambda: np.asarray(indices, np.int64),
            "path": lambda: [path(index) for index in indices.tolist()],
            "valid": lambda: np.ones(len(indices), np.bool_) if valid is None else valid,
        }
        return {name: columns[name] if name in columns else beside[name]() for name in self.names}


def nest(values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Put fields into a sample's form: those named "target.boxes", "target.labels" become one dict, in its first place.

    The names in it may have dots again.
    """
    parts: dict[str, Any] = {}
    for name, value in values.items():
        *places, last = name.split(".")
        inner = parts
        for place in places:
            inner = inner.setdefault(place, {})
        inner[last] = value
    return tuple(parts.values())


def name_parts(fields: Sequence[str], parts: Sequence[str], beside: Iterable[str] = BESIDE) -> list[str]:
    """Give the user's names for a source's parts, in the parts' order, without the other fields among them.

    Args:
        fields: as the user writes them.
        parts: the parts' own names, for the error.
        beside: the other fields that may be among the names.

    Raises:
        ValueError: not one name per part, or a name is repeated.
    """
    names = [name for name in fields if name not in beside]
    if isinstance(fields, str) or len(names) != len(parts) or _repeats(fields):
        raise ValueError(
            f"fields must be {len(parts)} different names, one for each of {', '.join(parts)} in this order, and any "
            f"of {', '.join(beside)}, got {fields!r}"
        )
    return names


def check_kinds(kinds: Mapping[str, AnyKind], names: Iterable[str]) -> None:
    """Check that the argument `kinds` names only fields that a source has.

    Raises:
        ValueError: it names another field.
    """
    known = list(names)
    if unknown := sorted(set(kinds) - set(known)):
        raise ValueError(f"kinds must be of the fields {', '.join(known)}, got {unknown[0]!r}")


def check_kind(name: str, given: AnyKind | None, natural: Held, possible: Sequence[Held]) -> Held:
    """Tell how a field's column holds its values: as the given kind does, or without one as it naturally would.

    Raises:
        ValueError: the field can't have the given kind.
    """
    if given is None:
        return natural
    kind = tell(given, natural)
    if kind.held not in possible:
        raise ValueError(f"the kind of {name!r} must be {' or '.join(possible)}, got {given!r}")
    return kind.held


def _repeats(names: Sequence[str]) -> bool:
    return len(set(names)) < len(names)
