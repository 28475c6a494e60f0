"""The job of a map-style dataset: samples by their indices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..listeners import Listeners
from ..seeding import seeded
from ..workers import Answer
from .sample import Description, Structure
from .values import BYTES

_TRIES = 10  # samples, until one can be described


class MapDescribe(NamedTuple):
    """The request to describe a sample.

    Attributes:
        fields: as the user named them; None: names that the sample suggests.
    """

    fields: tuple[str, ...] | None


class MapRead(NamedTuple):
    """The request to read samples.

    Attributes:
        seed: the loader's.
        key: the pass, `state.Position.key`.
        indices: the samples.
        keys: the keys of the samples' random numbers.
        structure: the structure that they must have.
    """

    seed: int
    key: int
    indices: list[int]
    keys: list[int]
    structure: Structure


class MapJob:
    """Reads samples of a map-style dataset, each from generators that are seeded for it."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self._listeners: Listeners | None = None

    @property
    def listeners(self) -> Listeners:
        """Those that are told the epoch, in this process."""
        if self._listeners is None:
            self._listeners = Listeners(self.dataset)
        return self._listeners

    def read(self, request: MapRead, progress: Callable[[int], None]) -> Answer:
        """Read samples."""
        self.listeners.tell(request.seed, request.key)
        rows = []
        for index, sample in zip(request.indices, request.keys, strict=True):
            progress(index)
            seeded(request.seed, request.key, sample)
            rows.append(request.structure.values(self.dataset[index]))
        return Answer(request.structure.columns(rows))

    def describe(self, request: MapDescribe, progress: Callable[[int], None]) -> Description:
        """Describe the first sample, or a later one whose bytes are an image file where the first one's are none."""
        self.listeners.tell(0, 0)
        first = Structure.of(self._sample(0, progress), request.fields)
        doubtful = [leaf.name for leaf in first.leaves if leaf.form == BYTES]
        for other in range(1, min(len(self.dataset), _TRIES) if doubtful else 0):
            try:
                structure = Structure.of(self._sample(other, progress), request.fields)
            except Exception:
                continue
            if len(structure.leaves) == len(first.leaves) and "encoded" in {
                leaf.form.kind
                for leaf, before in zip(structure.leaves, first.leaves, strict=True)
                if before.form == BYTES
            }:
                return Description(structure)
        return Description(first)

    def _sample(self, index: int, progress: Callable[[int], None]) -> Any:
        """Make a sample to describe, or the next one that can be made: a bad one is an error where the order has it."""
        for other in range(index, min(len(self.dataset), index + _TRIES)):
            progress(other)
            seeded(0, 0, other)
            try:
                return self.dataset[other]
            except Exception:
                continue
        progress(index)
        seeded(0, 0, index)
        return self.dataset[index]
