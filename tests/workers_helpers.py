"""Jobs that run in worker processes, and a script that is killed."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from torchdali.seeding import seed_sample
from torchdali.workers import Answer


def forever() -> None:
    """Until the process is killed."""
    while True:
        time.sleep(60)


def _close_sockets() -> None:
    """Close a worker's connection, and the pool's ends of others that a fork inherits."""
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the list's own
            # No other files: the thread that watches the pool's process would end this one.
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                os.close(int(fd))


def wait_gone(pids: list[int], seconds: float | None = None) -> list[int]:
    """The processes of a list that stay; zombies are gone."""
    from tests.patience import PATIENCE, wait_until  # this file is a script too

    wait_until(lambda: not any(map(_alive, pids)), PATIENCE if seconds is None else seconds)
    return [pid for pid in pids if _alive(pid)]


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class TwoArgumentsError(ValueError):
    """Pickles, as its arguments are kept."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(code, text)
        self.code, self.text = code, text


class OneWayError(LookupError):
    """Pickles, and does not come back: it is made from two arguments and keeps one."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")


class LockedError(Exception):
    """Does not pickle."""

    def __init__(self) -> None:
        super().__init__("locked")
        import threading

        self.lock = threading.Lock()


class Job:
    """Does what the request says: (what, *arguments)."""

    def __init__(self) -> None:
        self.dataset = self
        self.inits: list[int] = []

    def describe(self, request: Any, progress: Any) -> Any:
        what, *arguments = request
        return getattr(self, what)(progress, *arguments)

    def read(self, request: Any, progress: Any) -> Answer:
        return Answer(self.describe(request, progress), request[0])

    def values(self, progress: Any, start: int, n: int, size: int) -> dict[str, Any]:
        arrays = []
        for index in range(start, start + n):
            progress(index)
            arrays.append(np.full(size, index % 251, np.uint8))
        return {"array": arrays, "index": np.arange(start, start + n), "pid": [os.getpid()] * n}

    def kinds(self, progress: Any) -> dict[str, Any]:
        progress(0)
        image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
        return {
            "ragged": [image, image[:, ::2], image.transpose(2, 0, 1), np.zeros((0, 3), np.uint8)],
            "whole": np.arange(12, dtype=np.float32).reshape(4, 3),
            "tensor": [torch.arange(3), torch.ones(2, 2, requires_grad=True), torch.zeros(0), torch.tensor(7)],
            "nested": [{"a": (image, "x")}, None, b"bytes", 1.5],
            "half": [torch.ones(2, dtype=torch.bfloat16)] * 4,
            "lambda": [lambda x: x + 1] * 4,
        }

    def note(self, progress: Any, factor: int) -> dict[str, Any]:
        progress(0)
        return {
            "array": np.full(50_000, factor),
            "tensor": torch.full((3,), factor),
            "lambda": lambda x: factor * x,
        }

    def unpicklable(self, progress: Any) -> dict[str, Any]:
        progress(3)
        return {"good": [1, 2], "bad": [1, (i for i in range(3))]}

    def random(self, progress: Any, indices: list[int]) -> dict[str, Any]:
        out = []
        for index in indices:
            progress(index)
            seed_sample(1, 2, index)
            out.append([random.random(), np.random.rand(), torch.rand(()).item()])
        return {"random": np.array(out)}

    def echo(self, progress: Any, numbers: list[int]) -> dict[str, Any]:
        return {"sum": [sum(numbers)]}

    def sleep(self, progress: Any, index: int, seconds: float) -> dict[str, Any]:
        progress(index)
        time.sleep(seconds)
        return {"index": [index]}

    def sleeps(self, progress: Any, n: int, seconds: float) -> dict[str, Any]:
        for index in range(n):
            progress(index)
            time.sleep(seconds)
        return {"index": list(range(n))}

    def info(self, progress: Any) -> dict[str, Any]:
        info = torch.utils.data.get_worker_info()
        row = [info.id, info.num_workers, info.dataset is self, torch.get_num_threads(), *self.inits]
        return {"info": [row], "seed": [info.seed], "drawn": [random.random()]}

    def modules(self, progress: Any) -> dict[str, Any]:
        return {"dali": [name for name in sys.modules if name.startswith("nvidia.dali")]}

    def fail(self, progress: Any, index: int, which: str) -> dict[str, Any]:
        progress(index)
        raise {
            "value": ValueError("no good"),
            "key": KeyError("missing"),
            "two": TwoArgumentsError(3, "three"),
            "one way": OneWayError(3, "three"),
            "locked": LockedError(),
            "stop": StopIteration(),
            "unicode": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
            "large": ValueError("x" * 300_000),
        }[which]

    def die(self, progress: Any, index: int, how: str) -> dict[str, Any]:
        progress(index - 1)
        progress(index)
        if how == "exit":
            os._exit(7)
        if how == "sys.exit":
            sys.exit(8)
        if how == "segfault":
            faulthandler.disable()  # pytest's
            ctypes.string_at(0)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "close":  # without its connection, but alive
            _close_sockets()
            forever()
        # In the middle of a write: the second of two large arrays is copied when the process ends.
        return {"array": [np.ones(700_000, np.uint8), _Deadly(np.ones(700_000, np.uint8))]}

    def fill(self, progress: Any, index: int, size: int) -> dict[str, Any]:
        progress(index)
        return {"array": np.ones(size, np.uint8)}


class _Deadly:
    """Ends its process while it is pickled."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __reduce__(self) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)
        return list, ()


