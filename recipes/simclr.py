"""Learn from two views of each image, without labels (SimCLR, https://arxiv.org/abs/2002.05709), with torchdali.

    python recipes/simclr.py --config configs/simclr/digits.yaml --optim.temperature=0.5
    torchrun --nproc-per-node=8 recipes/simclr.py --config configs/simclr/digits.yaml

An image is decoded once for both views. Its folders, root/{train,val}/<class>/*, are only used to see what was learned:
the nearest neighbour of a held-out image should be of its class. Stop it at any moment and start it again with the same
command: it continues after its last checkpoint.
"""

import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonargparse
import torch
import torch.distributed as dist
from jsonargparse.typing import PositiveInt
from torch import nn
from torch.distributed.nn.functional import all_gather
from torchvision.models import get_model
from tqdm import tqdm

import torchdali as td
from torchdali import transforms as T
from torchdali.configs import ArgumentParser


@dataclass(frozen=True)
class DataConfig:
    root: str  # holds train/<class>/* and val/<class>/*
    batch_size: int = 256  # over all ranks together: each image has all others as negatives
    image_size: int = 224
    val_resize: int = 256
    crop_scale: tuple[float, float] = (0.08, 1.0)
    flip: float = 0.5
    color: float = 1.0  # the strength of the distortion of colours
    blur: int = 23  # the size of the Gaussian's kernel, about a tenth of the image; 0: no blur
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ModelConfig:
    name: str = "resnet50"  # "small_cnn", or any residual network of torchvision
    projection: int = 128  # numbers that the loss compares


@dataclass(frozen=True)
class OptimConfig:
    lr: float = 0.001
    weight_decay: float = 1e-4
    temperature: float = 0.1


@dataclass(frozen=True)
class TrainConfig:
    output: str  # the run folder: checkpoint.pt, weights.pt, result.json
    epochs: PositiveInt = 100
    seed: int = 0
    device: str = "auto"  # "auto": cuda if there is one, else cpu
    checkpoint_every: PositiveInt | None = None  # steps; one is also written after each epoch
    kill_at_step: int | None = None  # die by SIGKILL after this step, to prove that resuming works


def start(device: str) -> torch.device:
    """Pick this process's device, and join the process group if torchrun started it."""
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if kind == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    return torch.device(kind, torch.cuda.current_device()) if kind == "cuda" else torch.device(kind)


def make_loader(
    split: str, data: DataConfig, seed: int, world_size: int, device: torch.device, views: int = 2
) -> td.DataLoader:
    """Make a loader of the folder "train" or "val": of views in training, else of whole images and labels."""
    blur = [T.RandomApply([T.GaussianBlur(data.blur, (0.1, 2.0))], p=0.5)] if data.blur else []
    c = data.color
    augment = [
        T.RandomResizedCrop(data.image_size, scale=data.crop_scale),
        T.RandomHorizontalFlip(data.flip),
        T.RandomApply([T.ColorJitter(0.8 * c, 0.8 * c, 0.8 * c, 0.2 * c)], p=0.8),
        T.RandomGrayscale(0.2),
        *blur,
        T.Normalize(data.mean, data.std),
    ]
    whole = [T.Resize(data.val_resize), T.CenterCrop(data.image_size), T.Normalize(data.mean, data.std)]
    return td.DataLoader(
        td.ImageFolder(f"{data.root}/{split}"),
        transform=T.Views([augment] * views) if views else T.Compose(whole),
        batch_size=data.batch_size // world_size,
        shuffle=bool(views),
        drop_last=bool(views),
        seed=seed,
        device=str(device),
        **({} if views else {"rank": 0, "world_size": 1}),  # the first rank reads whole folders alone, to evaluate
    )


