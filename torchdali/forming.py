"""The way of a batch from its fields to its user: the form, then the user's functions of batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from .batch_function import BatchFunction
from .collate import collate_objects
from .distributed import Shard
from .engine.work import Work
from .generators import HeldGenerators
from .rand import BatchRand, Key
from .samples import samples_of
from .seeding import gpu_generator, preserved, seed_all


@dataclass(frozen=True)
class Forming:
    """Makes what the user gets of a batch's fields, in the caller's thread.

    While the user's functions run, the global generators of Python, numpy and torch, this GPU's too, and those that the
    functions hold, are seeded by the batch's place in the stream; they are put back after it.

    Attributes:
        form: puts the fields into the form that the user asked for.
        rebuild: puts one sample's fields into the form of the source's samples.
        objects: the fields that are lists of objects.
        together: objects that torch has a way for are put together, see `collate_objects`.
        collate: the user's `collate_fn` of decoded samples, instead of `form`; None: there is none, or the workers call
            it.
        transform: the user's `batch_transform`; None: there is none.
        seed: the loader's.
        shard: this process among the data-parallel ones.
        device: the batches'.
    """

    form: Callable[[dict[str, Any]], Any]
    rebuild: Callable[[dict[str, Any]], Any]
    objects: Collection[str]
    together: bool
    collate: BatchFunction | None
    transform: BatchFunction | None
    seed: int
    shard: Shard
    device: torch.device

    @property
    def calls(self) -> bool:
        """Whether a function of the user makes tensors here."""
        return self.collate is not None or self.transform is not None

    def __call__(self, fields: dict[str, Any], work: Work) -> Any:
        """Make the user's batch."""
        at, number = work.step.start, work.step.number

        def make_rand(name: str) -> BatchRand:
            keys, positions = work.samples.keys, work.step.positions
            rand = BatchRand(self.seed, at.key, keys, positions, at.epoch, number)
            return rand.named(Key.BATCH, name)

        if self.collate is None:
            own = {
                name: collate_objects(name, fields[name], self.device)
                for name in self.objects
                if self.together and isinstance(fields.get(name), list)
            }
            batch = self.form(fields | own)
        else:
            samples = samples_of(fields, self.rebuild, self.objects)
            with self._seeded(self.collate.held, Key.COLLATE, self.seed, at.key, int(work.samples.keys[0])):
                batch = self.collate(samples, make_rand, at, number)
        if self.transform is not None:
            with self._seeded(self.transform.held, Key.BATCH, self.seed, self.shard.rank, at.key, at.samples_seen):
                batch = self.transform(batch, make_rand, at, number)
        return batch

    @contextmanager
    def _seeded(self, held: HeldGenerators, *numbers: int) -> Iterator[None]:
        more = gpu_generator(self.device)
        with preserved(*more), held.preserved():
            held.seed(seed_all(*numbers, more=more))
            yield
