"""What a pool of workers raises on purpose."""

from __future__ import annotations

import signal

from ..errors import LoaderTimeoutError, TorchDaliError


class WorkerDiedError(TorchDaliError, RuntimeError):
    """A worker process ended by itself, or was killed.

    Attributes:
        worker: its number.
        pid: its process id.
        exitcode: its exit code; negative: the signal that ended it; None: not known.
        task: the number of the task that it was on, or None.
        index: the sample that it was on, or None.
        stage: "started", "was idle", "computed" or "handed over".
    """

    def __init__(
        self, worker: int, pid: int, exitcode: int | None, task: int | None, index: int | None, stage: str
    ) -> None:
        super().__init__(worker, pid, exitcode, task, index, stage)
        self.worker, self.pid, self.exitcode = worker, pid, exitcode
        self.task, self.index, self.stage = task, index, stage

    def __str__(self) -> str:
        return f"worker {self.worker} (pid {self.pid}) {_ending(self.exitcode)} while it {self.stage}{_place(self)}"


class WorkerTimeoutError(LoaderTimeoutError):
    """A sample took longer than `timeout` seconds, or a worker longer than `ready_timeout` to start.

    Attributes:
        worker: the worker's number; it was killed.
        pid: its process id.
        timeout: the limit in seconds.
        task: the number of the task that it was on, or None.
        index: the sample that it was on, or None.
        stage: "started", "computed" or "handed over".
    """

    def __init__(self, worker: int, pid: int, timeout: float, task: int | None, index: int | None, stage: str) -> None:
        super().__init__(worker, pid, timeout, task, index, stage)
        self.worker, self.pid, self.timeout = worker, pid, timeout
        self.task, self.index, self.stage = task, index, stage

    def __str__(self) -> str:
        over = f"took over {self.timeout:g} s while it {self.stage}{_place(self)}"
        return f"worker {self.worker} (pid {self.pid}) {over}, and was killed"


class SharedMemoryError(TorchDaliError, MemoryError):
    """There is too little memory for a result.

    Attributes:
        needed: bytes.
        available: bytes.
    """

    def __init__(self, needed: int, available: int) -> None:
        super().__init__(needed, available)
        self.needed, self.available = needed, available

    def __str__(self) -> str:
        needed, available = (f"{size / 2**20:.1f} MiB" for size in (self.needed, self.available))
        return (
            f"a worker's result needs {needed} of shared memory, and {available} are available: "
            "use fewer workers, a smaller prefetch_factor or batch_size, or smaller samples"
        )


def _ending(exitcode: int | None) -> str:
    if exitcode is None:
        return "ended or closed its connection"
    if exitcode >= 0:
        return f"exited with code {exitcode}"
    try:
        name = signal.Signals(-exitcode).name
    except ValueError:
        name = f"signal {-exitcode}"
    return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


def _place(error: WorkerDiedError | WorkerTimeoutError) -> str:
    sample = "" if error.index is None else f" sample {error.index}"
    if error.task is None:
        return sample
    return f"{sample} of task {error.task}" if sample else f" task {error.task}"
