"""Everything torchdali raises on purpose.

    TorchDaliError
     +-- StateMismatchError (ValueError)   a checkpoint of another dataset, seed, order or version
     +-- TransformError (TypeError)        a transform returned something that is no batch
     +-- BadSampleError (RuntimeError)     one sample could not be read, decoded or transformed
     +-- ReaderError (RuntimeError)        a native reader failed for a batch
     +-- EngineError (RuntimeError)        an operation failed for the batch, though each sample is fine
     +-- LoaderTimeoutError (TimeoutError) no batch within the loader's `timeout`

Wrong arguments are plain `ValueError` and `TypeError`, as in torch.
"""

from __future__ import annotations

import traceback


class TorchDaliError(Exception):
    """Base of all errors of this package."""


class StateMismatchError(TorchDaliError, ValueError):
    """The state belongs to another stream; one line for each difference, with expected and got."""


class TransformError(TorchDaliError, TypeError):
    """A transform returned something that cannot become a batch."""


class ReaderError(TorchDaliError, RuntimeError):
    """A native reader of DALI failed; it names no sample, and the batch is lost."""


class EngineError(TorchDaliError, RuntimeError):
    """A batch failed, though each of its samples passes alone."""


class LoaderTimeoutError(TorchDaliError, TimeoutError):
    """No batch arrived within the loader's `timeout` (seconds)."""


class BadSampleError(TorchDaliError, RuntimeError):
    """One sample failed.

    Attributes:
        index: its index in the dataset.
        path: its file, or None where the dataset has no files.
        stage: "read", "decode" or "transform".
        reason: the first line of the cause.
    """

    def __init__(self, index: int, path: str | None, stage: str, reason: str) -> None:
        # All four go to Exception, so that the error pickles (multiprocessing, torch.distributed).
        super().__init__(index, path, stage, reason)
        self.index, self.path, self.stage, self.reason = index, path, stage, reason

    def __str__(self) -> str:
        where = f" ({self.path})" if self.path else ""
        return f"{self.stage} failed for sample {self.index}{where}: {self.reason}"


def first_line(error: BaseException) -> str:
    """The error's first line with words in it; of a pipeline's, the first behind its traceback."""
    text = next((line.strip() for line in str(error).rpartition("encountered:")[2].splitlines() if line.strip()), "")
    return text or type(error).__name__


def leave_frame(error: Exception) -> Exception:
    """The error without the frame that caught it: a stage's, which goes on and must not be kept by its errors."""
    return error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)


def forget_frames(error: BaseException | None) -> None:
    """Clear the locals of the frames behind an error and its causes.

    An error that a user keeps would otherwise keep batches, threads and DALI's objects alive.  File names and line
    numbers stay.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
