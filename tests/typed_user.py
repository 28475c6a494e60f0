"""A script as a user types it: mypy and pyright accept it, and know the types that it asserts.  It is never run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import torch
from torch import nn

import torchdali as td
from torchdali import kinds, readers
from torchdali import transforms as T
from torchdali.lightning import DataModule


def augment(sample: dict[str, Any], rand: Any) -> dict[str, Any]:
    return sample


def make_loader(root: Path, rank: int) -> td.DataLoader:
    dataset = td.ImageFolder(root, fields=("image", "label", "index"))
    normalize = T.Normalize(mean=[0.5] * 3, std=[0.5] * 3)
    return td.DataLoader(
        dataset,
        batch_size=8,
        sampler=td.WeightedSampler([1.0] * len(dataset)),
        transform=T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(0.5), normalize, augment]),
        pad_value={"label": -1},
        on_bad_sample=lambda bad: "substitute" if bad.path is None else bad.index - 1,
        kinds={"image": kinds.Image(mode="L")},
        rank=rank,
        world_size=2,
        memory_format=torch.channels_last,
    )


def train(loader: td.DataLoader, net: nn.Module) -> dict[str, Any]:
    with loader:
        for step, (images, labels, _) in enumerate(loader, loader.step):
            loss = nn.functional.cross_entropy(net(images), labels)
            torch.autograd.backward(loss)
            if step == 3:
                break
    state = loader.state_dict()
    assert_type(state, dict[str, Any])
    loader.load_state_dict(state)
    loader.set_epoch(loader.epoch + 1)
    assert_type(len(loader), int)
    return state


def look(batch: td.Padded) -> list[torch.Tensor]:
    assert_type(batch.data, torch.Tensor)
    assert_type(batch.mask, torch.Tensor)
    return batch.unbind()


def others(folder: str) -> None:
    figure = td.show(td.CocoDataset(folder, "instances.json"), T.Resize((32, 32)), samples=4, draws=2)
    figure.savefig("grid.png")
    packed: td.Packed = td.pack(td.FileDataset([folder]), "pack", T.Resize(256), progress=True)
    packed.verify()
    for bad in td.DataLoader(readers.File(file_root=folder)).bad_samples:
        assert_type(bad.index, int)
    image, _ = td.ImageFolder(folder)[0]
    assert image is not None and td.__version__ and DataModule.__doc__
