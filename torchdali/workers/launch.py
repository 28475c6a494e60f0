"""Start worker processes by fork, spawn, or a fork server of our own."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import context, popen_forkserver, reduction, resource_tracker, spawn, util
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from multiprocessing.forkserver import ForkServer, read_signed
from multiprocessing.process import BaseProcess
from typing import Any

from ..errors import let_through
from ..waits import parts

_PRELOAD = ["numpy", "numpy.random", "torch", "cloudpickle", "torch.utils.data", "torchdali.workers.worker"]
GROUP_SIGNALS = frozenset((signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2))
"""Signals that go to all processes of a job, before a machine is taken away, say: the pool's process decides."""
_server: tuple[int, ForkServer] | None = None  # and the process that it belongs to
_lock = threading.Lock()


def start(
    method: str | BaseContext,
    target: Callable[..., None],
    args: tuple[Any, ...],
    name: str,
    preload: Sequence[str],
    imports_main: bool,
    timeout: float,
) -> BaseProcess:
    """Start one worker process.

    Args:
        method: "fork", "spawn" or "forkserver", or a context of multiprocessing.
        target, args: the function that runs in it.
        name: the process's name.
        preload: modules that the fork server imports once, for all workers; the first pool of a process decides.
        imports_main: the fork server's workers import the main script, as spawned ones do.  It is not needed where
            everything in it is pickled by value, and then a script needs no `if __name__ == "__main__"`.
        timeout: seconds until the fork server must have started it.

    Raises:
        TimeoutError, OSError, EOFError: the fork server does not answer.
    """
    with _undisturbed():
        if isinstance(method, BaseContext) or method != "forkserver":
            chosen = method if isinstance(method, BaseContext) else multiprocessing.get_context(method)
            process: BaseProcess = chosen.Process(target=target, args=args, name=name, daemon=True)  # type: ignore[attr-defined]
            process.start()
            return process
        process = _Served(target=target, args=args, name=name, daemon=True)
        process.imports_main, process.timeout = imports_main, timeout
        try:
            process.preload = [*preload, *_PRELOAD]
            process.start()
        except (EOFError, ConnectionError) as error:
            let_through(error)
            # The server died of one of the modules; its traceback is on stderr.
            _forget_server()
            process.preload = _PRELOAD
            process.start()
        return process


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Start processes inside this block: signals come after it, and the user may still choose a start method."""
    method = multiprocessing.get_start_method(allow_none=True)
    # The mask is inherited: by the fork server for good, by a worker until it has its handlers.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
    try:
        resource_tracker.ensure_running()  # it unblocks two of them
        signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
        yield
    finally:
        if method is None:
            multiprocessing.set_start_method(None, force=True)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _running(modules: list[str]) -> ForkServer:
    """Get our own fork server: multiprocessing's may run already, or be set up by the user later."""
    global _server
    with _lock:
        if _server is None or _server[0] != os.getpid():
            _server = os.getpid(), ForkServer()
        server = _server[1]
        server.set_forkserver_preload(modules)  # without effect where it runs
        server.ensure_running()
        return server


def _forget_server() -> None:
    """Forget a server that has ended or soon will; the next process starts another."""
    global _server
    with _lock:
        if _server is not None:
            _server[1]._stop()  # type: ignore[attr-defined]
        _server = None


os.register_at_fork(after_in_child=lambda: _lock._at_fork_reinit())  # type: ignore[attr-defined]


class _Served(BaseProcess):
    """A process of our fork server."""

    _start_method = "forkserver"
    preload: list[str]
    imports_main: bool
    timeout: float

    def _Popen(self, process: BaseProcess) -> _Popen:
        return _Popen(process)


class _Popen(popen_forkserver.Popen):
    """multiprocessing's Popen, for our server."""

    _fds: list[int]

    def _launch(self, process: _Served) -> None:
        preparation = spawn.get_preparation_data(process.name)
        if not process.imports_main:
            for key in ("init_main_from_name", "init_main_from_path"):
                preparation.pop(key, None)
        data = io.BytesIO()
        context.set_spawning_popen(self)
        try:
            reduction.dump(preparation, data)
            reduction.dump(process, data)
        finally:
            context.set_spawning_popen(None)
        self.sentinel, to_child = _running(process.preload).connect_to_new_process(self._fds)
        self.finalizer = util.Finalize(self, util.close_fds, (os.dup(to_child), self.sentinel))  # type: ignore[attr-defined]
        with open(to_child, "wb") as pipe:
            pipe.write(data.getbuffer())
        if not any(wait([self.sentinel], part) for part in parts(process.timeout)):
            raise TimeoutError(f"the fork server started no worker within {process.timeout:g} s")
        self.pid = read_signed(self.sentinel)
