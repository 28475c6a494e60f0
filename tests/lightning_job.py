"""Trainings whose every step is written down; in the tests' process, or as a program on two.

    lightning_job.py FOLDER OUT JOB

runs one of the JOBS below in each of the processes that torchrun or Lightning starts.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch
import pytorch_lightning
import torch
from torch import nn

import torchdali as td
from torchdali import transforms as T
from torchdali.lightning import DataModule

PACKAGES = {"lightning": lightning.pytorch, "pytorch_lightning": pytorch_lightning}
TRANSFORM = T.Compose([T.RandomResizedCrop(8), T.RandomHorizontalFlip(), T.Normalize(mean=(0.5,) * 3, std=(0.2,) * 3)])
VIEW = T.Compose([T.Resize((8, 8)), T.Normalize(mean=(0.5,) * 3, std=(0.2,) * 3)])
GLOBAL_BATCH = 4


def digest(tensors: Any) -> str:
    data = b"".join(tensor.detach().contiguous().numpy().tobytes() for tensor in tensors)
    return hashlib.blake2b(data, digest_size=8).hexdigest()


class Steps:
    """A tiny model.  Each step appends a line of what it sees to `LOG.RANK`: stage, epoch, samples, pixels, weights."""

    def __init__(self, log: Path, estimate: bool = False, fail_at: int | None = None) -> None:
        super().__init__()
        self.log_path, self.estimate, self.fail_at = log, estimate, fail_at
        self.automatic_optimization = True
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 2))

    def record(self, stage: str, batch: Any) -> None:
        batches = list(batch.values()) if isinstance(batch, dict) else [batch]
        batches = [batch for batch in batches if batch is not None]
        line = {
            "stage": stage,
            "epoch": self.current_epoch,
            "ids": [indices.tolist() for _, _, indices in batches],
            "pixels": [digest([images]) for images, _, _ in batches],
            "weights": digest(self.net.parameters()),
        }
        with open(f"{self.log_path}.{self.global_rank}", "a") as file:
            print(json.dumps(line), file=file)

    def loss(self, batch: Any) -> torch.Tensor:
        batches = list(batch.values()) if isinstance(batch, dict) else [batch]
        return sum(nn.functional.cross_entropy(self.net(images), labels) for images, labels, _ in filter(None, batches))

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.record("train", batch)
        if self.fail_at == self.global_step:
            raise RuntimeError("this training fails")
        return self.loss(batch)

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.record("sanity" if self.trainer.sanity_checking else "val", batch)

    def test_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self.record("test", batch)
        images, labels, _ = batch
        right = (self.net(images).argmax(1) == labels).float().mean()
        self.log("accuracy", right, on_epoch=True, sync_dist=True, batch_size=len(labels), add_dataloader_idx=False)

    def predict_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> torch.Tensor:
        self.record("predict", batch)
        return batch[2]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        if self.estimate:  # it makes the loaders before a checkpoint is restored: Lightning#20550
            assert self.trainer.estimated_stepping_batches > 0
        return torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)

    def on_train_end(self) -> None:
        with open(f"{self.log_path}.{self.global_rank}", "a") as file:
            print(json.dumps({"stage": "end", "weights": digest(self.net.parameters())}), file=file)


class Model(Steps, lightning.pytorch.LightningModule):
    pass


class OtherModel(Steps, pytorch_lightning.LightningModule):
    pass


MODELS = {"lightning": Model, "pytorch_lightning": OtherModel}


class Save(lightning.pytorch.Callback, pytorch_lightning.Callback):
    """Checkpoints behind each step (STEP.ckpt) and at the end of each epoch (epoch_EPOCH.ckpt)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: Any, *_: Any) -> None:
        trainer.save_checkpoint(self.folder / f"{trainer.fit_loop.total_batch_idx + 1}.ckpt")

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        trainer.save_checkpoint(self.folder / f"epoch_{trainer.current_epoch}.ckpt")


def dataset(folder: Path) -> td.ImageFolder:
    return td.ImageFolder(folder, fields=("image", "label", "index"))


