"""What samplers yield, as numbers: indices, or ids of any other kind, such as strings, where the dataset takes them.

An id has a number that follows from it alone, so the order and the random numbers of its samples are the same in every
process and after a resume.  The dataset gets the id itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import blake2b
from numbers import Complex, Integral
from pathlib import PurePath
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

from .order import Indices, Rows
from .rand import Words

LARGEST = 1 << 47  # of indices, whose random numbers are keyed by them and their occurrence in 64 bits
_NEXT = 0x9E3779B97F4A7C15  # between the keys of an id that comes several times


class Taken(NamedTuple):
    """What a dataset takes from a sampler.

    Attributes:
        size: indices are below it; None: the dataset has no length, or its keys are integers.
        ids: it takes ids.
        lists: lists too, since each item is a batch.
    """

    size: int | None
    ids: bool = False
    lists: bool = False


class Drawn(NamedTuple):
    """Some things that a sampler yielded.

    Attributes:
        numbers: [N] int64: the indices, or the ids' numbers.
        ids: the ids by their numbers; none for indices.
    """

    numbers: Indices
    ids: dict[int, Any]


def read(name: str, drawn: Sequence[Any], taken: Taken, what: str = "integers") -> Drawn:
    """Read what a sampler yielded.

    Args:
        name: the sampler's.
        drawn: what it yielded.
        taken: what the dataset takes.
        what: the word for what it must yield.

    Raises:
        TypeError: the dataset does not take one of them.
        ValueError: an index outside the dataset.
    """
    if not drawn:
        return Drawn(np.zeros(0, np.int64), {})
    indices = _as_integers(drawn)
    if indices is not None:
        low, high = int(indices.min()), int(indices.max())
        if 0 <= low and high < (LARGEST if taken.size is None else taken.size):
            return Drawn(indices.astype(np.int64, copy=False), {})
        if taken.size is not None:
            hint = f": count from the end by index % {taken.size}" if -taken.size <= low < 0 else ""
            raise ValueError(f"{name} yielded indices {low}..{high} for a dataset of {taken.size} samples{hint}")
    if not taken.ids or (not taken.lists and any(map(_is_list, drawn))):
        raise _no_index(name, drawn, what)
    table: dict[int, Any] = {}
    return Drawn(np.array([_number(name, one, table) for one in drawn], np.int64), table)


def rows_of(drawn: Drawn) -> Rows:
    """Make the rows of samples in the order in which they were drawn: one that comes twice has two keys."""
    return Rows(drawn.numbers, keys_of(drawn.numbers, occurrences(drawn.numbers), bool(drawn.ids)))


def keys_of(numbers: Indices, times: Indices, ids: bool) -> Words:
    """Give the keys of random numbers, by the samples' numbers and how often each came before."""
    if ids:
        return numbers.astype(np.uint64) + times.astype(np.uint64) * np.uint64(_NEXT)
    return numbers.astype(np.uint64) + (times.astype(np.uint64) << np.uint64(48))


def occurrences(numbers: Indices) -> Indices:
    """Count how often each element stood before, so that a sample drawn twice is augmented in two ways."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    places = np.arange(len(numbers))
    first = np.maximum.accumulate(np.where(np.r_[True, ordered[1:] != ordered[:-1]][: len(numbers)], places, 0))
    out = np.empty_like(numbers)
    out[order] = places - first
    return out


def read_batch(name: str, batch: Any, taken: Taken) -> Drawn:
    """Read a batch that a batch sampler yielded.

    Raises:
        TypeError, ValueError: as `read`; it is no batch, or it is empty.
    """
    if not isinstance(batch, Iterable) or isinstance(batch, (str, bytes)):
        raise TypeError(f"batch_sampler must yield lists of indices, {name} yielded {batch!r:.200}")
    drawn = read(name, list(batch), taken, "lists of integers")
    if not len(drawn.numbers):
        raise ValueError(f"batch_sampler must yield lists of at least one index, {name} yielded an empty one")
    return drawn


def _as_integers(drawn: Sequence[Any]) -> Indices | None:
    """Integers as an array; None where some are not."""
    try:
        indices = np.asarray(drawn)
    except ValueError:  # lists of different lengths
        return None
    return indices if indices.dtype.kind in "iu" and indices.ndim == 1 else None


def _is_list(value: Any) -> bool:
    return isinstance(value, list) or (np.ndim(value) > 0 if hasattr(value, "__array__") else False)


def _no_index(name: str, drawn: Sequence[Any], what: str) -> TypeError:
    no_index = (v for v in drawn if isinstance(v, bool) or not hasattr(v, "__index__") or np.ndim(v))
    wrong = next(no_index, drawn[0])
    batches = isinstance(wrong, (list, tuple)) or _is_list(wrong)
    word = "sampler" if what == "integers" else "batch_sampler"
    instead = ": for batches write batch_sampler=" if batches else ""
    return TypeError(f"{word} must yield {what}, {name} yielded {wrong!r:.200}{instead}")


def _number(name: str, one: Any, table: dict[int, Any]) -> int:
    text = _spelled(name, one)
    number = int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little") >> 2
    if number in table and _spelled(name, table[number]) != text:
        raise ValueError(f"{name} yielded {one!r:.100} and {table[number]!r:.100}, whose numbers are equal: rename one")
    table[number] = one
    return number


def _spelled(name: str, one: Any) -> str:
    """Spell an id, the same in every process."""
    if isinstance(one, Enum):
        return f"{type(one).__qualname__}.{one.name}"
    if isinstance(one, str):
        return repr(str(one))
    if isinstance(one, (list, tuple)):
        return f"({','.join(_spelled(name, part) for part in one)})"
    if isinstance(one, (np.datetime64, np.timedelta64)):  # before integers: numpy counts the latter among them
        return f"{one.dtype.name}({one})"
    if isinstance(one, Integral):
        return str(int(one))
    if one is None or isinstance(one, (bytes, Complex)):
        return repr(one)
    if isinstance(one, PurePath):
        return f"Path({str(one)!r})"
    if isinstance(one, (slice, range)):  # windows, such as those of TorchGeo's samplers
        return f"{type(one).__name__}{_spelled(name, (one.start, one.stop, one.step))}"
    if isinstance(one, (date, time)):  # pandas' Timestamp is one
        return f"{type(one).__name__}({one.isoformat()})"
    if isinstance(one, (timedelta, Decimal, UUID)):
        return f"{type(one).__name__}({one})"
    if isinstance(one, Mapping):
        parts = sorted(f"{_spelled(name, key)}:{_spelled(name, part)}" for key, part in one.items())
        return f"{type(one).__name__}({','.join(parts)})"
    if isinstance(one, (frozenset, set)):
        return f"{{{','.join(sorted(_spelled(name, part) for part in one))}}}"
    if hasattr(one, "__array__"):
        return f"({','.join(_spelled(name, part) for part in np.asarray(one).tolist())})"
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        parts = [_spelled(name, getattr(one, field.name)) for field in dataclasses.fields(one)]
        return f"{type(one).__qualname__}({','.join(parts)})"
    raise TypeError(
        "sampler must yield indices, or ids of the dataset's samples that are the same in every process: strings, "
        f"numbers, dates, paths, slices, members of an Enum, or tuples, dicts and dataclasses of them, {name} yielded "
        f"{one!r:.200}"
    )
