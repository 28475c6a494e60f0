"""What runs in a worker process."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import select
import signal
import socket
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.data._utils import worker as torch_worker

from ..batch import Columns
from ..errors import SharedMemoryError, leave_frame
from ..seeding import seed_all
from .failure import Failure
from .info import WatchedInfo
from .protocol import Codec, Packet, receive
from .slots import Slots
from .status import COMPUTING, HANDING_OVER, IDLE, Board

Source = Callable[[Any, Callable[[int], None]], Columns]


class Setup(NamedTuple):
    """What a worker is told first; under fork it is inherited."""

    num_workers: int
    seed: int
    source: Any  # a `Source`
    init: Callable[[int], object] | None


class _StaleError(BaseException):
    """Nobody waits for this task any more."""


def main(sock: socket.socket, number: int, parent: int, codec: Codec, inherited: Setup | None) -> None:
    """A worker's life, until the pool says "stop" or is gone."""
    _settle(parent)
    try:
        data, (fd,) = receive(sock)
        board = Board(fd)
        os.close(fd)
        try:
            setup: Setup = inherited or pickle.loads(data)
            _introduce(setup, number)
        except Exception as error:
            _send(sock, ("failed", Failure.of(error, codec, number, None, None)))
            return
        board.enter(number, IDLE)
        _serve(sock, number, codec, setup.source, board)
    except (EOFError, ConnectionError):
        pass  # the pool is gone


def _settle(parent: int) -> None:
    """Make the process one of ours: it outlives neither the pool's process nor a signal to end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool's process decides what Ctrl-C means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked process inherits handlers
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
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


def _introduce(setup: Setup, number: int) -> None:
    """Let user code know where it is, as torch's loader does."""
    seed = seed_all(setup.seed, number)
    torch_worker._worker_info = WatchedInfo(
        id=number,
        num_workers=setup.num_workers,
        seed=seed,
        dataset=getattr(setup.source, "dataset", setup.source),
    )
    if setup.init is not None:
        setup.init(number)


def _send(sock: socket.socket, message: tuple[Any, ...], fds: list[int] | None = None) -> None:
    packet = Packet(message, owned=fds or ())
    try:
        packet.send(sock)
    finally:
        packet.close()


def _serve(sock: socket.socket, number: int, codec: Codec, source: Source, board: Board) -> None:
    slots = Slots()
    while True:
        message, _ = receive(sock)
        if message[0] == "stop":
            return
        _, run, ticket, task, payload, freed = message
        slots.free(freed)
        index: int | None = None

        def progress(sample: int) -> None:
            nonlocal index
            if board.run != run:  # noqa: B023  # called in this turn alone
                raise _StaleError
            index = int(sample)
            board.sample(number, index)

        if board.run != run:
            continue
        board.enter(number, COMPUTING, task)
        try:
            try:
                columns = source(pickle.loads(payload), progress)
            except StopIteration as error:
                text = f"a source must not raise StopIteration, and {_name(source)} did"
                raise RuntimeError(text) from leave_frame(error)
            board.enter(number, HANDING_OVER, task)
            if board.run == run:
                written, fds = slots.write(columns, codec)
                _send(sock, ("done", run, ticket, written), fds)
            del columns
        except _StaleError:
            pass
        except Exception as error:
            failure = Failure.of(error, codec, number, task, index)
            try:
                _send(sock, ("error", run, ticket, failure, index))
            except SharedMemoryError:
                _send(sock, ("error", run, ticket, failure.short(), index))
        board.enter(number, IDLE)


def _name(source: Source) -> str:
    inner = getattr(source, "dataset", source)
    return getattr(inner, "__qualname__", type(inner).__qualname__)
