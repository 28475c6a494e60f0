"""Checks arguments; each error is one sentence."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from numbers import Integral
from pathlib import Path
from typing import Any, TypeVar

from .errors import let_through

T = TypeVar("T")

INT32 = range(-(2**31), 2**31)  # labels that DALI reads unchanged


def has_length(value: Any) -> bool:
    """Whether a dataset or sampler tells its length; one whose `__len__` raises does not."""
    if not hasattr(value, "__len__"):
        return False
    try:
        len(value)
    except Exception as error:
        let_through(error)
        return False
    return True


def flag(name: str, value: Any) -> bool:
    """Return the value as a bool, if it is True, False or None.

    Raises:
        TypeError: it is anything else, such as a string, which Python would take for true.
    """
    if value not in (True, False, None):  # numpy's too
        raise TypeError(f"{name} must be True or False, got {value!r:.80}")
    return bool(value)


def number(name: str, value: Any, what: str = "", smallest: float | None = None) -> float:
    """Return the value, if it is a number of at least `smallest`; `what` describes it in the error.

    Raises:
        TypeError: it is not a number.
        ValueError: it is too small.
    """
    fits = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not fits or (smallest is not None and not value >= smallest):
        error = TypeError if smallest is None else ValueError
        raise error(f"{name} must be a number{f' {what}' if what else ''}, got {value!r}")
    out: float = value
    return out


def integer(name: str, value: Any, smallest: int, largest: int | None = None) -> int:
    """Return the value, if it is an integer within the bounds.

    Raises:
        TypeError, ValueError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):  # numpy's too
        raise TypeError(f"{name} must be an integer, got {value!r}")
    number = int(value)
    if number < smallest or (largest is not None and number > largest):
        bound = f"at least {smallest}" if largest is None else f"in [{smallest}, {largest}]"
        raise ValueError(f"{name} must be {bound}, got {value}")
    return number


def one_of(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise unless the value is one of the choices.

    Raises:
        ValueError: it is not.
    """
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def resolve(told: Mapping[str, T], names: Sequence[str], option: str) -> dict[str, T]:
    """Find the fields that a user names, by their names or by the last parts of these ("boxes" for "target.boxes").

    Args:
        told: what is told, by name.
        names: the fields.
        option: the argument, for messages.

    Raises:
        ValueError: a name is no field's, or several fields end with it.
    """
    found: dict[str, T] = {}
    for name, value in told.items():
        fits = [name] if name in names else [one for one in names if last_part(one) == name]
        if len(fits) > 1:
            raise ValueError(f"{option} must name one field, and {name!r} may be {' or '.join(fits)}")
        if not fits:
            raise ValueError(f"{option} must name fields among {', '.join(names)}, got {name!r}{nearest(name, names)}")
        found[fits[0]] = value
    return found


def spell_out(told: Sequence[str], names: Sequence[str]) -> list[str]:
    """Give the whole names of fields that a user names by the last parts of them; others as they are written."""
    found = []
    for name in told:
        fits = [name] if name in names else [one for one in names if last_part(one) == name]
        found.append(fits[0] if len(fits) == 1 else name)
    return found


def last_part(name: str) -> str:
    """Give the last part of a field's name: the name of the value in its container."""
    return name.rpartition(".")[2]


def nearest(name: str, names: Iterable[str]) -> str:
    """Suggest the nearest name for the end of an error: " (did you mean 'batch_size'?)"; "" where none is near."""
    found = get_close_matches(name, list(names), n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def nearest_path(path: str | Path) -> str:
    """Suggest a path near one that does not exist, like `nearest`: a neighbour of its first missing part."""
    missing = Path(path)
    while not missing.parent.is_dir():
        missing = missing.parent
    with suppress(OSError):  # the folder may not be readable
        for name in get_close_matches(missing.name, sorted(os.listdir(missing.parent)), n=1):
            found = missing.with_name(name)
            whole = found / Path(path).relative_to(missing)
            return f" (did you mean {str(whole if whole.exists() else found)!r}?)"
    return ""


def names(name: str, value: Any) -> tuple[str, ...]:
    """Give a sequence of names as a tuple.

    Raises:
        TypeError: it is something else, such as one name alone.
    """
    if isinstance(value, str):
        raise TypeError(f"{name} must be a list of names, got {value!r}: write [{value!r}]")
    found = tuple(value) if isinstance(value, (list, tuple, set, frozenset)) else None
    if found is None or not all(isinstance(one, str) for one in found):
        raise TypeError(f"{name} must be a list of names, got {value!r:.80}")
    return found
