"""Train an image classifier with Ray Train, on root/train/<class>/* and root/val/<class>/*, with torchdali.

    python recipes/ray_train.py --config configs/ray_train/digits.yaml --train.workers=2

On a cluster, start it on one of its machines; `train.output` has to be storage that all of them see. A worker that
dies is replaced. Stop the whole training at any moment and start it again with the same command: it continues with the
very next batch after its last checkpoint, on the same or another number of workers.
"""

import json
import math
import os
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

import jsonargparse
import ray
import torch
from jsonargparse.typing import NonNegativeInt, PositiveInt
from ray.train import Checkpoint, CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR
from torchvision.models import get_model

import torchdali as td
from torchdali import transforms as T
from torchdali.configs import ArgumentParser


@dataclass(frozen=True)
class DataConfig:
    root: str  # holds train/<class>/* and val/<class>/*
    batch_size: int = 256  # samples per optimizer step, over all workers together
    image_size: int = 224
    val_resize: int = 256  # the shorter side, before the centre crop of image_size
    crop_scale: tuple[float, float] = (0.08, 1.0)  # in training: the part of the area that a random crop keeps
    flip: float = 0.5  # in training: the probability of a mirrored image
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class TrainConfig:
    output: str  # the run folder; with several machines, on storage that all of them see
    workers: NonNegativeInt = 8  # 0: train in this process, without a cluster, to debug
    gpu: bool = True  # one for each worker
    model: str = "resnet50"  # "small_cnn", or any classification model of torchvision
    epochs: PositiveInt = 90
    lr: float = 0.001
    weight_decay: float = 0.01
    seed: int = 0
    checkpoint_every: PositiveInt = 1000  # steps
    max_failures: int = 3  # workers that may die, before the training is given up
    kill_at_step: int | None = None  # one worker dies by SIGKILL after this step, to prove that resuming works


def make_loader(split: str, data: DataConfig, seed: int, world_size: int, device: torch.device) -> td.DataLoader:
    """Make the loader for "train" or "val". In a worker it finds out which part of each batch is its own."""
    if data.batch_size % world_size:
        raise ValueError(f"data.batch_size must be a multiple of {world_size} (workers), got {data.batch_size}")
    augment = [T.RandomResizedCrop(data.image_size, scale=data.crop_scale), T.RandomHorizontalFlip(data.flip)]
    view = augment if split == "train" else [T.Resize(data.val_resize), T.CenterCrop(data.image_size)]
    return td.DataLoader(
        td.ImageFolder(f"{data.root}/{split}"),
        batch_size=data.batch_size // world_size,
        shuffle=split == "train",
        transform=T.Compose([*view, T.Normalize(mean=data.mean, std=data.std)]),
        seed=seed,
        device=device,
    )


def make_model(name: str, dataset: td.ImageFolder) -> nn.Module:
    # Not in train_worker: where a function names `torch` and `classes`, Ray tries to pickle torch.classes, and fails.
    num_classes = len(dataset.classes)
    if name != "small_cnn":
        return get_model(name, weights=None, num_classes=num_classes)
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((3, 32, 1), (32, 64, 2), (64, 128, 2)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.GroupNorm(8, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, num_classes))


@torch.no_grad()
def evaluate(model: nn.Module, loader: td.DataLoader) -> float:
    """Compute the accuracy over the whole held-out folder; each image comes once, to one of the workers."""
    model.eval()
    correct = torch.zeros((), dtype=torch.int64, device=ray.train.torch.get_device())
    for images, labels in loader:
        correct += (model(images).argmax(1) == labels).sum()
    if torch.distributed.is_initialized():
        torch.distributed.all_reduce(correct)
    return correct.item() / len(loader.dataset)


def train_worker(config: dict) -> None:
    """Train in one worker; Ray calls it in each, with torch.distributed set up, and again after a worker has died."""
    data, train = config["data"], config["train"]
    place = ray.train.get_context().get_world_size(), ray.train.torch.get_device()
    loader, val_loader = (make_loader(split, data, train.seed, *place) for split in ("train", "val"))
    torch.manual_seed(train.seed)  # the same first weights in every worker
    model = ray.train.torch.prepare_model(make_model(train.model, loader.dataset))
    bare = getattr(model, "module", model)  # one worker needs no DistributedDataParallel
    optimizer = torch.optim.AdamW(model.parameters(), lr=train.lr, weight_decay=train.weight_decay)
    schedule = CosineAnnealingLR(optimizer, train.epochs * len(loader))
    parts = {"model": bare, "optimizer": optimizer, "schedule": schedule, "loader": loader}

    step = 0
    resumed = ray.train.get_checkpoint()
    if resumed is not None:
        with resumed.as_directory() as folder:
            saved = torch.load(Path(folder, "checkpoint.pt"), map_location="cpu", weights_only=True)
        step = saved.pop("step")
        for name, part in parts.items():
            part.load_state_dict(saved[name])

    first = ray.train.get_context().get_world_rank() == 0

    def report(**metrics: float) -> None:
        """Tell Ray; every worker has to call it, the first one brings the checkpoint."""
        with tempfile.TemporaryDirectory() as folder:
            if first:  # the loader's state is the same in all workers
                states = {name: part.state_dict() for name, part in parts.items()}
                torch.save({"step": step, **states}, Path(folder, "checkpoint.pt"))
            checkpoint = Checkpoint.from_directory(folder) if first else None
            ray.train.report({"step": step, **metrics}, checkpoint=checkpoint)

    for epoch in range(loader.epoch, train.epochs):
        model.train()
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            if step == train.kill_at_step and resumed is None and first:
                os.kill(os.getpid(), signal.SIGKILL)
            if step % train.checkpoint_every == 0:
                report(epoch=epoch)
        report(epoch=epoch + 1, accuracy=evaluate(model, val_loader))


def main(data: DataConfig, train: TrainConfig) -> None:
    output = Path(train.output).absolute()
    data = DataConfig(**{**vars(data), "root": os.path.abspath(data.root)})  # workers run in folders of their own
    trainer = TorchTrainer(
        train_worker,
        train_loop_config={"data": data, "train": train},
        scaling_config=ScalingConfig(num_workers=train.workers, use_gpu=train.gpu),
        run_config=RunConfig(
            name=output.name,  # a run of this name continues
            storage_path=str(output.parent),
            failure_config=FailureConfig(max_failures=train.max_failures),
            checkpoint_config=CheckpointConfig(num_to_keep=2),
        ),
        torch_config=TorchConfig(backend="nccl" if train.gpu else "gloo"),
    )
    result = trainer.fit()
    (output / "result.json").write_text(json.dumps(result.metrics) + "\n")
    accuracy = result.metrics.get("accuracy", math.nan)
    print(f"held-out accuracy {accuracy:.4f} after {result.metrics['step']} steps")


if __name__ == "__main__":
    jsonargparse.auto_cli(main, parser_class=ArgumentParser)
