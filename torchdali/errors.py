"""The errors that torchdali raises on purpose.

    TorchDaliError
     +-- StateMismatchError (ValueError)   a checkpoint of another dataset, seed, order or version
     +-- TransformError (TypeError)        a transform returned something that is not a batch
     +-- FieldTypeError (TypeError)        a value differs from its field's others in kind, dtype or dimensions
     +-- PadValueError (ValueError)        `pad_value` does not fit a ragged field, or names an unknown one
     +-- BadSampleError (RuntimeError)     one sample could not be read, decoded or transformed
     +-- TooManyBadSamplesError (RuntimeError)  a pass met more bad samples than `max_bad_samples`
     +-- ReaderError (RuntimeError)        a native reader failed for a batch
     +-- EngineError (RuntimeError)        an operation failed for the batch, though each sample passes alone
     +-- LoaderTimeoutError (TimeoutError) no batch arrived within the loader's `timeout`
     |    +-- WorkerTimeoutError           a sample took longer than `timeout` in a worker
     +-- WorkerDiedError (RuntimeError)    a worker process exited, or was killed
     +-- SharedMemoryError (MemoryError)   there is too little shared memory for a worker's result
     +-- OutOfMemoryError (MemoryError)    memory, or threads, ran out while a batch was made
     +-- OpenFilesError (OSError)          the process may open no more files
     +-- RankMismatchError (RuntimeError)  the ranks of one job do not read one stream

Invalid arguments raise plain `ValueError` and `TypeError`, as in torch.
"""

from __future__ import annotations

import errno
import functools
import signal
import threading
import traceback
from types import CodeType
from typing import Any


class TorchDaliError(Exception):
    """Base of all errors in this package.

    Each of them can be made from one string, as libraries do that carry errors between processes; what the string does
    not say is None then.
    """

    def _text(self) -> str | None:
        """The string, if the error was made from one alone."""
        return self.args[0] if len(self.args) == 1 and isinstance(self.args[0], str) else None


class StateMismatchError(TorchDaliError, ValueError):
    """A state belongs to another stream; the message has a line for each difference, with what was expected and got."""


class TransformError(TorchDaliError, TypeError):
    """A transform returned something that can't become a batch."""


class KindError(TorchDaliError, ValueError):
    """The kind of a field is in doubt, and a transform depends on it: `kinds=` says it."""


class FieldTypeError(TorchDaliError, TypeError):
    """A value differs from the others of its field: in kind, dtype, number of dimensions or of channels.

    A loader that knows the sample raises a `BadSampleError` with this error as its cause.

    Attributes:
        field: the field's name.
        expected, got: the two forms, in words.
        first: the sample that showed what was expected.
        sample: the sample with the other value, if it is known here.
        remedy: the advice at the message's end.
    """

    def __init__(
        self,
        field: str,
        expected: str | None = None,
        got: str | None = None,
        first: str = "the first sample",
        sample: str = "",
        remedy: str = "",
    ) -> None:
        if expected is None:
            super().__init__(field)
        else:
            super().__init__(field, expected, got, first, sample, remedy)
        self.field, self.expected, self.got = field, expected, got
        self.first, self.sample, self.remedy = first, sample, remedy

    def __str__(self) -> str:
        if (text := self._text()) is not None:
            return text
        where = f" in {self.sample}" if self.sample else ""
        remedy = f": {self.remedy}" if self.remedy else ""
        return f"{self.field!r} must be {self.expected}, as in {self.first}, got {self.got}{where}{remedy}"


class PadValueError(TorchDaliError, ValueError):
    """`pad_value` does not fit the dtype of a ragged field, or names an unknown field."""


class ReaderError(TorchDaliError, RuntimeError):
    """A native reader of DALI failed.  DALI names no sample, and the batch is lost."""


class EngineError(TorchDaliError, RuntimeError):
    """A batch failed, though each of its samples passes alone; padded to one size, its images may be too large."""


class LoaderTimeoutError(TorchDaliError, TimeoutError):
    """No batch arrived within the loader's `timeout` (seconds)."""


class RankMismatchError(TorchDaliError, RuntimeError):
    """The ranks of one job do not read one stream, or share a GPU; the message has a line for each difference."""


class BadSampleError(TorchDaliError, RuntimeError):
    """One sample failed.

    Attributes:
        index: its index in the dataset.
        path: its file, or None where the dataset has no files.
        stage: "read", "decode" or "transform".
        reason: the first line of the cause.
    """

    def __init__(
        self, index: int | str, path: str | None = None, stage: str | None = None, reason: str | None = None
    ) -> None:
        # All four go to Exception, so that the error can be pickled (multiprocessing, torch.distributed).
        super().__init__(*((index,) if isinstance(index, str) else (index, path, stage, reason)))
        self.index = None if isinstance(index, str) else index
        self.path, self.stage, self.reason = path, stage, reason

    def __str__(self) -> str:
        if (text := self._text()) is not None:
            return text
        where = f" ({self.path})" if self.path else ""
        return f"{self.stage} failed for sample {self.index}{where}: {self.reason}"


class TooManyBadSamplesError(TorchDaliError, RuntimeError):
    """A pass met more bad samples than `max_bad_samples` allows: a broken disk, say, and no few damaged files."""


