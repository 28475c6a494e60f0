"""The contract of sources that are somebody's Python code, and how a pass reads them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..batch import Columns, Kind
from ..datasets.base import BESIDE
from ..errors import leave_frame
from ..options import Options
from ..order import Endless, Order, Rows
from ..seeding import preserved
from ..source import Lent, Pass, Reading, Source
from ..workers import Task, WorkerPool
from .pools import Crew, WorkerOptions
from .sample import Structure

SEEN_HERE: dict[str, Kind] = {name: BESIDE[name] for name in ("index", "valid")}
"""Fields that any source can be asked for."""

END = "__end__"  # a column of a result: whether the epoch ends behind it


class PythonSource(Source):
    """Base of sources whose samples come from Python code, in worker processes or in the caller's thread.

    What a sample is made of is seen from the first one, when somebody asks.

    Attributes:
        crew: the workers; set by the loader.
    """

    described = False
    num_samples: int | None = None  # of an endless one, where that is known
    crew: Crew

    def __init__(self, fields: Sequence[str] | None, ragged: Sequence[str]) -> None:
        if isinstance(fields, str):
            raise TypeError(f"fields must be a list of names, got {fields!r}")
        if isinstance(ragged, str):
            raise TypeError(f"ragged must be a list of names, got {ragged!r}")
        self._names = None if fields is None else [name for name in fields if name not in SEEN_HERE]
        self._beside = [] if fields is None else [name for name in fields if name in SEEN_HERE]
        self._order = None if fields is None else tuple(fields)
        self.ragged = tuple(ragged)
        self._structure: Structure | None = None

    # What subclasses say

    def job(self) -> Any:
        """What runs in the workers: called with (payload, progress), as `workers` has it; it has a `dataset`."""
        raise NotImplementedError

    def first(self) -> Any:
        """The payload that asks for a sample to describe."""
        raise NotImplementedError

    # For a loader

    def bind(self, options: Options) -> PythonSource:
        if self.endless and options.pad_last:
            raise ValueError(
                f"{type(self).__name__} ends where it ends, and its last batch is not filled: leave pad_last out"
            )
        if self.endless and options.on_bad_sample != "raise":
            raise ValueError(
                f"{type(self).__name__} has no other sample to take by its index: leave on_bad_sample out, "
                "and let the code that makes the samples choose"
            )
        if not self.endless and not len(self):
            raise ValueError("the dataset is empty")
        bound = copy.copy(self)  # its workers are the loader's, and several loaders may share it
        bound.crew = Crew(WorkerOptions.of(options), bound.job())
        return bound

    def order(self, shuffle: bool, sampler: Any) -> Order:
        if not self.endless:
            return super().order(shuffle, sampler)
        if shuffle or sampler is not None:
            raise ValueError(f"{type(self).__name__} gives samples in its own order: leave shuffle and sampler out")
        return Endless(self.num_samples, self.whole_batches)

    @property
    def watched(self) -> bool:  # type: ignore[override]
        """With workers, the pool watches the time of each sample."""
        return not self.inline

    def start(self) -> None:
        if self.crew.options.num_workers:
            self.crew.start()

    def close(self) -> None:
        self.crew.close()

    # Fields

    @property
    def inline(self) -> bool:  # type: ignore[override]  # it follows from the options
        """Read in the caller's thread: its generators are used, and put back."""
        return not self.crew.options.num_workers

    @property
    def structure(self) -> Structure:
        """What a sample is made of."""
        if self._structure is None:
            self._structure = self._describe()
        return self._structure

    def _describe(self) -> Structure:
        payload = ("describe", self._names, self.first())
        found: Any = []
        if not self.crew.options.num_workers:
            seen: list[int] = []
            try:
                with preserved():
                    found = self.job()(payload, seen.append)["structure"]
            except Exception as error:
                raise mark(_not_stopping(error), seen, None) from error.__cause__
        else:
            pool = self.crew.lease()
            try:
                # The first worker knows; of an iterable it may have nothing.
                for worker in range(pool.num_workers):
                    (result,) = pool.run([Task(worker, payload, worker)])
                    if result.error is not None:
                        raise mark(result.error, [result.index], result.worker)
                    found = result.columns["structure"]
                    if found:
                        break
            finally:
                self.crew.keep(pool)  # it is needed soon
        if not found:
            raise ValueError("the iterable is empty")
        known: Structure = found[0]
        if unknown := [name for name in self.ragged if name not in known.kinds]:
            raise ValueError(f"ragged must name fields among {', '.join(known.kinds)}, got {unknown[0]!r}")
        return known

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]  # seen from a sample
        """The names of a sample's parts."""
        return self._order or tuple(self.structure.kinds)

    @property
    def kinds(self) -> dict[str, Kind]:  # type: ignore[override]
        """What each field holds."""
        known = {**SEEN_HERE, **self.structure.kinds}
        return {name: known[name] for name in self.fields}

    def uniform(self, name: str) -> bool | None:
        """Numbers are, image files are not; of others each batch shows it, but for those that are said to be ragged."""
        if self.kinds[name] in ("array", "image") and name not in self.ragged:
            return None
        return self.kinds[name] == "number"

    def rebuild(self, fields: dict[str, Any]) -> Any:
        """A batch in the samples' form."""
        return tuple(fields.values()) if self._beside else self.structure.rebuild(fields)

    def finish(self, columns: Columns, rows: Rows) -> Columns:
        """Columns as they came, with index and valid, in the order of the fields."""
        if self.endless:
            rows = rows.resized(size_of(columns))
        beside: Columns = {"index": rows.indices, "valid": np.ones(len(rows.indices), np.bool_)}
        return {name: columns[name] if name in columns else beside[name] for name in self.fields}


