"""Lightning's Trainer, by both of its names: real trainings, each of them stopped and resumed."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import sys
from contextlib import nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

import jsonargparse
import lightning.pytorch
import pytest
import pytorch_lightning
import torch
from lightning.pytorch.tuner import Tuner
from lightning.pytorch.utilities import CombinedLoader
from torchvision.transforms import v2

import torchdali as td
import torchdali.lightning
from torchdali.lightning import DataModule

from .conftest import our_threads
from .launcher import ROOT, finish, start
from .lightning_job import (
    CLIENTS,
    MODELS,
    PACKAGES,
    TRANSFORM,
    VIEW,
    Model,
    Save,
    dataset,
    fit,
    loader,
    module,
    trainer,
)

pytestmark = [
    pytest.mark.processes,
    pytest.mark.filterwarnings(
        r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated"
    ),  # Lightning, with a new torch
    pytest.mark.filterwarnings("ignore:The number of training batches .* is smaller than the logging interval"),
]

no_validation = pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`")

IMPORTS = ["lightning.pytorch", "pytorch_lightning", "torchdali.lightning", "torchdali.configs"]
N = 22  # of the folder
STEPS = 6  # of 4, the last of 2


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Equal sums in both runs, and no threads of OpenMP that wait for each other spinning."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def read(log: Path, stages: tuple[str, ...] = ("train", "end"), processes: int = 1) -> list[dict[str, Any]]:
    """The steps in a log, with the samples of all processes in their global order."""
    ranks = []
    for rank in range(processes):
        lines = map(json.loads, Path(f"{log}.{rank}").read_text().splitlines())
        ranks.append([line for line in lines if line["stage"] in stages])
    assert len({len(lines) for lines in ranks}) == 1
    steps = []
    for lines in zip(*ranks, strict=True):
        assert len({line["weights"] for line in lines}) == 1
        several = {key: [line[key] for line in lines] for key in ("ids", "pixels") if key in lines[0]}
        steps.append({**lines[0], **several})
    return steps


def ids(steps: list[dict[str, Any]]) -> list[tuple[int, list[int]]]:
    """Epoch and samples of each step, whoever trained on them."""
    return [(step["epoch"], list(chain(*chain(*step["ids"])))) for step in steps if step["stage"] != "end"]


def expected_ids(folder: Path, epochs: int = 2) -> list[tuple[int, list[int]]]:
    with loader(folder) as one:
        return [(epoch, indices.tolist()) for epoch in range(epochs) for _, _, indices in one]


def sweep(out: Path, make: Any, *, steps: int, names: list[str] | None = None, **options: Any) -> list[dict[str, Any]]:
    """Train, and resume from every checkpoint: the rest is the same, with the same weights.  Returns all steps."""
    fit(make(), out / "fresh", callbacks=[Save(out)], **options)
    fresh = read(out / "fresh")
    assert len(fresh) == 2 * steps + 1
    rest = {str(number): fresh[number:] for number in range(1, 2 * steps)} | {"epoch_0": fresh[steps:]}
    for name in names or rest:
        fit(make(), out / f"from {name}", resume=out / f"{name}.ckpt", **options)
        assert read(out / f"from {name}") == rest[name], name
    return fresh


# One process


@pytest.mark.parametrize("client", CLIENTS)
def test_resume_at_every_step(client, folder, tmp_path):
    fresh = sweep(tmp_path, lambda: CLIENTS[client](folder), steps=STEPS, num_sanity_val_steps=2)
    assert ids(fresh) == expected_ids(folder)
    assert len(read(tmp_path / "fresh", ("sanity",))) == 2
    # The abandoned sanity check costs the validation nothing.
    in_order = [(epoch, list(range(at, min(at + 4, N)))) for epoch in (0, 1) for at in range(0, N, 4)]
    assert ids(read(tmp_path / "fresh", ("val",))) == in_order
    # Twice: resumed from a resumed run.
    again = tmp_path / "again"
    again.mkdir()
    fit(CLIENTS[client](folder), again / "mid", resume=tmp_path / "2.ckpt", callbacks=[Save(again)])
    for step in (4, 9):
        fit(CLIENTS[client](folder), again / f"twice {step}", resume=again / f"{step}.ckpt")
        assert read(again / f"twice {step}") == fresh[step:]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    "options",
    [
        {"limit_train_batches": 4, "limit_val_batches": 1},
        {"val_check_interval": 2},
        {"accumulate_grad_batches": 2},
        {"reload_dataloaders_every_n_epochs": 1},
    ],
    ids=lambda options: next(iter(options)),
)
def test_resume_with(options, client, folder, tmp_path):
    limit = options.get("limit_train_batches", STEPS)
    names = ["1", str(limit), str(limit + 2), "epoch_0"]
    if "accumulate_grad_batches" in options:  # Lightning saves no gradients
        names = ["2", "6", "8", "epoch_0"]
    fresh = sweep(tmp_path, lambda: CLIENTS[client](folder), steps=limit, names=names, **options)
    whole = expected_ids(folder)
    assert ids(fresh) == whole[:limit] + whole[STEPS : STEPS + limit]
    every = 3 if "val_check_interval" in options else 1
    per_validation = options.get("limit_val_batches", STEPS)
    assert len(read(tmp_path / "fresh", ("val",))) == 2 * every * per_validation


def test_mixed_batches_of_training_resume(folder, tmp_path):
    def make():
        data = module(folder)
        data.batch_transform = v2.MixUp(num_classes=2)
        return {"datamodule": data}

    fresh = sweep(tmp_path, make, steps=STEPS, names=["2"])
    assert ids(fresh) == expected_ids(folder)
    fit({"datamodule": module(folder)}, tmp_path / "plain")
    plain = read(tmp_path / "plain")
    assert all(one["pixels"] != other["pixels"] for one, other in zip(fresh[:-1], plain[:-1], strict=True))
    stages = ("val",)
    assert [s["pixels"] for s in read(tmp_path / "fresh", stages)] == [
        s["pixels"] for s in read(tmp_path / "plain", stages)
    ]


def test_the_other_package(folder, tmp_path):
    fresh = sweep(tmp_path, lambda: {"datamodule": module(folder)}, steps=STEPS, package="pytorch_lightning")
    fit({"datamodule": module(folder)}, tmp_path / "lightning")
    assert fresh == read(tmp_path / "lightning")


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("options", [{}, {"shuffle": True}, {"sampler": range(21, -1, -1)}])
def test_overfitting_takes_the_same_batches_in_each_epoch(options, package, folder, tmp_path):
    """The module shuffles by default; its loaders do it again where the next Trainer does not overfit."""
    data = module(folder, **options)
    fit({"datamodule": data}, tmp_path / "log", package, overfit_batches=2)
    assert ids(read(tmp_path / "log")) == [(epoch, list(range(at, at + 4))) for epoch in (0, 1) for at in (0, 4)]
    fit({"datamodule": data}, tmp_path / "whole", package)
    order = [i for _, batch in ids(read(tmp_path / "whole"))[:STEPS] for i in batch]
    assert sorted(order) == list(range(N)) and order != list(range(N))


@pytest.mark.parametrize("package", PACKAGES)
@pytest.mark.parametrize("options", [{"shuffle": False}, {}, {"shuffle": False, "sampler": range(21, -1, -1)}])
def test_overfitting_with_loaders(options, package, folder, tmp_path):
    """As long as that Trainer trains; the loader is shuffled again with the next one."""
    one = loader(folder, **options)
    data = {**CLIENTS["loader"](folder), "train_dataloaders": one}
    before = one.state_dict()["order"]
    shuffled = options != {"shuffle": False}
    with (
        pytest.warns(UserWarning, match="a shuffled loader gives the dataset's own order")
        if shuffled
        else nullcontext()
    ):
        fit(data, tmp_path / "log", package, overfit_batches=2)
    assert ids(read(tmp_path / "log")) == [(epoch, list(range(at, at + 4))) for epoch in (0, 1) for at in (0, 4)]
    assert one.state_dict()["order"] == before
    one.seek(0, 0)
    fit(data, tmp_path / "whole", package)
    with loader(folder, **options) as same:
        assert [batch for _, batch in ids(read(tmp_path / "whole"))[:STEPS]] == [i.tolist() for _, _, i in same]


def test_overfitting_where_the_sampler_makes_the_batches(folder, tmp_path):
    one = td.DataLoader(dataset(folder), batch_sampler=[[1, 2], [3]], transform=TRANSFORM, device="cpu")
    data = {**CLIENTS["loader"](folder), "train_dataloaders": one}
    with pytest.raises(ValueError, match=r"overfit_batches takes the same batches .* a loader with batch_size="):
        fit(data, tmp_path / "not", overfit_batches=2)


class Reading(DataModule):
    """Several datasets, read in a mode of Lightning's."""

    mode: Any = "min_size"

    def train_dataloader(self) -> CombinedLoader:
        return CombinedLoader(DataModule.train_dataloader.__get__(self)(), self.mode)


