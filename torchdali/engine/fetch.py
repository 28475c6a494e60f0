"""The first stage: it reads the samples of each step and draws their parameters."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from .. import _dali
from ..batch import Columns
from ..columns import writable
from ..errors import leave_frame
from ..fields import Fields
from ..order import Rows, Step
from ..pillow import readable, transcode
from ..rand import Rand
from ..signature import check_arrays
from ..source import Failed, Lent, Pass, Source
from ..state import Position
from .plan import FieldSizes, Plan
from .work import Work


class Fetcher:
    """The first stage: read the samples, look into the files' headers, draw parameters."""

    def __init__(self, source: Source, pass_: Pass, plan: Plan) -> None:
        self.source, self.pass_, self.plan = source, pass_, plan
        self.reading = source.open(pass_)
        self._fields = Fields(tuple(plan.kinds), plan.kinds)
        self._local = threading.local()

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
        for name in self.plan.encoded:
            work.columns[name] = [data if readable(data) else transcode(data) for data in columns[name]]
        for name in self.plan.inputs:
            work.columns[name] = writable(work.columns[name])
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
        if not hasattr(self._local, "session"):  # one for each thread that comes here; headers need no GPU
            self._local.session = _dali.Session(1, torch.device("cpu"))
        return _dali.image_sizes(encoded, self._local.session)
