"""The recipes for Accelerate and the Trainer of transformers, with their tiny configs: killed, and resumed."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from .launcher import Program, finish, start

pytestmark = pytest.mark.processes

RECIPES = {"accelerate_loop": ("weights.pt", 6), "hf_trainer": ("model.safetensors", 6)}
"""The file of the weights, and the optimizer steps of the tiny config."""


def begin(recipe: str, digits: Path, out: Path, *options: str, processes: int | None = None) -> Program:
    """A recipe with its tiny config; with `processes`, as torchrun starts it."""
    return start(
        f"recipes/{recipe}.py", "--config", f"configs/{recipe}/tiny.yaml",
        f"--data.root={digits}", f"--train.output={out}", *options,
        processes=processes, preload=["torchdali.configs", "accelerate", "transformers.trainer"],
    )  # fmt: skip


def result(out: Path) -> dict[str, float]:
    return json.loads((out / "result.json").read_text())


@pytest.fixture(scope="module")
def runs(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of every recipe's runs: whole, killed and resumed, killed and resumed by two processes."""
    out = tmp_path_factory.mktemp("runs")
    whole = [begin(recipe, digits, out / recipe / "whole") for recipe in RECIPES]
    # Saved at steps 2, 4 and 6; the first epoch ends with step 3, the window of which is not full.
    killed = [begin(recipe, digits, out / recipe / "one", "--train.kill_at_step=3") for recipe in RECIPES]
    for job in killed:
        finish(job, -signal.SIGKILL)
    resumed = []
    for recipe, (name, _) in RECIPES.items():
        assert not (out / recipe / "one" / name).exists()
        shutil.copytree(out / recipe / "one", out / recipe / "two")
        resumed.append(begin(recipe, digits, out / recipe / "one"))
        resumed.append(begin(recipe, digits, out / recipe / "two", processes=2))
    for job in whole + resumed:
        finish(job)
    return out


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_killed_training_ends_with_the_same_weights(recipe: str, runs: Path) -> None:
    name, steps = RECIPES[recipe]
    load = torch.load if name.endswith(".pt") else load_file
    assert result(runs / recipe / "whole") == result(runs / recipe / "one")
    assert result(runs / recipe / "whole")["steps"] == steps and result(runs / recipe / "whole")["accuracy"] > 0.3
    one, other = (load(runs / recipe / run / name) for run in ("whole", "one"))
    assert one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("recipe", RECIPES)
def test_another_number_of_processes_goes_on(recipe: str, runs: Path) -> None:
    found = result(runs / recipe / "two")
    assert found["steps"] == RECIPES[recipe][1] and found["accuracy"] > 0.3


def test_mistakes_are_named(digits: Path, tmp_path: Path) -> None:
    mistakes = {"batchsize": "--data.batchsize=3", "epochs": "--train.epochs=many"}
    jobs = {word: begin("accelerate_loop", digits, tmp_path, option) for word, option in mistakes.items()}
    for word, job in jobs.items():
        assert word in finish(job, 2)[1]