def size_of(columns: Columns) -> int:
    """How many samples columns hold."""
    return max((len(column) for name, column in columns.items() if name != END), default=0)


def _ends(columns: Columns) -> bool:
    return bool(columns.get(END, [False])[0])


def _not_stopping(error: Exception) -> Exception:
    """The error, which must not look like the end of a loop."""
    if not isinstance(error, StopIteration):
        return error
    stopped = RuntimeError("a dataset must not raise StopIteration, and this one did")
    stopped.__cause__ = error
    return stopped


class LocalReading(Reading):
    """Reads in the caller's process and thread, with its random generators put back after each batch.

    Args:
        source: what is read.
        pass_: the pass.
        payload: makes the job's payload from rows.
    """

    def __init__(self, source: PythonSource, pass_: Pass, payload: Callable[[Rows], Any]) -> None:
        self._source, self._payload, self._job = source, payload, source.job()
        self._smallest = smallest(source, pass_)

    def read(self, rows: Rows) -> Columns:
        columns, _ = self._read(rows)
        return columns

    def _read(self, rows: Rows) -> tuple[Columns, bool]:
        seen: list[int] = []
        try:
            with preserved():
                columns = self._job(self._payload(rows), seen.append)
        except Exception as error:
            raise mark(_not_stopping(error), seen, None) from error.__cause__
        return self._source.finish(columns, rows), _ends(columns)

    def stream(self, rows: Iterable[Rows]) -> Iterator[Columns | Exception]:
        for some in rows:
            try:
                columns, ends = self._read(some)
            except Exception as error:
                yield leave_frame(error)
                continue
            if size_of(columns) >= self._smallest:
                yield columns
            if ends:
                return


class PooledReading(Reading):
    """Reads in worker processes, ahead of the consumer.

    Args:
        source, pass_, payload: as for `LocalReading`.
    """

    def __init__(self, source: PythonSource, pass_: Pass, payload: Callable[[Rows], Any]) -> None:
        self._source, self._payload = source, payload
        self._smallest = smallest(source, pass_)
        self._pool = source.crew.started()
        self._single: WorkerPool | None = None

    def stream(self, rows: Iterable[Rows]) -> Iterator[Columns | Exception]:
        asked: list[Rows] = []
        crew = self._source.crew

        def tasks() -> Iterator[Task]:
            for number, some in enumerate(rows):
                asked.append(some)
                yield Task(number, self._payload(some))

        pool = self._pool
        try:
            for result in pool.run(tasks()):
                some = asked.pop(0)
                if result.error is not None:
                    yield mark(result.error, [result.index], result.worker)
                    continue
                columns = self._source.finish(result.columns, some)
                if size_of(columns) >= self._smallest:
                    yield Lent(columns, result.release)
                else:
                    result.release()
                if _ends(result.columns):
                    return
        finally:
            crew.give_back(pool)

    def read(self, rows: Rows) -> Columns:
        """By a worker of its own: the others are busy with the stream."""
        if self._single is None:
            self._single = self._source.crew.lease(1)
        (result,) = self._single.run([Task(0, self._payload(rows))])
        if result.error is not None:
            raise mark(result.error, [result.index], result.worker)
        return self._source.finish(result.columns, rows)

    def cancel(self) -> None:
        self._pool.cancel()

    def close(self) -> None:
        """Give the workers back, and end the one that read out of turn."""
        self._source.crew.give_back(self._pool)
        if self._single is not None:
            self._source.crew.give_back(self._single)


def mark(error: Exception, samples: Sequence[int | None], worker: int | None) -> Exception:
    """An error of somebody's code, which shall reach the caller as it is: noted are the sample and the worker."""
    if not hasattr(error, "__torchdali_sample__"):
        index = samples[-1] if samples else None
        where = "" if worker is None else f" in worker {worker}"
        error.add_note(f"torchdali: this was raised for sample {index}{where}")
        error.__torchdali_sample__ = index  # type: ignore[attr-defined]
    return error


def smallest(source: PythonSource, pass_: Pass) -> int:
    """The smallest batch that is given: an endless source may end in the middle of one."""
    return pass_.batch_size if pass_.drop_last and source.endless and not source.whole_batches else 1


def make_reading(source: PythonSource, pass_: Pass, payload: Callable[[Rows], Any]) -> LocalReading | PooledReading:
    """What reads a source with its options."""
    return (PooledReading if source.crew.options.num_workers else LocalReading)(source, pass_, payload)
