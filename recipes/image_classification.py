"""Train an image classifier on a folder of images, root/train/<class>/* and root/val/<class>/*, with torchdali.

    python recipes/image_classification.py --config configs/image_classification/digits.yaml --optim.lr=0.002
    torchrun --nproc-per-node=8 recipes/image_classification.py --config configs/image_classification/imagenet.yaml

Stop it at any moment and start it again with the same command: it continues with the very next batch after its last
checkpoint, on the same or another number of GPUs. The loader is saved and loaded like a model: it has a state dict.
"""

import hashlib
import json
import math
import os
import random
import signal
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jsonargparse
import torch
import torch.distributed as dist
from jsonargparse.typing import PositiveInt
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torchvision.models import get_model
from tqdm import tqdm

import torchdali as td
from torchdali import transforms as T
from torchdali.configs import ArgumentParser
from torchdali.transforms import presets


@dataclass(frozen=True)
class DataConfig:
    root: str  # holds train/<class>/* and val/<class>/*
    batch_size: int = 256  # over all ranks together, so that steps and learning rate don't depend on the number of GPUs
    image_size: int = 224
    val_resize: int = 256  # the shorter side, before the centre crop of image_size
    crop_scale: tuple[float, float] = (0.08, 1.0)  # in training: the part of the area that a random crop keeps
    flip: float = 0.5  # in training: the probability of a mirrored image
    auto_augment: str | None = None  # "ra", "ta_wide", "augmix", "imagenet", or timm's "rand-m9-mstd0.5-inc1"
    random_erasing: float = 0.0  # in training: the probability of an erased rectangle
    mixup: float = 0.0  # in training: alpha of MixUp, and of CutMix; where both are positive, chance decides per batch
    cutmix: float = 0.0
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class ModelConfig:
    name: str = "resnet50"  # "small_cnn", or any classification model of torchvision


@dataclass(frozen=True)
class OptimConfig:
    name: Literal["sgd", "adamw"] = "sgd"
    lr: float = 0.1
    weight_decay: float = 1e-4
    warmup_epochs: float = 5
    label_smoothing: float = 0.1
    ema_decay: float = 0.0  # per step; averaged weights are the ones that are evaluated and kept; 0: no average


@dataclass(frozen=True)
class TrainConfig:
    output: str  # the run folder: checkpoint.pt, weights.pt, result.json
    epochs: PositiveInt = 90
    seed: int = 0
    device: str = "auto"  # "auto": cuda if there is one, else cpu
    amp: bool = False  # float16 with a scaled loss on a GPU, bfloat16 on a CPU
    deterministic: bool = False
    resume: Literal["auto", "never"] = "auto"  # "auto": from the run folder's checkpoint, if there is one
    checkpoint_every: PositiveInt | None = None  # steps; one is also written after each epoch
    stream_log: str | None = None  # a JSON line per step: the samples, a hash of their pixels; {rank} is filled in
    kill_at_step: int | None = None  # die by SIGKILL after this step, to prove that resuming works


def start(train: TrainConfig) -> torch.device:
    """Pick this process's device, and join the process group if torchrun started it."""
    kind = ("cuda" if torch.cuda.is_available() else "cpu") if train.device == "auto" else train.device
    device = torch.device(kind, int(os.environ.get("LOCAL_RANK", 0))) if kind == "cuda" else torch.device(kind)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS refuses to be deterministic
    torch.use_deterministic_algorithms(train.deterministic)
    torch.backends.cudnn.benchmark = not train.deterministic
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return device


def make_loader(split: str, data: DataConfig, seed: int, world_size: int, device: torch.device) -> td.DataLoader:
    """Make the loader for "train" or "val". It finds out which part of each batch belongs to its rank."""
    values = {"mean": data.mean, "std": data.std}
    dataset = td.ImageFolder(f"{data.root}/{split}", fields=("image", "label", "index"))
    steps, mix = presets.imagenet_eval(data.image_size, data.val_resize, **values), None
    if split == "train":
        steps = presets.imagenet_train(data.image_size, data.auto_augment, data.random_erasing, **values)
        steps[:2] = [T.RandomResizedCrop(data.image_size, scale=data.crop_scale), T.RandomHorizontalFlip(data.flip)]
        mix = make_mix(data, len(dataset.classes))
    return td.DataLoader(
        dataset,
        batch_size=data.batch_size // world_size,
        shuffle=split == "train",
        drop_last=split == "train",  # batch norm needs full batches; the evaluation needs every image
        transform=T.Compose(steps),
        batch_transform=mix,
        seed=seed,
        device=str(device),
    )


def make_mix(data: DataConfig, classes: int) -> Any:
    """Make the function that mixes a batch of training, or None. Labels become probabilities, [N, classes]."""
    chosen = [T.MixUp(data.mixup, classes)] if data.mixup else []
    chosen += [T.CutMix(data.cutmix, classes)] if data.cutmix else []
    if not chosen:
        return None

    def mix(batch: Any, rand: Any) -> Any:
        return random.choice(chosen)(batch, rand)  # the loader seeds Python's generator by (seed, epoch, position)

    return mix


