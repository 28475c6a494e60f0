"""Programs that start fast: a server has imported torch and what else they need, and each program is a fork of it.

A program is a script, run as `__main__` in a process of its own, which ends as any other: by its last line, sys.exit,
an exception, a signal.  With `processes`, it runs once for each rank of a job, with the environment and the store that
torchrun gives; torchrun itself, as a program, forks the ranks of the jobs that are about restarts.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .patience import PATIENCE

ROOT = Path(__file__).parent.parent
ONE_THREAD = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
"""For all programs: sums that are the same each time, and no look-up of the host's name, which can take a minute."""
SET_BY_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "DALI_NUM_THREADS")
USED_BY_ALL = (
    *("torch", "torchvision.transforms.v2", "nvidia.dali.experimental.dynamic"),
    *("torchdali.testing", "torchdali.loader", "torchdali.engine.run", "torchdali.native"),
    *("torchdali.datasets", "torchdali.python", "torchdali.trainers"),
)
"""With what loaders import late: two hundred modules, in half a second for each program."""

_lock = threading.Lock()  # one request at a time


class Program:
    """A program that runs, with the words of subprocess.Popen."""

    def __init__(self, request: dict[str, Any], name: str) -> None:
        self.name = name
        self.returncode: int | None = None
        self._said: tuple[str, str] | None = None
        self._files = [tempfile.TemporaryFile("w+") for _ in range(2)]  # what it prints; a pipe might fill up
        self._agent, far = socket.socketpair()
        with far, _lock:
            fds = [far.fileno(), *(file.fileno() for file in self._files)]
            data = json.dumps(request).encode()
            server = _server()
            server.sendall(len(data).to_bytes(4, "big") + data)
            socket.send_fds(server, [b"f"], fds)

    def wait(self, timeout: float = PATIENCE) -> int:
        """The exit status, a signal's number negative; the first that is not 0 of several ranks."""
        if self.returncode is None:
            self._agent.settimeout(timeout)
            try:
                said = self._agent.recv(100)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.name, timeout) from None
            self.returncode = int(said) if said else -signal.SIGKILL
            self._agent.close()
        return self.returncode

    def poll(self) -> int | None:
        """The exit status; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def communicate(self, timeout: float = PATIENCE) -> tuple[str, str]:
        """What it printed and its errors, when it has ended."""
        self.wait(timeout)
        if self._said is None:
            said = []
            for file in self._files:
                with file:
                    file.seek(0)
                    said.append(file.read())
            self._said = said[0], said[1]
        return self._said

    def terminate(self) -> None:
        """End all its processes; nothing, when it has ended."""
        if self.returncode is None:
            with contextlib.suppress(OSError):
                self._agent.shutdown(socket.SHUT_WR)


def start(
    script: Path | str,
    *arguments: object,
    processes: int | None = None,
    preload: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Program:
    """Start a script of this checkout.

    Args:
        script: its path, absolute or below the checkout, in which it runs.
        arguments: its command line.
        processes: of a job, whose ranks they are; None is one process by itself.
        preload: modules that the server imports for this program and those after it.
        environment: variables beside those of this process.
    """
    variables = {name: value for name, value in os.environ.items() if name not in SET_BY_TORCHRUN}
    request = {
        "script": str(ROOT / script),
        "arguments": [str(argument) for argument in arguments],
        "processes": processes,
        "preload": [*USED_BY_ALL, *preload],
        "environment": variables | ONE_THREAD | dict(environment or {}),
    }
    return Program(request, f"{script} {' '.join(request['arguments'])}")


def start_code(code: str, folder: Path, *arguments: object) -> Program:
    """Start a script given as text, which is written to a folder first."""
    path = folder / "program.py"
    path.write_text(textwrap.dedent(code))
    return start(path, *arguments)


def finish(program: Program, code: int = 0, timeout: float = PATIENCE) -> tuple[str, str]:
    """Wait for a program, which must end by this code: what it printed, and its errors."""
    try:
        said = program.communicate(timeout)
    except subprocess.TimeoutExpired:
        program.terminate()
        said = program.communicate(60)
        raise AssertionError(f"{program.name}: no end within {timeout} s\n{said[1][-6000:]}") from None
    assert program.returncode == code, f"{program.name} ended by {program.returncode}\n{said[1][-6000:]}"
    return said


@functools.cache
def _server() -> socket.socket:
    """The connection to the server; it ends with this process."""
    near, far = socket.socketpair()
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    with far:
        process = subprocess.Popen(
            [sys.executable, "-c", "from tests.launcher import serve; serve()"],
            cwd=ROOT,
            env=os.environ | ONE_THREAD | {"PYTHONPATH": path},
            stdin=far,
        )

    def end() -> None:
        near.close()
        process.wait(60)

    atexit.register(end)
    return near


# The server's side


def serve() -> None:
    """Fork an agent for each request, until the tests' process ends."""
    client = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    while length := client.recv(4, socket.MSG_WAITALL):
        data = client.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
        _, fds, _, _ = socket.recv_fds(client, 1, 3)
        request = json.loads(data)
        for module in request["preload"]:
            importlib.import_module(module)
        gc.collect()
        gc.freeze()
        if not os.fork():
            client.close()
            return _run_ranks(request, *fds)
        for fd in fds:
            os.close(fd)
        _reap(os.WNOHANG)
    _reap(0)
    os._exit(0)


