"""Iterable datasets of torch, and any iterable: each worker iterates its part."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from typing import Any, Self

from ..checks import flag, has_length, one_of
from ..distributed import Shard
from ..errors import StateMismatchError
from ..fingerprint import digest
from ..kinds import AnyKind
from ..options import Options
from ..order import Batching, Endless, Epoch, Order
from ..source import Pass, Reading
from ..state import Position
from .iterable_job import IterableJob
from .iterable_reading import IterableReading, begin_of
from .iterable_requests import DESCRIBED, IterableDescribe, IterablePass
from .own_state import holds_buffer, takes_state
from .snapshot import Snapshot
from .source import PythonSource


class IterableSource(PythonSource):
    """An `IterableDataset`, or any iterable that can be iterated again, read in order.

    `DataLoader(dataset, num_workers=2)` wraps an `IterableDataset` in it.  Each worker iterates a copy and makes whole
    batches; they come in turn.  So the batches depend on the number of workers, which is part of the state.

    The state holds where each worker stands: the `state_dict` of the dataset or of its iterator where one has it (with
    `load_state_dict`), else the number of samples that were taken.  A resume iterates those again, with a warning, and
    raises StateMismatchError where they are others.  The state is the same on all ranks, and another number of ranks
    may go on with it; but with shard="none" each rank has its own.  Another number of workers may go on at the start of
    an epoch, and in the middle of one where the workers share the iterable by "skip".

    The dataset is iterated once per epoch, and an epoch that it counts by itself (in its state, or in an integer
    attribute) goes on as with torch's loader without workers, in new workers and after a resume too.  Where it has a
    `set_epoch`, it is told the epoch before each pass.

    The end of an iterable is not known before it comes: with several ranks, the first ones may have one batch more than
    the others, but not with drop_last=True.

    Where the iterator raises, the error reaches the caller once, and the samples before it come in the next batch.
    With on_bad_sample="skip" the item is left out, and noted in `loader.bad_samples` under its number in its worker's
    iteration.  A generator ends with its first error, so it can't be iterated further.

    Before each sample, the generators of Python, numpy and torch are seeded by (seed, epoch, number of samples taken).

    Args:
        dataset: the iterable; or a generator function or a class, which is called for each pass.
        shard: how workers and ranks share it.  "skip": each takes every n-th sample of the whole.  "none": the dataset
            shares itself, among workers and ranks.  "auto": as "skip"; but a dataset that asks
            `torch.utils.data.get_worker_info` shares itself among workers.
        batch: it gives whole batches, of any size: one array or list of samples for each field, as DALI's external
            source takes them.  They are decoded and transformed; for batches that are ready write batch_size=None.
        fields, ragged, kinds: as for `PythonDataset`; but samples have one shape in all fields that `ragged` does not
            name, since no others can be looked at before.

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
        batch: bool = False,
        fields: Sequence[str] | None = None,
        ragged: Sequence[str] = (),
        kinds: Mapping[str, AnyKind] | None = None,
    ) -> None:
        once = isinstance(dataset, Iterator) and type(dataset).__module__ in ("builtins", "itertools", "_io")
        if once:
            raise TypeError(
                f"a {type(dataset).__name__} can be iterated only once: write the function that makes it, or an object "
                "whose __iter__ begins anew"
            )
        if isinstance(dataset, type) or (callable(dataset) and not hasattr(dataset, "__iter__")):
            dataset = Called(dataset)
        if not hasattr(dataset, "__iter__"):
            raise TypeError(f"dataset must be an iterable, got {type(dataset).__name__}")
        one_of("shard", shard, ("auto", "skip", "none"))
        super().__init__(fields, ragged, kinds)
        self.dataset, self.shard = dataset, shard
        self.whole_batches = flag("batch", batch)
        self.collates = not batch
        self._next_pass: tuple[int, Position, Shard] | None = None
        self._batch_size = 1
        self.counted: Counted | None = None
        self._job: IterableJob | None = None  # one for all passes, since it knows the dataset's first state

    def fingerprint(self) -> str:
        """Tell the iterable from others by its type, and its own `fingerprint` where it has one."""
        own = getattr(self.dataset, "fingerprint", None)
        told = [own() if callable(own) else None, *(["batch"] if self.whole_batches else [])]
        return f"iterable {type(self.dataset).__name__[:60]} {digest(*told)}"

    @property
    def where(self) -> str:
        return type(self.dataset).__name__

    def bind(self, options: Options) -> Self:
        """Make a copy that reads with a loader's workers.

        The first loader also gets the pass that was begun here to describe the first sample.
        """
        bound = super().bind(options)
        bound._batch_size, bound.skips = options.samples, options.on_bad_sample == "skip"
        self._job = self._pools = None
        return bound

    def job(self) -> IterableJob:
        if self._job is None:
            self._job = IterableJob(self.dataset, self.shard, self.whole_batches)
        return self._job

    def prepare(self, seed: int, start: Position, shard: Shard, epoch: Epoch) -> None:
        self._next_pass = seed, start, shard

    def describe_request(self, worker: int) -> IterableDescribe:
        seed, start, shard = self._next_pass or (self.pools.options.seed, Position(), Shard(0, 1))
        count = max(1, self.pools.options.num_workers)
        begin = begin_of(start, count, list(shard) if self.shard == "none" else None)
        part = IterablePass(seed, start.key, worker, count, *shard, DESCRIBED)
        return IterableDescribe(part, begin.workers[worker], self._names, self._kinds, self._batch_size)

    def order(self, shuffle: bool, sampler: Any) -> Order:
        order = super().order(shuffle, sampler)
        if not self.whole_batches and has_length(self.dataset):
            sized: Any = self.dataset
            workers = max(1, self.pools.options.num_workers)
            order = self.counted = Counted(sized, workers, self.shard != "none")
        return order

    @property
    def told(self) -> int | None:
        return None if self.counted is None else self.counted.told

    def open(self, pass_: Pass) -> Reading:
        name = type(self.dataset).__name__
        lacks = ".state_dict leaves out the buffer of shuffle()" if holds_buffer(self.dataset) else " has no state_dict"
        return IterableReading(self, pass_, name, self.shard, name + lacks)

    def steps_before(self, position: Position) -> int | None:
        return None if position.snapshot is None else position.snapshot.steps

    def pack(self, position: Position) -> dict[str, Any]:
        return {"iterable": "" if position.snapshot is None else position.snapshot.pack(position.samples_seen)}

    def unpack(self, state: Mapping[str, Any], position: Position, shard: Shard, strict: bool = True) -> Snapshot:
        workers = max(1, self.pools.options.num_workers)
        snapshot = Snapshot.unpack(state.get("iterable", ""), position, workers)
        snapshot.check_rank(list(shard) if self.shard == "none" else None)
        if any(worker.state is not None for worker in snapshot.workers) and not takes_state(self.dataset):
            if strict:
                name = type(self.dataset).__name__
                raise StateMismatchError(
                    f"iterable: the state holds the dataset's own, and {name} has no state_dict and load_state_dict "
                    "here: give them back to it, or go on from the number of samples by "
                    "load_state_dict(state, strict=False)"
                )
            snapshot = snapshot.without_states()
        return snapshot if strict else snapshot.unverified()


