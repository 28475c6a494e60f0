"""A step on its way through the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _dali
from ..batch import BadSample, Columns
from ..distributed import Shard
from ..order import BatchedEpoch, Cut, EpochOrder, Rows, cut
from ..source import Failed
from ..state import Position
from .plan import Draws, FieldSizes


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
        samples: the rows of the batch: the step's, except for substitutes.
        valid: [N] False for repeated and substituted rows.
        read: the samples as they were read; empty where that failed.
        columns: the same, image files made readable for DALI.
        draws, sizes: parameters of the plan's first run, and the images' sizes after it.
        outputs: the device part's, by field.
        batch: the finished fields.
        error: the first error; later stages pass it on.
        failed: the same, where the user's code that makes samples raised it.
        bad: the bad samples that were met.
        release: gives back the memory of what was read.
        snapshot: where the source stands after this step, if the step's end does not say so.
    """

    step: Step
    samples: Rows
    valid: NDArray[np.bool_]
    read: Columns = field(default_factory=dict)
    columns: Columns = field(default_factory=dict)
    draws: Draws = field(default_factory=dict)
    sizes: FieldSizes = field(default_factory=dict)
    outputs: dict[str, _dali.Output | _dali.Owned] = field(default_factory=dict)
    batch: dict[str, Any] = field(default_factory=dict)
    error: BaseException | None = None
    failed: Failed | None = None
    bad: list[BadSample] = field(default_factory=list)
    release: Callable[[], None] | None = None
    snapshot: dict[str, Any] | None = None

    @classmethod
    def of(cls, step: Step) -> Work:
        return cls(step, step.rows, step.valid)

    def __len__(self) -> int:
        return len(self.samples.indices)
