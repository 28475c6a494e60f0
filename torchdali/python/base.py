"""The contract of sources that are somebody's Python code, and how a pass reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..batch import Columns, Kind
from ..datasets.base import BESIDE
from ..errors import leave_frame
from ..order import Rows, rows_of
from ..seeding import preserved
from ..source import Lent, Place, Reading
from ..workers import Task, WorkerPool
from .pools import Crew
from .sample import Structure

SEEN_HERE: dict[str, Kind] = {name: BESIDE[name] for name in ("index", "valid")}
"""Fields that any source can be asked for."""

END = "__end__"  # a column of a result: whether the epoch ends behind it


class PythonSource:
    """Base of sources whose samples come from Python code, in worker processes or in the caller's thread.

    What a sample is made of is seen from the first one, when somebody asks.

    Attributes:
        crew: the workers; set by the loader.
    """

    uses_dali = False
    endless = False  # the epoch ends when the source says so
    whole_batches = False  # it says too how many samples a batch has
    transform: Any = None
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

    def __len__(self) -> int:
        raise TypeError(f"{type(self).__name__} has no length")

    def __getitem__(self, index: int) -> Any:
        raise TypeError(f"{type(self).__name__} has no sample by index: iterate its loader")

    def fingerprint(self) -> str:
        """The same for the same samples, as far as that can be known; at most 100 characters."""
        raise NotImplementedError

    def reading(self, place: Place) -> Reading:
        """What reads for one pass of a loader."""
        raise NotImplementedError

    # Fields

    @property
    def inline(self) -> bool:
        """Read in the caller's thread: its generators are used, and put back."""
        return not self.crew.options.num_workers

    @property
    def structure(self) -> Structure:
        """What a sample is made of."""
        if self._structure is None:
            self._structure = self._describe()
        return self._structure

    def prepare(self, place: Place) -> None:
        """A pass is about to begin there; what a sample is made of may be asked before it is."""

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
    def fields(self) -> tuple[str, ...]:
        """The names of a sample's parts."""
        return self._order or tuple(self.structure.kinds)

    @property
    def kinds(self) -> dict[str, Kind]:
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

    def path(self, index: int) -> str | None:
        """There are no files that anybody knows of."""
        return None

    def finish(self, columns: Columns, rows: Rows) -> Columns:
        """Columns as they came, with index and valid, in the order of the fields."""
        if self.endless:
            rows = rows_of(rows, size_of(columns))
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


class LocalReading:
    """Reads in the caller's process and thread, with its random generators put back after each batch.

    Args:
        source: what is read.
        place: the pass.
        payload: makes the job's payload from rows.
    """

    def __init__(self, source: PythonSource, place: Place, payload: Callable[[Rows], Any]) -> None:
        self._source, self._payload, self._job = source, payload, source.job()
        self._smallest = smallest(source, place)

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

    def close(self) -> None:
        """There is nothing to give back."""


class PooledReading:
    """Reads in worker processes, ahead of the consumer.

    Args:
        source, place, payload: as for `LocalReading`.
    """

    def __init__(self, source: PythonSource, place: Place, payload: Callable[[Rows], Any]) -> None:
        self._source, self._payload = source, payload
        self._smallest = smallest(source, place)
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
        """End the stream without waiting for the workers; any thread may call it."""
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


def smallest(source: PythonSource, place: Place) -> int:
    """The smallest batch that is given: an endless source may end in the middle of one."""
    return place.batch_size if place.drop_last and source.endless and not source.whole_batches else 1


def make_reading(source: PythonSource, place: Place, payload: Callable[[Rows], Any]) -> LocalReading | PooledReading:
    """What reads a source with its options."""
    return (PooledReading if source.crew.options.num_workers else LocalReading)(source, place, payload)
