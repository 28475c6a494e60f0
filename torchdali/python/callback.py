"""DALI's external source: a callback that is asked for each sample, or each batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..checks import integer
from ..fingerprint import digest
from ..order import Rows
from ..source import Pass, Reading
from .callback_job import CallbackDescribe, CallbackJob, CallbackRead
from .reading import make_reading
from .source import PythonSource


class SampleSource(PythonSource):
    """Samples from a callback, as DALI's `external_source(parallel=True)` takes them.

    The callback gets a `SampleInfo` and returns a sample; with `batch=True` it gets a `BatchInfo` and returns one array
    or list of samples for each field.  It raises StopIteration to end the epoch: the first iteration that has it ends
    it for all workers, and the samples before it are the last batch.  Each rank asks its own callback for its own
    samples, so the callback decides about shards, as in DALI.  It must answer the same question in the same way.

    Args:
        callback: the callback.
        batch: it makes whole batches.
        num_samples: the samples per epoch on each rank, where that is known: the loader has a length then.  Not with
            `batch`, where the callback decides how large batches are.
        fields, ragged: as for `PythonDataset`.

    Raises:
        TypeError: it is not callable.
        ValueError: `num_samples` with `batch`.
    """

    endless = True
    collates = False

    def __init__(
        self,
        callback: Callable[[Any], Any],
        *,
        batch: bool = False,
        num_samples: int | None = None,
        fields: Sequence[str] | None = None,
        ragged: Sequence[str] = (),
    ) -> None:
        if not callable(callback):
            raise TypeError(
                f"callback must be callable with a SampleInfo or BatchInfo, got {type(callback).__name__}: "
                "for an iterable write IterableSource(...)"
            )
        super().__init__(fields, ragged)
        self.callback, self.batch = callback, batch
        self.whole_batches = bool(batch)
        self.num_samples = None if num_samples is None else integer("num_samples", num_samples, 1)
        if batch and num_samples is not None:
            raise ValueError("num_samples counts samples, and batch=True makes batches of any size: leave it out")

    def __len__(self) -> int:
        if self.num_samples is None:
            raise TypeError("a SampleSource has no length: write num_samples= where it is known")
        return self.num_samples

    def fingerprint(self) -> str:
        """Tell the callback from others by its name and the options."""
        name = getattr(self.callback, "__qualname__", type(self.callback).__qualname__)
        return f"callback {name[:60]} {digest(self.batch, self.num_samples)}"

    def job(self) -> CallbackJob:
        return CallbackJob(self.callback, self.batch)

    def describe_request(self, worker: int) -> CallbackDescribe:
        return CallbackDescribe(self._names)

    def open(self, pass_: Pass) -> Reading:
        structure = self.structure

        def request(rows: Rows) -> CallbackRead:
            first = int(rows.indices[0])
            iteration = first if self.batch else -(-first // pass_.batch_size)  # positions count batches, or samples
            return CallbackRead(pass_.seed, pass_.key, pass_.epoch, iteration, rows.indices.tolist(), structure)

        return make_reading(self, pass_, request)