@no_validation
@pytest.mark.parametrize("mode", ["min_size", "max_size", "max_size_cycle"])
def test_several_training_sets(mode, folder, tmp_path):
    paths = dataset(folder).paths
    few = td.FileDataset(paths[:10], [0] * 10, fields=("image", "label", "index"))

    def make() -> dict[str, Any]:
        data = Reading({"all": dataset(folder), "few": few}, batch_size=4, transform=TRANSFORM, seed=3)
        data.mode = mode
        return {"datamodule": data}

    steps = 3 if mode == "min_size" else STEPS
    fresh = sweep(tmp_path, make, steps=steps, limit_val_batches=0)
    epoch = [step["ids"][0] for step in fresh[:steps]]
    assert sorted(chain(*(batches[1] for batches in epoch[:3]))) == list(range(10))
    assert [len(batches) for batches in epoch[3:]] == [1 if mode == "max_size" else 2] * (steps - 3)


# What a plain loader cannot have: Lightning#20550


class LateStrategy(lightning.pytorch.strategies.SingleDeviceStrategy):
    """Restores when the loaders are made, as FSDP and DeepSpeed do."""

    @property
    def restore_checkpoint_after_setup(self) -> bool:
        return True


@pytest.mark.parametrize("late", [False, True])
def test_loaders_that_are_made_before_the_checkpoint_is_restored(late, folder, tmp_path):
    options = {"strategy": LateStrategy} if late else {}
    sweep(tmp_path, lambda: {"datamodule": module(folder)}, steps=STEPS, estimate=True, **options)


