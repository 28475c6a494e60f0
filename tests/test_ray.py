"""Ray Train, on a real cluster of one machine: a worker is killed, and another number of workers goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
    quick = {
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",  # 2 seconds for each report
        "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",  # one process less for each run, and so the next one
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    program = subprocess.run(
        [sys.executable, "-m", "tests.trainer_jobs.ray_job", digits, tmp_path],
        cwd=ROOT, env={**os.environ, **ONE_THREAD, **quick, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=PATIENCE,
    )  # fmt: skip
    assert program.returncode == 0, program.stderr[-6000:]
    assert (tmp_path / "died").exists() and "held-out accuracy" in program.stdout
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["step"] == 12 and result["accuracy"] > 0.3  # 1,437 samples, 126 a step

    normalize = T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    transform = T.Compose([T.RandomResizedCrop(8, scale=(0.6, 1.0)), T.RandomHorizontalFlip(0.0), normalize])
    images = td.ImageFolder(digits / "train")
    with td.DataLoader(images, 126, shuffle=True, transform=transform, device="cpu") as loader:
        whole = [step.samples for step in read_stream(loader, epochs=1)]
    files = {tuple(map(int, path.stem.split("."))): path for path in (tmp_path / "samples").iterdir()}
    parts: dict[int, list[list[str]]] = {workers: [] for workers in (2, 1)}
    for (_, position, workers, rank), path in sorted(files.items()):
        if workers == 2 and position > 7 * 126:
            continue  # the other worker may have had a batch more
        parts[workers] += [] if rank else [[]]
        parts[workers][-1] += json.loads(path.read_text())
    resumed = len(whole) - len(parts[1])
    assert parts[2] == whole[:7] and parts[1] == whole[resumed:] and resumed in (2, 4, 6)
