"""One step on its way through the engine, and its first stage: reading."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch import BadSample, Columns
from ..distributed import Shard
from ..errors import leave_frame
from ..formats.image import make_readable
from ..order import BatchedEpoch, Cut, EpochOrder, Rows, cut, rows_of
from ..pillow import MAX_PIXELS
from ..rand import Rand
from ..source import Lent, Place, Source
from ..state import Position
from .plan import Draws, FieldSizes, Plan


@dataclass(frozen=True)
class Step:
    """What is in a batch, decided before anything is read.

    Attributes:
        start: where it begins in the stream.
        end: where the stream stands behind it.
        rows: the samples and what their random numbers are keyed by.
        valid: [N] False where a row is repeated only to fill up the batch.
        last: it is known to be the epoch's last.
    """

    start: Position
    end: Position
    rows: Rows
    valid: NDArray[np.bool_]
    last: bool = False


def iter_endless_steps(order: EpochOrder, n: int | None, start: Position, batch_size: int) -> Iterator[Step]:
    """Steps of which each rank counts its own, without an end or to `n` samples."""
    at = start
    while n is None or at.samples_seen < n:
        stop = at.samples_seen + batch_size if n is None else min(at.samples_seen + batch_size, n)
        positions = np.arange(at.samples_seen, stop)
        end = at._replace(samples_seen=stop)
        yield Step(at, end, order(positions), np.ones(len(positions), np.bool_))
        at = end


def iter_steps(
    order: EpochOrder,
    n: int,
    start: Position,
    batch_size: int,
    shard: Shard,
    drop_last: bool,
    pad_last: bool,
    strided: bool,
) -> Iterator[Step]:
    """A rank's steps from a position to the end of the epoch of `n` samples."""

    own = order.cut if isinstance(order, BatchedEpoch) else None  # it has batches of its own

    def taken_at(position: int) -> Cut | None:
        if own is not None:
            return own(position, shard, drop_last)
        return cut(n, position, batch_size, shard, drop_last, pad_last, strided)

    at, taken = start, taken_at(start.samples_seen)
    while taken is not None:
        end, following = at._replace(samples_seen=taken.end), taken_at(taken.end)
        yield Step(at, end, order(taken.positions), taken.valid, last=following is None)
        at, taken = end, following


@dataclass
class Work:
    """A step and what the stages have made of it so far; each stage fills in its part.

    Attributes:
        samples: the rows that are in the batch in the end: the step's, but for substitutes.
        valid: [N] False for repeated and substituted rows.
        read: the samples as they were read; empty where that failed.
        columns: the same, image files made readable for DALI.
        draws, sizes: parameters of the plan's first run, and the images' sizes behind it.
        rows: the device part's outputs by field.
        batch: the finished fields.
        error: what went wrong; later stages pass it on.
        bad: the bad samples that were met.
        release: gives back the memory of what was read.
        snapshot: where the source stands behind this step, where its end does not say so.
    """

    step: Step
    samples: Rows
    valid: NDArray[np.bool_]
    read: Columns = field(default_factory=dict)
    columns: Columns = field(default_factory=dict)
    draws: Draws = field(default_factory=dict)
    sizes: FieldSizes = field(default_factory=dict)
    rows: dict[str, Any] = field(default_factory=dict)
    batch: dict[str, Any] = field(default_factory=dict)
    error: BaseException | None = None
    bad: list[BadSample] = field(default_factory=list)
    release: Callable[[], None] | None = None
    snapshot: dict[str, Any] | None = None

    @classmethod
    def of(cls, step: Step) -> Work:
        return cls(step, step.rows, step.valid)

    def __len__(self) -> int:
        return len(self.samples.indices)


class Fetcher:
    """The first stage: read the samples, look into the files' headers, draw parameters.

    Args:
        source, place, plan: what is read, for whom, and what becomes of it.
        max_pixels: how many pixels an image file's header may promise; None: any number.
    """

    def __init__(self, source: Source, place: Place, plan: Plan, max_pixels: int | None = MAX_PIXELS) -> None:
        self.source, self.place, self.plan, self.max_pixels = source, place, plan, max_pixels
        self.reading = source.reading(place)

    def rand(self, work: Work) -> Rand:
        """The random numbers of a step's samples."""
        return Rand(self.place.seed, self.place.key, work.samples.keys)

    def works(self, steps: Iterable[Step], busy: dict[str, Position]) -> Iterator[Work]:
        """The steps with columns, draws and sizes filled in, or an error; `busy` says which step is read."""
        asked: deque[Work] = deque()

        def rows() -> Iterator[Rows]:
            for step in steps:
                asked.append(Work.of(step))
                busy["read"] = step.start
                yield step.rows

        with contextlib.closing(self.reading.stream(rows())) as stream:  # type: ignore[type-var]
            for columns in stream:
                work = asked.popleft()
                try:
                    if isinstance(columns, Exception):
                        raise columns
                    if self.source.endless:
                        self._fit(work, columns)
                    work.read = columns
                    if isinstance(columns, Lent):
                        work.release, work.snapshot = columns.release, columns.snapshot
                    self.enter(work, columns)
                except Exception as error:
                    work.error = leave_frame(error)
                del columns  # not kept while the next ones are read
                yield work

    def _fit(self, work: Work, columns: Columns) -> None:
        """Make the step as long as what came."""
        size = max(len(column) for column in columns.values())
        work.samples, work.valid = rows_of(work.samples, size), np.ones(size, np.bool_)
        if not self.source.whole_batches:  # of those, positions count batches
            end = work.step.end._replace(samples_seen=work.step.start.samples_seen + size)
            work.step = replace(work.step, end=end)

    def enter(self, work: Work, columns: Columns) -> None:
        """Fill in columns, draws and sizes from what was read; any error may rise."""
        work.columns = dict(columns)
        if "valid" in columns:
            work.columns["valid"] = work.valid
        sizes: FieldSizes = {}
        for name in self.plan.encoded:
            files = [make_readable(data, self.max_pixels) for data in columns[name]]
            work.columns[name] = [file.data for file in files]
            sizes[name] = np.array([file.size for file in files], np.int64) if self.plan.peeks else None
        for name in self.plan.pixels:
            if self.plan.kinds[name] == "image":
                sizes[name] = np.array([image.shape[:2] for image in work.columns[name]], np.int64)
        if sizes:
            work.draws, work.sizes = self.plan.draw(self.plan.first_run, self.rand(work), sizes)