def loader(folder: Path, processes: int = 1, **options: Any) -> td.DataLoader:
    options = {"transform": TRANSFORM, "shuffle": True, "seed": 3, "device": "cpu", **options}
    return td.DataLoader(dataset(folder), batch_size=GLOBAL_BATCH // processes, **options)


def module(folder: Path, processes: int = 1, **options: Any) -> DataModule:
    data = dataset(folder)
    splits = {"train": data, "val": data, "test": data, "predict": data}
    options = {**splits, "transform": [TRANSFORM], "val_transform": VIEW, "seed": 3, **options}
    return DataModule(batch_size=GLOBAL_BATCH // processes, **options)


def plain(folder: Path, processes: int = 1) -> dict[str, Any]:
    """Loaders as `Trainer.fit` takes them."""
    val = loader(folder, processes, transform=VIEW, shuffle=False)
    return {"train_dataloaders": loader(folder, processes), "val_dataloaders": val}


CLIENTS = {
    "loader": plain,
    "module": lambda *args, **options: {"datamodule": module(*args, **options)},
}


def trainer(package: str, *, callbacks: Any = (), **options: Any) -> Any:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    quiet |= {"enable_checkpointing": False, "num_sanity_val_steps": 0}
    options = {"accelerator": "cpu", "devices": 1, "max_epochs": 2, **quiet, **options}
    if callable(options.get("strategy")):
        options["strategy"] = options["strategy"]()
    return PACKAGES[package].Trainer(callbacks=list(callbacks), **options)


def fit(data: dict[str, Any], log: Path, package: str = "lightning", resume: Path | None = None, **options: Any) -> Any:
    """One training, into the log.  With `estimate` and `fail_at` of the model, and a Trainer's options."""
    model = MODELS[package](log, options.pop("estimate", False), options.pop("fail_at", None))
    runs = trainer(package, **options)
    runs.fit(model, **data, ckpt_path=resume)
    return runs


def matrix(folder: Path, out: Path, package: str, clients: Any = CLIENTS, **options: Any) -> None:
    """Fresh, resumed in mid-epoch, at the boundary, and twice: OUT/CLIENT/NAME.RANK."""
    for client in clients:
        here = out / client

        def run(name: str, resume: str | None = None, client: str = client, here: Path = here) -> None:
            path = here / f"{resume}.ckpt" if resume else None
            fit(CLIENTS[client](folder, 2), here / name, package, path, callbacks=[Save(here / name)], **options)

        run("fresh")
        run("mid", "fresh/2")
        run("boundary", "fresh/epoch_0")
        run("twice", "mid/4")


def torchrun(folder: Path, out: Path) -> None:
    options = {"devices": 2, "strategy": "ddp"}
    matrix(folder, out, "lightning", **options)
    model = Model(out / "evaluated")
    runs = trainer("lightning", **options)
    accuracy = runs.test(model, datamodule=module(folder, 2), verbose=False)[0]["accuracy"]
    runs.predict(model, datamodule=module(folder, 2))
    if runs.is_global_zero:
        (out / "accuracy").write_text(str(accuracy))
    # Tensor-parallel peers take the same data.
    strategy = lightning.pytorch.strategies.ModelParallelStrategy(data_parallel_size=1, tensor_parallel_size=2)
    data = module(folder, 1)
    runs = trainer("lightning", devices=2, strategy=strategy)
    runs.validate(Parallel(out / "peers"), datamodule=data, verbose=False)


class Parallel(Model):
    def configure_model(self) -> None:
        pass


def launcher(folder: Path, out: Path) -> None:
    matrix(folder, out, "pytorch_lightning", ["module"], devices=2, strategy="ddp")


def spawn(folder: Path, out: Path) -> None:
    data = module(folder, 2)
    assert len(data.train_dataloader()) == 11  # a loader for one process, which goes along
    fit({"datamodule": data}, out / "module" / "fresh", max_epochs=1, devices=2, strategy="ddp_spawn")


JOBS = {"torchrun": torchrun, "launcher": launcher, "spawn": spawn}

if __name__ == "__main__":
    torch.set_num_threads(1)
    for client in CLIENTS:
        (Path(sys.argv[2]) / client).mkdir(parents=True, exist_ok=True)
    JOBS[sys.argv[3]](Path(sys.argv[1]), Path(sys.argv[2]))
