"""The order of a torch sampler, drawn as a whole for each epoch."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.utils.data import BatchSampler, DistributedSampler

from .order import Epoch, Indices, Order, Rows
from .rand import Key, derive
from .seeding import preserved
from .state import Position


class Drawn(Order):
    """The order of a torch `Sampler`, or any sized iterable of indices: drawn once per epoch from (seed, epoch).

    Every generator that a sampler may use is seeded for the draw and restored afterwards: the sampler's own
    `generator`, and the global ones of torch, numpy and Python.  `set_epoch` is called where the sampler has it.
    The first draw is made twice: randomness from elsewhere would lose samples silently, at a resume and between ranks.

    Raises:
        TypeError: the sampler has no length, shards by itself, or yields no integers.
        ValueError: it is empty, yields an index outside the dataset, more or fewer than its length, or another order
            from the same seeds.
    """

    def __init__(self, sampler: Iterable[int], dataset_size: int) -> None:
        if isinstance(sampler, DistributedSampler):
            raise TypeError(
                "sampler must give the order of the whole dataset, and DistributedSampler gives one rank's: "
                "leave it out and write shuffle=True or False; every rank then takes its slice"
            )
        check_unsharded(sampler)
        if isinstance(sampler, BatchSampler):
            raise TypeError(
                "sampler must yield indices, and BatchSampler yields batches: write its sampler, and batch_size="
            )
        if not hasattr(sampler, "__len__") or not hasattr(sampler, "__iter__"):
            raise TypeError(f"sampler must be a sized iterable of indices, got {type(sampler).__name__}")
        self.sampler: Any = sampler
        self.dataset_size = dataset_size
        self._fingerprints: dict[int, str] = {}  # by seed
        self._repeats = False  # it was seen to give the same order again
        if not len(self):
            raise ValueError(f"sampler must give at least one index, and len({type(sampler).__name__}) is 0")

    def __len__(self) -> int:
        return len(self.sampler)

    def epoch(self, seed: int, at: Position) -> Epoch:
        indices = self._draw(seed, at)
        keys = indices.astype(np.uint64) + (_occurrences(indices).astype(np.uint64) << np.uint64(48))
        return Epoch(len(indices), lambda positions: Rows(indices[positions], keys[positions]))

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        if seed not in self._fingerprints:
            crc = zlib.crc32(self._draw(seed, Position()).tobytes())
            self._fingerprints[seed] = f"{type(self.sampler).__name__[:60]} (epoch 0: {crc:08x})"
        return self._fingerprints[seed]

    def _draw(self, seed: int, at: Position) -> Indices:
        indices = self._draw_once(seed, at)
        if not self._repeats and not np.array_equal(indices, self._draw_once(seed, at)):
            raise ValueError(
                f"sampler must give the same order from the same seeds, and {type(self.sampler).__name__} gave two: "
                "take its randomness from torch's, numpy's or Python's global generator, from a torch.Generator in "
                "its attribute `generator`, or from set_epoch"
            )
        self._repeats = True
        return indices

    def _draw_once(self, seed: int, at: Position) -> Indices:
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(at.epoch)
        name = type(self.sampler).__name__
        generator = getattr(self.sampler, "generator", None)
        own = [generator] if isinstance(generator, torch.Generator) else []
        with preserved(*own):
            _seed_all(derive(seed, Key.DRAWN, at.key), *own)
            drawn = list(self.sampler)
        if len(drawn) != len(self):
            raise ValueError(f"{name} says len {len(self)} and yielded {len(drawn)} indices")
        try:
            indices = np.asarray(drawn)
        except ValueError:  # lists of different lengths
            indices = np.asarray(drawn, object)
        if indices.dtype.kind not in "iu" or indices.ndim != 1:
            no_index = (v for v in drawn if isinstance(v, bool) or not hasattr(v, "__index__") or np.ndim(v))
            wrong = next(no_index, drawn[0])
            batches = ": for batches write batch_size=" if isinstance(wrong, (list, tuple)) or np.ndim(wrong) else ""
            raise TypeError(f"sampler must yield integers, {name} yielded {wrong!r:.200}{batches}")
        if indices.min() < 0 or indices.max() >= self.dataset_size:
            raise ValueError(
                f"{name} yielded indices {indices.min()}..{indices.max()} for a dataset of {self.dataset_size} samples"
            )
        return indices.astype(np.int64, copy=False)


def check_unsharded(sampler: Any) -> None:
    """Refuse a sampler that gives one rank's share, or is around such a one: every rank would slice it once more.

    Raises:
        TypeError: it says so by `num_replicas`, as torchvision's RASampler, timm's and others do.
    """
    part, seen = sampler, 0
    while part is not None and seen < _DEEPEST:
        replicas = getattr(part, "num_replicas", None)
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
                f"sampler must give the order of the whole dataset, and {type(part).__name__} gives one rank's of "
                f"{replicas} (num_replicas), in which every rank would take its slice once more: write {instead}"
            )
        part, seen = getattr(part, "sampler", None) or getattr(part, "batch_sampler", None), seen + 1


_DEEPEST = 8  # samplers around samplers
_REPEATS = ("repetitions", "num_repeats", "repeats")  # in torchvision's references, timm, and others


def _occurrences(indices: Indices) -> Indices:
    """Count how often each element stood before, so that a sample drawn twice is augmented in two ways."""
    order = np.argsort(indices, kind="stable")
    ordered = indices[order]
    places = np.arange(len(indices))
    first = np.maximum.accumulate(np.where(np.r_[True, ordered[1:] != ordered[:-1]], places, 0))
    out = np.empty_like(indices)
    out[order] = places - first
    return out


def _seed_all(seed: int, *more: torch.Generator) -> None:
    """Start the global generators, and some of torch's, from a seed."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    for generator in (torch.default_generator, *more):
        generator.manual_seed(seed % 2**63)
