"""Iterable datasets of torch, and any iterable: each worker iterates its part."""

from __future__ import annotations

import copy
import itertools
import json
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from torch.utils.data import IterableDataset

from ..batch import Columns
from ..checks import one_of
from ..datasets.base import digest
from ..errors import StateMismatchError, leave_frame
from ..order import Rows
from ..seeding import preserved
from ..source import Lent, Pass, Reading
from ..state import Position
from ..workers import Task, WorkerPool
from .base import PythonSource, mark, size_of, smallest
from .iterate import ENDED, SHARDS, STATE, TAKEN, UNEVEN, Iterate


class IterableSource(PythonSource):
    """An `IterableDataset`, or any iterable that can be iterated again, read in order.

    `DataLoader(dataset, num_workers=2)` wraps an `IterableDataset` in it.  Each worker iterates a copy and makes whole
    batches; they come in turn.  So the batches depend on the number of workers, which is part of the state.

    The state holds each worker's: `state_dict` of the dataset where it has one (with `load_state_dict`), else how many
    samples were taken.  Those a resume iterates again, with a warning: they have to be the same ones.  The state is the
    same on all ranks, and another number of ranks may go on with it; but not with shard="none", where each rank has its
    own.  Where the dataset has a `set_epoch`, it is told the epoch before each pass.

    Nobody knows where an iterable ends: with several ranks, the first ones may have one batch more than the others, but
    not with drop_last=True.

    Before each sample, the generators of Python, numpy and torch are seeded by (seed, epoch, how many were taken).

    Args:
        dataset: the iterable, or a generator function, which is called for each pass.
        shard: how workers and ranks share it.  "skip": each takes every n-th sample of the whole.  "none": the dataset
            does so by itself, for workers and ranks.  "auto": "skip", but for workers where it asks
            `torch.utils.data.get_worker_info` who it is.
        fields, ragged: as for `PythonDataset`.

    Raises:
        TypeError: it can't be iterated, or only once.
    """

    endless = True
    seekable = False
    state_keys = ("iterable",)

    def __init__(
        self,
        dataset: Iterable[Any] | Callable[[], Iterable[Any]],
        *,
        shard: str = "auto",
        fields: Sequence[str] | None = None,
        ragged: Sequence[str] = (),
    ) -> None:
        own = isinstance(dataset, IterableDataset) or hasattr(dataset, "state_dict")
        if isinstance(dataset, Iterator) and not own:
            raise TypeError(
                f"a {type(dataset).__name__} can be iterated only once: write the function that makes it, or an object "
                "whose __iter__ begins anew"
            )
        if callable(dataset) and not hasattr(dataset, "__iter__"):
            dataset = Called(dataset)
        if not hasattr(dataset, "__iter__"):
            raise TypeError(f"an iterable is needed, got {type(dataset).__name__}")
        one_of("shard", shard, ("auto", "skip", "none"))
        super().__init__(fields, ragged)
        self.dataset, self.shard = dataset, shard
        self.warned = False
        self._next_pass: tuple[int, int] | None = None
        self._local: Iterate | None = None  # one for all passes, since it knows the dataset's first state

    def fingerprint(self) -> str:
        """Of the dataset's type."""
        own = getattr(self.dataset, "fingerprint", None)
        return f"iterable {type(self.dataset).__name__[:60]} {digest(own() if callable(own) else None)}"

    def job(self) -> Any:
        if self._local is None:
            self._local = Iterate(self.dataset, self.shard)
        return self._local

    def prepare(self, seed: int, start: Position) -> None:
        self._next_pass = seed, start.key

    def pack(self, snapshot: Any) -> dict[str, Any]:
        return {"iterable": pack_snapshot(snapshot)}

    def unpack(self, state: Mapping[str, Any], position: Position) -> Any:
        snapshot = unpack_snapshot(state.get("iterable", ""))
        self.check_snapshot(snapshot, position)
        return snapshot

    def first(self) -> Any:
        return self._next_pass or (self.crew.options.seed, Position().key)

    def check_snapshot(self, snapshot: Any, position: Position) -> None:
        """Raise unless a state says where the workers stand at a position.

        Raises:
            StateMismatchError: it does not, or of another number of workers.
        """
        if snapshot is None and (position.finished or not position.samples_seen):
            return  # at the start of an epoch there is nothing to say
        workers = snapshot.get("workers") if isinstance(snapshot, Mapping) else None
        turn = snapshot.get("turn") if isinstance(snapshot, Mapping) else None
        if not isinstance(workers, list) or not workers or not all(_stands(worker) for worker in workers):
            raise StateMismatchError(f"iterable: expected where its workers stand, got {snapshot!r:.100}")
        count = max(1, self.crew.options.num_workers)
        if len(workers) != count:
            raise StateMismatchError(
                f"num_workers: expected {count}, got {len(workers)}: the batches of an iterable depend on it"
            )
        if type(turn) is not int or not 0 <= turn < count:
            raise StateMismatchError(f"iterable: expected a turn in [0, {count}), got {turn!r:.100}")
        if "rank" not in snapshot:
            raise StateMismatchError(f"iterable: expected the rank, or None, got {snapshot!r:.100}")

    def open(self, pass_: Pass) -> IterableReading:
        return IterableReading(self, pass_)


