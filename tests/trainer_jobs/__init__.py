"""Trainings by other people's trainers, programs for one and more processes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..launcher import finish, start
from .common import read

FOLDER = Path(__file__).parent
Found = dict[int, list[dict[str, Any]]]
"""What each rank found, by the number of processes."""


def run_on(
    processes: Sequence[int], program: str, folder: Path, make_out: Callable[[str], Path], preload: Sequence[str] = ()
) -> Found:
    """Run a program of this folder on each of some numbers of processes, all at the same time."""
    outs = {count: make_out(f"{program}{count}") for count in processes}
    script = FOLDER / f"{program}.py"
    jobs = [start(script, folder, out, processes=count, preload=preload) for count, out in outs.items()]
    for job in jobs:
        finish(job)
    return {count: [read(out, rank) for rank in range(count)] for count, out in outs.items()}
