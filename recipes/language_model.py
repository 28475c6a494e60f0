"""Train a small transformer on a file of token ids, root/{train,val}.bin (uint16, as nanoGPT's), with torchdali.

    python recipes/language_model.py --config configs/language_model/sums.yaml --model.layers=3
    torchrun --nproc-per-node=8 recipes/language_model.py --config configs/language_model/sums.yaml

Windows are read in a fresh order each epoch, and each token is a target once. Stop it at any moment and start it again
with the same command: it continues with the very next window after its last checkpoint.
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
from torchdali.configs import ArgumentParser


@dataclass(frozen=True)
class DataConfig:
    root: str  # holds train.bin and val.bin
    vocabulary: int = 50257  # ids are below
    length: int = 1024  # tokens that the model sees
    batch_size: int = 64  # windows, over all ranks together


@dataclass(frozen=True)
class ModelConfig:
    width: int = 768
    heads: int = 12
    layers: int = 12
    dropout: float = 0.0


@dataclass(frozen=True)
class OptimConfig:
    lr: float = 6e-4
    weight_decay: float = 0.1
    clip: float = 1.0  # the norm of all gradients together


@dataclass(frozen=True)
class TrainConfig:
    output: str  # the run folder: checkpoint.pt, weights.pt, result.json
    epochs: PositiveInt = 1
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
    return td.DataLoader(
        td.TokenWindows(f"{data.root}/{split}.bin", data.length, dtype="uint16"),
        batch_size=data.batch_size // world_size,
        shuffle=split == "train",
        drop_last=split == "train",
        seed=seed,
        device=str(device),
    )


class Transformer(nn.Module):
    """A decoder as GPT-2's: the score of each next token, from those before it."""

    def __init__(self, model: ModelConfig, vocabulary: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, model.width)
        self.places = nn.Parameter(torch.zeros(length, model.width))
        block = nn.TransformerEncoderLayer(
            *(model.width, model.heads, 4 * model.width, model.dropout), "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, model.layers, nn.LayerNorm(model.width), enable_nested_tensor=False)
        self.scores = nn.Linear(model.width, vocabulary, bias=False)
        nn.init.normal_(self.tokens.weight, std=0.02)
        self.scores.weight = self.tokens.weight
        self.register_buffer("future", torch.full((length, length), -torch.inf).triu(1), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.scores(self.blocks(self.tokens(tokens) + self.places, self.future, is_causal=True))


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


@torch.no_grad()
def evaluate(model: nn.Module, loader: td.DataLoader) -> float:
    """Compute the loss per token of the held-out file; it is the same on every rank."""
    model.eval()
    total = torch.zeros((), dtype=torch.float64, device=loader.device)
    for tokens in loader:
        total += loss_of(model, tokens) * len(tokens)
    if dist.is_initialized():
        dist.all_reduce(total)
    return total.item() / len(loader.dataset)  # each window came once, on one rank


def main(data: DataConfig, model: ModelConfig, optim: OptimConfig, train: TrainConfig) -> None:
    device = start(train.device)
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if data.batch_size % world_size:
        raise ValueError(f"data.batch_size must be a multiple of {world_size} (ranks), got {data.batch_size}")
    loader, val_loader = (make_loader(split, data, train.seed, world_size, device) for split in ("train", "val"))
    total = train.epochs * len(loader)
    torch.manual_seed(train.seed)  # the same first weights on every rank
    net = Transformer(model, data.vocabulary, data.length).to(device)
    optimizer = torch.optim.AdamW(net.parameters(), optim.lr, (0.9, 0.95), weight_decay=optim.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, optim.lr, total_steps=total, pct_start=0.05)

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
        for tokens in loader:  # int64 [N, length + 1]
            torch.manual_seed((train.seed + step) * world_size + rank)  # dropout follows from the step: no state
            loss = loss_of(trained, tokens)
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
    loss_per_token = evaluate(net, val_loader)
    if rank == 0:
        torch.save(net.state_dict(), folder / "weights.pt")
        (folder / "result.json").write_text(json.dumps({"loss": loss_per_token, "steps": step}) + "\n")
        print(f"held-out loss {loss_per_token:.4f} per token after {step} steps")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    jsonargparse.auto_cli(main, parser_class=ArgumentParser)