def test_a_state_is_checked(folder, tmp_path):
    fit({"datamodule": module(folder)}, tmp_path / "log", callbacks=[Save(tmp_path)], max_epochs=1)
    with pytest.raises(td.StateMismatchError, match="seed: expected 4, got 3"):
        fit({"datamodule": module(folder, seed=4)}, tmp_path / "other", resume=tmp_path / "2.ckpt")
    several = module(folder, train={"a": dataset(folder), "b": dataset(folder)})
    with pytest.raises(td.StateMismatchError, match=r"states of train, and this DataModule reads train\.a, train\.b"):
        fit({"datamodule": several}, tmp_path / "other", resume=tmp_path / "2.ckpt")
    assert not our_threads()


def test_a_checkpoint_that_is_only_evaluated_moves_nothing(folder, tmp_path):
    fit({"datamodule": module(folder)}, tmp_path / "fresh", callbacks=[Save(tmp_path)], max_epochs=1)
    data = module(folder)
    for stage in ("validate", "test"):
        getattr(trainer("lightning"), stage)(
            Model(tmp_path / stage), datamodule=data, ckpt_path=tmp_path / "2.ckpt", verbose=False
        )
    assert data.state_dict() == {}
    fit({"datamodule": data}, tmp_path / "again", max_epochs=1)
    fit({"datamodule": data}, tmp_path / "and again", max_epochs=1)
    assert read(tmp_path / "again") == read(tmp_path / "and again") == read(tmp_path / "fresh")


