"""A process that is stopped and goes on: no limit of time is over meanwhile."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from torchdali.waits import Waited, parts

from .patience import PATIENCE
from .stopped_job import BATCHES, OPTIONS, TIMEOUT

ROOT = Path(__file__).parent.parent


def run_with_a_stop(how: str) -> tuple[int, str, str]:
    """Give the exit code of a job that is stopped after its first batch, its last batch, and standard error."""
    command = [sys.executable, str(ROOT / "tests" / "stopped_job.py"), how]
    job = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
    )
    try:
        assert job.stdout is not None
        job.stdout.readline()
        os.killpg(job.pid, signal.SIGSTOP)
        time.sleep(TIMEOUT + 1.5)
        os.killpg(job.pid, signal.SIGCONT)
        out, errors = job.communicate(timeout=PATIENCE)
        return job.returncode, out.split()[-1], errors
    finally:
        job.kill()
        job.communicate()


@pytest.mark.processes
@pytest.mark.slow
def test_a_stop_is_no_timeout():
    """As by Ctrl-Z, or by a batch system that suspends jobs; all processes of a group."""
    with ThreadPoolExecutor() as pool:
        found = dict(zip(OPTIONS, pool.map(run_with_a_stop, OPTIONS), strict=True))
    assert found == dict.fromkeys(OPTIONS, (0, str(BATCHES - 1), ""))


@pytest.mark.parametrize("seconds", [0.01, 1.0, 7.5, 8.0, 120.0])
def test_the_parts_of_a_wait_make_it_up(seconds):
    found = list(parts(seconds))
    assert math.isclose(sum(found), seconds) and max(found) <= min(1.0, seconds / 8) * (1 + 1e-9)


def test_a_wait_without_a_limit_has_parts_for_ever():
    endless = parts(math.inf)
    assert {next(endless) for _ in range(1000)} == {1.0}


def test_time_that_a_part_did_not_wait_for_does_not_count():
    waited = Waited()
    with waited.part(0.01):
        time.sleep(0.05)
    assert waited.seconds == 0.01
    with waited.part(60.0):
        time.sleep(0.05)
    assert 0.06 <= waited.seconds < 60.01
