"""The first stage: it reads the samples of each step and draws their parameters."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .. import _dali
from ..batch import Columns
from ..errors import leave_frame
from ..order import Rows, rows_of
from ..pillow import readable, transcode
from ..rand import Rand
from ..signature import check_arrays
from ..source import Lent, Place, Source
from ..state import Position
from .plan import FieldSizes, Plan
from .work import Step, Work


class Fetcher:
    """The first stage: read the samples, look into the files' headers, draw parameters."""

    def __init__(self, source: Source, place: Place, plan: Plan) -> None:
        self.source, self.place, self.plan = source, place, plan
        self.reading = source.reading(place)
        self._local = threading.local()

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
        for name in self.plan.encoded:
            work.columns[name] = [data if readable(data) else transcode(data) for data in columns[name]]
        for name in self.plan.inputs:
            if self.plan.kinds[name] == "array":
                check_arrays(name, columns[name], work.samples.indices.tolist())  # DALI would convert them
        sizes: FieldSizes = {}
        for name in self.plan.pixels:
            column = work.columns[name]
            if self.plan.kinds[name] == "image":
                sizes[name] = np.array([image.shape[:2] for image in column], np.int64)
            else:
                sizes[name] = self._image_sizes(list(column)) if self.plan.peeks else None
        if sizes:
            work.draws, work.sizes = self.plan.draw(self.plan.first_run, self.rand(work), sizes)

    def _image_sizes(self, encoded: list[NDArray[np.uint8]]) -> NDArray[np.int64]:
        # A context for each thread that comes here; of this device, since the default one would be GPU 0.
        if not hasattr(self._local, "context"):
            self._local.context = _dali.context(1, self.place.device)
        return _dali.image_sizes(encoded, self._local.context)
