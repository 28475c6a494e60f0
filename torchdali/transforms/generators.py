"""Random generators of DALI that a function holds, whose state is in no checkpoint."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from ..generators import known_values


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
