"""The reading of an iterable: workers make whole batches in turn."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterable, Iterator

from ..batch import BadSample, Columns
from ..errors import StateMismatchError
from ..order import Rows
from ..source import Failed, Lent, Pass, Reading
from ..state import Position
from ..workers import Task, WorkerPool
from .call import call
from .iterable_requests import IterableNote, IterablePass, IterableRead
from .reading import failure_of, smallest
from .snapshot import Carried, Snapshot, Standing
from .source import PythonSource, size_of

_passes = itertools.count()


class IterableReading(Reading):
    """Reads one pass over an iterable, from where `Pass.start.snapshot` says.

    Args:
        source: the source to read.
        pass_: the pass.
        dataset: the iterable's name, for messages.
        shard: how workers and ranks share it.
        why: the reason for iterating samples again, for the warning.
    """

    def __init__(self, source: PythonSource, pass_: Pass, dataset: str, shard: str, why: str) -> None:
        self._source, self._pass, self._dataset, self._shard = source, pass_, dataset, shard
        self._pool: WorkerPool | None = None
        self._count = max(1, source.pools.options.num_workers)
        self._number = next(_passes)  # a pass may be begun twice
        self._smallest = smallest(source, pass_)
        # Where the dataset shares itself among ranks, only this rank can go on with its state.
        self._rank = list(pass_.shard) if shard == "none" else None
        begin = begin_of(pass_.start, self._count, self._rank)
        self._turn, self._workers = begin.turn, list(begin.workers)
        self._given = 0  # batches
        self._bad: list[BadSample] = []  # left out since the batch that was given last
        # A short batch comes where a worker ends, and the others go on: the samples do not tell the steps any more.
        self._short = begin.steps is not None
        self._steps = begin.steps or pass_.start.samples_seen // pass_.batch_size
        begin.check_rank(self._rank)
        again = [
            worker.taken
            for worker in self._workers
            if worker.taken and worker.state is None and worker.iterator is None and not worker.ended
        ]
        if again:
            warnings.warn(
                f"{why}: {sum(again)} samples are iterated again to go on there",
                RuntimeWarning,
                stacklevel=2,
            )
        if not source.inline:
            self._pool = source.pools.started()

    @property
    def end(self) -> Snapshot | None:
        """The start of the next epoch, where it takes anything over from this one."""
        return Snapshot(0, tuple(self._workers), self._rank).next_epoch()

    def stream(self, rows: Iterable[Rows]) -> Iterator[Columns | Failed | Exception]:
        """Read the batches of all workers, in turn."""
        return self._from_here(rows) if self._pool is None else self._from_workers(rows, self._pool)

    def _note_end(self) -> None:
        """Warn of an iterable that gives nothing after an epoch that it gave samples in."""
        if self._pass.key and not self._pass.start.samples_seen and not any(one.taken for one in self._workers):
            self._source.warn_once(
                f"{self._dataset} gave no sample in epoch {self._pass.epoch}, and it gave some before: its __iter__ "
                "has to begin anew; for something that can be read once, write the function that makes it, as in "
                "IterableSource(function)"
            )

    def read(self, rows: Rows) -> Columns:
        """Raise: an iterable gives each sample once."""
        raise TypeError("a sample of an iterable can't be read again")

    def close(self) -> None:
        """Give the workers back."""
        if self._pool is not None:
            self._source.pools.give_back(self._pool)

    def cancel(self) -> None:
        """End the stream without waiting for the workers."""
        if self._pool is not None:
            self._pool.cancel()

    def _request(self, worker: int) -> IterableRead:
        pass_ = self._pass
        part = IterablePass(pass_.seed, pass_.key, worker, self._count, *pass_.shard, self._number)
        return IterableRead(part, pass_.batch_size, self._workers[worker], self._source.description, self._source.skips)

    def _turns(self) -> Iterator[int]:
        """Give the workers in turn, and pass over those that have ended."""
        for worker in itertools.islice(itertools.cycle(range(self._count)), self._turn, None):
            if all(one.ended for one in self._workers):
                return
            if not self._workers[worker].ended:
                yield worker

    def _take(self, worker: int, columns: Columns, note: IterableNote) -> Columns:
        """Take a worker's answer: its columns, and where it stands now."""
        ranks = self._pass.shard.world_size
        if note.asked and self._shard == "auto" and ranks > 1:
            self._source.warn_once(
                f"{self._dataset} shares itself among workers, and each rank takes every {ranks}th sample of that: "
                "if it knows of ranks too, write shard='none'"
            )
        self._workers[worker] = note.standing
        self._bad += [BadSample(number, None, "read", reason, None) for number, reason in note.bad]
        # The ranks after this one may have had a sample less: all of them drop such a batch, or none.
        if note.uneven and self._pass.drop_last and ranks > 1 and self._shard != "none":
            return {}
        return self._source.received(columns)

    def _give(self, columns: Columns, worker: int, release: Callable[[], None] | None = None) -> Lent:
        self._given += 1
        self._steps += 1
        short = not self._source.whole_batches and size_of(columns) < self._pass.batch_size
        self._short = self._short or short
        told = self._source.told
        if told is not None and self._given == told + 1 and not self._pass.start.samples_seen:
            self._source.warn_once(
                f"Length of IterableDataset {self._dataset} was reported to be {told} batches (when accessing "
                f"len(dataloader)), but {self._given} batches have been fetched: make its __len__ tell the samples "
                "that all workers and ranks get together"
            )
        steps = self._steps if self._short else None
        snapshot = Snapshot((worker + 1) % self._count, tuple(self._workers), self._rank, steps)
        bad, self._bad = self._bad, []
        return Lent(columns, release, snapshot, bad)

    def _from_workers(self, rows: Iterable[Rows], pool: WorkerPool) -> Iterator[Columns | Failed | Exception]:
        asked = iter(rows)
        tasks = (Task(number, self._request(worker), worker) for number, worker in enumerate(self._turns()))
        try:
            for result in pool.run(tasks):
                if isinstance(result.error, StateMismatchError):
                    raise result.error  # the pass can't go on
                if result.error is not None:
                    only = [failure_of(result)]
                    del result  # by its traceback the error will hold the caller
                    if next(asked, None) is not None:
                        self._steps += 1
                        yield only.pop()
                    continue
                columns = self._take(result.worker, result.columns, result.note)
                if size_of(columns) < self._smallest:
                    result.release()
                    continue
                if next(asked, None) is None:
                    return
                yield self._give(columns, result.worker, result.release)
            self._note_end()
        finally:
            self._source.pools.give_back(pool)

    def _from_here(self, rows: Iterable[Rows]) -> Iterator[Columns | Failed | Exception]:
        job, asked = self._source.pools.job, iter(rows)
        while not self._workers[0].ended:
            answer = call(job.read, self._request(0))
            if isinstance(answer, Failed):
                if isinstance(answer.error, StateMismatchError):
                    raise answer.error
                only = [answer]
                del answer  # by its traceback the error will hold the caller
                if next(asked, None) is not None:
                    self._steps += 1
                    yield only.pop()
                continue
            columns = self._take(0, *answer)
            if size_of(columns) < self._smallest:
                break
            if next(asked, None) is None:
                return
            yield self._give(columns, 0)
        self._note_end()


def begin_of(start: Position, num_workers: int, rank: list[int] | None) -> Snapshot:
    """Tell where the workers begin a pass.

    Args:
        start: where the pass begins.
        num_workers: the number of workers, at least 1.
        rank: [rank, world size] where only this rank can go on with its state.
    """
    begin: Snapshot = start.snapshot or Snapshot(0, (Standing(),) * num_workers, rank)
    if begin.at_start and begin.rank != rank:
        begin = Snapshot(0, (Standing(loaded=True),) * num_workers, rank)
    if start.samples_seen and begin.at_start:
        # The rest of an epoch that has ended.
        workers = (Standing(ended=True, carried=Carried(one.state, one.counts)) for one in begin.workers)
        return begin._replace(workers=tuple(workers))
    return begin
