"""Train an image classifier with Accelerate, on root/train/<class>/* and root/val/<class>/*, with torchdali.

    python recipes/accelerate_loop.py --config configs/accelerate_loop/digits.yaml --train.lr=0.002
    torchrun --nproc-per-node=8 recipes/accelerate_loop.py --config configs/accelerate_loop/imagenet.yaml

(`accelerate launch` works as well as torchrun.) Stop it at any moment and start it again with the same command: it
continues with the very next batch after its last checkpoint, on the same or another number of GPUs.
"""

import json
import math
import os
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import jsonargparse
import torch
from accelerate import Accelerator
from jsonargparse.typing import PositiveInt
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torchvision.models import get_model
from tqdm import tqdm

import torchdali as td
from torchdali import transforms as T
from torchdali.configs import ArgumentParser


@dataclass(frozen=True)
class DataConfig:
    root: str  # holds train/<class>/* and val/<class>/*
    batch_size: int = 256  # samples per forward pass, over all ranks together
    image_size: int = 224
    val_resize: int = 256  # the shorter side, before the centre crop of image_size
    crop_scale: tuple[float, float] = (0.08, 1.0)  # in training: the part of the area that a random crop keeps
    flip: float = 0.5  # in training: the probability of a mirrored image
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class TrainConfig:
    output: str  # the run folder: step-*, weights.pt, result.json
    model: str = "resnet50"  # "small_cnn", or any classification model of torchvision
    epochs: PositiveInt = 90
    lr: float = 0.001
    weight_decay: float = 0.01
    warmup_epochs: float = 5
    accumulate: PositiveInt = 1  # batches per optimizer step; the last step of an epoch may have fewer
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    seed: int = 0
    device: Literal["auto", "cpu"] = "auto"
    checkpoint_every: PositiveInt = 1000  # optimizer steps
    kill_at_step: int | None = None  # die by SIGKILL after this optimizer step, to prove that resuming works


def make_loader(split: str, data: DataConfig, seed: int, world_size: int, device: torch.device) -> td.DataLoader:
    """Make the loader for "train" or "val". It finds out which part of each batch belongs to its rank."""
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


def make_model(name: str, num_classes: int) -> nn.Module:
    if name != "small_cnn":
        return get_model(name, weights=None, num_classes=num_classes)
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((3, 32, 1), (32, 64, 2), (64, 128, 2)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.GroupNorm(8, outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, num_classes))


@torch.no_grad()
def evaluate(model: nn.Module, loader: td.DataLoader, accelerator: Accelerator) -> float:
    """Compute the accuracy over the whole held-out folder; it is the same on every rank."""
    model.eval()
    correct = torch.zeros((), dtype=torch.int64, device=accelerator.device)
    for images, labels in loader:
        correct += (model(images).argmax(1) == labels).sum()
    # Each image came once, on one rank. (`gather_for_metrics` needs equal shapes on all ranks: write pad_last=True, and
    # leave out the repeated rows by the field "valid".)
    return accelerator.reduce(correct).item() / len(loader.dataset)


def main(data: DataConfig, train: TrainConfig) -> None:
    accelerator = Accelerator(
        cpu=train.device == "cpu",
        mixed_precision="no" if train.precision == "fp32" else train.precision,
        gradient_accumulation_steps=train.accumulate,
    )
    if data.batch_size % accelerator.num_processes:
        raise ValueError(
            f"data.batch_size must be a multiple of {accelerator.num_processes} (ranks), got {data.batch_size}"
        )
    place = accelerator.num_processes, accelerator.device
    loader, val_loader = (make_loader(split, data, train.seed, *place) for split in ("train", "val"))
    per_epoch = math.ceil(len(loader) / train.accumulate)
    warmup, total = train.warmup_epochs * per_epoch, train.epochs * per_epoch

    torch.manual_seed(train.seed)  # the same first weights on every rank
    model = make_model(train.model, len(loader.dataset.classes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=train.lr, weight_decay=train.weight_decay)
    schedule = LambdaLR(optimizer, lambda n: min((n + 1) / (warmup + 1), (1 + math.cos(math.pi * n / total)) / 2))
    model, optimizer = accelerator.prepare(model, optimizer)
    # The loader already serves this rank and this device. `prepare` would return it unchanged, and its state would not
    # be saved; this call registers it, so that `save_state` and `load_state` include it.
    accelerator.prepare_data_loader(loader)
    # The schedule is not prepared either: accelerate would step it once per process.
    accelerator.register_for_checkpointing(schedule)

    step, folder = 0, Path(train.output)
    saved = sorted(folder.glob("step-*"))
    if saved:
        step = int(saved[-1].name.removeprefix("step-"))
        accelerator.load_state(str(saved[-1]))

    def save() -> None:  # renamed when complete, so that a checkpoint is always whole
        accelerator.save_state(str(folder / "saving"))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            os.replace(folder / "saving", folder / f"step-{step:08d}")
            for old in sorted(folder.glob("step-*"))[:-1]:
                shutil.rmtree(old)
        accelerator.wait_for_everyone()

    bar = tqdm(total=total, initial=step, disable=not accelerator.is_main_process, unit="step")
    for epoch in range(loader.epoch, train.epochs):
        bar.set_description(f"epoch {epoch + 1} of {train.epochs}", refresh=False)
        model.train()
        for images, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            if not accelerator.sync_gradients:
                continue  # a checkpoint holds no gradients, so it comes after an optimizer step
            schedule.step()
            step += 1
            bar.update()
            if step == train.kill_at_step:
                os.kill(os.getpid(), signal.SIGKILL)
            if step % train.checkpoint_every == 0:
                save()
        bar.set_postfix(accuracy=f"{evaluate(model, val_loader, accelerator):.4f}", refresh=False)
    bar.close()
    if not (folder / f"step-{step:08d}").exists():
        save()

    accuracy = evaluate(model, val_loader, accelerator)
    if accelerator.is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        torch.save(accelerator.unwrap_model(model).state_dict(), folder / "weights.pt")
        (folder / "result.json").write_text(json.dumps({"accuracy": accuracy, "steps": step}) + "\n")
        print(f"held-out accuracy {accuracy:.4f} after {step} steps")
    accelerator.end_training()


if __name__ == "__main__":
    jsonargparse.auto_cli(main, parser_class=ArgumentParser)
