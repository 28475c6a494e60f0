"""Says what a wait that was too long has waited for."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from contextlib import suppress

from .state import Position

OURS = "torchdali"
"""The start of the names of all threads of loaders."""


class Busy(dict[str, Position]):
    """The step that each stage was given last, and since when, by `time.monotonic`.

    A stage that says when it is done with a step can be told from one that waits for the stage before it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._since: dict[str, float] = {}
        self._works: set[str] = set()

    def __setitem__(self, stage: str, at: Position) -> None:
        super().__setitem__(stage, at)
        self._since[stage] = time.monotonic()

    def begin(self, stage: str, at: Position) -> None:
        """Note that a stage works on a step, until `done`."""
        self[stage] = at
        self._works.add(stage)

    def done(self, stage: str) -> None:
        """Note that a stage waits for its next step."""
        self._works.discard(stage)

    def stuck(self, seconds: float) -> bool:
        """Whether a stage has worked on one step for so long."""
        now = time.monotonic()
        return any(now - self._since[stage] > seconds for stage in list(self._works))

    def __str__(self) -> str:
        now = time.monotonic()
        stages = [
            f"{stage} at epoch {at.epoch}, sample {at.samples_seen}, for {now - self._since[stage]:.0f} s"
            for stage, at in list(self.items())
        ]
        return "; ".join(stages) or "nothing begun"


def stacks(threads: list[threading.Thread] | None = None) -> str:
    """Show where threads stand: those of loaders in this process, or some."""
    frames = sys._current_frames()
    shown = []
    for thread in threading.enumerate() if threads is None else threads:
        frame = frames.get(thread.ident or 0)
        if frame is not None and (threads is not None or thread.name.startswith(OURS)):
            shown.append(f"thread {thread.name}:\n" + "".join(traceback.format_stack(frame)))
    return "\n".join(shown) or "no thread of a loader runs\n"


def report(reason: str, threads: list[threading.Thread] | None = None) -> None:
    """Write to standard error where threads stand, before an error is raised that can only say it in short."""
    with suppress(Exception):  # there may be none, or it is closed
        sys.stderr.write(f"torchdali: {reason}\n\n{stacks(threads)}\n")
        sys.stderr.flush()
