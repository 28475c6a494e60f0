"""Map-style datasets of torch, or anything with `__getitem__` and `__len__`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from ..batch import Columns
from ..datasets.base import digest
from ..order import Rows
from ..seeding import seeded
from ..source import Pass
from .base import LocalReading, PooledReading, PythonSource, make_reading
from .sample import Structure


class PythonDataset(PythonSource):
    """A map-style dataset whose samples are made by Python code.

    `DataLoader(dataset, num_workers=4)` wraps any such dataset in it; write it to name the fields.  Before each sample,
    the generators of Python, numpy and torch are seeded by (seed, epoch, sample): random code gives the same sample in
    any worker, or in none.

    Args:
        dataset: has `__getitem__` and `__len__`.  For what a sample may be, see `python.sample`.
        fields: names for a sample's values, in their order, and index or valid among them.  None: a dict's keys and the
            like; of a tuple "image", "label", or "field1" by its place.
        ragged: arrays that always leave as `Padded`; others do where the shapes in a batch differ.

    Raises:
        TypeError: it has no `__getitem__` or `__len__`.
    """

    def __init__(self, dataset: Any, fields: Sequence[str] | None = None, *, ragged: Sequence[str] = ()) -> None:
        if not hasattr(dataset, "__getitem__") or not hasattr(dataset, "__len__"):
            raise TypeError(f"a map-style dataset has __getitem__ and __len__, got {type(dataset).__name__}")
        super().__init__(fields, ragged)
        self.dataset = dataset
        self._digest: str | None = None

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index]

    def fingerprint(self) -> str:
        """Of the dataset's type and length, and of its own `fingerprint` (or Hugging Face's `_fingerprint`).

        Of torch's Subset and ConcatDataset: of the indices and the parts too.
        """
        if self._digest is None:
            self._digest = digest(_own_fingerprint(self.dataset))
        return f"{len(self)} of {type(self.dataset).__name__[:40]} {self._digest}"

    def job(self) -> Any:
        return ReadSamples(self.dataset)

    def first(self) -> Any:
        return 0

    def open(self, pass_: Pass) -> LocalReading | PooledReading:
        structure = self.structure

        def payload(rows: Rows) -> Any:
            return pass_.seed, pass_.key, rows.indices.tolist(), rows.keys.tolist(), structure

        return make_reading(self, pass_, payload)

    def __getattr__(self, name: str) -> Any:
        # `loader.dataset.classes` and the like; not while unpickling, when there is no dataset yet.
        if name.startswith("_") or name in ("dataset", "crew"):
            raise AttributeError(name)
        return getattr(self.dataset, name)


def _own_fingerprint(dataset: Any) -> Any:
    """What tells a dataset from another one of its type and length."""
    if type(dataset) is Subset:
        return np.asarray([int(index) for index in dataset.indices], np.int64), _own_fingerprint(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return dataset.cumulative_sizes, [_own_fingerprint(part) for part in dataset.datasets]
    own = getattr(dataset, "fingerprint", None) or getattr(dataset, "_fingerprint", None)
    own = own() if callable(own) else own
    return own if isinstance(own, str) else None


_BYTES = "uint8, 1 dimensions"  # the form of bytes that are no image file
_TRIES = 10  # samples, until one can be described


class ReadSamples:
    """What runs in a worker."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __call__(self, payload: Any, progress: Callable[[int], None]) -> Columns:
        if payload[0] == "describe":
            return {"structure": [self._describe(payload[2], payload[1], progress)]}
        seed, key, indices, keys, structure = payload
        rows = []
        for index, sample in zip(indices, keys, strict=True):
            progress(index)
            seeded(seed, key, sample)
            rows.append(structure.values(self.dataset[index]))
        columns: Columns = structure.columns(rows)
        return columns

    def _describe(self, index: int, names: Any, progress: Callable[[int], None]) -> Structure:
        """Of a sample; of a later one, where bytes of the first are no image file, and the later one's are one."""
        first = Structure.of(self._sample(index, progress), names)
        doubtful = [leaf.name for leaf in first.leaves if leaf.form == _BYTES]
        for other in range(index + 1, min(len(self.dataset), index + _TRIES) if doubtful else 0):
            try:
                structure = Structure.of(self._sample(other, progress), names)
            except Exception:
                continue
            if len(structure.leaves) == len(first.leaves) and "encoded" in {
                leaf.kind for leaf, before in zip(structure.leaves, first.leaves, strict=True) if before.form == _BYTES
            }:
                return structure
        return first

    def _sample(self, index: int, progress: Callable[[int], None]) -> Any:
        """One to describe: the next one that can be made, since a bad sample is an error where the order has it."""
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
