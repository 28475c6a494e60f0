"""The life of a worker process."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple

import torch
from torch.utils.data._utils import worker as torch_worker

from ..errors import SharedMemoryError, leave_frame
from ..seeding import seed_all
from . import sharing
from .failure import Failure
from .info import WatchedInfo
from .job import Answer, Job, dataset_of
from .launch import GROUP_SIGNALS
from .messages import Compute, Done, NotStarted, Stop
from .protocol import Codec, Packet, receive
from .slots import Slots
from .status import COMPUTING, HANDING_OVER, IDLE, StatusTable


class Setup(NamedTuple):
    """The first message to a worker; under fork it is inherited.

    Attributes:
        num_workers: the number of workers in the pool.
        seed: the start of the worker's generators, together with its number.
        job: the code that runs in it.
        init: called with the worker's number.
    """

    num_workers: int
    seed: int
    job: Job
    init: Callable[[int], object] | None


class _StaleError(BaseException):
    """The task's run has ended, and its result is not needed."""


def main(sock: socket.socket, number: int, parent: int, codec: Codec, inherited: Setup | None) -> None:
    """Start a worker and serve the pool, until it sends `Stop` or is gone."""
    _settle(parent)
    try:
        data, (fd, *shared) = receive(sock)
        table = StatusTable(fd)
        os.close(fd)
        try:
            setup: Setup = inherited or sharing.loads(data, shared, codec)
            _introduce(setup, number)
        except Exception as error:
            _send(sock, NotStarted(Failure.of(error, codec, number, None, None)))
            return
        table.enter(number, IDLE)
        _serve(sock, number, codec, setup.job, table)
    except (EOFError, ConnectionError):
        pass  # the pool is gone


def _settle(parent: int) -> None:
    """Make the process end with the pool's process, and outlive signals that go to a whole process group."""
    signal.set_wakeup_fd(-1)  # a forked process inherits it, and handlers
    for number in GROUP_SIGNALS:
        # The pool's process decides what they mean.  A handler, where programs that user code starts shall not
        # inherit that; none of it is seen by a system call.
        signal.signal(number, signal.SIG_IGN if number == signal.SIGINT else _nothing)
        signal.siginterrupt(number, False)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    try:
        fd = os.pidfd_open(parent)
    except ProcessLookupError:
        os._exit(1)
    except OSError:  # an old kernel or a sandbox
        process = multiprocessing.parent_process()
        assert process is not None
        fd = process.sentinel

    def watch() -> None:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.poll()
        os._exit(1)

    threading.Thread(target=watch, name="torchdali-watch", daemon=True).start()
    torch.set_num_threads(1)
    torch.set_default_device(None)  # a forked process has its parent's


def _nothing(number: int, frame: FrameType | None) -> None:
    """Handle a signal that is for the pool's process."""


def _introduce(setup: Setup, number: int) -> None:
    """Tell user code which worker it runs in, as torch's loader does."""
    seed_all(setup.seed, number)
    info = torch_worker._worker_info = WatchedInfo(
        id=number,
        num_workers=setup.num_workers,
        seed=torch.initial_seed(),
        dataset=dataset_of(setup.job),
    )
    if setup.init is not None:
        info.starting = True
        setup.init(number)
        info.starting = False


def _send(sock: socket.socket, message: NamedTuple, fds: list[int] | None = None) -> None:
    packet = Packet(message, owned=fds or ())
    try:
        packet.send(sock)
    finally:
        packet.close()


def _serve(sock: socket.socket, number: int, codec: Codec, job: Job, table: StatusTable) -> None:
    slots = Slots()
    while True:
        message: Compute | Stop
        message, _ = receive(sock)
        if isinstance(message, Stop):
            return
        run, serial, task, _, _, freed = message
        slots.free(freed)
        index: int | None = None

        def progress(sample: int) -> None:
            nonlocal index
            if table.run != run:  # noqa: B023  # called in this turn alone
                raise _StaleError
            index = int(sample)
            table.sample(number, index)

        if table.run != run:
            continue
        table.enter(number, COMPUTING, task)
        begin = time.perf_counter()  # of the machine: the pool's process has the same
        try:
            # Here, and not in a function: a failure's traceback begins after this frame.
            try:
                request = pickle.loads(message.request)
                if message.describe:
                    answer = Answer({}, job.describe(request, progress))
                else:
                    answer = job.read(request, progress)
            except StopIteration as error:
                raise RuntimeError(f"a dataset must not raise StopIteration, and {_name(job)} did") from leave_frame(
                    error
                )
            table.enter(number, HANDING_OVER, task)
            if table.run == run:
                written, fds = slots.write(*answer, codec)
                _send(sock, Done(run, serial, written, begin, time.perf_counter() - begin), fds)
            del answer
        except _StaleError:
            pass
        except Exception as error:
            failure = Failure.of(error, codec, number, task, index)
            done = Done(run, serial, failure, begin, time.perf_counter() - begin)
            try:
                _send(sock, done)
            except SharedMemoryError:
                _send(sock, done._replace(outcome=failure.short()))
        table.enter(number, IDLE)


def _name(job: Job) -> str:
    inner = dataset_of(job)
    name: str = getattr(inner, "__qualname__", type(inner).__qualname__)
    return name
