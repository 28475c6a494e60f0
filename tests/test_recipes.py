"""Recipes run with their tiny configs, and continue exactly where they were killed."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from PIL import Image

import torchdali as td
from torchdali.testing import make_image_folder, truncate_file

from .launcher import ROOT, Program, finish, start

NEEDED = ["torchdali.configs"]
RECIPES = ["detection", "segmentation", "simclr", "language_model", "keyword_spotting", "video_classification"]
"""Those that share one form of options, and of training."""


def training(digits: Path, out: Path, *options: str) -> list[str]:
    """The options of a short training."""
    return [
        "--config", "configs/image_classification/tiny.yaml",
        f"--data.root={digits}", f"--train.output={out}", f"--train.stream_log={out}.{{rank}}.jsonl",
        "--train.device=cpu", *options,
    ]  # fmt: skip


def begin(*options: str, processes: int | None = None) -> Program:
    return start("recipes/image_classification.py", *options, processes=processes, preload=NEEDED)


def log_of(out: Path, rank: int = 0) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(f"{out}.{rank}.jsonl").read_text().splitlines()]


@pytest.mark.processes
@pytest.mark.slow
def test_a_killed_training_with_mixed_batches_goes_on(digits, tmp_path):
    """RandAugment, erasing, MixUp and CutMix draw the same numbers again."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    mixed = ["--data.auto_augment=ra", "--data.random_erasing=0.3", "--data.mixup=0.2", "--data.cutmix=1.0"]
    uninterrupted = begin(*training(digits, whole, *mixed))
    finish(begin(*training(digits, killed, *mixed, "--train.kill_at_step=15")), -signal.SIGKILL)
    for job in (begin(*training(digits, killed, *mixed)), uninterrupted):
        finish(job)
    steps, log = log_of(whole), log_of(killed)
    assert log[:15] == steps[:15] and log[15:] == steps[12:]  # pixels are those of mixed batches
    one, other = (torch.load(out / "weights.pt", weights_only=True) for out in (whole, killed))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.processes
