"""scripts/gpu_check on a machine without a GPU: it says so, and a TERM prints what there is."""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
from importlib import metadata
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


def test_bash_serves_and_steps_that_found_no_time_have_not_passed(tmp_path):
    command = ["bash", SCRIPT, "--rehearse", "--limit", "0", "--steps", "first,sweeps", tmp_path]
    own = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # where bash finds python3
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=own)
    assert done.returncode == 1 and done.stdout.count("not run, since the time of all steps is over") == 2
    wrong = subprocess.run([sys.executable, SCRIPT, "--steps", "fast"], capture_output=True, text=True, timeout=120)
    assert wrong.returncode == 2 and "there is no step fast" in wrong.stderr


def test_packages_are_compared_with_the_planned_ones(monkeypatch):
    """Those that DALI needs are all listed, and those that are missing or of another version are named."""
    packages = runpy.run_path(str(SCRIPT))["packages"]
    found, lacking, _ = packages()
    assert not lacking and any(line.startswith("nvidia-dali 2.4") for line in found)

    class Here:
        def __init__(self, name: str, version: str) -> None:
            self.metadata, self.version = {"Name": name}, version

    kept = [Here(each.metadata["Name"], each.version) for each in metadata.distributions()]
    kept = [each for each in kept if each.metadata["Name"].lower() not in ("six", "pyyaml", "nvidia-dali-cuda120")]
    monkeypatch.setattr(metadata, "distributions", lambda: [*kept, Here("nvidia_dali_cuda130", "2.5.0")])
    found, lacking, other = packages()
    assert lacking == ["pyyaml", "six"] and "nvidia-dali 2.5.0" in found and "nvidia-dali 2.4.0" in other
    # DALI's own list, without which it can't be imported.
    listed = (SCRIPT.parent / "gpu_packages.txt").read_text()
    monkeypatch.undo()
    needed = [each.split(";")[0] for each in metadata.requires("nvidia-dali-cuda120") or () if "extra ==" not in each]
    names = {each.split("<")[0].split(">")[0].split("=")[0].split("~")[0].split("[")[0].strip() for each in needed}
    assert not [name for name in names if name.removesuffix("-cu12") not in listed]
