"""One step on its way through the engine, and its first stage: reading."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .. import _dali
from ..batch import BadSample, Columns
from ..datasets import MapDataset
from ..distributed import Shard
from ..images import readable, transcode
from ..random import Rand
from ..sampler import EpochOrder, Rows, cut
from ..state import Position
from .plan import Draws, FieldSizes, Plan

READERS = 16  # threads that read where reading waits for a disk or a network
SLOW = 500e-6  # seconds a sample; a file in the page cache takes 25e-6


@dataclass(frozen=True)
class Step:
    """What is in a batch, decided before anything is read.

    Attributes:
        start: where it begins in the stream.
        end: where the stream stands behind it.
        rows: the samples and what their random numbers are keyed by.
        valid: [N] False where a row is repeated only to fill up the batch.
    """

    start: Position
    end: Position
    rows: Rows
    valid: NDArray[np.bool_]


def iter_steps(
    order: EpochOrder,
    n: int,
    start: Position,
    batch_size: int,
    shard: Shard,
    drop_last: bool,
    pad_last: bool,
) -> Iterator[Step]:
    """A rank's steps from a position to the end of the epoch of `n` samples."""
    at = start
    while (taken := cut(n, at.samples_seen, batch_size, shard, drop_last, pad_last)) is not None:
        end = at._replace(samples_seen=taken.end)
        yield Step(at, end, order(taken.positions), taken.valid)
        at = end


@dataclass
class Work:
    """A step and what the stages have made of it so far; each stage fills in its part.

    Attributes:
        samples: the rows that are in the batch in the end: the step's, but for substitutes.
        valid: [N] False for repeated and substituted rows.
        columns: the samples as they were read, image files made readable for DALI.
        draws, sizes: parameters of the plan's first run, and the images' sizes behind it.
        rows: the device part's outputs by field.
        batch: the finished fields.
        error: what went wrong; later stages pass it on.
        bad: the bad samples that were met.
    """

    step: Step
    samples: Rows
    valid: NDArray[np.bool_]
    columns: Columns = field(default_factory=dict)
    draws: Draws = field(default_factory=dict)
    sizes: FieldSizes = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)
    batch: dict[str, Any] = field(default_factory=dict)
    error: BaseException | None = None
    bad: list[BadSample] = field(default_factory=list)

    @classmethod
    def of(cls, step: Step) -> Work:
        return cls(step, step.rows, step.valid)

    def __len__(self) -> int:
        return len(self.samples.indices)


class Fetcher:
    """The first stage: read the samples, look into the files' headers, draw parameters."""

    def __init__(self, dataset: MapDataset, plan: Plan, seed: int, device: torch.device) -> None:
        self.dataset, self.plan, self.seed, self.device = dataset, plan, seed, device
        self._threads = ThreadPoolExecutor(READERS, "torchdali-read") if dataset.blocking else None
        self._local = threading.local()
        self._wait = 0.0  # seconds that a sample took last, from the view of one reader

    def rand(self, work: Work) -> Rand:
        """The random numbers of a step's samples."""
        return Rand(self.seed, work.step.start.key, work.samples.keys)

    def __call__(self, work: Work) -> None:
        """Fill in columns, draws and sizes; any error may rise."""
        self.read(work)
        self.draw(work)

    def read(self, work: Work, repaired: Mapping[int, Columns] | None = None) -> None:
        """The first half: fill in the columns.

        Args:
            work: the step.
            repaired: by index, image files to take instead of the dataset's.
        """
        indices = work.samples.indices
        work.columns = self._read(indices)
        if "valid" in work.columns:
            work.columns["valid"] = work.valid
        for name in self.plan.encoded:
            work.columns[name] = [
                repaired[int(i)][name][0]
                if repaired and int(i) in repaired
                else encoded
                if readable(encoded)
                else transcode(encoded)
                for i, encoded in zip(indices, work.columns[name], strict=True)
            ]

    def _read(self, indices: NDArray[np.int64]) -> Columns:
        """One after the other while that is fast, as from the page cache; in threads where each sample waits long."""
        threads = self._threads if self._wait > SLOW and len(indices) > 1 else None
        begin = time.perf_counter()
        if threads is None:
            columns = self.dataset.read(indices)
        else:
            parts = list(threads.map(self.dataset.read, np.array_split(indices, min(READERS, len(indices)))))
            columns = {
                name: np.concatenate([part[name] for part in parts])
                if isinstance(parts[0][name], np.ndarray)
                else [value for part in parts for value in part[name]]
                for name in parts[0]
            }
        elapsed = time.perf_counter() - begin
        self._wait = elapsed * (READERS if threads else 1) / len(indices)
        return columns

    def _image_sizes(self, encoded: list[NDArray[np.uint8]]) -> NDArray[np.int64]:
        # A context for each thread that comes here; of this device, since the default one would be GPU 0.
        if not hasattr(self._local, "context"):
            self._local.context = _dali.context(1, self.device)
        return _dali.image_sizes(encoded, self._local.context)

    def close(self) -> None:
        """End the threads."""
        if self._threads is not None:
            self._threads.shutdown()

    def draw(self, work: Work) -> None:
        """The second half: fill in draws and sizes."""
        sizes: FieldSizes = {}
        for name in self.plan.pixels:
            column = work.columns[name]
            if self.plan.kinds[name] == "image":
                sizes[name] = np.array([image.shape[:2] for image in column], np.int64)
            else:
                sizes[name] = self._image_sizes(list(column)) if self.plan.peeks else None
        work.draws, work.sizes = self.plan.draw(self.plan.first_run, self.rand(work), sizes)
