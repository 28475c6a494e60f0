"""The GPU's control flow on a machine without a GPU: the cases of tests/pretended_gpu, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.slow]

ROOT = Path(__file__).parent.parent
CASES = sorted((ROOT / "tests/pretended_gpu").glob("cases_*.py"))


def with_pretended_gpu(*arguments: str | Path) -> str:
    """Run pytest with a pretended GPU and give its output.

    Raises:
        AssertionError: a test has failed, or has caused a hazard.
    """
    command = [sys.executable, "-m", "pytest", "-p", "tests.pretended_gpu.plugin", "-p", "no:cacheprovider"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [*command, "--tb=short", *map(str, arguments)],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return done.stdout


# Of tests/test_gpu.py, those that need neither a GPU's pixels and speed nor its allocator.
OF_A_GPU = (
    *("channels_last", "by_chance", "device_is_found", "auto_is", "may_add_a_field", "arrive_as_they_are"),
    *("callers_streams", "set_later", "close_in_mid_epoch", "never_reaches"),
    *("whole_batches", "samples_on_the_gpu", "takes_over"),
)


@pytest.mark.timeout(1200)  # on a busy machine
def test_the_gpus_own_tests_as_far_as_values_allow_and_no_hazards_and_teeth():
    """In one process, whose start costs most of what a small test does."""
    assert len(CASES) >= 5
    output = with_pretended_gpu("tests/test_gpu.py", *CASES, "-k", " or ".join(("cases_", *OF_A_GPU)))
    assert " skipped" not in output
    for name in ("tests/test_gpu.py", *(os.fspath(case.relative_to(ROOT)) for case in CASES)):
        assert f"{name} ." in output
