"""Samplers of torch and others: their generators, their epoch, and whether they give one rank's share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import DistributedSampler

from .rand import Key, derive
from .seeding import set_seeds
from .state import Position

_DEEPEST = 8  # samplers around samplers
_RANKS = ("num_replicas", "world_size", "_world_size")  # torch's and most; mmengine's; detectron2's and YOLOX's
_REPEATS = ("repetitions", "num_repeats", "repeats")  # in torchvision's references, timm, and others


def own_generators(sampler: Any) -> list[torch.Generator]:
    """The generators of a sampler, and of the sampler that a batch sampler is made of."""
    found = [getattr(one, "generator", None) for one in (sampler, getattr(sampler, "sampler", None))]
    return [one for one in found if isinstance(one, torch.Generator)]


def tell_epoch(sampler: Any, at: Position) -> None:
    """Tell a sampler the epoch, where it has a method for it."""
    for one in (sampler, getattr(sampler, "sampler", None)):
        if callable(set_epoch := getattr(one, "set_epoch", None)):
            set_epoch(at.epoch)


def seed_draw(seed: int, at: Position, own: Sequence[torch.Generator]) -> None:
    """Seed the global generators, and a sampler's own, for the draw of an epoch."""
    number = derive(seed, Key.DRAWN, at.key)
    set_seeds(number, number % 2**32, number % 2**63, own)


def check_unsharded(sampler: Any, word: str) -> None:
    """Refuse a sampler that gives one rank's share, or is around such a one: every rank would slice it once more.

    Raises:
        TypeError: it says so by `num_replicas`, as torchvision's RASampler, timm's and others do.
    """
    part, seen = sampler, 0
    while part is not None and seen < _DEEPEST:
        word_of = next((name for name in _RANKS if isinstance(getattr(part, name, None), int)), "num_replicas")
        replicas = getattr(part, word_of, None)
        if isinstance(part, DistributedSampler) and part.num_replicas > 1:
            raise TypeError(
                f"{word} must give the order of the whole dataset, and DistributedSampler gives one rank's: leave it "
                "out and write shuffle=True or False; every rank then takes its slice"
            )
        if isinstance(replicas, int) and replicas > 1:
            repeats = next((getattr(part, name) for name in _REPEATS if hasattr(part, name)), None)
            inner = getattr(part, "sampler", None)
            if repeats is not None:
                instead = f"torchdali.samplers.RepeatedAugmentationSampler(dataset, repeats={repeats})"
            elif inner is not None:
                instead = f"its plain sampler, the {type(inner).__name__}"
            else:
                instead = "the plain sampler, or leave it out and write shuffle=True or False"
            raise TypeError(
                f"{word} must give the order of the whole dataset, and {type(part).__name__} gives one rank's of "
                f"{replicas} ({word_of}), in which every rank would take its slice once more: write {instead}"
            )
        part, seen = getattr(part, "sampler", None) or getattr(part, "batch_sampler", None), seen + 1
