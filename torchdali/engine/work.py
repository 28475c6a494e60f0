"""One step on its way through the engine, and its first stage: reading."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch import BadSample, Columns
from ..errors import leave_frame
from ..formats.image import make_readable
from ..order import Rows, Step
from ..pillow import MAX_PIXELS
from ..rand import Rand
from ..source import Lent, Pass, Source
from ..state import Position
from .plan import Draws, FieldSizes, Plan


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
        source, pass_, plan: what is read, for whom, and what becomes of it.
        max_pixels: how many pixels an image file's header may promise; None: any number.
    """

    def __init__(self, source: Source, pass_: Pass, plan: Plan, max_pixels: int | None = MAX_PIXELS) -> None:
        self.source, self.pass_, self.plan, self.max_pixels = source, pass_, plan, max_pixels
        self.reading = source.open(pass_)

    def rand(self, work: Work) -> Rand:
        """The random numbers of a step's samples."""
        return Rand(self.pass_.seed, self.pass_.key, work.samples.keys)

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
                    if work.step.counts is not None:
                        _fit(work, columns)
                    work.read = columns
                    if isinstance(columns, Lent):
                        work.release, work.snapshot = columns.release, columns.snapshot
                    self.enter(work, columns)
                except Exception as error:
                    work.error = leave_frame(error)
                del columns  # not kept while the next ones are read
                yield work

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


def _fit(work: Work, columns: Columns) -> None:
    """Make the step as long as what came."""
    work.step = work.step.resized(max(len(column) for column in columns.values()))
    work.samples, work.valid = work.step.rows, work.step.valid