class Called:
    """An iterable that calls a function, or a class, for each iteration, and iterates its result.

    Raises:
        TypeError: it can't be called without arguments.
    """

    def __init__(self, function: Callable[[], Iterable[Any]]) -> None:
        name = getattr(function, "__name__", type(function).__name__)
        with suppress(ValueError):  # of a builtin that has no signature
            try:
                inspect.signature(function).bind()
            except TypeError as error:
                instead = f"{name}(...)" if isinstance(function, type) else f"lambda: {name}(...)"
                raise TypeError(
                    f"{name} is called without arguments for each pass, and it needs some ({error}): write "
                    f"IterableSource({instead})"
                ) from None
        self.function, self.name = function, name

    def __iter__(self) -> Iterator[Any]:
        made = self.function()
        if not hasattr(made, "__iter__"):
            raise TypeError(f"{self.name} must return an iterable, got {type(made).__name__}: write yield, or a list")
        return iter(made)


class Counted(Endless):
    """The order of an iterable that says how many samples it has; it ends where it ends.

    Args:
        dataset: has a length.
        num_workers: the workers that share it, at least 1.
        shared: ranks share it too; or its length is this rank's.

    Attributes:
        told: the number of batches that were told last; None: they were not asked for.
    """

    def __init__(self, dataset: Sized, num_workers: int, shared: bool) -> None:
        super().__init__(None)
        self._dataset, self._num_workers, self._shared = dataset, num_workers, shared
        self.told: int | None = None

    def __len__(self) -> int:
        return len(self._dataset)

    def batching(self, batch_size: int, shard: Shard, drop_last: bool, pad_last: bool) -> Batching:
        return Batching(batch_size, shard, drop_last)

    def num_steps(self, batching: Batching) -> int:
        rank, ranks = batching.shard if self._shared else Shard(0, 1)
        shares = [
            len(range(rank * self._num_workers + worker, len(self), ranks * self._num_workers))
            for worker in range(self._num_workers)
        ]
        size = batching.batch_size
        self.told = sum(share // size if batching.drop_last else -(-share // size) for share in shares)
        return self.told
