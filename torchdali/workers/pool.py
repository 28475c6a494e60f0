"""A pool of worker processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import selectors
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import util
from multiprocessing.context import BaseContext
from typing import Any

from ..checks import integer, one_of
from ..clock import worked
from ..errors import let_through
from ..waits import Waited, part_of
from . import launch, sharing
from .job import Job, dataset_of
from .messages import Compute, Done, NotStarted
from .process import WorkerProcess
from .processes import Processes
from .protocol import Foreign, Packet, codec_of, default_codec, receive
from .refused import refusal
from .slots import Written
from .status import IDLE, STARTING
from .task import Result, Task
from .worker import Setup, main

_GRACE = 0.3  # seconds for workers to end by themselves
_GLANCE = 0.05  # seconds between looks at a worker that has not begun
_LONGEST_WAIT = 5.0  # seconds; events are seen at once, this is for those that nothing reports


class WorkerPool:
    """Worker processes that compute tasks, in order.  The package's docstring says what holds.

    Args:
        job: the code that runs in the workers.  It goes to each worker once.
        num_workers: the number of processes.
        context: "fork", "spawn", "forkserver" (the default), or a context of multiprocessing.
        prefetch_factor: tasks per worker that are under way ahead of the consumer.
        timeout: seconds that one sample may take; 0: any time.
        worker_init_fn: called in each worker with its number, before the first task.
        pickler: a module with `dumps` and `loads`, or (module, keywords of dumps, keywords of loads), for both sides;
            cloudpickle by default, which shares large tensors instead of copying them.
        ready_timeout: seconds that a worker may take to start.
        seed: the start of the workers' generators, together with their numbers.
        preload: modules that the default's fork server imports once for all workers, beside the job's own.

    Raises:
        TypeError, ValueError: wrong arguments.
    """

    def __init__(
        self,
        job: Job,
        num_workers: int,
        *,
        context: str | BaseContext | None = None,
        prefetch_factor: int = 2,
        timeout: float = 0,
        worker_init_fn: Callable[[int], object] | None = None,
        pickler: Any = None,
        ready_timeout: float = 120,
        seed: int = 0,
        preload: Sequence[str] = (),
    ) -> None:
        self.num_workers = integer("num_workers", num_workers, 1)
        self._depth = self.num_workers * integer("prefetch_factor", prefetch_factor, 1)
        if not isinstance(context, BaseContext) and context is not None:
            one_of("multiprocessing_context", context, multiprocessing.get_all_start_methods())
        if not timeout >= 0:
            raise ValueError(f"timeout must be at least 0 seconds (0: none), got {timeout}")
        if not callable(getattr(job, "describe", None)) or not callable(getattr(job, "read", None)):
            raise TypeError(f"job must have the methods describe and read, got {type(job).__name__}")
        if worker_init_fn is not None and not callable(worker_init_fn):
            raise TypeError(f"worker_init_fn must be callable, got {type(worker_init_fn).__name__}")
        self._codec = None if pickler is None else codec_of(pickler)
        self._method: str | BaseContext = "forkserver" if context is None else context
        self._timeout, self._ready_timeout = timeout, ready_timeout
        self._setup = Setup(self.num_workers, seed, job, worker_init_fn)
        self._preload = [*_modules(job), *preload]
        self._owner = os.getpid()
        self._lock = threading.RLock()  # a garbage collection inside may close us
        self._processes: Processes | None = None
        self._closed = self._busy = False
        self._run = self._serial = 0
        self._outcomes: dict[int, tuple[WorkerProcess, Done]] = {}  # by the tasks' serial numbers
        self._finalizer: weakref.finalize[..., Any] | None = None

    def start(self) -> None:
        """Start the workers, unless they are started; it does not wait until they are ready.

        Raises:
            TypeError: the job can't be pickled.
            RuntimeError: the pool is closed, or belongs to another process.
            SharedMemoryError, OSError, TimeoutError: the system gives no processes.
        """
        with self._held():
            self._check()
            if self._processes is not None:
                return
            setup = self._setup
            method = self._method if isinstance(self._method, str) else self._method.get_start_method()
            inherited = setup if method == "fork" and not _defines_pickling(setup.job) else None
            data, fds = (None, []) if inherited else self._pickled()
            processes = self._processes = Processes(self.num_workers)
            # At exit too; a daemon thread may be waiting for the workers then.
            self._finalizer = weakref.finalize(self, processes.end)
            # multiprocessing's own exit, which may come before that, would wait for ever: they ignore its signal.
            util.Finalize(self, processes.halt, exitpriority=0)
            try:
                for number in range(self.num_workers):
                    self._add(processes, number, inherited, data, fds)
            except BaseException:
                self._closed = True
                raise
            finally:
                for fd in fds:
                    os.close(fd)

    def _pickled(self) -> tuple[bytes, list[int]]:
        try:
            return sharing.dumps(self._setup, self._codec)
        except Exception as error:
            let_through(error)
            raise TypeError(refusal(self._setup.job, self._setup.init, self._codec, error)) from error

    def _add(
        self, processes: Processes, number: int, inherited: Setup | None, data: bytes | None, fds: Sequence[int]
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            started = launch.start(
                self._method,
                main,
                (theirs, number, os.getpid(), self._codec or default_codec(), inherited),
                f"torchdali-worker-{number}",
                self._preload,
                self._codec is not None,
                self._ready_timeout,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        process = WorkerProcess(number, started, ours)
        processes.add(process)
        # Copies: the packet may wait.
        process.post(Packet(data, [processes.table_fd], [os.dup(fd) for fd in fds]), processes.selector)

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Compute tasks; their results in order.

        One run at a time: a new one ends the one before.  A task that fails is a result with an `error`.

        Raises:
            WorkerDiedError, WorkerTimeoutError: of a worker.  The pool is closed then.
            Exception: of a job or `worker_init_fn`, while a worker started.  The pool is closed then.
            RuntimeError: the pool is closed or was forked, or a newer run has begun.
        """
        self.start()
        with self._held():
            processes, run = self._begin()
        under_way: deque[tuple[int, Task]] = deque()
        ahead: Iterator[Task] | None = iter(tasks)
        failure: Exception | None = None

        def fill() -> None:
            nonlocal ahead, failure
            while ahead is not None and len(under_way) < self._depth:
                try:
                    task = next(ahead, None)
                except Exception as error:  # it comes after the results of the tasks before it
                    let_through(error)
                    task, failure = None, error
                if task is None:
                    ahead = None
                else:
                    with self._held():
                        under_way.append((self._assign(processes, run, task), task))

        try:
            fill()
            while under_way:
                serial, task = under_way.popleft()
                with self._held():
                    process, done = self._take(processes, run, serial)
                worked(process.number, done.begin, done.seconds)
                fill()  # before the consumer is busy
                yield Result(task, process, done.outcome)
            if failure is not None:
                raise failure
        finally:
            if run == self._run and os.getpid() == self._owner:
                with self._held():
                    self._end_run(run)

    @property
    def closed(self) -> bool:
        """Whether it takes no more runs."""
        return self._closed

    @property
    def pids(self) -> list[int]:
        """The workers' process ids, by their numbers; none before the start."""
        return [] if self._processes is None else [process.pid for process in self._processes.all]

    def cancel(self) -> None:
        """End the run without waiting for its workers; a thread that waits for it gets a RuntimeError.

        Any thread may call it.
        """
        if os.getpid() == self._owner and self._processes is not None and not self._closed:
            # Without the lock, which the waiting thread holds.
            self._run += 1
            self._processes.table.run = 0
            self._processes.ring()

    def close(self) -> None:
        """End the workers, within a second.  Any thread may call it, once or more; a run in another thread raises."""
        if os.getpid() != self._owner:
            return
        self._closed = True
        if self._processes is not None:
            self._processes.ring()
            with self._held():
                self._processes.halt(_GRACE)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Use the processes inside this block; those of a closed pool are given back only after it."""
        with self._lock:
            outer, self._busy = self._busy, True
            try:
                yield
            finally:
                self._busy = outer
                if self._closed and not outer and self._finalizer is not None:
                    self._outcomes.clear()
                    self._finalizer()  # processes.end, once

    def _check(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"this worker pool belongs to process {self._owner} and was forked to {os.getpid()}: "
                "make a loader of its own in each process"
            )
        if self._closed:
            raise RuntimeError("the worker pool is closed: make a new one")

    def _begin(self) -> tuple[Processes, int]:
        self._check()
        processes = self._processes
        assert processes is not None
        self._end_run(self._run)
        self._run += 1
        processes.table.run = self._run
        for process in processes.all:
            process.pending = 0
        return processes, self._run

    def _end_run(self, run: int) -> None:
        """Forget a run: workers drop its tasks, and its results are given back."""
        if run != self._run or self._processes is None or self._closed:
            return
        self._processes.table.run = 0
        for process, done in self._outcomes.values():
            if isinstance(done.outcome, Written):
                process.freed.append(done.outcome.slot)
        self._outcomes.clear()

    def _still(self, run: int) -> None:
        self._check()
        if run != self._run:
            raise RuntimeError("a newer run of the worker pool has begun, and ended this one")

    def _assign(self, processes: Processes, run: int, task: Task) -> int:
        """Send a task to its worker, or to the one with the fewest tasks.

        Returns:
            The task's serial number.
        """
        self._still(run)
        self._serial += 1
        if task.worker is None:
            process = min(processes.all, key=lambda process: process.pending)
        else:
            process = processes.all[task.worker]
        process.pending += 1
        freed = [process.freed.popleft() for _ in range(len(process.freed))]
        request = pickle.dumps(Foreign.of(task.request, self._codec or default_codec()))
        message = Compute(run, self._serial, task.number, task.describe, request, freed)
        process.post(Packet(message), processes.selector)
        return self._serial

    def _take(self, processes: Processes, run: int, serial: int) -> tuple[WorkerProcess, Done]:
        self._still(run)
        self._look(processes, run, 0)
        waited = Waited()
        while serial not in self._outcomes:
            longest = self._patience(processes, waited.seconds)
            with waited.part(longest):
                self._look(processes, run, longest)
        process, done = self._outcomes.pop(serial)
        process.pending -= 1
        return process, done

    def _patience(self, processes: Processes, waited: float) -> float:
        """Compute the seconds until a worker may be late.

        Args:
            processes: all workers.
            waited: seconds so far: a worker is given its time again where no one has waited for it.

        Raises:
            WorkerTimeoutError: one is late.
        """
        shortest = _LONGEST_WAIT
        for process in processes.all:
            status = processes.table.status(process.number)
            limit, seconds = self._timeout, status.seconds
            if status.stage == STARTING:
                limit, seconds = self._ready_timeout, time.monotonic() - process.since
            elif not limit:
                continue
            elif status.stage == IDLE:
                shortest = min(shortest, _GLANCE)  # it may begin at any moment
                continue
            seconds = min(seconds, waited)
            if seconds >= limit:
                error = process.late(processes.table, limit)
                self._closed = True
                raise error
            shortest = min(shortest, limit - seconds, part_of(limit))
        return shortest

    def _look(self, processes: Processes, run: int, timeout: float) -> None:
        """Take the messages that the workers have sent, or send within `timeout` seconds.

        Raises:
            WorkerDiedError, Exception: see `run`.
        """
        dead: list[WorkerProcess] = []
        for key, events in processes.selector.select(timeout):
            process: WorkerProcess | None = key.data
            if process is None:
                self._still(run)  # the bell rings when the pool is closed
                continue
            if key.fileobj is not process.sock:
                dead.append(process)
            elif events & selectors.EVENT_WRITE:
                process.flush(processes.selector)
            if key.fileobj is process.sock and not self._hear(process, run):
                dead.append(process)
        for process in dead:
            self._still(run)  # it is no death if the pool was closed
            self._hear(process, run)  # a worker that could not start says why before it ends
            error = process.death(processes.table)
            self._closed = True
            raise error

    def _hear(self, process: WorkerProcess, run: int) -> bool:
        """Take a worker's messages; False where its connection is closed.

        Raises:
            Exception: it could not start.
        """
        with suppress(BlockingIOError):
            while True:
                message: Done | NotStarted
                try:
                    message, fds = receive(process.sock)
                except EOFError:
                    return False
                if isinstance(message, NotStarted):
                    self._closed = True
                    raise message.failure.revive()
                self._note(process, run, message, fds)
        return True

    def _note(self, process: WorkerProcess, run: int, message: Done, fds: list[int]) -> None:
        outcome = message.outcome
        if isinstance(outcome, Written):
            process.slots.map(outcome, fds)
        for fd in fds:
            os.close(fd)
        if message.run == run:
            self._outcomes[message.serial] = process, message
        elif isinstance(outcome, Written):
            process.freed.append(outcome.slot)


def _defines_pickling(job: Job) -> bool:
    """Whether the job, or its dataset, defines how it is pickled: it may put off heavy set-up by that."""
    names = ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__")
    return any(
        getattr(type(part), name, None) is not getattr(object, name, None)
        for part in (job, dataset_of(job))
        for name in names
    )


def _modules(job: Job) -> list[str]:
    """List the modules of the job's and its dataset's classes."""
    parts = [type(job), type(dataset_of(job))]
    return [name for name in dict.fromkeys(part.__module__ for part in parts) if name not in ("__main__", "builtins")]
