"""DALI's external source: a callback that is asked for each sample, or each batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from ..checks import integer
from ..distributed import Shard
from ..fingerprint import digest
from ..kinds import AnyKind
from ..options import Options
from ..order import Epoch, Rows
from ..source import Pass, Reading
from ..state import Position
from .callback_job import BatchInfo, CallbackDescribe, CallbackJob, CallbackRead, SampleInfo
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
        fields, ragged, kinds: as for `PythonDataset`; but samples have one shape in all fields that `ragged` does not
            name, since no others can be looked at before.

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
        kinds: Mapping[str, AnyKind] | None = None,
    ) -> None:
        if not callable(callback):
            raise TypeError(
                f"callback must be callable with a SampleInfo or BatchInfo, got {type(callback).__name__}: "
                "for an iterable write IterableSource(...)"
            )
        super().__init__(fields, ragged, kinds)
        self.callback, self.batch = callback, batch
        self.whole_batches = bool(batch)
        self._epoch, self._batch_size = 0, 1
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

    def bind(self, options: Options) -> Self:
        bound = super().bind(options)
        bound._batch_size = options.batch_size or 1
        return bound

    def job(self) -> CallbackJob:
        return CallbackJob(self.callback, self.batch)

    def prepare(self, seed: int, start: Position, shard: Shard, epoch: Epoch) -> None:
        super().prepare(seed, start, shard, epoch)
        self._epoch = start.epoch

    def describe_request(self, worker: int) -> CallbackDescribe:
        infos = [self._info(index, number) for number, index in enumerate(self._first)]
        return CallbackDescribe([*infos, self._info(0, 0)], self._names, self._kinds)

    def _info(self, index: int, number: int) -> SampleInfo | BatchInfo:
        """Make the question for a sample, or a batch, that is the n-th from where a pass starts."""
        if self.batch:
            return BatchInfo(index, self._epoch)
        size = self._batch_size
        first = index - number % size
        return SampleInfo(index, number % size, -(-first // size), self._epoch)

    def open(self, pass_: Pass) -> Reading:
        if pass_.shard.world_size > 1 and not _names_shards(self.callback):
            self.warn_once(
                f"each of {pass_.shard.world_size} ranks asks its own callback, and nothing in this one is named after "
                "a shard or a rank: if it answers the same on all ranks, they train on the same samples.  Write a "
                "callback that has shard_id and num_shards, as in DALI's examples"
            )
        structure = self.structure

        def request(rows: Rows) -> CallbackRead:
            first = int(rows.indices[0])
            iteration = first if self.batch else -(-first // pass_.batch_size)  # positions count batches, or samples
            return CallbackRead(pass_.seed, pass_.key, pass_.epoch, iteration, rows.indices.tolist(), structure)

        return make_reading(self, pass_, request)


def _names_shards(callback: Any) -> bool:
    """Whether a name in a callback tells that it knows of shards or ranks."""
    found, names = [callback], set[str]()
    for one in found:
        names |= set(getattr(one, "__dict__", {})) | set(getattr(one, "keywords", None) or {})
        for code in (getattr(function, "__code__", None) for function in (one, vars(type(one)).get("__call__"))):
            if code is None:
                continue
            names |= {*code.co_names, *code.co_freevars, *code.co_varnames}
        inner = getattr(one, "func", None) or getattr(one, "__wrapped__", None) or getattr(one, "__self__", None)
        if inner is not None and len(found) < 5:
            found.append(inner)
    return any(word in name.lower() for name in names for word in ("shard", "rank", "world", "replica"))
