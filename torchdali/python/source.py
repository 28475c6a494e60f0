"""The base of sources whose samples are made by Python code."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from ..batch import Columns
from ..checks import resolve, spell_out
from ..distributed import Shard
from ..fields import ALWAYS, Fields
from ..kinds import AnyKind, Boxes, Doubt, Kind, Points, as_kind, as_kinds
from ..options import Options
from ..order import UNKNOWN, Endless, Epoch, Order
from ..source import Failed, Source
from ..state import Position
from ..workers import Job, Task
from .call import call, failed
from .collating import BATCH, Collating, collated
from .pools import Pools, WorkerOptions
from .sample import NO_SAMPLE, Description, Structure

TRIES = 10  # samples at the start of a pass, until one can be described
SPREAD = 91  # parts of the epoch that are tried after them


class PythonSource(Source):
    """Base of sources whose samples are made by Python code, in worker processes or in the caller's thread.

    The first sample shows the structure of all; it is made when the structure is asked for.  `bind` gives the source
    of one loader, which has the loader's workers.  Without a loader, everything happens in the caller's thread.

    Args:
        fields: names for a sample's values, and index or valid among them; None: names from the first sample.
        ragged: fields that always leave as `Padded`, by their names or the last parts of them.
        kinds: kinds of fields by their names; others have those that the first sample shows.
    """

    described = False
    ready = True
    collates = True  # its job can call a `collate_fn`
    skips = False  # its items whose code raises are left out
    collating: Collating | None = None
    num_samples: int | None = None  # of an epoch on each rank, where an endless source knows it

    def __init__(
        self, fields: Sequence[str] | None, ragged: Sequence[str], kinds: Mapping[str, AnyKind] | None = None
    ) -> None:
        for name, value in {"fields": fields, "ragged": ragged}.items():
            if isinstance(value, str):
                raise TypeError(f"{name} must be a list of names, got {value!r}: write [{value!r}]")
        self._names = None if fields is None else tuple(fields)
        self.ragged = tuple(ragged)
        self._kinds = {name: as_kind(kind) for name, kind in as_kinds(kinds).items()}
        self._told = frozenset(self.ragged)  # the fields of which it is told whether they are ragged
        self._looks = True  # a batch's type depends on it
        self._first: list[int] = []  # the samples that a pass begins with, to be described
        self._description: Description | None = None
        self._pools: Pools | None = None
        self._warned: set[str] = set()

    # Subclasses define

    def job(self) -> Job:
        """Make the code that runs in the workers; it has an attribute `dataset`."""
        raise NotImplementedError

    def describe_request(self, worker: int) -> Any:
        """Make a worker's request for `Job.describe`, which returns a `Description`, or None without a sample."""
        raise NotImplementedError

    # For people

    @property
    def known_kinds(self) -> dict[str, Kind] | None:
        return None if self._description is None else self.kinds

    @property
    def named(self) -> tuple[str, ...] | None:
        return self._names

    # For a loader

    def prepare(self, seed: int, start: Position, shard: Shard, epoch: Epoch) -> None:
        if self._description is not None:
            return
        # Those that come first, and some of all: a part of them may be lost.
        begin = start.samples_seen
        first = epoch.some(begin, TRIES).indices
        if not len(first) and begin:  # the rest of an epoch that has ended
            begin, first = 0, epoch.some(0, TRIES).indices
        left = range(begin, epoch.n) if epoch.counts is None and epoch.n < UNKNOWN else range(0)
        spread = [left[len(left) * part // SPREAD] for part in range(1, SPREAD)] if left else []
        self._first = [*first.tolist(), *epoch.at(np.array(spread, np.int64)).indices.tolist()]

    def bind(self, options: Options) -> Self:
        """Make a copy that reads with a loader's workers; several loaders may share one source.

        Raises:
            ValueError: it is empty, or it can't do what the options ask for.
        """
        if self.endless and options.pad_last:
            raise ValueError(
                f"{type(self).__name__} ends where it ends, and its last batch is not filled: leave pad_last out"
            )
        if self.endless and options.on_bad_sample == "substitute":
            raise ValueError(
                f"{type(self).__name__} has no other sample to take by its index: write on_bad_sample='skip', which "
                "leaves out what can't be made, decoded or transformed, or let the code that makes the samples choose"
            )
        bound = copy.copy(self)
        bound._warned = set()
        if options.kinds is not None:
            bound._kinds = {**self._kinds, **{name: as_kind(kind) for name, kind in options.kinds.items()}}
            bound._description = None
        bound._told = self._told.union(options.ragged, options.uniform)
        bound._looks = options.output != "list" and options.collate_fn is None
        transformed = options.transform is not None or self.transform is not None
        bound.collating = Collating.of(options, transformed or not self.collates)
        if bound.collating is not None:
            self._check_collating(options)
            bound._description = None
        job: Any = bound.job()
        job.collating, job.transformed = bound.collating, transformed
        job.whole = not transformed and options.output != "dict"
        bound._pools = Pools(WorkerOptions.of(options), job)
        return bound

    def _check_collating(self, options: Options) -> None:
        name = type(self).__name__
        if not self.collates:
            raise ValueError(f"{name} puts its samples together itself: leave {options.collated} out")
        if self._names is not None or self.ragged:
            raise ValueError(
                f"fields= and ragged= of {name} name the values of samples, and {options.collated} makes batches "
                "without: leave them out"
            )

    @property
    def collated(self) -> bool:  # type: ignore[override]
        """Whether the user's code makes whole batches."""
        return self.collating is not None

    def received(self, columns: Columns) -> Columns:
        """The columns of an answer of the job, for the engine."""
        return columns if self.collating is None else collated(columns)

    def order(self, shuffle: bool, sampler: Any) -> Order:
        if not self.endless:
            return super().order(shuffle, sampler)
        if shuffle or sampler is not None:
            raise ValueError(f"{type(self).__name__} gives samples in its own order: leave shuffle and sampler out")
        return Endless(self.num_samples, self.whole_batches)

    def start(self) -> None:
        if not self.inline:
            self.pools.start()

    def close(self) -> None:
        self.pools.close()

    # Workers

    @property
    def pools(self) -> Pools:
        """The loader's worker processes; without a loader there are none."""
        if self._pools is None:
            self._pools = Pools(WorkerOptions(), self.job())
        return self._pools

    @property
    def pids(self) -> list[int]:  # type: ignore[override]  # they come and go
        """The loader's worker processes."""
        return self.pools.pids

    @property
    def inline(self) -> bool:  # type: ignore[override]  # it follows from the options
        """Whether samples are made in the caller's thread, whose random generators are used and put back."""
        return not self.pools.options.num_workers

    @property
    def watched(self) -> bool:  # type: ignore[override]
        """Whether a pool watches the time of each sample."""
        return not self.inline

    # Fields

    @property
    def description(self) -> Description:
        """The description of the first sample, which all others must be like.

        Raises:
            ValueError: `ragged` names a field that is not there, or several.
            Exception: of the user's code, as it is, with the sample and the worker as a note.
        """
        if self._description is None:
            found = None if self.without_samples else self._describe()
            if found is None:
                found = Description(NO_SAMPLE)
            kinds = found.structure.kinds
            if found.structure is not NO_SAMPLE:
                resolve(dict.fromkeys(self.ragged), list(kinds), "ragged")
            if found.structure is NO_SAMPLE and self.endless:
                return found  # the next pass may have samples
            self._description = found
        return self._description

    @property
    def empty(self) -> bool:
        return self.structure is NO_SAMPLE

    @property
    def without_samples(self) -> bool:
        """Whether its length says that there is none."""
        return not self.endless and not len(self)

    def _describe(self) -> Description | None:
        return self._describe_here() if self.inline else self._describe_in_workers()

    def _describe_here(self) -> Description | None:
        found: Description | Failed | None = call(self.pools.job.describe, self.describe_request(0))
        if isinstance(found, Failed):
            raise found.error
        return found

    def _describe_in_workers(self) -> Description | None:
        found: Description | None = None
        pool = self.pools.lease()
        try:
            # The first worker knows; of an iterable it may have no sample.
            for worker in range(pool.num_workers):
                (result,) = pool.run([Task(worker, self.describe_request(worker), worker, describe=True)])
                if result.error is not None:
                    raise failed(result.error, result.index, result.worker).error
                found = result.note
                if found is not None:
                    break
        finally:
            self.pools.keep(pool)  # a pass will need it soon
        return found

    @property
    def structure(self) -> Structure:
        """The structure of a sample."""
        return self.description.structure

    def _fields(self) -> Fields:
        kinds = {**ALWAYS, **self.structure.kinds}
        names = tuple(self.structure.kinds) if self._names is None else self._names
        return Fields(names, {name: kinds[name] for name in names})

    @property
    def fields(self) -> tuple[str, ...]:  # type: ignore[override]  # the first sample shows them
        """The names of a sample's parts."""
        return self._names or self._fields().names

    @property
    def kinds(self) -> dict[str, Kind]:  # type: ignore[override]
        """The kind of each field."""
        return self._fields().kinds

    def uniform(self, name: str) -> bool | None:
        """Whether all samples of a field have one shape: numbers do, encoded images and ragged fields do not.

        None: each batch shows it; `settled` says more.
        """
        kind = self.kinds[name]
        if kind.group or isinstance(kind, (Boxes, Points)):
            return False
        if kind.held in ("array", "image") and name not in spell_out(self.ragged, list(self.structure.kinds)):
            return None
        return kind.held == "number"

    def settled(self, name: str) -> bool:
        """Whether a field leaves as one tensor: as `uniform` says, else as some samples show it.

        Samples of an iterable or a callback, which can't be looked at out of turn, have one shape unless it is told.
        """
        known = self.uniform(name)
        return self.description.uniform.get(name, True) if known is None else known

    @property
    def doubts(self) -> dict[str, Doubt]:
        """The fields whose kinds are guesses that may be wrong."""
        return self.structure.doubts

    def rebuild(self, batch: dict[str, Any]) -> Any:
        """Put a batch into the samples' form; a tuple where the user asked for index or valid too."""
        if self.collated:
            return batch[BATCH].value
        beside = set(ALWAYS) & set(self._names or ())
        return tuple(batch.values()) if beside else self.structure.rebuild(batch)

    @property
    def told(self) -> int | None:
        """The number of batches in an epoch that was told, where the source does not know where it ends."""
        return None

    def warn_once(self, text: str) -> None:
        """Warn, once for all passes."""
        if text not in self._warned:
            self._warned.add(text)
            warnings.warn(text, RuntimeWarning, stacklevel=3)


def size_of(columns: Columns) -> int:
    """Count the samples in columns."""
    return max(map(len, columns.values()), default=0)
