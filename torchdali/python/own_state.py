"""The state that a dataset, or its iterator, has of its own, and the integers that one without a state counts."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import StateMismatchError, let_through

_MOST = 1000  # parts of a dataset that are looked at


def has_state(dataset: Any) -> bool:
    """Whether a dataset, or an iterator, has a state of its own that says all.

    One that does not is iterated again: Hugging Face's leaves out the samples in a buffer of `shuffle`, and loses them.
    """
    return takes_state(dataset) and not holds_buffer(dataset)


def holds_buffer(dataset: Any) -> bool:
    """Whether a dataset of Hugging Face shuffles by a buffer of samples."""
    waiting, seen = [getattr(dataset, "_ex_iterable", None)], 0
    while waiting and seen < _MOST:
        one = waiting.pop()
        if not type(one).__module__.startswith("datasets."):
            continue
        if type(one).__name__ == "BufferShuffledExamplesIterable":
            return True
        seen += 1
        waiting += [getattr(one, "ex_iterable", None), *getattr(one, "ex_iterables", ())]
    return False


def takes_state(dataset: Any) -> bool:
    """Whether a dataset, or an iterator, has a state that it gives without arguments, and takes back.

    LitData's and MosaicML Streaming's ask their own loaders for numbers: such a dataset is iterated again.
    """
    give, take = getattr(dataset, "state_dict", None), getattr(dataset, "load_state_dict", None)
    return callable(give) and callable(take) and _needs_nothing(give)


def _needs_nothing(function: Callable[..., Any]) -> bool:
    """Whether a function can be called without arguments."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        return False
    except ValueError:  # a builtin without a signature
        return True
    return True


def load(owner: Any, state: Any, before: Exception | None = None) -> None:
    """Give a dataset, or its iterator, its own state back.

    Args:
        owner: takes it.
        state: a copy of it is given.
        before: why it was refused before; None: it was not.

    Raises:
        StateMismatchError: it is refused.
    """
    try:
        owner.load_state_dict(copy.deepcopy(state))
    except Exception as error:
        let_through(error)
        cause = before or error
        raise StateMismatchError(
            f"iterable: {type(owner).__name__}.load_state_dict refuses the state: {type(cause).__name__}: {cause}"
        ) from cause


def same(one: Any, other: Any) -> bool:
    """Whether two states are known to be equal."""
    try:
        return bool(one == other)
    except (ValueError, RuntimeError):  # arrays in them
        return False


def integers(attributes: Mapping[str, Any]) -> dict[str, int]:
    """The integers among attributes."""
    return {name: value for name, value in attributes.items() if type(value) is int and not name.startswith("__")}


def all_integers(dataset: Any) -> dict[str, int]:
    """The integer attributes of an object, those included that its class gives it."""
    levels = [*(vars(cls) for cls in reversed(type(dataset).__mro__)), getattr(dataset, "__dict__", {})]
    return {name: value for level in levels for name, value in integers(level).items()}
