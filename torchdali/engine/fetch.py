"""The first stage: it reads the samples of each step and draws their parameters."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np

from ..batch import Columns
from ..columns import writable
from ..errors import leave_frame, let_through
from ..fields import Fields
from ..formats.image import make_readable
from ..order import Rows, Step
from ..rand import Rand
from ..signature import check_arrays
from ..source import Failed, Lent, Pass, Source
from ..state import Position
from .plan import FieldSizes, Plan
from .work import Work


class Fetcher:
    """The first stage: read the samples, look into the files' headers, draw parameters.

    Args:
        source, pass_, plan: what is read, for which pass, and what becomes of it.
        max_pixels: how many pixels an image file's header may promise; None: any number.
    """

    def __init__(self, source: Source, pass_: Pass, plan: Plan, max_pixels: int | None) -> None:
        self.source, self.pass_, self.plan, self.max_pixels = source, pass_, plan, max_pixels
        self.reading = source.open(pass_)
        self._fields = Fields(tuple(plan.kinds), plan.kinds)

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
                    if isinstance(columns, Failed):
                        work.error, work.failed = columns.error, columns
                    elif isinstance(columns, Exception):
                        raise columns
                    else:
                        self._fill(work, columns)
                except Exception as error:
                    let_through(error)
                    work.error = leave_frame(error)
                del columns  # not kept while the next ones are read
                yield work

    def _fill(self, work: Work, columns: Columns) -> None:
        if work.step.counts is not None:
            # The step is as long as what came.
            work.step = work.step.resized(max(len(column) for column in columns.values()))
            work.samples, work.valid = work.step.rows, work.step.valid
        work.read = columns
        if isinstance(columns, Lent):
            work.release, work.snapshot = columns.release, columns.snapshot
        self.enter(work, columns)

    def enter(self, work: Work, columns: Columns) -> None:
        """Fill in columns, draws and sizes from what was read; any error may rise."""
        work.columns = self._fields.fill(columns, work.samples.indices, self.source.path, work.valid)
        read: FieldSizes = {}  # from the files' headers, where a step needs them
        for name in self.plan.encoded:
            files = [make_readable(data, self.max_pixels) for data in columns[name]]
            work.columns[name] = [file.data for file in files]
            read[name] = np.array([file.size for file in files], np.int64) if self.plan.peeks else None
        for name in self.plan.inputs:
            work.columns[name] = writable(work.columns[name])
        for name in self.plan.inputs:
            if self.plan.kinds[name] == "array":
                check_arrays(name, columns[name], work.samples.indices.tolist())  # DALI would convert them
        sizes: FieldSizes = {}
        for name in self.plan.pixels:
            if self.plan.kinds[name] == "image":
                sizes[name] = np.array([image.shape[:2] for image in work.columns[name]], np.int64)
            else:
                sizes[name] = read[name]
        if sizes:
            work.draws, work.sizes = self.plan.draw(self.plan.first_run, self.rand(work), sizes)
