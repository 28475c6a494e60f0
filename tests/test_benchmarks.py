"""The benchmarks run: what they measure is for people to read."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.processes, pytest.mark.slow]


def run(script: str, *argv: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "benchmarks" / script), *map(str, argv)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)


def test_scale(tmp_path):
    done = run(
        "scale.py", "--part", "host", "--part", "ranks", "--part", "memory", "--runs", 5, "--json", tmp_path / "a"
    )
    assert done.returncode == 0, done.stderr
    assert {"| order |", "| parameters |", "| clocks |"} <= {
        line[: line.find("|", 1) + 1] for line in done.stdout.split("\n")
    }
    found = json.loads((tmp_path / "a").read_text())
    assert all(len(times) == len(found["ranks"]["x"]) for times in found["ranks"]["ms"].values())
    assert found["memory"]["paths and labels of files"] > 50


def test_compare_names_peers_that_are_missing(tmp_path):
    argv = ["--works", "small", "--peers", "torchdali,grain", "--rounds", 1, "--seconds", 0.1]
    done = run("compare.py", *argv, "--json", tmp_path / "a.json", "--svg", tmp_path / "a.svg")
    found = json.loads((tmp_path / "a.json").read_text())
    rounds = found["works"]["small"]
    assert rounds["torchdali"][0]["images"] > 0, done.stdout + done.stderr
    if importlib.util.find_spec("grain") is None:
        assert done.returncode == 1 and "No module named 'grain'" in found["failed"]["small: grain"]
        assert "| grain | failed, see below |" in done.stdout
    bars = ElementTree.parse(tmp_path / "a.svg").findall("{http://www.w3.org/2000/svg}path")
    assert len(bars) == sum(one[0] is not None for name, one in rounds.items() if one)


def test_transforms_beside_torchvisions():
    """It runs; and the table that is kept has all its works."""
    done = run("transforms.py", "--rounds", 1, "--seconds", 0, "--only", "RandomInvert")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("| RandomInvert(1) | ")
    named = run("transforms.py", "--list")
    table = (ROOT / "benchmarks" / "transforms.md").read_text()
    assert len(names := named.stdout.splitlines()) > 35 and all(f"| {name} |" in table for name in names)


@pytest.fixture
def photos(tmp_path):
    """A few small images in the place of the benchmarks' own."""
    rng = np.random.default_rng(0)
    for number in range(70):
        folder = tmp_path / "train" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(folder / f"{number}.jpg")
    about = {"images": 70, "mean_bytes": 1000, "quality": 75.0, "photographs": []}
    (tmp_path / "photos.json").write_text(json.dumps(about))
    return tmp_path


def test_views_beside_torchs(photos):
    done = run("views.py", "--rounds", 1, "--seconds", 0, "--photos", photos)
    assert done.returncode == 0, done.stderr
    assert [line.split(" | ")[0] for line in done.stdout.splitlines()[-2:]] == ["| torchdali", "| torch"]


def test_first_batch(photos):
    done = run("first_batch.py", "--rounds", 1, "--peers", "torchdali", "--photos", photos)
    assert done.returncode == 0, done.stderr
    names, times = zip(*[line.split(": ") for line in done.stdout.splitlines()[-3:]], strict=True)
    assert names == ("torchdali first", "torchdali third", "torchdali process")
    first, third, process = (float(time.split("-")[1]) for time in times)
    assert 0 < first <= third and first < process