def _reap(options: int) -> None:
    """Wait for the agents that have ended, or for all."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, options)[0]:
            pass


def _run_ranks(request: dict[str, Any], report: int, *output: int) -> None:
    """In the agent: fork the ranks, and tell the tests how they ended; a rank that fails ends the others."""
    processes = request["processes"]
    store = socket.create_server(("127.0.0.1", 0)) if processes else None
    children = {}
    for rank in range(processes or 1):
        pid = os.fork()
        if not pid:
            if store is not None:
                request["environment"] |= _variables(rank, processes, store.getsockname()[1])
                store.close()
            os.close(report)
            return _become(request, *output)
        children[os.pidfd_open(pid)] = pid
    if store is not None:
        import torch.distributed

        port = store.getsockname()[1]
        _kept = torch.distributed.TCPStore(  # as long as the ranks run
            "127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=store.detach()
        )
    code = 0
    while children:
        ready, _, _ = select.select([*children, report], [], [])
        if report in ready:  # the tests' process has ended, or said so
            code = code or -signal.SIGTERM
        for pidfd in {*ready} & {*children}:
            status = os.waitstatus_to_exitcode(os.waitpid(children.pop(pidfd), 0)[1])
            code = code or status
        if code:
            for pid in children.values():
                os.kill(pid, signal.SIGKILL)
            for pid in children.values():
                os.waitpid(pid, 0)
            children = {}
    with contextlib.suppress(OSError):
        os.write(report, str(code).encode())
    os._exit(0)


def _variables(rank: int, processes: int, port: int) -> dict[str, str]:
    """What torchrun gives to a rank."""
    return dict(
        **dict(RANK=str(rank), LOCAL_RANK=str(rank), ROLE_RANK=str(rank), GROUP_RANK="0", GROUP_WORLD_SIZE="1"),
        **{name: str(processes) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE")},
        **dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_USE_AGENT_STORE="True"),
        **dict(TORCHELASTIC_RUN_ID="tests", TORCHELASTIC_RESTART_COUNT="0", TORCHELASTIC_MAX_RESTARTS="0"),
    )


def _become(request: dict[str, Any], output: int, errors: int) -> None:
    """In the rank: run the script as Python does, to the end of this process."""
    os.dup2(output, 1)
    os.dup2(errors, 2)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(ROOT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    script = request["script"]
    sys.argv = [script, *request["arguments"]]
    sys.path[0] = os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")
