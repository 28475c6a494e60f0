"""The worker processes of one loader: the user's options, and pools that are lent to passes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.context import BaseContext
from typing import Any

from ..options import Options
from ..workers import Job, WorkerPool


@dataclass(frozen=True)
class WorkerOptions:
    """torch's arguments about workers, with torch's meanings.

    Attributes:
        num_workers: 0: samples are made in the caller's process and thread.
        prefetch_factor: batches that each worker makes ahead.
        timeout: seconds that a sample may take; 0: any time.
        worker_init_fn: called in each worker with its number.
        context: "fork", "spawn", "forkserver" or a context of multiprocessing; None: forkserver.
        persistent: workers stay after a pass.
        pickler: a module with `dumps` and `loads`, or (module, keywords of dumps, of loads); None: cloudpickle.
        seed: the start of the workers' generators.
    """

    num_workers: int = 0
    prefetch_factor: int = 2
    timeout: float = 0.0
    worker_init_fn: Callable[[int], object] | None = None
    context: str | BaseContext | None = None
    persistent: bool = False
    pickler: Any = None
    seed: int = 0

    @classmethod
    def of(cls, options: Options) -> WorkerOptions:
        """Take them from a loader's options."""
        return cls(
            num_workers=options.num_workers,
            prefetch_factor=max(options.prefetch, 1),
            timeout=options.timeout,
            worker_init_fn=options.worker_init_fn,
            context=options.multiprocessing_context,
            persistent=options.persistent_workers,
            pickler=options.pickler,
            seed=options.seed,
        )


@dataclass
class Pools:
    """Makes pools, lends each to one pass at a time, and keeps or ends them as the options say.

    Args:
        options: the user's.
        job: the code that runs in the workers.
    """

    options: WorkerOptions
    job: Job
    _idle: list[WorkerPool] = field(default_factory=list)
    _lent: list[WorkerPool] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.options.num_workers:
            self._make(None)  # nothing is started; it raises for invalid options

    def start(self) -> None:
        """Have workers ready for the next pass."""
        self.keep(self.started())

    def lease(self, num_workers: int | None = None) -> WorkerPool:
        """Lend a pool, until `give_back`."""
        pool = self._idle.pop() if self._idle and num_workers is None else self._make(num_workers)
        self._lent.append(pool)
        return pool

    def started(self) -> WorkerPool:
        """Lend a pool whose workers are started here and now.

        They start in the caller's thread, before a pass has threads of its own: a process that is forked while another
        thread makes DALI's objects may not live.
        """
        pool = self.lease()
        try:
            pool.start()
        except BaseException:
            self.give_back(pool)
            raise
        return pool

    def keep(self, pool: WorkerPool) -> None:
        """Take a lent pool back and have it ready for the next pass, whatever the options say."""
        if pool in self._lent:
            self._lent.remove(pool)
            if not pool.closed:
                self._idle.append(pool)

    def give_back(self, pool: WorkerPool) -> None:
        """Take a pool back when its pass is over."""
        if pool in self._lent:
            self._lent.remove(pool)
            if self.options.persistent and not pool.closed and pool.num_workers == self.options.num_workers:
                self._idle.append(pool)
            else:
                pool.close()

    def close(self) -> None:
        """End all workers."""
        for pool in [*self._idle, *self._lent]:
            pool.close()
        self._idle.clear()
        self._lent.clear()

    @property
    def pids(self) -> list[int]:
        """The process ids of all workers."""
        return [pid for pool in (*self._idle, *self._lent) for pid in pool.pids]

    def _make(self, num_workers: int | None) -> WorkerPool:
        options = self.options
        module = type(getattr(self.job, "dataset", None)).__module__
        return WorkerPool(
            self.job,
            num_workers or options.num_workers,
            context=options.context,
            prefetch_factor=options.prefetch_factor,
            timeout=options.timeout,
            worker_init_fn=options.worker_init_fn,
            pickler=options.pickler,
            seed=options.seed,
            preload=[] if module in ("__main__", "builtins") else [module],
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_idle": [], "_lent": []}  # processes do not travel
