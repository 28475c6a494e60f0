"""Readings of Python code: in the caller's thread, or in worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..batch import Columns
from ..order import Rows
from ..source import Failed, Lent, Pass, Reading
from ..workers import Answer, EpochEnd, Result, Task, WorkerPool
from .call import call, failed
from .source import PythonSource, size_of


class LocalReading(Reading):
    """Reads in the caller's process and thread, and puts its random generators back after each batch.

    Args:
        source: the source to read.
        pass_: the pass.
        request: makes the job's request from rows.
    """

    def __init__(self, source: PythonSource, pass_: Pass, request: Callable[[Rows], Any]) -> None:
        self._source, self._request, self._job = source, request, source.pools.job
        self._smallest = smallest(source, pass_)

    def read(self, rows: Rows) -> Columns:
        answer = self._answer(rows)
        if isinstance(answer, Failed):
            raise answer.error
        return self._source.received(answer.columns)

    def stream(self, rows: Iterable[Rows]) -> Iterator[Columns | Failed | Exception]:
        for some in rows:
            answer = self._answer(some)
            if isinstance(answer, Failed):
                only = [answer]
                del answer  # by its traceback the error will hold the caller
                yield only.pop()
                continue
            columns = self._source.received(answer.columns)
            if size_of(columns) >= self._smallest:
                yield columns
            if isinstance(answer.note, EpochEnd):
                return

    def _answer(self, rows: Rows) -> Answer | Failed:
        return call(self._job.read, self._request(rows))


class PooledReading(Reading):
    """Reads in worker processes, ahead of the consumer.

    Args:
        source, pass_, request: as for `LocalReading`.
    """

    def __init__(self, source: PythonSource, pass_: Pass, request: Callable[[Rows], Any]) -> None:
        self._source, self._request = source, request
        self._smallest = smallest(source, pass_)
        self._pool = source.pools.started()
        self._single: WorkerPool | None = None

    def stream(self, rows: Iterable[Rows]) -> Iterator[Columns | Failed | Exception]:
        def tasks() -> Iterator[Task]:
            for number, some in enumerate(rows):
                yield Task(number, self._request(some))

        try:
            for result in self._pool.run(tasks()):
                if result.error is not None:
                    only = [failure_of(result)]
                    del result  # by its traceback the error will hold the caller
                    yield only.pop()
                    continue
                columns = self._source.received(result.columns)
                if size_of(columns) >= self._smallest:
                    yield Lent(columns, result.release)
                else:
                    result.release()
                if isinstance(result.note, EpochEnd):
                    return
        finally:
            self._source.pools.give_back(self._pool)

    def read(self, rows: Rows) -> Columns:
        """Read any rows in a worker of their own: the others are busy with the stream."""
        if self._single is None:
            self._single = self._source.pools.lease(1)
        (result,) = self._single.run([Task(0, self._request(rows))])
        if result.error is not None:
            raise failure_of(result).error
        return self._source.received(result.columns)

    def cancel(self) -> None:
        self._pool.cancel()

    def close(self) -> None:
        """Give the workers back, and end the one that read out of turn."""
        self._source.pools.give_back(self._pool)
        if self._single is not None:
            self._source.pools.give_back(self._single)


def failure_of(result: Result) -> Failed:
    """Make the failure of a result that has an error."""
    assert result.error is not None
    return failed(result.error, result.index, result.worker)


def smallest(source: PythonSource, pass_: Pass) -> int:
    """The size of the smallest batch that is given: an endless source may end in the middle of one."""
    return pass_.batch_size if pass_.drop_last and source.endless and not source.whole_batches else 1


def make_reading(source: PythonSource, pass_: Pass, request: Callable[[Rows], Any]) -> Reading:
    """Open a reading of a source, in workers where the loader has some."""
    return (LocalReading if source.inline else PooledReading)(source, pass_, request)