def pack_snapshot(snapshot: dict[str, Any] | None) -> Any:
    """A snapshot as one value of a state: JSON where that is all there is to it, since DCP takes dicts apart."""
    if snapshot is None:
        return ""
    with suppress(TypeError, ValueError):
        text = json.dumps(snapshot)
        if json.loads(text) == snapshot:  # a dataset's state may hold tuples, and keys that are no text
            return text
    return snapshot


def unpack_snapshot(packed: Any) -> Any:
    """What `pack_snapshot` packed; anything else as it is, to be refused with the state."""
    with suppress(ValueError):
        return (json.loads(packed) if packed else None) if isinstance(packed, str) else packed
    return packed


class Called:
    """An iterable of what a function gives each time."""

    def __init__(self, function: Callable[[], Iterable[Any]]) -> None:
        self.function = function

    def __iter__(self) -> Iterator[Any]:
        return iter(self.function())


_passes = itertools.count()


class IterableReading(Reading):
    """A pass over an iterable, from where `Pass.start.snapshot` says."""

    def __init__(self, source: IterableSource, pass_: Pass) -> None:
        self._source, self._pass = source, pass_
        self._pool: WorkerPool | None = None
        self._count = max(1, source.crew.options.num_workers)
        self._number = next(_passes)  # a pass may be begun twice
        self._smallest = smallest(source, pass_)
        resumed = pass_.start.snapshot
        self._workers: list[dict[str, Any]] = copy.deepcopy(
            resumed["workers"] if resumed else [{"taken": 0, "state": None, "ended": False} for _ in range(self._count)]
        )
        self._turn = resumed["turn"] if resumed else 0
        # Where the dataset shares itself among ranks, only this rank can go on with its state.
        self._rank = list(pass_.shard) if source.shard == "none" else None
        if resumed and resumed["rank"] != self._rank:
            here, there = _as_words(self._rank), _as_words(resumed["rank"])
            raise StateMismatchError(
                f"rank: expected {here}, got {there}: with shard='none' each rank has a state of its own"
            )
        if any(worker["taken"] and worker["state"] is None and not worker["ended"] for worker in self._workers):
            warnings.warn(
                f"{type(source.dataset).__name__} has no state_dict: "
                f"{sum(worker['taken'] for worker in self._workers)} samples are iterated again to go on there",
                RuntimeWarning,
                stacklevel=2,
            )
        if source.crew.options.num_workers:
            self._pool = source.crew.started()

    def stream(self, rows: Iterable[Rows]) -> Iterator[Columns | Exception]:
        return self._from_here(rows) if self._pool is None else self._from_workers(rows, self._pool)

    def read(self, rows: Rows) -> Columns:
        raise TypeError("a sample of an iterable can't be read again")

    def close(self) -> None:
        """Give the workers back."""
        if self._pool is not None:
            self._source.crew.give_back(self._pool)

    def cancel(self) -> None:
        if self._pool is not None:
            self._pool.cancel()

    def _payload(self, worker: int) -> Any:
        pass_, first = self._pass, self._workers[worker]
        return (
            (pass_.seed, pass_.key, worker, self._count, tuple(pass_.shard), self._number),
            pass_.batch_size,
            dict(first),
            self._source.structure,
        )

    def _turns(self) -> Iterator[int]:
        """Whose turn it is; workers that have ended are passed over."""
        for worker in itertools.islice(itertools.cycle(range(self._count)), self._turn, None):
            if all(one["ended"] for one in self._workers):
                return
            if not self._workers[worker]["ended"]:
                yield worker

    def _take(self, worker: int, result: Columns) -> Columns:
        """A worker's answer: its columns, and where it stands now."""
        columns = dict(result)
        ended, state, taken = columns.pop(ENDED)[0], columns.pop(STATE)[0], columns.pop(TAKEN)[0]
        uneven = columns.pop(UNEVEN)[0]
        shares = columns.pop(SHARDS)[0] and self._source.shard == "auto" and self._pass.shard.world_size > 1
        if shares and not self._source.warned:
            self._source.warned = True
            warnings.warn(
                f"{type(self._source.dataset).__name__} shares itself among workers, and each rank takes every "
                f"{self._pass.shard.world_size}th sample of that: if it knows of ranks too, write shard='none'",
                RuntimeWarning,
                stacklevel=2,
            )
        self._workers[worker] = {"taken": int(taken), "state": state, "ended": bool(ended)}
        # The ranks that come behind this one may have had a sample less: all of them drop such a batch, or none.
        if uneven and self._pass.drop_last and self._pass.shard.world_size > 1 and self._source.shard != "none":
            return {}
        return columns

    def _give(self, columns: Columns, some: Rows, worker: int, release: Callable[[], None] | None = None) -> Lent:
        finished = self._source.finish(columns, some)
        snapshot = {"turn": (worker + 1) % self._count, "workers": [dict(one) for one in self._workers]}
        snapshot["rank"] = self._rank
        return Lent(finished, release, snapshot)

    def _from_workers(self, rows: Iterable[Rows], pool: WorkerPool) -> Iterator[Columns | Exception]:
        asked = iter(rows)
        tasks = (Task(number, self._payload(worker), worker) for number, worker in enumerate(self._turns()))
        try:
            for result in pool.run(tasks):
                if result.error is not None:
                    if next(asked, None) is not None:
                        yield mark(result.error, [result.index], result.worker)
                    continue
                columns = self._take(result.worker, result.columns)
                if size_of(columns) < self._smallest:
                    result.release()
                    continue
                some = next(asked, None)
                if some is None:
                    return
                yield self._give(columns, some, result.worker, result.release)
        finally:
            self._source.crew.give_back(pool)

    def _from_here(self, rows: Iterable[Rows]) -> Iterator[Columns | Exception]:
        job, asked = self._source.job(), iter(rows)
        while not self._workers[0]["ended"]:
            seen: list[int] = []
            try:
                with preserved():
                    columns = self._take(0, job(self._payload(0), seen.append))
            except Exception as error:
                if next(asked, None) is not None:
                    yield leave_frame(mark(error, seen, None))
                continue
            if size_of(columns) < self._smallest:
                return
            some = next(asked, None)
            if some is None:
                return
            yield self._give(columns, some, 0)


def _as_words(rank: Any) -> str:
    return f"{rank[0]} of {rank[1]}" if isinstance(rank, list) and len(rank) == 2 else "one of all ranks"


def _stands(worker: Any) -> bool:
    """Whether this says where a worker stands."""
    return (
        isinstance(worker, Mapping)
        and {"taken", "state", "ended"} <= set(worker)
        and type(worker["taken"]) is int
        and worker["taken"] >= 0
        and type(worker["ended"]) is bool
    )