def test_the_state_without_a_trainer(folder):
    data = module(folder)
    batches = iter(data.train_dataloader())
    next(batches)
    state = json.loads(json.dumps(data.state_dict()))
    rest = [indices.tolist() for _, _, indices in batches]
    for made_first in (False, True):
        other = module(folder)
        if made_first:
            other.train_dataloader()
        other.load_state_dict(state)
        assert other.state_dict() == state
        assert [indices.tolist() for _, _, indices in other.train_dataloader()] == rest


# Evaluation, and what is missing


@pytest.mark.parametrize("package", PACKAGES)
def test_evaluation_sees_every_sample_once(package, folder, tmp_path):
    data, model = module(folder), MODELS[package](tmp_path / "log")
    for stage in ("validate", "test", "predict"):
        runs = trainer(package)
        result = getattr(runs, stage)(model, datamodule=data, **({} if stage == "predict" else {"verbose": False}))
        seen = list(chain(*(batch for _, batch in ids(read(tmp_path / "log", (stage.removesuffix("idate"),))))))
        assert seen == list(range(N)), stage
        assert stage != "predict" or torch.cat(result).tolist() == seen
        assert not our_threads()
    runs = trainer(package)
    assert torch.cat(runs.predict(model, loader(folder, transform=VIEW, shuffle=False))).tolist() == list(range(N))


def test_several_validation_sets(folder, tmp_path):
    data = module(folder, val=[dataset(folder), dataset(folder)], val_batch_size=11)
    fit({"datamodule": data}, tmp_path / "log", max_epochs=1)
    assert [len(batch) for _, batch in ids(read(tmp_path / "log", ("val",)))] == [11] * 4


@pytest.mark.parametrize("package", PACKAGES)
def test_a_split_that_is_missing_is_named_by_lightning(package, folder, tmp_path):
    only = module(folder, val=None, test=None, predict=None)
    with pytest.warns(UserWarning, match="defined a `validation_step` but have no `val_dataloader`"):
        fit({"datamodule": only}, tmp_path / "log", package, max_epochs=1)
    assert ids(read(tmp_path / "log")) == expected_ids(folder, 1)
    misconfigured = PACKAGES[package].utilities.exceptions.MisconfigurationException
    with pytest.raises(misconfigured, match="`test_dataloader` must be implemented"):
        trainer(package).test(MODELS[package](tmp_path / "log"), datamodule=only)
    with pytest.raises(misconfigured, match="train_dataloader"):
        fit({"datamodule": module(folder, train=None)}, tmp_path / "log", package)


# The module's loaders


def test_the_loaders_follow_the_attributes(folder):
    data = module(folder)
    first = data.train_dataloader()
    assert data.train_dataloader() is first and len(first) == STEPS
    data.batch_size = 11
    assert len(data.train_dataloader()) == 2 and len(data.val_dataloader()) == 2
    data.val_batch_size = 2
    assert len(data.train_dataloader()) == 2 and len(data.val_dataloader()) == 11
    data.drop_last, data.batch_size = True, 4
    assert len(data.train_dataloader()) == 5 and len(data.val_dataloader()) == 11
    assert data.val_dataloader().transform is VIEW
    own = lambda: iter(())  # noqa: E731
    data.train_dataloader = own  # as Lightning's tools do
    assert data.train_dataloader is own


def test_batches_as_large_as_they_fit(folder, tmp_path):
    data = module(folder)
    runs = trainer("lightning", default_root_dir=tmp_path)
    found = Tuner(runs).scale_batch_size(Model(tmp_path / "log"), datamodule=data, init_val=2, max_trials=3)
    assert data.batch_size == found == 8
    assert 8 in {len(batch) for _, batch in ids(read(tmp_path / "log"))}


