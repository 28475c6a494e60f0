"""How long tests wait: for a condition and never for a time, and longer than the busiest machine needs.

That something does not wait is shown by what it would wait for: that takes for ever, and the test ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE = 240.0
"""Seconds."""


def wait_until(condition: Callable[[], object], seconds: float = PATIENCE) -> bool:
    """Whether a condition comes true."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
