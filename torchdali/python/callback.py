"""DALI's external source: a callback that is asked for each sample, or each batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..batch import Columns
from ..checks import integer
from ..datasets.base import digest
from ..order import Rows
from ..seeding import seeded
from ..source import Pass
from .base import END, LocalReading, PooledReading, PythonSource, make_reading
from .sample import Structure


class SampleInfo(NamedTuple):
    """Which sample is asked for; DALI's words.

    Attributes:
        idx_in_epoch: its index within the epoch, on this rank.
        idx_in_batch: its index within the batch.
        iteration: the number of the batch within the epoch.
        epoch_idx: the number of the epoch.
    """

    idx_in_epoch: int
    idx_in_batch: int
    iteration: int
    epoch_idx: int


class BatchInfo(NamedTuple):
    """Which batch is asked for; DALI's words.

    Attributes:
        iteration: the number of the batch within the epoch.
        epoch_idx: the number of the epoch.
    """

    iteration: int
    epoch_idx: int


class SampleSource(PythonSource):
    """Samples from a callback, as DALI's `external_source(parallel=True)` takes them.

    The callback gets a `SampleInfo` and returns a sample; with `batch=True` it gets a `BatchInfo` and returns one array
    or list of samples for each field.  It raises StopIteration to end the epoch: the first iteration that has it ends
    it for all workers, and the samples before it are the last batch.  Each rank asks its own callback for its own
    samples, so shards are the callback's business, as in DALI.  It must answer the same question in the same way.

    Args:
        callback: the callback.
        batch: it makes whole batches.
        num_samples: of an epoch and rank, where that is known: the loader has a length then.  Not with `batch`, where
            the callback decides how large batches are.
        fields, ragged: as for `PythonDataset`.

    Raises:
        TypeError: it is not callable.
        ValueError: `num_samples` with `batch`.
    """

    endless = True

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
            raise TypeError("a SampleSource has no length unless num_samples= says it")
        return self.num_samples

    def fingerprint(self) -> str:
        """Of the callback's name and the options."""
        name = getattr(self.callback, "__qualname__", type(self.callback).__qualname__)
        return f"callback {name[:60]} {digest(self.batch, self.num_samples)}"

    def job(self) -> Any:
        return CallBack(self.callback, self.batch)

    def first(self) -> Any:
        return None

    def open(self, pass_: Pass) -> LocalReading | PooledReading:
        structure = self.structure

        def payload(rows: Rows) -> Any:
            first = int(rows.indices[0])
            iteration = first if self.batch else -(-first // pass_.batch_size)  # positions count batches, or samples
            return pass_.seed, pass_.key, pass_.epoch, iteration, rows.indices.tolist(), structure

        return make_reading(self, pass_, payload)


class CallBack:
    """What runs in a worker."""

    def __init__(self, callback: Callable[[Any], Any], batch: bool) -> None:
        self.dataset = callback
        self._batch = batch

    def __call__(self, payload: Any, progress: Callable[[int], None]) -> Columns:
        if payload[0] == "describe":
            progress(0)
            seeded(0, 0, 0)
            try:
                first = self.dataset(BatchInfo(0, 0) if self._batch else SampleInfo(0, 0, 0, 0))
            except StopIteration as error:
                raise ValueError(
                    "the callback gives no sample: it raised StopIteration when asked for the first"
                ) from error
            return {"structure": [Structure.of(_rows(first)[0] if self._batch else first, payload[1])]}
        seed, key, epoch, iteration, indices, structure = payload
        rows: list[list[Any]] = []
        ended = False
        try:
            if self._batch:
                progress(indices[0])
                seeded(seed, key, indices[0])
                rows = [structure.values(sample) for sample in _rows(self.dataset(BatchInfo(iteration, epoch)))]
            else:
                for place, index in enumerate(indices):
                    progress(index)
                    seeded(seed, key, index)
                    rows.append(structure.values(self.dataset(SampleInfo(index, place, iteration, epoch))))
        except StopIteration:
            ended = True
        columns: Columns = structure.columns(rows)
        return {**columns, END: [ended]}


def _rows(batch: Any) -> list[Any]:
    """The samples of a batch that is one array or list of samples for each field."""
    named = isinstance(batch, Mapping)
    columns = list(batch.values()) if named else list(batch) if isinstance(batch, tuple) else [batch]
    sizes = [len(column) for column in columns]
    if not sizes or len(set(sizes)) > 1 or not sizes[0]:
        raise ValueError(
            f"a callback's batch must hold one array or list of samples for each field, all of one length above 0, got "
            f"lengths {sizes}; write raise StopIteration to end the epoch"
        )
    if named:
        return [dict(zip(batch, values, strict=True)) for values in zip(*columns, strict=True)]
    return list(zip(*columns, strict=True)) if isinstance(batch, tuple) else list(batch)