def test_what_is_shuffled(folder):
    ordered = td.readers.File(file_root=str(folder))
    data = DataModule(train=[dataset(folder), ordered])
    one, other = data.train_dataloader()
    assert "shuffle" in repr(one) and "shuffle" not in repr(other)
    assert "sequential" in repr(DataModule(train=dataset(folder), shuffle=False).train_dataloader())
    own = DataModule(train=dataset(folder), sampler=[2, 0, 1]).train_dataloader()
    assert own.num_samples == 3
    same = DataModule.from_datasets(dataset(folder), batch_size=5, seed=2).train_dataloader()
    assert same.batch_size == 5 and same.seed == 2


def test_wrong_arguments_are_the_loaders(folder):
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        DataModule(train=dataset(folder), batch_size=0).train_dataloader()
    with pytest.raises(TypeError, match="engin"):
        DataModule(train=dataset(folder), engin="eager")


def test_threads_end_with_the_stage_and_not_with_the_iterator(folder):
    data = module(folder)
    for split, end in {
        "train": lambda: data.teardown("fit"),
        "val": lambda: data.teardown("validate"),
        "test": lambda: data.on_exception(RuntimeError()),
    }.items():
        batches = iter(getattr(data, f"{split}_dataloader")())
        next(batches)
        data.teardown("predict")
        assert our_threads()
        end()
        assert not our_threads(), split
        del batches


def test_a_failed_training_leaves_no_thread(folder, tmp_path):
    data = module(folder)
    with pytest.raises(RuntimeError, match="this training fails"):
        fit({"datamodule": data}, tmp_path / "log", fail_at=2)
    assert not our_threads()


# Two packages, or none


def test_either_package_takes_the_module():
    assert issubclass(DataModule, lightning.pytorch.LightningDataModule)
    assert issubclass(DataModule, pytorch_lightning.LightningDataModule)


@pytest.mark.parametrize("package", PACKAGES)
def test_one_package_is_enough(package, monkeypatch):
    found = torchdali.lightning.find_spec
    monkeypatch.setattr(torchdali.lightning, "find_spec", lambda name: found(name) if name == package else None)
    assert torchdali.lightning._find_base() is PACKAGES[package].LightningDataModule


