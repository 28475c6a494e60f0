"""Lists that a sampler or an iterable shuffles in place, and numbers that it counts: each epoch starts from the same.

Samplers of pytorch-metric-learning shuffle their classes anew in each iteration, datasets shuffle their files, and both
may count their epochs.  Left alone, the order of an epoch would follow from the iterations before it, which a resumed
process has not made.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from itertools import islice
from operator import is_
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import IterableDataset

_MOST = 2000  # lists, arrays and objects that are looked at
_FIRST = 64  # parts of a list or dict that are looked at for further ones
_LARGEST = 10**7  # parts of a list or an array that is watched


class _Number(NamedTuple):
    """A number that may be a counter.

    Attributes:
        value: what its owner made it.
        before: the iterations that were made then.
    """

    value: int
    before: int


class HeldState:
    """The lists and arrays, and the counters, that an object has in its attributes or in those of its samplers.

    What an iteration leaves in another order is put back to its order before; what its owner changes counts.  Nothing
    else is touched: a list that grows, such as a replay buffer, stays as it is.

    An owner that has changed nothing in two iterations is watched no longer.

    Args:
        owner: a sampler, or an iterable.
        numbers: integers are watched, too.
    """

    def __init__(self, owner: Any, numbers: bool) -> None:
        self._owner, self._numbers = owner, numbers
        self._iterations, self._changes = 0, False
        self._orders: dict[int, tuple[Any, Any]] = {}  # lists and arrays by their ids, with what was in them
        self._bound: dict[tuple[int, str], Any] = {}  # the list or array of an attribute
        self._left: dict[int, list[Any]] = {}  # what iterations left in them
        self._bound_left: dict[tuple[int, str], list[Any]] = {}
        self._counted: dict[tuple[int, str], _Number] = {}
        self._began: dict[tuple[int, str], int] = {}  # the numbers when the iteration began
        self._ended: dict[tuple[int, str], int] = {}  # and when the one before was left
        self._steps: dict[tuple[int, str], int] = {}  # how far an iteration moves each
        self._plain: set[tuple[int, str]] = set()  # numbers that are no counters

    @property
    def counts(self) -> bool:
        """Whether an iteration was seen to move a counter."""
        return bool(self._steps)

    def begin(self, count: int) -> None:
        """Put all to where an iteration begins.

        Args:
            count: the iterations before it.
        """
        if self._idle:
            return
        self._iterations += 1
        for attributes, _ in list(self._objects()):
            self._rebind(attributes)
            if self._numbers:
                self._set_numbers(attributes, count)
        for value in list(self._values()):
            now = _content(value)
            known = self._orders.get(id(value))
            if known is not None and self._was_left(self._left.get(id(value), ()), now) and _permuted(known[1], now):
                _put(value, known[1])
            else:
                self._orders[id(value)] = value, now
            self._left.pop(id(value), None)

    def note(self) -> None:
        """Note what an iteration has left up to here: when it began, and at its end."""
        if self._idle:
            return
        for value in self._values():
            known, now = self._orders.get(id(value)), _content(value)
            self._changes = self._changes or known is None or not _same(known[1], now)
            self._left.setdefault(id(value), []).append(now)
        for attributes, place in self._objects():
            for name, value in attributes.items():
                if _is_order(value):
                    self._bound_left.setdefault((place, name), []).append(value)
                elif self._numbers and type(value) is int and (began := self._began.get((place, name))) is not None:
                    self._learn((place, name), value, value - began)

    @property
    def _idle(self) -> bool:
        idle = self._iterations > 2 and not (self._changes or self._steps)
        if idle and self._orders:
            for kept in (self._orders, self._bound, self._left, self._bound_left):
                kept.clear()
        return idle

    def _learn(self, key: tuple[int, str], value: int, moved: int) -> None:
        self._ended[key] = value
        self._changes = self._changes or bool(moved)
        if key in self._plain or not (moved or key in self._steps):
            return
        if self._steps.setdefault(key, moved) != moved:
            del self._steps[key]
            self._plain.add(key)

    def _rebind(self, attributes: dict[str, Any]) -> None:
        """Give an attribute its own list back where an iteration put a shuffled one there."""
        for name, value in list(attributes.items()):
            if not _is_order(value):
                continue
            key = id(attributes), name
            own = self._bound.get(key)
            left = any(value is one for one in self._bound_left.pop(key, ()))
            if own is None or own is value:
                self._bound[key] = value
            elif left and type(own) is type(value) and _permuted(self._orders[id(own)][1], _content(value)):
                attributes[name] = own
                _put(own, self._orders[id(own)][1])
            else:
                self._bound[key] = value

    def _set_numbers(self, attributes: dict[str, Any], count: int) -> None:
        for name, value in list(attributes.items()):
            if type(value) is not int:
                continue
            key = id(attributes), name
            known = self._counted.get(key)
            if known is None or (value not in (known.value, self._ended.get(key))):
                known = self._counted[key] = _Number(value, 0 if known is None else count)
            if key in self._steps:
                attributes[name] = known.value + (count - known.before) * self._steps[key]
            elif key not in self._plain:
                attributes[name] = known.value
            self._began[key] = attributes[name]

    @staticmethod
    def _was_left(left: Any, now: Any) -> bool:
        return any(_same(one, now) for one in left)

    def _objects(self) -> Iterator[tuple[dict[str, Any], int]]:
        """The attributes of the owner and of the samplers and iterables in it, with a number for each."""
        seen: set[int] = set()
        waiting = deque([self._owner])
        while waiting and len(seen) < _MOST:
            one = waiting.popleft()
            attributes = getattr(one, "__dict__", None)
            if type(attributes) is not dict or id(one) in seen:
                continue
            seen.add(id(one))
            yield attributes, id(attributes)
            waiting.extend(value for value in list(attributes.values()) if _is_iterated(value))

    def _values(self) -> Iterator[Any]:
        """The lists and arrays in them."""
        seen: set[int] = set()
        waiting = deque(value for attributes, _ in self._objects() for value in attributes.values())
        while waiting and len(seen) < _MOST:
            value = waiting.popleft()
            kind: Any = type(value)
            known, inner = issubclass(kind, dict), kind in (list, tuple)
            if id(value) in seen or not (known or inner or _is_order(value)):
                continue
            seen.add(id(value))
            if _is_order(value):
                yield value
            if known or inner:
                waiting.extend(islice(value.values() if known else value, _FIRST))


def _is_iterated(value: Any) -> bool:
    kind: Any = type(value)
    return hasattr(kind, "__iter__") and (not hasattr(kind, "__getitem__") or issubclass(kind, IterableDataset))


def _is_order(value: Any) -> bool:
    kind: Any = type(value)
    if kind is list:
        return 1 < len(value) <= _LARGEST
    if kind is np.ndarray:
        return bool(value.ndim and 1 < value.size <= _LARGEST and value.dtype.kind in "biuf" and value.flags.writeable)
    return kind is torch.Tensor and _is_dense(value) and 1 < value.numel() <= _LARGEST


def _is_dense(value: torch.Tensor) -> bool:
    plain = value.device.type == "cpu" and value.layout == torch.strided and not value.is_nested
    return plain and value.ndim > 0 and not value.requires_grad


def _content(value: Any) -> Any:
    return list(value) if type(value) is list else value.copy() if type(value) is np.ndarray else value.clone()


def _same(one: Any, other: Any) -> bool:
    if type(one) is list:
        return len(one) == len(other) and all(map(is_, one, other))
    return one.dtype == other.dtype and one.shape == other.shape and bool((one == other).all())


def _permuted(one: Any, other: Any) -> bool:
    """Whether two contents hold the same values, in any order."""
    if type(one) is list:
        return len(one) == len(other) and Counter(map(id, one)) == Counter(map(id, other))
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(np.array_equal(np.sort(np.asarray(one), None), np.sort(np.asarray(other), None)))


def _put(value: Any, content: Any) -> None:
    if type(value) is list:
        value[:] = content
    elif type(value) is np.ndarray:
        value[...] = content
    else:
        value.copy_(content)
