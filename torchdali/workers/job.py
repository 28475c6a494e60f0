"""The code that runs in worker processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from ..batch import Columns


class Answer(NamedTuple):
    """The answer of a job to a request.

    Attributes:
        columns: name -> a list of values, or an array.
        note: a small value beside the columns, such as where the job stands now.
    """

    columns: Columns
    note: Any = None


class EpochEnd(NamedTuple):
    """The note of an answer after which the epoch has no more samples."""


class Job(Protocol):
    """Code that runs in a worker process.

    `progress(index)` is called before each sample, so that a death or a timeout names the sample.  Where the job has an
    attribute `dataset`, `torch.utils.data.get_worker_info` shows it.
    """

    def describe(self, request: Any, progress: Callable[[int], None]) -> Any:
        """Tell a property of the samples; it becomes the note of the result."""
        ...

    def read(self, request: Any, progress: Callable[[int], None]) -> Answer:
        """Read the samples of a request."""
        ...


def dataset_of(job: Job) -> Any:
    """The job's dataset, or the job itself where it has none."""
    return getattr(job, "dataset", job)
