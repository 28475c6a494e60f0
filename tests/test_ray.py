"""Ray Train, on a real cluster of one machine: a worker is killed, and another number of workers goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

import torchdali as td
from torchdali import transforms as T
from torchdali.testing import read_stream

from .launcher import ONE_THREAD, ROOT
from .patience import PATIENCE

pytestmark = [pytest.mark.processes, pytest.mark.slow]


def test_one_stream_over_deaths_and_numbers_of_workers(digits: Path, tmp_path: Path) -> None:
    # Ray starts its own processes, so no fork of a server that holds torch can be the driver.
    program = subprocess.run(
        [sys.executable, "-m", "tests.trainer_jobs.ray_job", digits, tmp_path],
        cwd=ROOT, env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    assert program.returncode == 0, program.stderr[-6000:]
    assert "held-out accuracy" in program.stdout
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["step"] == 24 and result["accuracy"] > 0.3  # 1,437 samples, 126 a step, two epochs

    normalize = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    transform = T.Compose([T.RandomResizedCrop(8, scale=(0.6, 1.0)), T.RandomHorizontalFlip(0.0), normalize])
    images = td.ImageFolder(digits / "train")
    with td.DataLoader(images, 126, shuffle=True, transform=transform, device="cpu") as loader:
        whole = list(chain(*(step.samples for step in read_stream(loader, epochs=2))))
    found = {tuple(map(int, path.stem.split("."))): path for path in (tmp_path / "samples").iterdir()}
    assert {(epoch, rank) for epoch, _, rank in found} == {(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)}
    assert list(chain(*(json.loads(found[place].read_text()) for place in sorted(found)))) == whole
