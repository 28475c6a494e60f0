"""Train a segmentation model on images and masks of ids, root/{train,val}/{images/*.jpg,masks/*.png}, with torchdali.

    python recipes/segmentation.py --config configs/segmentation/shapes.yaml --optim.lr=0.002
    torchrun --nproc-per-node=8 recipes/segmentation.py --config configs/segmentation/shapes.yaml

An image and its mask are two files of one sample, and move together. Stop it at any moment and start it again with the
same command: it continues after its last checkpoint.
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
from torchvision.models import segmentation
from tqdm import tqdm

import torchdali as td
from torchdali import transforms as T
from torchdali.configs import ArgumentParser

OUTSIDE = 255  # the id of pixels that no image covers, and of those that the annotators left out


@dataclass(frozen=True)
class DataConfig:
    root: str  # holds train/ and val/, each with images/*.jpg and masks/*.png of the same names
    num_classes: int  # with the background
    batch_size: int = 16  # over all ranks together
    min_size: int = 260  # in training: the shorter side is drawn between these two, before the crop
    max_size: int = 1040
    crop_size: int = 480
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ModelConfig:
    name: str = "lraspp_mobilenet_v3_large"  # "small_cnn", or any segmentation model of torchvision


@dataclass(frozen=True)
class OptimConfig:
    lr: float = 0.001
    weight_decay: float = 1e-4


@dataclass(frozen=True)
class TrainConfig:
    output: str  # the run folder: checkpoint.pt, weights.pt, result.json
    epochs: PositiveInt = 30
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


def make_loader(split: str, data: DataConfig, seed: int, world_size: int, device: torch.device) -> td.DataLoader:
    """Make the loader for "train" or "val". In training it is the augmentation of torchvision's reference."""
    augment = [
        T.RandomResize(data.min_size, data.max_size),
        T.RandomCrop(data.crop_size, pad_if_needed=True),
        T.RandomHorizontalFlip(),
        T.ColorJitter(0.3, 0.3),
    ]
    images = sorted(Path(data.root, split, "images").glob("*.jpg"))
    masks = [path.parents[1] / "masks" / f"{path.stem}.png" for path in images]
    return td.DataLoader(
        td.FileDataset({"image": images, "mask": masks}, kinds={"mask": td.kinds.Mask(fill=OUTSIDE)}),
        batch_size=data.batch_size // world_size if split == "train" else 1,  # whole images differ in size
        shuffle=split == "train",
        drop_last=split == "train",
        transform=T.Compose([*(augment if split == "train" else ()), T.Normalize(data.mean, data.std)]),
        output="list" if split == "val" else "tuple",
        seed=seed,
        device=str(device),
    )


def make_model(name: str, num_classes: int) -> nn.Module:
    if name != "small_cnn":
        return segmentation.__dict__[name](weights=None, weights_backbone=None, num_classes=num_classes)
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((3, 16, 2), (16, 32, 2), (32, 32, 1), (32, 32, 1)):
        layers += [nn.Conv2d(inputs, outputs, 5, stride, 2, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    upsample = nn.Upsample(scale_factor=4, mode="bilinear")
    return nn.Sequential(*layers, nn.Conv2d(32, num_classes, 1), upsample)


def forward(model: nn.Module, images: torch.Tensor, size: Any) -> torch.Tensor:
    """Compute the classes' scores [N, classes, *size]; torchvision's models give a dict."""
    scores = model(images)
    scores = scores["out"] if isinstance(scores, dict) else scores
    return scores[..., : size[0], : size[1]]


@torch.no_grad()
def evaluate(model: nn.Module, loader: td.DataLoader, num_classes: int) -> float:
    """Compute the mean IoU over the held-out images, at their own sizes; it is the same on every rank."""
    model.eval()
    table = torch.zeros(num_classes, num_classes, dtype=torch.int64, device=loader.device)
    for images, masks in loader:
        for image, mask in zip(images, masks, strict=True):
            found = forward(model, image[None], mask.shape).argmax(1)[0]
            known = mask != OUTSIDE
            pairs = mask[known].long() * num_classes + found[known]
            table += torch.bincount(pairs, minlength=num_classes**2).view(num_classes, num_classes)
    if dist.is_initialized():
        dist.all_reduce(table)
    both = table.diagonal()
    return (both / (table.sum(0) + table.sum(1) - both)).nanmean().item()


def main(data: DataConfig, model: ModelConfig, optim: OptimConfig, train: TrainConfig) -> None:
    device = start(train.device)
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if data.batch_size % world_size:
        raise ValueError(f"data.batch_size must be a multiple of {world_size} (ranks), got {data.batch_size}")
    loader, val_loader = (make_loader(split, data, train.seed, world_size, device) for split in ("train", "val"))
    total = train.epochs * len(loader)
    torch.manual_seed(train.seed)  # the same first weights on every rank
    net = make_model(model.name, data.num_classes).to(device).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(net.parameters(), optim.lr, weight_decay=optim.weight_decay)
    schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=total, power=0.9)

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
        for images, masks in loader:  # float32 [N, 3, H, W], uint8 [N, H, W]
            scores = forward(trained, images, masks.shape[1:])
            loss = nn.functional.cross_entropy(scores, masks.long(), ignore_index=OUTSIDE)
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
    iou = evaluate(net, val_loader, data.num_classes)
    if rank == 0:
        torch.save(net.state_dict(), folder / "weights.pt")
        (folder / "result.json").write_text(json.dumps({"mean_iou": iou, "steps": step}) + "\n")
        print(f"held-out mean IoU {iou:.4f} after {step} steps")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    jsonargparse.auto_cli(main, parser_class=ArgumentParser)