def make_model(name: str, num_classes: int) -> nn.Module:
    if name != "small_cnn":
        return get_model(name, weights=None, num_classes=num_classes)
    layers: list[nn.Module] = []
    for inputs, outputs, stride in ((3, 32, 1), (32, 64, 2), (64, 128, 2)):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(128, num_classes))


@torch.no_grad()
def evaluate(model: nn.Module, loader: td.DataLoader, autocast: Any) -> float:
    """Compute the accuracy over the whole held-out folder; it is the same on every rank."""
    model.eval()
    for buffer in model.buffers() if dist.is_initialized() else ():
        dist.broadcast(buffer, 0)  # each rank has its own averages of batch norm; those of rank 0 are saved
    correct = torch.zeros((), dtype=torch.int64, device=loader.device)
    for images, labels, _ in loader:
        with autocast():
            correct += (model(images).argmax(1) == labels).sum()
    if dist.is_initialized():
        dist.all_reduce(correct)
    return correct.item() / len(loader.dataset)  # each image came once, on one rank: no padding to correct for


def main(data: DataConfig, model: ModelConfig, optim: OptimConfig, train: TrainConfig) -> None:
    device = start(train)
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    loader, val_loader = (make_loader(split, data, train.seed, world_size, device) for split in ("train", "val"))
    warmup, total = optim.warmup_epochs * len(loader), train.epochs * len(loader)
    if data.batch_size % world_size:
        raise ValueError(f"data.batch_size must be a multiple of {world_size} (ranks), got {data.batch_size}")
    torch.manual_seed(train.seed)  # the same first weights on every rank
    net = make_model(model.name, len(loader.dataset.classes)).to(device).to(memory_format=torch.channels_last)
    ema = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(optim.ema_decay), use_buffers=True)
    kind = partial(torch.optim.SGD, momentum=0.9, nesterov=True) if optim.name == "sgd" else torch.optim.AdamW
    optimizer = kind(net.parameters(), lr=optim.lr, weight_decay=optim.weight_decay)
    schedule = LambdaLR(optimizer, lambda n: min((n + 1) / (warmup + 1), (1 + math.cos(math.pi * n / total)) / 2))
    autocast = partial(torch.autocast, device.type, enabled=train.amp)
    scaler = torch.amp.GradScaler(device.type, enabled=train.amp and device.type == "cuda")

    # Everything that changes in training. The loader is one more object with a state, of a few numbers.
    parts: Any = dict(model=net, ema=ema, optimizer=optimizer, scheduler=schedule, scaler=scaler, loader=loader)
    step, loss, folder = 0, torch.tensor(math.nan), Path(train.output)
    folder.mkdir(parents=True, exist_ok=True)
    resumed = train.resume == "auto" and (folder / "checkpoint.pt").exists()
    if resumed:
        checkpoint = torch.load(folder / "checkpoint.pt", map_location="cpu", weights_only=True)
        step = checkpoint["step"]
        for name, part in parts.items():
            part.load_state_dict(checkpoint[name])

    def save() -> None:  # renamed when complete, so that the file is the old one or the new one, never half of one
        if rank == 0:  # the loader's state is the same on every rank
            torch.save({"step": step, **{k: v.state_dict() for k, v in parts.items()}}, folder / "checkpoint.tmp")
            os.replace(folder / "checkpoint.tmp", folder / "checkpoint.pt")

    trained = nn.parallel.DistributedDataParallel(net) if dist.is_initialized() else net
    log = open(train.stream_log.format(rank=rank), "a" if resumed else "w", buffering=1) if train.stream_log else None
    bar = tqdm(total=total, initial=step, disable=rank > 0, unit="step")
    for epoch in range(loader.epoch, train.epochs):
        bar.set_description(f"epoch {epoch + 1} of {train.epochs}", refresh=False)
        trained.train()
        for images, labels, indices in loader:
            torch.manual_seed((train.seed + step) * world_size + rank)  # dropout follows from the step: no state
            with autocast():
                loss = nn.functional.cross_entropy(trained(images), labels, label_smoothing=optim.label_smoothing)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            ema.update_parameters(net)
            step += 1
            bar.update()
            if log:
                pixels = hashlib.blake2b(images.cpu().contiguous().numpy().tobytes(), digest_size=16).hexdigest()
                print(json.dumps(dict(epoch=epoch, step=step, indices=indices.tolist(), pixels=pixels)), file=log)
            if step == train.kill_at_step:
                os.kill(os.getpid(), signal.SIGKILL)
            if train.checkpoint_every and step % train.checkpoint_every == 0:
                save()
        save()
        accuracy = evaluate(ema, val_loader, autocast)
        bar.set_postfix(loss=f"{loss.item():.3f}", accuracy=f"{accuracy:.4f}", refresh=False)
    bar.close()
    accuracy = evaluate(ema, val_loader, autocast)  # once more: a finished run that is resumed has no epoch left
    if rank == 0:
        torch.save(ema.module.state_dict(), folder / "weights.pt")
        (folder / "result.json").write_text(json.dumps({"accuracy": accuracy, "steps": step}) + "\n")
        print(f"held-out accuracy {accuracy:.4f} after {step} steps")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    jsonargparse.auto_cli(main, parser_class=ArgumentParser)
