"""The containers of samples and batches: their parts, and the same container around other parts."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

_LARGEST = 1 << 14  # bytes that a container may bring along beside its parts


def is_list(value: Any) -> bool:
    """Whether a value is a list, or a sequence of any other type but tuples, strings and bytes."""
    return isinstance(value, list) or (
        isinstance(value, Sequence) and not isinstance(value, (tuple, str, bytes, bytearray, memoryview))
    )


def remade(container: Any, parts: Mapping[Any, Any]) -> Any:
    """Give a container of the same type around other parts.

    One of a type of the user's is a copy in which the parts are replaced, so it keeps its attributes; where its type
    does not take the parts, it is a dict or a list.  torch's `default_collate` does the same.

    Args:
        container: a mapping, a tuple, a named tuple, or a list (see `is_list`).
        parts: as many as the container has, by its keys; of a tuple or a list, in order.
    """
    if isinstance(container, tuple):
        cls: Any = type(container)
        return cls(*parts.values()) if hasattr(container, "_fields") else tuple(parts.values())
    plain = _plain(container, parts)
    if type(container) is type(plain):
        return plain
    try:
        if not isinstance(container, (MutableMapping, MutableSequence)):
            made: Any = type(container)
            return made(plain)
        return _copied(container, plain if isinstance(plain, dict) else dict(enumerate(plain)))
    except Exception:  # by the user's type, which may check its parts
        return plain


def _copied(container: Any, parts: Mapping[Any, Any]) -> Any:
    """Copy a container of a type of the user's, with other parts.

    A copy may hold its parts in the same dict or list as the original, which is then put back, and copied deeper.
    """
    before = {key: container[key] for key in parts}
    made = copy.copy(container)
    shared = False
    try:
        for key, part in parts.items():
            made[key] = part
            now = container[key]
            shared = shared or (now is not before[key] and now is made[key])
    finally:
        for key, part in before.items():
            if container[key] is not part and (shared or container[key] is made[key]):
                container[key] = part
    if shared:
        made = copy.deepcopy(container, {id(part): part for part in before.values()})
        for key, part in parts.items():
            made[key] = part
    return made


def frame_of(container: Any, names: Mapping[Any, str]) -> Any:
    """Give a container of the same type around names, which stand for its parts.

    It is a dict or a list where the container's own type has no room for names, or can't go to other processes.
    """
    made = remade(container, names)
    if type(made) in (dict, list, tuple) or hasattr(made, "_fields"):
        return made
    import cloudpickle

    plain = _plain(container, names)
    try:
        held = dict(made) if isinstance(plain, dict) else list(made)
        fits = held == plain and len(cloudpickle.dumps(made)) < _LARGEST
    except Exception:
        fits = False
    return made if fits else plain


def _plain(container: Any, parts: Mapping[Any, Any]) -> dict[Any, Any] | list[Any]:
    return dict(parts) if isinstance(container, Mapping) else list(parts.values())
