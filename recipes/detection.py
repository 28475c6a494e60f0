"""Train a detector of torchvision on images with COCO annotations, root/{train,val}/{images/*,instances.json}.

    python recipes/detection.py --config configs/detection/shapes.yaml --optim.lr=0.01
    torchrun --nproc-per-node=8 recipes/detection.py --config configs/detection/shapes.yaml

The loader gives what the model takes: a list of images, and a list of targets whose boxes moved with them. Stop it at
any moment and start it again with the same command: it continues after its last checkpoint.
"""

import contextlib
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
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import nn
from torchvision.models import detection
from torchvision.models.detection.anchor_utils import AnchorGenerator
from tqdm import tqdm

import torchdali as td
from torchdali import transforms as T
from torchdali.configs import ArgumentParser


@dataclass(frozen=True)
class DataConfig:
    root: str  # holds train/ and val/, each with images/ and instances.json
    batch_size: int = 16  # over all ranks together
    sizes: tuple[int, ...] = (480, 512, 544, 576, 608, 640)  # in training: the shorter side is one of them
    max_size: int = 1000  # and the longer side at most this


@dataclass(frozen=True)
class ModelConfig:
    name: str = "fcos_resnet50_fpn"  # "small_fcos", or any detection model of torchvision
    min_size: int = 640  # the shorter side that the model resizes images to
    max_size: int = 1000


@dataclass(frozen=True)
class OptimConfig:
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 1e-4
    warmup_steps: int = 500
    clip: float = 10.0  # the norm of all gradients together


@dataclass(frozen=True)
class TrainConfig:
    output: str  # the run folder: checkpoint.pt, weights.pt, result.json
    epochs: PositiveInt = 26
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
    """Make the loader for "train" or "val". In training it is SSD's augmentation; boxes follow their images."""
    augment = [
        T.RandomPhotometricDistort(),
        T.RandomZoomOut(fill=(123, 117, 104)),
        T.RandomIoUCrop(),
        T.RandomHorizontalFlip(),
        T.RandomShortestSize(list(data.sizes), max_size=data.max_size),
        T.SanitizeBoundingBoxes(),
    ]
    folder = f"{data.root}/{split}"
    return td.DataLoader(
        td.CocoDataset(f"{folder}/images", f"{folder}/instances.json", box_format="xyxy"),
        batch_size=data.batch_size // world_size,
        shuffle=split == "train",
        drop_last=split == "train",
        transform=T.Compose([*(augment if split == "train" else ()), T.ToDtype(torch.float32, scale=True)]),
        output="list",  # lists of images and of targets, as the model takes them
        seed=seed,
        device=str(device),
    )


def make_model(model: ModelConfig, num_classes: int) -> nn.Module:
    options: dict[str, Any] = dict(num_classes=num_classes, min_size=model.min_size, max_size=model.max_size)
    if model.name != "small_fcos":
        return detection.__dict__[model.name](weights=None, weights_backbone=None, **options)
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    backbone = nn.Sequential(*layers)
    backbone.out_channels = 64  # type: ignore[assignment]
    return detection.FCOS(backbone, anchor_generator=AnchorGenerator(((8,),), ((1.0,),)), **options)


@torch.no_grad()
def evaluate(model: nn.Module, loader: td.DataLoader, annotations: str) -> float:
    """Compute COCO's average precision over the held-out images; it is the same on every rank."""
    model.eval()
    found = []
    for images, targets in loader:
        for target, result in zip(targets, model(images), strict=True):
            boxes = result["boxes"]
            boxes[:, 2:] -= boxes[:, :2]
            for box, score, label in zip(boxes.tolist(), result["scores"].tolist(), result["labels"].tolist()):
                found.append(dict(image_id=target["image_id"], category_id=label, bbox=box, score=score))
    if dist.is_initialized():
        parts: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(parts, found)
        found = [one for part in parts for one in part]
    if not found:
        return 0.0
    with contextlib.redirect_stdout(None):
        truth = COCO(annotations)
        judge = COCOeval(truth, truth.loadRes(found), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return float(judge.stats[0])


def main(data: DataConfig, model: ModelConfig, optim: OptimConfig, train: TrainConfig) -> None:
    device = start(train.device)
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if data.batch_size % world_size:
        raise ValueError(f"data.batch_size must be a multiple of {world_size} (ranks), got {data.batch_size}")
    loader, val_loader = (make_loader(split, data, train.seed, world_size, device) for split in ("train", "val"))
    torch.manual_seed(train.seed)  # the same first weights on every rank
    net = make_model(model, max(loader.dataset.categories) + 1).to(device)
    optimizer = torch.optim.SGD(net.parameters(), optim.lr, optim.momentum, weight_decay=optim.weight_decay)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=optim.warmup_steps)

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
    bar = tqdm(total=train.epochs * len(loader), initial=step, disable=rank > 0, unit="step")
    for _ in range(loader.epoch, train.epochs):
        trained.train()
        for images, targets in loader:
            loss = sum(trained(images, targets).values())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), optim.clip)
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
    precision = evaluate(net, val_loader, f"{data.root}/val/instances.json")
    if rank == 0:
        torch.save(net.state_dict(), folder / "weights.pt")
        (folder / "result.json").write_text(json.dumps({"average_precision": precision, "steps": step}) + "\n")
        print(f"held-out average precision {precision:.4f} after {step} steps")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    jsonargparse.auto_cli(main, parser_class=ArgumentParser)