class SimCLR(nn.Module):
    """An encoder, and the projection that only the loss sees."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__()
        if model.name == "small_cnn":
            layers: list[nn.Module] = []
            for inputs, outputs, stride in ((3, 32, 1), (32, 64, 2), (64, 128, 2)):
                layers += [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
            self.encoder, width = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 128
        else:
            self.encoder = get_model(model.name, weights=None)
            width, self.encoder.fc = self.encoder.fc.in_features, nn.Identity()
        self.projection = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, model.projection))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return nn.functional.normalize(self.projection(self.encoder(images)))


def nt_xent(one: torch.Tensor, other: torch.Tensor, temperature: float) -> torch.Tensor:
    """Compute SimCLR's loss of two views [n, d]: each has to find its other one among those of all ranks."""
    if dist.is_initialized():
        one, other = torch.cat(all_gather(one)), torch.cat(all_gather(other))
    n, both = len(one), torch.cat([one, other])
    likeness = (both @ both.T / temperature).fill_diagonal_(-torch.inf)
    return nn.functional.cross_entropy(likeness, torch.arange(2 * n, device=both.device).roll(n))


@torch.no_grad()
def evaluate(encoder: nn.Module, known: td.DataLoader, asked: td.DataLoader) -> float:
    """Compute the share of held-out images whose nearest neighbour is of their class."""
    encoder.eval()
    features, labels = [torch.cat(parts) for parts in zip(*((encoder(x), y) for x, y in known), strict=True)]
    features, correct = nn.functional.normalize(features), 0
    for x, y in asked:
        correct += (labels[(nn.functional.normalize(encoder(x)) @ features.T).argmax(1)] == y).sum().item()
    return correct / len(asked.dataset)


def main(data: DataConfig, model: ModelConfig, optim: OptimConfig, train: TrainConfig) -> None:
    device = start(train.device)
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if data.batch_size % world_size:
        raise ValueError(f"data.batch_size must be a multiple of {world_size} (ranks), got {data.batch_size}")
    loader = make_loader("train", data, train.seed, world_size, device)
    total = train.epochs * len(loader)
    torch.manual_seed(train.seed)  # the same first weights on every rank
    net: nn.Module = SimCLR(model).to(device).to(memory_format=torch.channels_last)
    net = nn.SyncBatchNorm.convert_sync_batchnorm(net) if world_size > 1 and device.type == "cuda" else net
    optimizer = torch.optim.AdamW(net.parameters(), optim.lr, weight_decay=optim.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)

    # Everything that changes in training. The loader is one more object with a state, of a few numbers.
    parts: Any = dict(model=net, optimizer=optimizer, scheduler=schedule, loader=loader)
    step, folder = 0, Path(train.output)
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "checkpoint.pt").exists():
        checkpoint = torch.load(folder / "checkpoint.pt", map_location="cpu", weights_only=True)
        step = checkpoint["step"]
        for name, part in parts.items():
            part.load_state_dict(checkpoint[name])

    def save() -> None:  # renamed when complete, so that the file is the old one or the new one, never half of one
        if rank == 0:  # the loader's state is the same on every rank
            torch.save({"step": step, **{k: v.state_dict() for k, v in parts.items()}}, folder / "checkpoint.tmp")
            os.replace(folder / "checkpoint.tmp", folder / "checkpoint.pt")

    trained = nn.parallel.DistributedDataParallel(net) if dist.is_initialized() else net
    bar = tqdm(total=total, initial=step, disable=rank > 0, unit="step")
    for _ in range(loader.epoch, train.epochs):
        trained.train()
        for views, _labels in loader:
            one, other = trained(torch.cat(views)).chunk(2)
            loss = nt_xent(one, other, optim.temperature)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            bar.update()
            if step == train.kill_at_step:
                os.kill(os.getpid(), signal.SIGKILL)
            if train.checkpoint_every and step % train.checkpoint_every == 0:
                save()
        save()
        bar.set_postfix(loss=f"{loss.item():.3f}", refresh=False)
    bar.close()
    if rank == 0:  # alone: these loaders read the whole folders
        whole = [make_loader(split, data, 0, 1, device, views=0) for split in ("train", "val")]
        accuracy = evaluate(net.encoder, *whole)
        torch.save(net.state_dict(), folder / "weights.pt")
        (folder / "result.json").write_text(json.dumps({"accuracy": accuracy, "steps": step}) + "\n")
        print(f"held-out nearest-neighbour accuracy {accuracy:.4f} after {step} steps")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    jsonargparse.auto_cli(main, parser_class=ArgumentParser)