class WorkerDiedError(TorchDaliError, RuntimeError):
    """A worker process exited, or was killed.

    Attributes:
        worker: its number.
        pid: its process id.
        exitcode: its exit code; negative: the signal that ended it; None: unknown.
        task: the number of the task that it worked on, or None.
        index: the sample that it worked on, or None.
        stage: what it did: "started", "was idle", "computed" or "handed over".
    """

    def __init__(
        self,
        worker: int | str,
        pid: int | None = None,
        exitcode: int | None = None,
        task: int | None = None,
        index: int | None = None,
        stage: str | None = None,
    ) -> None:
        super().__init__(*((worker,) if isinstance(worker, str) else (worker, pid, exitcode, task, index, stage)))
        self.worker = None if isinstance(worker, str) else worker
        self.pid, self.exitcode = pid, exitcode
        self.task, self.index, self.stage = task, index, stage

    def __str__(self) -> str:
        if (text := self._text()) is not None:
            return text
        return f"worker {self.worker} (pid {self.pid}) {_ending(self.exitcode)} while it {self.stage}{_place(self)}"


class WorkerTimeoutError(LoaderTimeoutError):
    """A sample took longer than `timeout` seconds, or a worker longer than `ready_timeout` to start.

    Attributes:
        worker: the worker's number; it was killed.
        pid: its process id.
        timeout: the limit in seconds.
        task: the number of the task that it worked on, or None.
        index: the sample that it worked on, or None.
        stage: what it did: "started", "computed" or "handed over".
    """

    def __init__(
        self,
        worker: int | str,
        pid: int | None = None,
        timeout: float | None = None,
        task: int | None = None,
        index: int | None = None,
        stage: str | None = None,
    ) -> None:
        super().__init__(*((worker,) if isinstance(worker, str) else (worker, pid, timeout, task, index, stage)))
        self.worker = None if isinstance(worker, str) else worker
        self.pid, self.timeout = pid, timeout
        self.task, self.index, self.stage = task, index, stage

    def __str__(self) -> str:
        if (text := self._text()) is not None:
            return text
        over = f"took over {self.timeout:g} s while it {self.stage}{_place(self)}"
        return f"worker {self.worker} (pid {self.pid}) {over}, and was killed"


class OpenFilesError(TorchDaliError, OSError):
    """The process has as many files open as it may: no fault of a sample."""


class SharedMemoryError(TorchDaliError, MemoryError):
    """There is too little shared memory for a worker's result.

    Attributes:
        needed: the result's bytes.
        available: the bytes that are free.
    """

    def __init__(self, needed: int | str, available: int | None = None) -> None:
        super().__init__(*((needed,) if isinstance(needed, str) else (needed, available)))
        self.needed = None if isinstance(needed, str) else needed
        self.available = available

    def __str__(self) -> str:
        if (text := self._text()) is not None:
            return text
        needed, available = (f"{(size or 0) / 2**20:.1f} MiB" for size in (self.needed, self.available))
        return (
            f"a worker's result needs {needed} of shared memory, and {available} are available: "
            "use fewer workers, a smaller prefetch_factor or batch_size, or smaller samples"
        )


class OutOfMemoryError(TorchDaliError, MemoryError):
    """Memory, or threads, ran out while a batch was made: no fault of a sample."""


_OF_MEMORY = (
    "bad_alloc", "allocate memory", "out of memory", "insufficient memory",
    "can't start new thread", "resource temporarily unavailable",
)  # fmt: skip


def of_memory(error: BaseException | None) -> bool:
    """Tell whether an error, or one of its causes, says that the system has no more memory or threads to give."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        if isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _OF_MEMORY):  # DALI, torch
            return True
        error = error.__cause__ or error.__context__
    return False


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


def first_line(error: BaseException) -> str:
    """Return the first line of an error that has words in it; for a pipeline's error, the first after its traceback."""
    text = next((line.strip() for line in str(error).rpartition("encountered:")[2].splitlines() if line.strip()), "")
    return text or type(error).__name__


def leave_frame(error: Exception) -> Exception:
    """Remove the frame that caught an error from its traceback: a stage goes on, and its errors must not hold it."""
    return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)


def forget_frames(error: BaseException | None) -> None:
    """Clear the local variables in the tracebacks of an error and its causes.

    An error that a user keeps would otherwise keep batches, threads and DALI's objects alive.  File names and line
    numbers stay.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def let_through(error: BaseException) -> None:
    """Raise a signal handler's exception that an error holds: it is meant for the caller, and not a sample's fault.

    Every `except Exception` around user code, or around a wait in the caller's thread, begins with this call.
    """
    found = interruption(error)
    if found is not None:
        raise found


def interruption(error: BaseException) -> BaseException | None:
    """Find the exception of a signal handler in an error and its causes; None where there is none.

    A handler that is set only while a sample is made, such as that of a time limit, belongs to the sample.
    """
    if threading.current_thread() is not threading.main_thread():
        return None  # handlers run in no other thread
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()} - {None}
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        trace = found.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code in handlers:
                return found
            trace = trace.tb_next
        found = found.__cause__ or found.__context__
    return None


def displaced(error: Exception) -> BaseException | None:
    """Find the interrupt in whose place a lock of Python's raised an error; None: it is no such error.

    An interrupt that comes while a thread waits, or starts another one, may leave `threading.Condition` without its
    lock, and its block then ends with "release unlocked lock".
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if not isinstance(error, RuntimeError) or trace is None or trace.tb_frame.f_globals is not vars(threading):
        return None
    found = error.__context__
    while found is not None and isinstance(found, Exception):
        found = found.__context__
    return found


def _code(handler: Any) -> CodeType | None:
    """Find the code of a signal handler: a function, a method, a partial or a callable object."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):  # SIG_DFL, SIG_IGN, or a handler that was not set from Python
        return None
    if not hasattr(handler, "__code__"):
        handler = handler.__call__
    code = getattr(handler, "__code__", None)
    return code if isinstance(code, CodeType) else None
