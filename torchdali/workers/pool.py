"""The pool of worker processes."""

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
from multiprocessing.context import BaseContext
from typing import Any

from ..checks import integer, one_of
from ..workers import launch
from .processes import Crew, Member
from .protocol import Codec, Foreign, Packet, receive
from .slots import Written
from .status import IDLE, STARTING
from .task import Answer, Result, Task
from .worker import Setup, Source, main

_GRACE = 0.3  # seconds for workers to end by themselves
_GLANCE = 0.05  # seconds between looks at a worker that has not begun
_LONGEST_WAIT = 5.0  # seconds; whatever happens is seen at once, this is for what nobody thought of


class WorkerPool:
    """Worker processes that compute tasks, in order.  See the package for what holds.

    Args:
        source: called in the workers as `source(payload, progress)`; returns columns.  It goes to each worker once.
        num_workers: how many processes.
        context: "fork", "spawn", "forkserver" (the default), or a context of multiprocessing.
        prefetch_factor: tasks for each worker that are under way ahead of the consumer.
        timeout: seconds that one sample may take; 0: any time.
        worker_init_fn: called in each worker with its number, before the first task.
        pickler: a module with `dumps` and `loads`; cloudpickle by default.
        ready_timeout: seconds that a worker may take to start.
        seed: what the workers' generators start from, together with their numbers.
        preload: modules that the default's fork server imports once for all workers, beside the source's own.

    Raises:
        TypeError, ValueError: wrong arguments.
    """

    def __init__(
        self,
        source: Source,
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
        for name, value in {"source": source, "worker_init_fn": worker_init_fn}.items():
            if value is not None and not callable(value):
                raise TypeError(f"{name} must be callable, got {type(value).__name__}")
        if pickler is not None and not (hasattr(pickler, "dumps") and hasattr(pickler, "loads")):
            raise TypeError(f"pickler must be a module with dumps and loads, got {pickler!r:.80}")
        self._method: str | BaseContext = "forkserver" if context is None else context
        self._timeout, self._ready_timeout = timeout, ready_timeout
        self._setup = Setup(self.num_workers, seed, source, worker_init_fn)
        self._pickler, self._preload = pickler, [*_modules(source), *preload]
        self._owner = os.getpid()
        self._lock = threading.RLock()  # a garbage collection inside may close us
        self._crew: Crew | None = None
        self._codec: Codec | None = None
        self._closed = self._busy = False
        self._run = self._ticket = 0
        self._answers: dict[int, tuple[Member, Answer]] = {}
        self._finalizer: weakref.finalize[..., Any] | None = None

    def start(self) -> None:
        """Start the workers, unless they have been; it does not wait until they are ready.

        Raises:
            TypeError: the source can't be pickled.
            RuntimeError: the pool is closed, or belongs to another process.
            SharedMemoryError, OSError, TimeoutError: the system gives no processes.
        """
        with self._held():
            self._check()
            if self._crew is not None:
                return
            codec, setup = self._codec_of_pickler(), self._setup
            method = self._method if isinstance(self._method, str) else self._method.get_start_method()
            inherited = setup if method == "fork" and not _defines_pickling(setup.source) else None
            try:
                data = None if inherited else codec.dumps(setup)
            except Exception as error:
                kind = type(getattr(setup.source, "dataset", setup.source)).__name__
                raise TypeError(
                    f"{kind} and worker_init_fn must be picklable to reach worker processes, and are not: {error}"
                ) from error
            crew = self._crew = Crew(self.num_workers)
            # At exit too; a daemon thread may be waiting for the workers then.
            self._finalizer = weakref.finalize(self, crew.end)
            try:
                for number in range(self.num_workers):
                    self._add(crew, number, codec, inherited, data)
            except BaseException:
                self._closed = True
                raise

    def _add(self, crew: Crew, number: int, codec: Codec, inherited: Setup | None, data: bytes | None) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            process = launch.start(
                self._method,
                main,
                (theirs, number, os.getpid(), codec, inherited),
                f"torchdali-worker-{number}",
                self._preload,
                self._pickler is not None,
                self._ready_timeout,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        member = Member(number, process, ours)
        crew.add(member)
        member.post(Packet(data, [crew.board_fd]), crew.selector)

    def _codec_of_pickler(self) -> Codec:
        if self._codec is None:
            if self._pickler is None:
                import cloudpickle

                self._codec = Codec(cloudpickle.dumps, cloudpickle.loads)
            else:
                self._codec = Codec(self._pickler.dumps, self._pickler.loads)
        return self._codec

    def run(self, tasks: Iterable[Task]) -> Iterator[Result]:
        """Compute tasks; their results in order.

        One run at a time: a new one ends the one before.  A task that fails is a result with an `error`.

        Raises:
            WorkerDiedError, WorkerTimeoutError: of a worker.  The pool is closed then.
            Exception: what a source or `worker_init_fn` raised while a worker started.  The pool is closed then.
            RuntimeError: the pool is closed or was forked, or a newer run has begun.
        """
        self.start()
        with self._held():
            crew, run = self._begin()
        under_way: deque[tuple[int, Task]] = deque()
        source: Iterator[Task] | None = iter(tasks)
        failure: Exception | None = None

        def fill() -> None:
            nonlocal source, failure
            while source is not None and len(under_way) < self._depth:
                try:
                    task = next(source, None)
                except Exception as error:  # it comes behind the tasks before it
                    task, failure = None, error
                if task is None:
                    source = None
                else:
                    with self._held():
                        under_way.append((self._assign(crew, run, task), task))

        try:
            fill()
            while under_way:
                ticket, task = under_way.popleft()
                with self._held():
                    member, answer = self._take(crew, run, ticket)
                fill()  # before the consumer is busy
                yield Result(task, member, answer)
            if failure is not None:
                raise failure
        finally:
            if run == self._run and os.getpid() == self._owner:
                with self._held():
                    self._end_run(run)

    @property
    def closed(self) -> bool:
        """It takes no more runs."""
        return self._closed

    def cancel(self) -> None:
        """End the run without waiting for its workers: whoever waits for it gets a RuntimeError.  From any thread."""
        if os.getpid() == self._owner and self._crew is not None and not self._closed:
            # Without the lock, which the waiting thread holds.
            self._run += 1
            self._crew.board.run = 0
            self._crew.ring()

    def close(self) -> None:
        """End the workers, within a second.  Any thread may call it, once or more; a run in another thread raises."""
        if os.getpid() != self._owner:
            return
        self._closed = True
        if self._crew is not None:
            self._crew.ring()
            with self._held():
                self._crew.halt(_GRACE)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """A block that uses the crew.  Behind it a closed crew is let go of: never inside, under somebody's feet."""
        with self._lock:
            outer, self._busy = self._busy, True
            try:
                yield
            finally:
                self._busy = outer
                if self._closed and not outer and self._finalizer is not None:
                    self._answers.clear()
                    self._finalizer()  # crew.end, once

    def _check(self) -> None:
        if os.getpid() != self._owner:
            raise RuntimeError(
                f"this worker pool belongs to process {self._owner} and was forked to {os.getpid()}: "
                "make a loader of its own in each process"
            )
        if self._closed:
            raise RuntimeError("the worker pool is closed: make a new one")

    def _begin(self) -> tuple[Crew, int]:
        self._check()
        crew = self._crew
        assert crew is not None
        self._end_run(self._run)
        self._run += 1
        crew.board.run = self._run
        for member in crew.members:
            member.pending = 0
        return crew, self._run

    def _end_run(self, run: int) -> None:
        """Forget a run: workers drop its tasks, and its results are given back."""
        if run != self._run or self._crew is None or self._closed:
            return
        self._crew.board.run = 0
        for member, answer in self._answers.values():
            if isinstance(answer, Written):
                member.freed.append(answer.slot)
        self._answers.clear()

    def _still(self, run: int) -> None:
        self._check()
        if run != self._run:
            raise RuntimeError("a newer run of the worker pool has begun, and ended this one")

    def _assign(self, crew: Crew, run: int, task: Task) -> int:
        """Send a task to the worker with the fewest."""
        self._still(run)
        self._ticket += 1
        if task.worker is None:
            member = min(crew.members, key=lambda member: member.pending)
        else:
            member = crew.members[task.worker]
        member.pending += 1
        freed = [member.freed.popleft() for _ in range(len(member.freed))]
        payload = pickle.dumps(Foreign.of(task.payload, self._codec_of_pickler()))
        packet = Packet(("task", run, self._ticket, task.number, payload, freed))
        member.post(packet, crew.selector)
        return self._ticket

    def _take(self, crew: Crew, run: int, ticket: int) -> tuple[Member, Answer]:
        self._still(run)
        self._look(crew, run, 0)
        while ticket not in self._answers:
            self._look(crew, run, self._patience(crew))
        member, answer = self._answers.pop(ticket)
        member.pending -= 1
        return member, answer

    def _patience(self, crew: Crew) -> float:
        """Seconds until a worker is late.

        Raises:
            WorkerTimeoutError: one is.
        """
        shortest = _LONGEST_WAIT
        for member in crew.members:
            place = crew.board.place(member.number)
            limit, seconds = self._timeout, place.seconds
            if place.stage == STARTING:
                limit, seconds = self._ready_timeout, time.monotonic() - member.since
            elif not limit:
                continue
            elif place.stage == IDLE:
                shortest = min(shortest, _GLANCE)  # it may begin at any moment
                continue
            if seconds >= limit:
                error = member.late(crew.board, limit)
                self._closed = True
                raise error
            shortest = min(shortest, limit - seconds)
        return shortest

    def _look(self, crew: Crew, run: int, timeout: float) -> None:
        """Take what the workers have sent, within `timeout` seconds.

        Raises:
            WorkerDiedError, Exception: see `run`.
        """
        dead: list[Member] = []
        for key, events in crew.selector.select(timeout):
            member: Member | None = key.data
            if member is None:
                self._still(run)  # the bell rings when the pool is closed
                continue
            if key.fileobj is not member.sock:
                dead.append(member)
            elif events & selectors.EVENT_WRITE:
                member.flush(crew.selector)
            if key.fileobj is member.sock and not self._hear(member, run):
                dead.append(member)
        for member in dead:
            self._still(run)  # it is no death if the pool was closed
            self._hear(member, run)  # a worker that could not start says why before it ends
            error = member.death(crew.board)
            self._closed = True
            raise error

    def _hear(self, member: Member, run: int) -> bool:
        """Take a worker's messages; False where its connection is closed.

        Raises:
            Exception: it could not start.
        """
        with suppress(BlockingIOError):
            while True:
                try:
                    message, fds = receive(member.sock)
                except EOFError:
                    return False
                if message[0] == "failed":
                    self._closed = True
                    raise message[1].revive()
                self._note(member, run, message, fds)
        return True

    def _note(self, member: Member, run: int, message: tuple[Any, ...], fds: list[int]) -> None:
        kind, of_run, ticket, *rest = message
        answer: Answer = rest[0] if kind == "done" else (rest[0], rest[1])
        if isinstance(answer, Written):
            member.slots.map(answer, fds)
        for fd in fds:
            os.close(fd)
        if of_run == run:
            self._answers[ticket] = member, answer
        elif isinstance(answer, Written):
            member.freed.append(answer.slot)


def _defines_pickling(source: Source) -> bool:
    """Whether the source, or its dataset, has a say in how it is pickled: it may put off heavy set-up by that."""
    names = ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__")
    return any(
        getattr(type(part), name, None) is not getattr(object, name, None)
        for part in (source, getattr(source, "dataset", None))
        for name in names
    )


def _modules(source: Source) -> list[str]:
    """The modules of the source's and its dataset's classes."""
    parts = [type(source), type(getattr(source, "dataset", source))]
    return [name for name in dict.fromkeys(part.__module__ for part in parts) if name not in ("__main__", "builtins")]
