"""The job of a map-style dataset: samples by their indices."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from torch.utils.data import Subset

from ..seeding import seeded
from ..workers import Answer
from .collating import Collating
from .sample import Description, Structure, lists_in
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
    """Reads samples of a map-style dataset, each from generators that are seeded for it.

    A dataset with `__getitems__` makes the samples of a batch together, from generators seeded for the first of them.

    Attributes:
        collating: puts a batch together, where the user's function does.
    """

    collating: Collating | None = None

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def read(self, request: MapRead, progress: Callable[[int], None]) -> Answer:
        """Read samples."""
        fetch = _many(self.dataset)
        convert = request.structure.values if self.collating is None else lambda sample: sample
        rows: list[Any] = []
        if fetch is None:
            for index, key in zip(request.indices, request.keys, strict=True):
                progress(index)
                seeded(request.seed, request.key, key)
                rows.append(convert(self.dataset[index]))
        else:
            progress(request.indices[0])
            seeded(request.seed, request.key, request.keys[0])
            samples = fetch(request.indices)
            if len(samples) != len(request.indices):
                raise ValueError(
                    f"{type(self.dataset).__name__}.__getitems__ must give one sample for each of "
                    f"{len(request.indices)} indices, got {len(samples)}"
                )
            rows = [convert(sample) for sample in samples]
        if self.collating is not None:
            return Answer(self.collating.columns(rows, request.seed, request.key, request.keys[0]))
        return Answer(request.structure.columns(rows))

    def describe(self, request: MapDescribe, progress: Callable[[int], None]) -> Description:
        """Describe the first sample, or a later one whose bytes are an image file where the first one's are none.

        Its lists are containers where the next samples have lists of the same lengths.
        """
        sample = self._sample(0, progress)
        lists = lists_in(sample)
        for other in range(1, min(len(self.dataset), _TRIES) if lists else 0):
            with suppress(Exception):  # a bad one is an error where the order has it
                lengths = lists_in(self._sample(other, progress))
                lists = {path: length for path, length in lists.items() if lengths.get(path) == length}
        first = Structure.of(sample, request.fields, lists)
        doubtful = [leaf.name for leaf in first.leaves if leaf.form == BYTES]
        for other in range(1, min(len(self.dataset), _TRIES) if doubtful else 0):
            try:
                structure = Structure.of(self._sample(other, progress), request.fields, lists)
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
                return self._one(other)
            except Exception:
                continue
        progress(index)
        seeded(0, 0, index)
        return self._one(index)

    def _one(self, index: int) -> Any:
        fetch = _many(self.dataset)
        return self.dataset[index] if fetch is None else fetch([index])[0]


def _many(dataset: Any) -> Callable[[list[int]], Any] | None:
    """The dataset's own way to make many samples at once; torch's Subset has one only if what it is of has one."""
    inner = dataset
    while type(inner) is Subset:
        inner = inner.dataset
    own = callable(getattr(inner, "__getitems__", None))
    return dataset.__getitems__ if own else None