def test_a_killed_training_goes_on(digits, tmp_path):
    """With the very next batch, to the same weights; and on two processes with the same samples."""
    whole, killed, two = (tmp_path / name for name in ("whole", "killed", "two"))
    uninterrupted = begin(*training(digits, whole))
    finish(begin(*training(digits, killed, "--train.kill_at_step=15")), -signal.SIGKILL)
    shutil.copytree(killed, two)
    for job in (begin(*training(digits, killed)), begin(*training(digits, two), processes=2), uninterrupted):
        finish(job)

    steps, log = log_of(whole), log_of(killed)
    assert log[:15] == steps[:15] and log[15:] == steps[12:]  # saved at step 12
    one, other = (torch.load(out / "weights.pt", weights_only=True) for out in (whole, killed))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)

    ranks = [log_of(two, rank) for rank in range(2)]
    for left, right, step in zip(*ranks, steps[12:], strict=True):
        assert left["step"] == right["step"] == step["step"] and left["pixels"] != right["pixels"]
        both = zip(left["indices"], right["indices"], strict=True)
        assert sorted([i for pair in both for i in pair]) == sorted(step["indices"])
    results = [json.loads((out / "result.json").read_text()) for out in (whole, two)]
    assert results[0]["steps"] == results[1]["steps"] == len(steps) and results[1]["accuracy"] > 0.3


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of data by recipe; small ones, as the scripts make them."""
    names = ("shapes", "sums", "folders", "tones", "motions")
    shapes, sums, folders, tones, motions = (tmp_path_factory.mktemp(name) for name in names)
    few = ["--train=24", "--val=6"]
    writers = [
        start("scripts/make_shapes.py", "--out", shapes, *few, preload=["PIL.ImageDraw"]),
        start("scripts/make_sums.py", "--out", sums, "--train=150", "--val=30"),
        start("scripts/make_tones.py", "--out", tones, *few),
        start("scripts/make_motions.py", "--out", motions, *few, preload=["av"]),
    ]
    for split in ("train", "val"):
        make_image_folder(folders / split, classes=2, per_class=24)
    for writer in writers:
        finish(writer)
    return {
        "detection": shapes, "segmentation": shapes, "simclr": folders, "language_model": sums,
        "keyword_spotting": tones, "video_classification": motions,
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_kind_of_training_goes_on_after_a_kill(made, tmp_path, recipe):
    """To the same weights, bit for bit; and on two processes to the same step."""

    def begin_it(name: str, *options: str, processes: int | None = None) -> Program:
        return start(
            f"recipes/{recipe}.py", "--config", f"configs/{recipe}/tiny.yaml", f"--data.root={made[recipe]}",
            f"--train.output={tmp_path / name}", "--train.device=cpu", *options,
            processes=processes, preload=[*NEEDED, *IMPORTS.get(recipe, ())],
        )  # fmt: skip

    uninterrupted = begin_it("whole")
    finish(begin_it("killed", "--train.kill_at_step=11"), -signal.SIGKILL)  # saved at step 9
    assert torch.load(tmp_path / "killed" / "checkpoint.pt", weights_only=True)["step"] == 9
    shutil.copytree(tmp_path / "killed", tmp_path / "two")
    for job in (begin_it("killed"), begin_it("two", processes=2), uninterrupted):
        finish(job)
    one, other = (torch.load(tmp_path / name / "weights.pt", weights_only=True) for name in ("whole", "killed"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("whole", "killed", "two")]
    assert results[0] == results[1] and results[0]["steps"] == results[2]["steps"] > 11
    assert all(math.isfinite(value) for result in results for value in result.values())


@pytest.mark.processes
def test_config_mistakes_are_named(digits, tmp_path):
    mistakes = {
        "--data.batchsize=3": (2, "did you mean 'data.batch_size'?"),
        f"--data.root={digits}_": (1, f"did you mean '{digits}/train'?"),
    }
    for option, (code, words) in mistakes.items():
        assert words in finish(begin(*training(digits, tmp_path / "out", option)), code)[1]


@pytest.mark.processes
def test_a_pipeline_and_the_loader_that_replaces_it(digits, tmp_path):
    program = start(
        "recipes/migrate_from_pipeline.py", "--config", "configs/migrate_from_pipeline/tiny.yaml",
        f"--data.root={os.path.relpath(digits, ROOT)}", f"--run.output={tmp_path / 'found.json'}", "--run.device=cpu",
        preload=NEEDED,
    )  # fmt: skip
    printed, _ = finish(program)
    found = json.loads((tmp_path / "found.json").read_text())
    assert (
        0 < found.pop("evaluation, transforms: mean distance") < 0.1
    )  # they differ, but by less than 2 % of the range
    assert list(found.values()) == [True] * 5 and printed.count(" equal") == 5


@pytest.mark.processes
def test_a_folder_of_smaller_images(tmp_path):
    """Their shorter sides are as asked for; a second run writes only what is missing, and names damaged files."""
    source, target = tmp_path / "large", tmp_path / "small"
    files = make_image_folder(source, classes=2, per_class=4)
    damaged = files / "class_1" / "0003.jpg"
    sideways = files / "class_0" / "0000.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6  # Orientation: turn it by 90 degrees
    Image.new("RGB", (90, 60), (200, 10, 10)).save(sideways, exif=exif)
    arguments = ["recipes/resize_images.py", source, target, "--size=48", "--processes=1"]
    finish(start(*arguments, preload=["PIL.ImageOps", "tqdm"]))
    small = td.ImageFolder(target)
    assert [Path(path).name for path in small.paths] == [Path(path).name for path in td.ImageFolder(source).paths]
    for (image, label), (before, _) in zip(small, td.ImageFolder(source), strict=True):
        assert min(image.shape[1:]) == min(48, *before.shape[1:]) and label in (0, 1)
    assert small[0][0].shape == (3, 72, 48)

    written = Path(small.paths[1]).stat().st_mtime_ns
    Path(small.paths[0]).unlink()
    (target / "class_1" / "0003.jpg").unlink()
    truncate_file(damaged, 0.1)
    printed, errors = finish(start(*arguments), 1)
    assert f"left out: {damaged}" in errors and "7 images" in printed
    assert Path(small.paths[0]).exists() and Path(small.paths[1]).stat().st_mtime_ns == written


# Configs

SMALL = ["--data.batch_size=8"]
ON_CPU = {
    "image_classification": [*SMALL, "--data.root={digits}", "--train.output={out}", "--train.device=cpu"],
    "accelerate_loop": [*SMALL, "--data.root={digits}", "--train.output={out}", "--train.device=cpu"],
    "hf_trainer": [*SMALL, "--data.root={digits}", "--train.output={out}", "--train.device=cpu"],
    "ray_train": [*SMALL, "--data.root={digits}", "--train.output={out}", "--train.gpu=false", "--train.workers=0"],
    "lightning_module": [
        *SMALL, "--data.train.init_args.root={digits}/train", "--data.val.init_args.root={digits}/val",
        "--output={out}", "--trainer.accelerator=cpu", "--trainer.devices=1", "--trainer.strategy=auto",
        "--trainer.logger=false",
    ],
    **{
        recipe: [*SMALL, "--data.root={made}", "--train.output={out}", "--train.device=cpu"]
        for recipe in RECIPES
    },
    "migrate_from_pipeline": [
        "--data.root={digits}", "--data.image_size=10", "--data.resize=12", "--run.output={out}", "--run.device=cpu",
    ],
}  # fmt: skip
"""The options that make each config run here; all others are as its file says."""

CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"), key=lambda path: path.parts[-2:])
RUN_TO_THE_END = "tiny"
"""The configs with which other tests run each recipe whole."""


@pytest.fixture(scope="module")
def vision_transformer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stands for the one that configs name on the Hub, which can't be reached from here."""
    out = tmp_path_factory.mktemp("vit")
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    transformers.ViTForImageClassification(transformers.ViTConfig(**sizes)).save_pretrained(out)
    return out


