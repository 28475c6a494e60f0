"""Random generators that a function of batches holds, whose state is in no checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..generators import is_generator, known_values


def held_generators(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Give the generators that a function knows: its globals', its closure's, its object's, and its arguments'.

    Returns:
        their names and themselves: generators of Python, numpy and torch that are not the global ones, and DALI's.
    """
    seen: set[int] = set()
    for name, value in known_values(function):
        if (is_generator(value) or is_dalis(value)) and id(value) not in seen:
            seen.add(id(value))
            yield name, value


def is_dalis(value: Any) -> bool:
    """Whether a value is an `ndd.random.RNG`; where DALI's dynamic mode was not imported, there is none."""
    module = sys.modules.get("nvidia.dali.experimental.dynamic")
    return module is not None and isinstance(value, module.random.RNG)
