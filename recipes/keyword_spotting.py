"""Train keyword spotting on sound files, root/{train,val}/WORD/*.wav, with torchdali.

    python recipes/keyword_spotting.py --config configs/keyword_spotting/tones.yaml --optim.lr=0.002
    torchrun --nproc-per-node=8 recipes/keyword_spotting.py --config configs/keyword_spotting/tones.yaml

The loader gives log-mel spectrograms. Stop it at any moment and start it again with the same command: it continues
after its last checkpoint.
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
    root: str  # holds train/ and val/, each with WORD/*.wav
    batch_size: int = 64  # over all ranks together
    rate: int = 16000  # samples per second; other files are resampled
    seconds: float = 1.0  # longer sounds are cut, shorter ones filled up
    n_fft: int = 400
    n_mels: int = 64


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
    training, size = split == "train", int(data.seconds * data.rate)
    augment = [T.TimeShift(0.1), T.AddNoise((15, 40), p=0.8), T.RandomTimeCrop(size)]
    masks = [T.TimeMasking(8), T.FrequencyMasking(data.n_mels // 8)]
    files = sorted(Path(data.root, split).glob("*/*.wav"))
    return td.DataLoader(
        td.FileDataset(
            {"audio": files},
            labels=[classes.index(path.parent.name) for path in files],
            kinds={"audio": td.kinds.Audio(rate=data.rate, channels=1)},
        ),
        batch_size=data.batch_size // world_size,
        shuffle=training,
        drop_last=training,
        transform=T.Compose(
            [
                *(augment if training else [T.CenterTimeCrop(size)]),
                T.MelSpectrogram(data.rate, data.n_fft, n_mels=data.n_mels),
                T.ToDecibels(top_db=80),
                *(masks if training else []),
            ]
        ),
        seed=seed,
        device=str(device),
    )


def make_model(num_classes: int) -> nn.Module:
    """Make a small CNN on spectrograms [N, 1, mels, frames]."""
    layers: list[nn.Module] = [nn.InstanceNorm2d(1)]
    for inputs, outputs in ((1, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d((4, 4)), nn.Flatten(), nn.Linear(1024, num_classes))


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
        for sounds, labels in loader:  # float32 [N, 1, mels, frames], int64 [N]
            loss = nn.functional.cross_entropy(trained(sounds), labels)
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
