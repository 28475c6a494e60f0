"""Train video classification on video files, root/{train,val}/CLASS/*, with torchdali.

    python recipes/video_classification.py --config configs/video_classification/motions.yaml --optim.lr=0.002
    torchrun --nproc-per-node=8 recipes/video_classification.py --config configs/video_classification/motions.yaml

In training, each epoch sees one clip of each video, from a random start; held-out videos are cut into clips. Stop it at
any moment and start it again with the same command: it continues after its last checkpoint.
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
from tqdm import tqdm

import torchdali as td
from torchdali import transforms as T
from torchdali.configs import ArgumentParser


@dataclass(frozen=True)
class DataConfig:
    root: str  # holds train/ and val/, each with CLASS/* of video files
    batch_size: int = 32  # clips, over all ranks together
    frames: int = 16  # of a clip
    stride: int = 2  # from one of them to the next
    crop_size: int = 112
    resize_size: int = 128
    mean: tuple[float, float, float] = (0.43216, 0.394666, 0.37645)
    std: tuple[float, float, float] = (0.22803, 0.22145, 0.216989)


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


def classes_of(data: DataConfig) -> list[str]:
    return sorted(folder.name for folder in Path(data.root, "train").iterdir())


def make_loader(split: str, data: DataConfig, seed: int, world_size: int, device: torch.device) -> td.DataLoader:
    """Make the loader for "train" or "val"."""
    classes = classes_of(data)
    training = split == "train"
    crop = T.RandomResizedCrop(data.crop_size, (0.5, 1)) if training else T.CenterCrop(data.crop_size)
    files = sorted(Path(data.root, split).glob("*/*"))
    return td.DataLoader(
        td.VideoClips(
            files,
            data.frames,
            data.stride,
            step=2**40 if training else None,  # one clip of each file
            labels=[classes.index(path.parent.name) for path in files],
            random_start=training,
        ),
        batch_size=data.batch_size // world_size,
        shuffle=training,
        drop_last=training,
        transform=T.Compose(
            [*([] if training else [T.Resize(data.resize_size)]), crop, T.Normalize(data.mean, data.std)]
        ),
        seed=seed,
        device=str(device),
    )


class Channels(nn.Module):
    """Makes [N, C, F, H, W], which torch's convolutions take, of [N, F, C, H, W]."""

    def forward(self, video: torch.Tensor) -> torch.Tensor:
        return video.transpose(1, 2)


def make_model(num_classes: int) -> nn.Module:
    """Make a small CNN on clips [N, F, C, H, W]."""
    layers: list[nn.Module] = [Channels()]
    for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv3d(inputs, outputs, 3, (1, 2, 2), 1, bias=False), nn.BatchNorm3d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(64, num_classes))


@torch.no_grad()
def evaluate(model: nn.Module, loader: td.DataLoader) -> float:
    """Compute the accuracy on the held-out samples; it is the same on every rank."""
    model.eval()
    counts = torch.zeros(2, dtype=torch.int64, device=loader.device)
    for values, labels in loader:
        right = (model(values).argmax(1) == labels).sum()
        counts += torch.stack([right, torch.tensor(len(labels), device=loader.device)])
    if dist.is_initialized():
        dist.all_reduce(counts)
    return (counts[0] / counts[1]).item()


def main(data: DataConfig, optim: OptimConfig, train: TrainConfig) -> None:
    device = start(train.device)
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if data.batch_size % world_size:
        raise ValueError(f"data.batch_size must be a multiple of {world_size} (ranks), got {data.batch_size}")
    loader, val_loader = (make_loader(split, data, train.seed, world_size, device) for split in ("train", "val"))
    total = train.epochs * len(loader)
    torch.manual_seed(train.seed)  # the same first weights on every rank
    net = make_model(len(classes_of(data))).to(device)
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
        for clips, labels in loader:  # float32 [N, F, C, H, W], int64 [N]
            loss = nn.functional.cross_entropy(trained(clips), labels)
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
    accuracy = evaluate(net, val_loader)
    if rank == 0:
        torch.save(net.state_dict(), folder / "weights.pt")
        (folder / "result.json").write_text(json.dumps({"accuracy": accuracy, "steps": step}) + "\n")
        print(f"held-out accuracy {accuracy:.4f} after {step} steps")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    jsonargparse.auto_cli(main, parser_class=ArgumentParser)
