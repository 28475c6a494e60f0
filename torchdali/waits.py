"""Waits whose seconds don't run while the process is stopped.

Ctrl-Z, a debugger, a batch system that suspends jobs, a paused container and a machine that is moved stop a process,
and clocks go on: a limit of two minutes would be over when the process goes on after lunch.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

LONGEST = 1.0  # seconds
FEWEST = 8


def part_of(seconds: float) -> float:
    """Give the longest part of a wait: a stop costs no more than that."""
    return min(LONGEST, seconds / FEWEST)


def parts(seconds: float) -> Iterator[float]:
    """Give the parts of a wait, one to be waited for after the other, which sum up to its seconds."""
    if math.isinf(seconds):
        return itertools.repeat(LONGEST)
    return itertools.repeat(seconds / (count := max(math.ceil(seconds / LONGEST), FEWEST)), count)


class Waited:
    """Counts the seconds of a wait that is made in parts.

    Attributes:
        seconds: so far.
    """

    seconds = 0.0

    @contextmanager
    def part(self, longest: float) -> Iterator[None]:
        """Count the time of a block, and at most the seconds that it waits for."""
        begin = time.monotonic()
        yield
        self.seconds += min(time.monotonic() - begin, longest)
