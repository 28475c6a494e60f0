"""Iterable datasets of torch, and any iterable: each worker iterates its part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from torch.utils.data import IterableDataset

from ..checks import one_of
from ..distributed import Shard
from ..fingerprint import digest
from ..options import Options
from ..source import Pass, Reading
from ..state import Position
from .iterable_job import DESCRIBED, IterableDescribe, IterableJob, IterablePass
from .iterable_reading import IterableReading, begin_of
from .snapshot import Snapshot
from .source import PythonSource


class IterableSource(PythonSource):
    """An `IterableDataset`, or any iterable that can be iterated again, read in order.

    `DataLoader(dataset, num_workers=2)` wraps an `IterableDataset` in it.  Each worker iterates a copy and makes whole
    batches; they come in turn.  So the batches depend on the number of workers, which is part of the state.

    The state holds where each worker stands: the `state_dict` of the dataset where it has one (with `load_state_dict`),
    else the number of samples that were taken.  A resume iterates those again, with a warning: they have to be the same
    ones.  The state is the same on all ranks, and another number of ranks may go on with it; but with shard="none" each
    rank has its own.  Where the dataset has a `set_epoch`, it is told the epoch before each pass.

    The end of an iterable is not known before it comes: with several ranks, the first ones may have one batch more than
    the others, but not with drop_last=True.

    Before each sample, the generators of Python, numpy and torch are seeded by (seed, epoch, number of samples taken).

    Args:
        dataset: the iterable, or a generator function, which is called for each pass.
        shard: how workers and ranks share it.  "skip": each takes every n-th sample of the whole.  "none": the dataset
            shares itself, among workers and ranks.  "auto": as "skip"; but a dataset that asks
            `torch.utils.data.get_worker_info` shares itself among workers.
        fields, ragged: as for `PythonDataset`.

    Raises:
        TypeError: it can't be iterated, or only once.
    """

    endless = True
    seekable = False
    state_keys = ("iterable",)

    def __init__(
        self,
        dataset: Iterable[Any] | Callable[[], Iterable[Any]],
        *,
        shard: str = "auto",
        fields: Sequence[str] | None = None,
        ragged: Sequence[str] = (),
    ) -> None:
        own = isinstance(dataset, IterableDataset) or hasattr(dataset, "state_dict")
        if isinstance(dataset, Iterator) and not own:
            raise TypeError(
                f"a {type(dataset).__name__} can be iterated only once: write the function that makes it, or an object "
                "whose __iter__ begins anew"
            )
        if callable(dataset) and not hasattr(dataset, "__iter__"):
            dataset = Called(dataset)
        if not hasattr(dataset, "__iter__"):
            raise TypeError(f"dataset must be an iterable, got {type(dataset).__name__}")
        one_of("shard", shard, ("auto", "skip", "none"))
        super().__init__(fields, ragged)
        self.dataset, self.shard = dataset, shard
        self._next_pass: tuple[int, Position, Shard] | None = None
        self._job: IterableJob | None = None  # one for all passes, since it knows the dataset's first state

    def fingerprint(self) -> str:
        """Tell the iterable from others by its type, and its own `fingerprint` where it has one."""
        own = getattr(self.dataset, "fingerprint", None)
        return f"iterable {type(self.dataset).__name__[:60]} {digest(own() if callable(own) else None)}"

    def bind(self, options: Options) -> Self:
        """Make a copy that reads with a loader's workers.

        The first loader also gets the pass that was begun here to describe the first sample.
        """
        bound = super().bind(options)
        self._job = self._pools = None
        return bound

    def job(self) -> IterableJob:
        if self._job is None:
            self._job = IterableJob(self.dataset, self.shard)
        return self._job

    def prepare(self, seed: int, start: Position, shard: Shard) -> None:
        self._next_pass = seed, start, shard

    def describe_request(self, worker: int) -> IterableDescribe:
        seed, start, shard = self._next_pass or (self.pools.options.seed, Position(), Shard(0, 1))
        count = max(1, self.pools.options.num_workers)
        begin = begin_of(start, count, list(shard) if self.shard == "none" else None)
        part = IterablePass(seed, start.key, worker, count, *shard, DESCRIBED)
        return IterableDescribe(part, begin.workers[worker], self._names, {})

    def open(self, pass_: Pass) -> Reading:
        return IterableReading(self, pass_, type(self.dataset).__name__, self.shard)

    def pack(self, snapshot: Any) -> dict[str, Any]:
        return {"iterable": "" if snapshot is None else snapshot.pack()}

    def unpack(self, state: Mapping[str, Any], position: Position, strict: bool = True) -> Snapshot:
        workers = max(1, self.pools.options.num_workers)
        snapshot = Snapshot.unpack(state.get("iterable", ""), position, workers)
        return snapshot if strict else snapshot.unverified()


class Called:
    """An iterable that calls a function for each iteration, and iterates its result."""

    def __init__(self, function: Callable[[], Iterable[Any]]) -> None:
        self.function = function

    def __iter__(self) -> Iterator[Any]:
        return iter(self.function())
