"""Random generators of DALI that a function holds, whose state is in no checkpoint."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import FunctionType, MethodType
from typing import Any


def held_generators(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Give the `ndd.random.RNG`s that a function knows: its globals', its closure's, its object's, and its arguments'.

    Returns:
        their names and themselves.
    """
    module = sys.modules.get("nvidia.dali.experimental.dynamic")  # where it was not imported, there is none
    if module is None:
        return
    seen: set[int] = set()
    for name, value in known_values(function):
        if isinstance(value, module.random.RNG) and id(value) not in seen:
            seen.add(id(value))
            yield name, value


def known_values(function: Any) -> Iterator[tuple[str, Any]]:
    """The values that a function can reach by one name."""
    if isinstance(function, functools.partial):
        yield from zip(map("argument {}".format, range(len(function.args))), function.args, strict=True)
        yield from function.keywords.items()
        yield from known_values(function.func)
    elif isinstance(function, MethodType):
        yield from getattr(function.__self__, "__dict__", {}).items()
        yield from known_values(function.__func__)
    elif isinstance(function, FunctionType):
        for name in function.__code__.co_names:
            if name in function.__globals__:
                yield name, function.__globals__[name]
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            with suppress(ValueError):  # it is empty, as that of a name that is bound later
                yield name, cell.cell_contents
        for parameter in inspect.signature(function).parameters.values():
            yield parameter.name, parameter.default
    else:
        yield from getattr(function, "__dict__", {}).items()
        call = vars(type(function)).get("__call__")
        if isinstance(call, FunctionType):
            yield from known_values(call)
