"""A training that is killed, or warned, at any moment ends with the weights, and the samples, of one that was not."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ..launcher import Program, finish, start
from ..patience import PATIENCE
from .trial import Trial, compare

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(1500)]
JOB = "tests/faults/training_job.py"


def run(folder: Path, out: Path, processes: int | None, *workers: int) -> Program:
    return start(JOB, folder, out, *workers, processes=processes)


def kill(out: Path, rank: int) -> bool:
    with contextlib.suppress(OSError, ValueError):
        os.kill(int(Path(f"{out}.pid{rank}").read_text()), signal.SIGKILL)
        return True
    return False


def warn(out: Path, _: int) -> bool:
    """Send SIGTERM to the training and its workers, as a cluster's scheduler does."""
    with contextlib.suppress(OSError, ValueError):
        os.killpg(int(Path(f"{out}.pid0").read_text()), signal.SIGTERM)
        return True
    return False


def saved(out: Path) -> int:
    """How many samples the checkpoint has."""
    return len(torch.load(out, weights_only=True)["seen"]) if out.exists() else 0


@pytest.mark.parametrize(
    "processes, workers, end",
    [(None, 0, kill), (None, 1, kill), (2, 0, kill), (None, 2, warn)],
    ids=["alone", "workers", "two ranks", "warned, with workers"],
)
def test_ended_at_random_moments(
    processes: int | None, workers: int, end: Callable[[Path, int], bool], folder: Path, tmp_path: Path, trial: Trial
) -> None:
    reference = tmp_path / "whole"
    finish(run(folder, reference, processes, workers))
    took = Path(f"{reference}.done").stat().st_mtime - Path(f"{reference}.pid0").stat().st_mtime
    whole = torch.load(reference, weights_only=True)
    assert len(whole["seen"]) == len(set(whole["seen"])) == 66

    rng = random.Random(5)
    wanted, kills, trainings = trial.times(2, 100 if processes is None and not workers else 30), 0, 0
    problems = dict.fromkeys(("wrong", "lost", "repeated", "hangs", "crashes"), 0)
    while kills < wanted:
        out = tmp_path / f"killed{trainings}"
        trainings += 1
        for _ in range(20):
            for rank in range(processes or 1):
                Path(f"{out}.pid{rank}").unlink(missing_ok=True)
            program = run(folder, out, processes, workers)
            # It begins after some time, which is not known; and so it goes on for a random part of what is left.
            deadline = time.monotonic() + PATIENCE
            last = (processes or 1) - 1
            while not Path(f"{out}.pid{last}").exists() and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(rng.uniform(0, 1) * took)
            done = Path(f"{out}.done").exists()
            before = saved(out)
            ended = not done and end(out, rng.randrange(processes or 1))
            try:
                said = program.communicate(PATIENCE)
            except subprocess.TimeoutExpired:
                problems["hangs"] += 1
                program.terminate()
                program.communicate()
                break
            if end is warn:  # it saves once more, and says nothing
                problems["crashes"] += program.returncode != 0 or bool(said[1])
                problems["lost"] += ended and saved(out) < before
                kills += ended and not Path(f"{out}.done").exists()
            else:
                kills += ended and program.returncode not in (0, None)
            if Path(f"{out}.done").exists():
                break
        else:
            finish(run(folder, out, processes, workers))  # to its end
        found = torch.load(out, weights_only=True)
        same = all(torch.equal(weights, found["model"][name]) for name, weights in whole["model"].items())
        problems["wrong"] += not same or found["seen"] != whole["seen"]
        for name, count in compare(whole["seen"], found["seen"]).items():
            problems[name] += count
    how = "killed" if end is kill else "warned"
    name = f"a training is {how}, {workers} workers, {processes or 1} ranks"
    trial.note(name, kills, problems, f"{trainings} trainings")
