"""scripts/gpu_check on a machine without a GPU: it says so, and a TERM prints what there is."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SCRIPT = Path(__file__).parent.parent / "scripts/gpu_check"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so():
    done = subprocess.run([sys.executable, SCRIPT], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and "sees no NVIDIA GPU here" in done.stderr and not done.stdout


def test_a_term_prints_what_there_is(tmp_path):
    command = [sys.executable, SCRIPT, "--rehearse", "--steps", "first,facts", tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("    debug:") and "== stopped" not in "".join(lines):
                process.send_signal(signal.SIGTERM)
    text = "".join(lines)
    assert process.returncode == 1 and "== stopped" in text
    assert text.count("first: passed") == 2 and "versions: Python" in (tmp_path / "results.txt").read_text()