def test_no_package_is_an_error_that_helps(monkeypatch):
    monkeypatch.setattr(torchdali.lightning, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install lightning"):
        torchdali.lightning._find_base()


# LightningCLI


@pytest.fixture
def recipe(folder, monkeypatch):
    """The recipe's main function, and its arguments for an output folder."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("JSONARGPARSE_DEPRECATION_WARNINGS", "off")  # Lightning uses its older names
    monkeypatch.setenv("PL_GLOBAL_SEED", "0")  # it is set there, and unset behind the test
    path = ROOT / "recipes" / "lightning_module.py"
    spec = importlib.util.spec_from_file_location("lightning_recipe", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    def main(arguments: list[str]) -> None:
        monkeypatch.setattr(sys, "argv", [str(path), *arguments])
        script.main()

    def arguments(out: Path, *options: str) -> list[str]:
        return [
            "--config=configs/lightning_module/tiny.yaml", f"--output={out}", "--data.batch_size=4",
            *(f"--data.{split}.init_args.root={folder}" for split in ("train", "val")), *options,
        ]  # fmt: skip

    before = dict(jsonargparse._common.parsing_settings)  # what a config may name: the recipe narrows it
    with torch.random.fork_rng():
        yield main, arguments
    jsonargparse._common.parsing_settings.clear()
    jsonargparse._common.parsing_settings.update(before)
    torch.use_deterministic_algorithms(False)


@pytest.mark.filterwarnings("ignore:`seed_everything", "ignore:Checkpoint directory .* exists and is not empty")
def test_a_killed_recipe_ends_with_the_same_weights(recipe, tmp_path):
    main, arguments = recipe
    main(arguments(tmp_path / "whole"))
    assert not (ROOT / "checkpoints").exists()  # Lightning's own
    options = arguments(tmp_path / "killed", "--kill_at_step=7")
    finish(start("recipes/lightning_module.py", *options, preload=IMPORTS), -signal.SIGKILL)
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["last.ckpt"]
    main(arguments(tmp_path / "killed"))
    one, other = (torch.load(tmp_path / name / "weights.pt", weights_only=True) for name in ("whole", "killed"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("whole", "killed")]
    assert results[0] == results[1] and results[0]["steps"] == 10


STRANGE = {
    "os.system": {"command": "touch PROOF"},
    "subprocess.Popen": {"args": "touch PROOF"},
    "torchdali.datasets.exclude.os.system": {"command": "touch PROOF"},  # imported by a module that is allowed
    "torchdali.testing.garble_file": {"path": "PROOF"},
    "functools.partial": {"func": "os.system"},
}


@pytest.mark.parametrize("path", STRANGE)
def test_a_config_may_name_datasets_and_transforms_alone(recipe, tmp_path, capsys, path):
    main, arguments = recipe
    proof = tmp_path / "proof"
    whole = json.dumps({"class_path": path, "init_args": STRANGE[path]}).replace("PROOF", str(proof))
    for option in (f"--data.transform={path}", f"--data.transform={whole}", f"--data.train={whole}"):
        with pytest.raises(SystemExit, match="2"):
            main(arguments(tmp_path / "out", option))
        words = capsys.readouterr().err
        assert re.search(r"Importing '[\w.]+' is not allowed", words), words
    assert not proof.exists()


def test_mistakes_in_a_config_are_named(recipe, tmp_path, capsys):
    main, arguments = recipe
    mistakes = {
        "--data.batchsize=3": "did you mean 'data.batch_size'?",
        "--data.batch_size=many": "batch_size",
        "--data.engine=turbo": "engine",
        "--data.transform=torchdali.transforms.Resise": "did you mean 'Resize'?",
    }
    for option, words in mistakes.items():
        with pytest.raises(SystemExit, match="2"):
            main(arguments(tmp_path / "out", option))
        assert words in capsys.readouterr().err


# Two processes

JOB = Path(__file__).parent / "lightning_job.py"


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """The folders of jobs on two processes, by who starts them."""
    folder = td.testing.make_image_folder(tmp_path_factory.mktemp("folder"), classes=2, per_class=11)
    out = {name: tmp_path_factory.mktemp(name) for name in ("torchrun", "launcher", "spawn")}
    processes = {"torchrun": 2}
    running = [start(JOB, folder, out[name], name, processes=processes.get(name), preload=IMPORTS) for name in out]
    for job in running:
        finish(job)
    return {"folder": folder, **out}


@pytest.mark.parametrize(
    ("job", "client"), [("torchrun", "loader"), ("torchrun", "module"), ("launcher", "module")], ids=str
)
def test_two_processes_resume(job, client, jobs):
    out = jobs[job] / client
    fresh = read(out / "fresh", processes=2)
    assert ids(fresh) == expected_ids(jobs["folder"])  # also what one process reads
    for name, done in {"mid": 2, "boundary": STEPS, "twice": 4}.items():
        assert read(out / name, processes=2) == fresh[done:], name


def test_two_spawned_processes(jobs):
    fresh = read(jobs["spawn"] / "module" / "fresh", processes=2)
    assert ids(fresh) == expected_ids(jobs["folder"], 1)


def test_two_processes_evaluate_every_sample_once(jobs, tmp_path):
    for stage in ("test", "predict"):
        steps = ids(read(jobs["torchrun"] / "evaluated", (stage,), processes=2))
        assert list(chain(*(batch for _, batch in steps))) == list(range(N))
    alone = trainer("lightning").test(Model(tmp_path / "log"), datamodule=module(jobs["folder"]), verbose=False)
    assert float((jobs["torchrun"] / "accuracy").read_text()) == pytest.approx(alone[0]["accuracy"])


def test_tensor_parallel_peers_read_the_same(jobs):
    one, other = ((jobs["torchrun"] / f"peers.{rank}").read_text() for rank in range(2))
    assert one == other and one.count("\n") == STEPS
