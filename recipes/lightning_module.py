"""Train an image classifier with Lightning on a folder of images, root/train/<class>/* and root/val/<class>/*.

    python recipes/lightning_module.py --config configs/lightning_module/digits.yaml --model.lr=0.002
    torchrun --nproc-per-node=8 recipes/lightning_module.py --config configs/lightning_module/imagenet.yaml

The config describes the data, as torchdali's DataModule; they need no code. Stop it at any moment and start it again
with the same command: it continues with the very next batch after its last checkpoint.

A config is code: it names classes, which are called. `ALLOWED` says which; add your own package to it.
"""

import json
import os
import signal
from pathlib import Path
from typing import Literal

import torch
from jsonargparse.typing import PositiveInt
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torchvision.models import get_model

from torchdali.configs import DATA, ArgumentParser, allow_only
from torchdali.lightning import DataModule

PARTS = ("callbacks", "loggers", "plugins", "profilers", "strategies")
ALLOWED = (*DATA, *(f"lightning.pytorch.{part}" for part in PARTS))


def make_net(name: str, num_classes: int) -> nn.Module:
    if name != "small_cnn":
        return get_model(name, weights=None, num_classes=num_classes)
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((3, 32, 1), (32, 64, 2), (64, 128, 2)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, num_classes))


class Classifier(LightningModule):
    """A network, its loss and its optimizer.

    Args:
        name: "small_cnn", or any classification model of torchvision.
        num_classes: the number of classes.
        optimizer: the optimizer.
        lr: the highest learning rate.
        weight_decay: the weight decay of all weights.
        warmup: the share of the training in which the learning rate grows; after it, the rate falls along a cosine.
        label_smoothing: the label smoothing of the training loss.
    """

    def __init__(
        self,
        name: str = "resnet50",
        num_classes: int = 1000,
        optimizer: Literal["sgd", "adamw"] = "sgd",
        lr: float = 0.1,
        weight_decay: float = 1e-4,
        warmup: float = 0.05,
        label_smoothing: float = 0.1,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.net = make_net(name, num_classes)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        images, labels = batch  # on this process's device already
        loss = nn.functional.cross_entropy(self.net(images), labels, label_smoothing=self.hparams.label_smoothing)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        images, labels = batch  # every image comes once, on one rank
        right = (self.net(images).argmax(1) == labels).float().mean()
        self.log("accuracy", right, prog_bar=True, batch_size=len(labels), sync_dist=True)

    def configure_optimizers(self) -> dict[str, object]:
        kind, options = (
            (torch.optim.SGD, {"momentum": 0.9, "nesterov": True})
            if self.hparams.optimizer == "sgd"
            else (torch.optim.AdamW, {})
        )
        optimizer = kind(self.parameters(), lr=self.hparams.lr, weight_decay=self.hparams.weight_decay, **options)
        # This makes the loaders before a checkpoint is restored; those of DataModule resume exactly all the same.
        total = int(self.trainer.estimated_stepping_batches)
        warmup = max(1, round(self.hparams.warmup * total))

        def factor(step: int) -> float:
            growing = (step + 1) / (warmup + 1)
            return min(growing, (1 + torch.cos(torch.tensor(torch.pi * step / total)).item()) / 2)

        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": LambdaLR(optimizer, factor), "interval": "step"}}


class Parser(ArgumentParser, LightningArgumentParser):
    """Lightning's parser, with the nearest name in its errors."""


class CLI(LightningCLI):
    """Lightning's CLI, with options for the run folder and for saving there."""

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        parser.add_argument("--output", type=str, default="runs/lightning", help="the run folder")
        parser.add_argument("--checkpoint_every", type=PositiveInt, default=1000, help="steps")
        parser.add_argument("--resume", type=bool, default=True, help="from the last checkpoint, if there is one")
        parser.add_argument("--kill_at_step", type=int | None, help="die after this step, to prove that resuming works")


class Kill(Callback):
    def __init__(self, step: int | None) -> None:
        self.step = step

    def on_train_batch_end(self, trainer: Trainer, *_: object) -> None:
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    options = {"save_config_callback": None, "seed_everything_default": 0, "auto_configure_optimizers": False}
    options["trainer_defaults"] = {"enable_checkpointing": False}  # the callback below is enough
    allow_only(*ALLOWED)
    # Without subcommands: this script trains, and then validates.
    cli = CLI(Classifier, DataModule, run=False, parser_class=Parser, **options)
    folder = Path(cli.config.output)
    last = folder / "last.ckpt"
    save = ModelCheckpoint(
        folder,
        every_n_train_steps=cli.config.checkpoint_every,
        save_top_k=0,
        save_last=True,
        enable_version_counter=False,
    )
    cli.trainer.callbacks += [save, Kill(cli.config.kill_at_step)]
    resume = last if cli.config.resume and last.exists() else None
    cli.trainer.fit(cli.model, datamodule=cli.datamodule, ckpt_path=resume)
    (result,) = cli.trainer.validate(cli.model, datamodule=cli.datamodule, verbose=False)
    if cli.trainer.is_global_zero:
        torch.save(cli.model.net.state_dict(), folder / "weights.pt")
        (folder / "result.json").write_text(json.dumps(result | {"steps": cli.trainer.global_step}) + "\n")
        print(f"held-out accuracy {result['accuracy']:.4f} after {cli.trainer.global_step} steps")


if __name__ == "__main__":
    main()
