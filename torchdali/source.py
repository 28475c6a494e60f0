"""How samples get into the engine: the seam between what a loader reads and what it does with it.

A source says what its samples are made of; for each pass it gives a `Reading`, which turns rows (which samples, and
what their random numbers are keyed by) into columns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from .batch import Columns, Kind, join
from .distributed import Shard
from .errors import leave_frame
from .order import Indices, Rows

THREADS = 16  # that read where reading waits for a disk or a network
SLOW = 500e-6  # seconds a sample; a file in the page cache takes 25e-6


class Place(NamedTuple):
    """Where a pass runs; everything that reading may depend on.

    Attributes:
        seed: the loader's.
        key: of the pass, `state.Position.key`.
        epoch: the epoch, without its cycle.
        shard: this process.
        batch_size: samples a batch.
        num_threads: for decoding.
        device: where batches will arrive.
        drop_last: of an endless source, batches that its end leaves smaller are left out.
        snapshot: where the source goes on, if positions do not say so: what came with `Lent`.
    """

    seed: int
    key: int
    epoch: int
    shard: Shard
    batch_size: int
    num_threads: int
    device: torch.device
    drop_last: bool = False
    snapshot: dict[str, Any] | None = None


class Lent(dict[str, Any]):
    """Columns with something to them.

    Attributes:
        release: gives back the memory of their arrays.
        snapshot: where their source stands behind them, where a position does not say so.
    """

    def __init__(
        self, columns: Columns, release: Callable[[], None] | None = None, snapshot: dict[str, Any] | None = None
    ) -> None:
        super().__init__(columns)
        self.release, self.snapshot = release, snapshot


class Failed(NamedTuple):
    """The failure of the user's code that makes samples: its error reaches the caller as it is, with a note.

    Attributes:
        error: the error.
        sample: the index of the sample that the code was on, or None.
        worker: the number of the worker that it ran in, or None.
    """

    error: Exception
    sample: int | None
    worker: int | None = None


class Reading(Protocol):
    """Reads for one pass."""

    def stream(self, rows: Iterable[Rows]) -> Iterator[Columns | Failed | Exception]:
        """Columns for rows that follow each other, in order; what fails is given as its error, and the next follow.

        It runs in one thread, may ask for rows ahead, and gives back what it holds when it is closed.
        """
        ...

    def read(self, rows: Rows) -> Columns:
        """Columns of any rows; from any thread, beside the stream and behind it; any error may rise."""
        ...

    def close(self) -> None:
        """The pass is over, and nobody reads any more."""
        ...


class Source(Protocol):
    """What a loader reads.

    Attributes:
        fields: the names of a sample's parts, in the order in which a batch has them.
        kinds: what each field holds.
        uses_dali: reading itself does.
        endless: the epoch ends where reading does, and nobody knows before.
        whole_batches: reading decides how many samples a batch has.
        inline: reading happens in the caller's thread, and so everything does.
    """

    uses_dali: bool
    endless: bool

    @property
    def whole_batches(self) -> bool: ...

    @property
    def fields(self) -> tuple[str, ...]: ...

    @property
    def kinds(self) -> dict[str, Kind]: ...

    @property
    def inline(self) -> bool: ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...

    def fingerprint(self) -> str:
        """The same for the same samples, another for others; at most 100 characters."""
        ...

    def uniform(self, name: str) -> bool | None:
        """Whether all samples of a field are known to have one shape; None: each batch shows."""
        ...

    def path(self, index: int) -> str | None:
        """Where a sample comes from, for messages."""
        ...

    def reading(self, place: Place) -> Reading: ...


class DirectReading:
    """Reads where each sample can be had by its index at any time.

    Args:
        read: gives the columns of some indices.
        blocking: reading waits for disks, so that several threads read where it takes long.
    """

    def __init__(self, read: Callable[[Indices], Columns], blocking: bool) -> None:
        self._read, self._blocking = read, blocking

    def read(self, rows: Rows) -> Columns:
        return self._read(rows.indices)

    def close(self) -> None:
        """There is nothing to give back."""

    def stream(self, rows: Iterable[Rows]) -> Iterator[Columns | Exception]:
        threads = ThreadPoolExecutor(THREADS, "torchdali-read") if self._blocking else None
        wait = 0.0  # seconds that a sample took last, from the view of one reader
        try:
            for indices, _ in rows:
                # One after the other while that is fast, as from the page cache; in threads where each waits long.
                parts = min(THREADS, len(indices)) if threads is not None and wait > SLOW else 1
                begin = time.perf_counter()
                try:
                    if threads is None or parts == 1:
                        columns = self._read(indices)
                    else:
                        columns = join(list(threads.map(self._read, np.array_split(indices, parts))))
                except Exception as error:
                    yield leave_frame(error)
                    continue
                wait = (time.perf_counter() - begin) * parts / len(indices)
                yield columns
        finally:
            if threads is not None:
                threads.shutdown()
