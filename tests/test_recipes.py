"""Recipes run, each with its tiny config, and continue exactly where they were killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("digits")
    done = run("scripts/make_digits.py", "--out", out)
    assert done.returncode == 0, done.stderr
    assert len(list(out.glob("train/*/*.png"))) == 1437 and len(list(out.glob("val/*/*.png"))) == 360
    return out


def train(digits: Path, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return run(
        "recipes/image_classification.py", "--config", "configs/image_classification/tiny.yaml",
        f"--data.root={digits}", f"--train.output={out}", f"--train.stream_log={out}.jsonl", "--train.device=cpu",
        *options,
    )  # fmt: skip


def test_a_killed_training_ends_with_the_same_weights(digits, tmp_path):
    whole = train(digits, tmp_path / "whole")
    assert whole.returncode == 0, whole.stderr
    steps = [json.loads(line) for line in (tmp_path / "whole.jsonl").read_text().splitlines()]
    kill_at = len(steps) // 2 + 1
    killed = train(digits, tmp_path / "killed", f"--train.kill_at_step={kill_at}")
    assert killed.returncode == -signal.SIGKILL
    resumed = train(digits, tmp_path / "killed")
    assert resumed.returncode == 0, resumed.stderr
    log = [json.loads(line) for line in (tmp_path / "killed.jsonl").read_text().splitlines()]
    after = log[kill_at:]
    assert log[:kill_at] == steps[:kill_at] and after == steps[after[0]["step"] - 1 :]
    one, other = (torch.load(tmp_path / name / "weights.pt", weights_only=True) for name in ("whole", "killed"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_config_mistakes_are_named(digits, tmp_path):
    mistakes = {"--data.batchsize=3": "batchsize", "--train.epochs=many": "epochs", "--config=no.yaml": "no.yaml"}
    for option, word in mistakes.items():
        done = train(digits, tmp_path / "out", option)
        assert done.returncode == 2 and word in done.stderr


@pytest.mark.parametrize("config", sorted((ROOT / "configs").rglob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_fits_its_recipe(config):
    assert config.read_text().startswith("#")
    done = run(f"recipes/{config.parent.name}.py", "--config", config, "--print_config")
    assert done.returncode == 0, done.stderr


def test_recipes_are_scripts():
    assert not (ROOT / "recipes" / "__init__.py").exists()