IMPORTS = {
    "accelerate_loop": ["accelerate"],
    "detection": ["pycocotools.cocoeval"],
    "hf_trainer": ["accelerate", "transformers.trainer"],
    "lightning_module": ["torchdali.lightning"],
    "ray_train": ["ray.train.torch"],
}


@pytest.mark.processes
@pytest.mark.parametrize(
    "config",
    [config for config in CONFIGS if config.stem != RUN_TO_THE_END],
    ids=lambda path: "-".join(path.with_suffix("").parts[-2:]),
)
def test_every_config_is_built(digits, made, vision_transformer, tmp_path, config):
    """It builds its datasets, loaders, model and optimizer, and takes one step; there the process dies."""
    recipe = config.parent.name
    stop = {"lightning_module": ["--kill_at_step=1"], "migrate_from_pipeline": []}
    options = [*ON_CPU[recipe], *stop.get(recipe, ["--train.kill_at_step=1"])]
    if "google/vit" in config.read_text():
        options.append(f"--train.model={vision_transformer}")
    options = [option.format(digits=digits, made=made.get(recipe), out=tmp_path / "run") for option in options]
    preload = [*NEEDED, *IMPORTS.get(recipe, ())]
    compares = recipe == "migrate_from_pipeline"
    program = start(f"recipes/{recipe}.py", "--config", config, *options, preload=preload)
    finish(program, 0 if compares else -signal.SIGKILL)


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: "-".join(path.with_suffix("").parts[-2:]))
def test_every_config_says_what_it_is_and_how_to_start_it(config):
    header = "".join(line for line in config.read_text().splitlines(True) if line.startswith("#"))
    assert f"recipes/{config.parent.name}.py --config {config.relative_to(ROOT)}" in header
    assert config.read_text().startswith("#") and ("data/" in header or "image folder" in header)


def test_recipes_are_scripts():
    assert not (ROOT / "recipes" / "__init__.py").exists()