class HeavyJob(Job):
    """Sets itself up where it arrives."""

    def __init__(self) -> None:
        super().__init__()
        self.set_up_in: list[int] = []

    def __getstate__(self) -> dict[str, Any]:
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__()
        self.set_up_in = [os.getpid()]

    def where(self, progress: Any) -> dict[str, Any]:
        return {"set up": [self.set_up_in], "pid": [os.getpid()]}


def note_init(number: int) -> None:
    torch.utils.data.get_worker_info().dataset.inits.append(number + 100)


def fail_init(number: int) -> None:
    raise TwoArgumentsError(number, "no set-up")


def exit_init(number: int) -> None:
    os._exit(9)


def hang_init(number: int) -> None:
    forever()


def limit_files(number: int) -> None:
    """No file of this process, shared memory too, may be longer than 8 MiB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 << 20, 8 << 20))


def limit_memory(number: int) -> None:
    """Let the machine seem to have 1 MiB of memory."""
    from torchdali.workers import memory

    memory.available = lambda: 1 << 20


def run_script(mode: str) -> subprocess.Popen[str]:
    """This file as a script in a process of its own: pools under all start methods, then what `mode` says."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", __file__, mode],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=os.path.dirname(os.path.dirname(__file__)),
        start_new_session=True,  # so that Ctrl-C can be sent to all of it
    )


METHODS = ("fork", "spawn", "forkserver")


def script(mode: str) -> None:
    from torchdali.workers import Task, WorkerPool

    pools = [WorkerPool(Job(), 1 if method == "spawn" else 2, context=method) for method in METHODS]
    for pool in pools:
        pool.start()
    for pool in pools:
        for result in pool.run(Task(i, ("values", i, 1, 10)) for i in range(4)):
            result.release()
    runs = [pool.run(Task(i, ("sleep", i, 0.0 if i == 0 else 600)) for i in range(4)) for pool in pools]
    for run in runs:
        next(run)
    sys.stdout.write(" ".join(str(pid) for pool in pools for pid in pool.pids) + "\n")
    sys.stdout.flush()
    if mode == "exit":
        return
    if mode == "raise":
        raise ArithmeticError("of the user")
    next(runs[0])  # waits


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    script(sys.argv[1])
