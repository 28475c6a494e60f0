"""The DataLoader: arguments, epochs and state around an engine."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch

from . import assembly, distributed
from ._dali import check_process
from .agreement import check_agreement
from .batch import BadSample
from .checks import check_arguments, integer, refuse_torch_arguments
from .engine.plan import Plan
from .engine.repair import Policy
from .engine.run import Run, Settings
from .errors import StateMismatchError
from .iterator import LoaderIterator
from .python import IterableSource
from .python.iterable import pack_snapshot, unpack_snapshot
from .python.pools import WorkerOptions
from .python.source import PythonSource
from .readers import Reader
from .samplers import OrderSampler
from .source import Place, Source
from .state import MAX_EPOCH, Position, Progress, pack, unpack
from .trainers.views import BatchTokens, DatasetView, EpochSampler, SequentialEpochSampler, only

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh


class DataLoader:
    """Batches of a dataset as torch tensors; each one a pure function of (dataset, seed, epoch, position).

    A plain class with torch's attributes, which trainers take as it is.

    Args:
        dataset: a dataset of torchdali (ImageFolder, TarDataset, ...), a native reader (torchdali.readers), or any
            dataset of torch, whose samples are made by Python code (see `sources`).
        batch_size: samples a batch and rank.
        shuffle: another order for each epoch.
        sampler: the order instead: one of `torchdali.samplers`; or a torch `Sampler` or a sized iterable of indices
            over the whole dataset, drawn once for each epoch, with all generators seeded by (seed, epoch).
        transform: a transform, a Compose, or a function `f(sample, rand)` over DALI batches; None: the dataset's own,
            if it has one (`from_torchvision`).
        seed: of order and augmentations; the same on all ranks.
        drop_last: leave out what does not fill a global batch.  Otherwise the last one is split evenly over the ranks.
        pad_last: fill the last batch up by repeated rows, which the field `valid` marks False.
        device: "cpu" or "cuda"; None: this process's GPU where there is one, else the CPU.
        prefetch_factor: batches made ahead; 0: none, each is made when it is asked for.  None: 2.
        num_threads: threads that decode; None: DALI_NUM_THREADS, else this process's CPUs divided by the local ranks.
        rank, world_size: among the data-parallel processes; None: from `mesh`, torch.distributed or the environment.
        mesh: the 1-d data-parallel `DeviceMesh`.
        process_group: the data-parallel process group instead.
        engine: "eager", "pipeline", "debug" (in the caller's thread, synchronous), or "auto".
        output: "tuple" (in the order of the dataset's fields; ragged fields as `Padded`) or "dict" (plain values, a
            ragged field `x` with its `x_sizes`).
        on_bad_sample: "raise", "substitute", or a function of a `BadSample` that returns one of these or an index.
        timeout: seconds to wait for a batch, and with workers those that a sample may take; 0: any time.
        pad_value, pad_multiple: of ragged fields.

        num_workers: processes that make the samples of a dataset of Python code; 0: they are made in the caller's
            thread when a batch is asked for, as in torch.  torchdali's own datasets and readers need none.
        worker_init_fn, multiprocessing_context, persistent_workers: as in torch; None is a fork server.
        pickler: a module with `dumps` and `loads` that carries the dataset to the workers; None: cloudpickle.
        pin_memory: batches on the CPU lie in pinned memory, where there is a GPU.

    Other arguments of torch's DataLoader are refused with the word to write instead.

    Attributes:
        bad_samples: every bad sample that was met up to the last batch, in order.

    Raises:
        ValueError, TypeError: an argument that cannot be meant.
    """

    # What trainers read of torch's loader; they would build torch's own workers around ours.
    num_workers = 0
    pin_memory = False
    pin_memory_device = ""
    timeout = 0
    worker_init_fn = None
    multiprocessing_context = None
    generator = None
    prefetch_factor = None  # torch's goes with workers; ours is `prefetch`
    persistent_workers = False
    in_order = True
    collate_fn = staticmethod(only)
    _is_accelerate_prepared = use_stateful_dataloader = True

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        sampler: Iterable[int] | OrderSampler | None = None,
        *,
        transform: Any = None,
        seed: int = 0,
        drop_last: bool = False,
        pad_last: bool = False,
        device: str | int | torch.device | None = None,
        prefetch_factor: int | None = 2,
        num_threads: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        mesh: DeviceMesh | None = None,
        process_group: ProcessGroup | None = None,
        engine: Literal["auto", "eager", "pipeline", "debug"] = "auto",
        output: Literal["tuple", "dict"] = "tuple",
        on_bad_sample: Policy = "raise",
        timeout: float = 120.0,
        pad_value: float = 0,
        pad_multiple: int = 1,
        num_workers: int = 0,
        collate_fn: Any = None,
        batch_sampler: Any = None,
        generator: Any = None,
        pin_memory: bool = False,
        pin_memory_device: str = "",
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        persistent_workers: bool = False,
        in_order: bool = True,
        pickler: Any = None,
    ) -> None:
        given = locals()
        refuse_torch_arguments(given)
        check_arguments(given)
        self.batch_size = integer("batch_size", batch_size, 1)
        self.seed = integer("seed", seed, 0, 2**63 - 1)
        self.prefetch = 2 if prefetch_factor is None else integer("prefetch_factor", prefetch_factor, 0)
        self._num_threads = num_threads if num_threads is None else integer("num_threads", num_threads, 1)
        self._pad_multiple = integer("pad_multiple", pad_multiple, 1)
        workers = WorkerOptions(
            num_workers=integer("num_workers", num_workers, 0),
            prefetch_factor=max(self.prefetch, 1),
            timeout=float(timeout),
            worker_init_fn=worker_init_fn,
            context=multiprocessing_context,
            persistent=bool(persistent_workers),
            pickler=pickler,
            seed=self.seed,
        )
        source = assembly.as_source(dataset, workers)
        assembly.check_endless(source, pad_last, on_bad_sample)
        if transform is None:
            transform = getattr(source, "transform", None)
        self._pin = bool(pin_memory)
        self.drop_last, self.pad_last = bool(drop_last), bool(pad_last)
        self.source: Source = source
        self.transform, self.output = transform, output
        self._timeout, self._policy, self._pad_value = float(timeout), on_bad_sample, pad_value
        self._explicit = distributed.check_shard(rank, world_size)
        self._mesh, self._group = mesh, process_group
        self._device = None if device is None else distributed.check_device(device)
        self._engine = engine

        self._order = assembly.as_order(source, shuffle, sampler, self.seed)
        self.batch_size = assembly.batch_size_of(self._order, self.batch_size, pad_last)
        self._progress = Progress()
        self._snapshot: tuple[Position, dict[str, Any] | None] = (Position(), None)
        self.bad_samples: list[BadSample] = []
        self.sampler = (SequentialEpochSampler if assembly.is_sequential(self._order) else EpochSampler)(self)
        self.batch_sampler = BatchTokens(self)
        self.dataset = DatasetView(self)
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()

        self._made_plan: Plan | None = None
        if not isinstance(source, PythonSource):  # of those, a sample would have to be made
            _ = self._plan  # raises for a transform that can't be

    # Epochs

    @property
    def num_samples(self) -> int:
        """Samples of an epoch, over all ranks."""
        return len(self._order)

    def __len__(self) -> int:
        """Batches of a whole epoch; the same on every rank, and after a resume.

        Raises:
            TypeError: nobody knows it before the source ends.
        """
        return assembly.steps_of(self._order, self.batch_size, self._shard(), self.drop_last, self.pad_last)

    @property
    def strided(self) -> bool:
        """The ranks take turns in the global order, sample by sample, and not one slice of each global batch."""
        return self._order.strided

    @property
    def epoch(self) -> int:
        """The epoch in progress; between two passes, the one that comes."""
        return self._progress.epoch

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this epoch; without it, every pass is the next epoch."""
        self._progress.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        """A pass over the epoch, or over its rest after `load_state_dict`.

        Nothing happens before its first `next`, in which the ranks of a process group compare where they stand: all
        of them have to come.  Several passes may be open; the state follows the one begun last.
        """
        return LoaderIterator(self)

    # State

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands behind the last batch that was handed over: flat, under 1 KiB, equal on all ranks.

        That of an `IterableSource` holds its workers too.
        """
        state = pack(self._progress.position, self._fingerprint())
        if isinstance(self.source, IterableSource):
            state["iterable"] = pack_snapshot(self._snapshot_at(self._progress.position))
        return state

    def _snapshot_at(self, position: Position) -> dict[str, Any] | None:
        """Where the workers of an iterable stood at a position, if that is known."""
        where, snapshot = self._snapshot
        return snapshot if where == position else None

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Go on there with the next pass.  An iterator that has not begun goes there too.

        Args:
            state_dict: from `state_dict`, of any number of ranks, batch size or engine.
            strict: False accepts the state of another dataset, order or seed.

        Raises:
            StateMismatchError: it does not fit; the loader is as it was.
        """
        snapshot = None
        if isinstance(self.source, IterableSource) and isinstance(state_dict, Mapping):
            state_dict = dict(state_dict)
            snapshot = unpack_snapshot(state_dict.pop("iterable", ""))
        try:
            position = unpack(state_dict, self._fingerprint(), strict)
            if isinstance(self.source, IterableSource):
                self.source.check_snapshot(snapshot, position)
        except StateMismatchError as error:
            if isinstance(self.source, Reader):
                raise self.source.explain(error) from None
            raise
        self._progress.load(position)
        self._snapshot = position, snapshot

    def seek(self, epoch: int | None, step: int) -> None:
        """Go on with a step (of this rank's batches) of an epoch; None: the one in progress."""
        if epoch is not None:
            integer("epoch", epoch, 0, MAX_EPOCH)
        integer("step", step, 0)
        now = self._progress.current
        cycle = now.cycle if epoch in (None, now.epoch) else 0
        to = Position(now.epoch if epoch is None else epoch, cycle)
        ends = self.drop_last, self.pad_last
        at = assembly.start_of(self._order, to, step, self.batch_size, self._shard(), *ends)
        if at and isinstance(self.source, IterableSource):
            raise ValueError("an iterable can't be sought, but for the start of an epoch: load a state")
        self._progress.load(to._replace(samples_seen=at))

    def _fingerprint(self) -> dict[str, int | str]:
        return {
            "seed": self.seed,
            "order": self._order.fingerprint(self._shard().world_size if self._order.strided else 1),
            "num_samples": -1 if self.source.endless else self.num_samples,
            "dataset": self.source.fingerprint(),
        }

    # Execution

    @property
    def _plan(self) -> Plan:
        if self._made_plan is None:
            kind = self._device.type if self._device else "cuda" if torch.cuda.is_available() else "cpu"
            plan = Plan(self.transform, self.source.kinds, kind, self.source.uniform)
            if self._engine == "pipeline" and plan.split and plan.why_not_traced:
                raise ValueError(
                    f"engine='pipeline' cannot run this transform: {plan.why_not_traced}; write engine='auto'"
                )
            self._made_plan = plan
        return self._made_plan

    @property
    def device(self) -> torch.device:
        """Where batches arrive."""
        return distributed.resolve_device(self._device)

    @property
    def engine(self) -> str:
        """The execution that runs: "eager", "pipeline" or "debug"."""
        return self._plan.choose(self._engine, self.source.whole_batches)[0]

    @property
    def engine_reason(self) -> str:
        """Why this one."""
        return self._plan.choose(self._engine, self.source.whole_batches)[1]

    def _shard(self) -> distributed.Shard:
        return distributed.resolve_shard(self._explicit, self._mesh, self._group)

    def _agree(self, start: Position, device: torch.device) -> None:
        """All ranks stand at the same place of the same stream; a collective."""
        group = distributed.resolve_group(self._explicit, self._mesh, self._group)
        if group is not None:
            facts = {**pack(start, self._fingerprint()), "batch_size": self.batch_size}
            facts |= {"drop_last": self.drop_last, "pad_last": self.pad_last}
            if self.source.endless:
                del facts["samples_seen"]  # each rank counts its own
            check_agreement(facts, group, gpu=distributed.own_gpu(device), device=device)

    def _begin(self) -> tuple[int, Position, Run]:
        """Start a pass; everything that depends on this process is looked up here."""
        check_process()
        shard, device = self._shard(), self.device
        start = self._progress.upcoming
        self._agree(start, device)  # first: where a rank failed before, the others would wait for it
        endless = self.source.endless
        n = 0 if endless else self.num_samples
        if not endless:
            assembly.steps_of(
                self._order, self.batch_size, shard, self.drop_last, self.pad_last
            )  # raises if it cannot be
        place = Place(
            seed=self.seed,
            key=start.key,
            epoch=start.epoch,
            shard=shard,
            batch_size=self.batch_size,
            drop_last=self.drop_last,
            num_threads=self._num_threads or distributed.default_num_threads(),
            device=device,
            snapshot=self._snapshot_at(start),
        )
        if isinstance(self.source, PythonSource):
            self.source.prepare(place)
        settings = Settings(
            source=self.source,
            place=place,
            plan=self._plan,
            engine=self.engine,
            prefetch=self.prefetch,
            pad_value=self._pad_value,
            pad_multiple=self._pad_multiple,
            policy=self._policy,
        )
        # Drawn in the caller's thread: a sampler may use the global generators.
        steps = assembly.iter_steps_of(self._order, start, self.batch_size, shard, self.drop_last, self.pad_last)
        left = 0 if endless else n - start.samples_seen
        if 0 < left < shard.world_size and not (self.drop_last or self.pad_last):
            warnings.warn(
                f"{left} samples of the epoch are left for {shard.world_size} ranks: some repeat one (valid is False)",
                RuntimeWarning,
                stacklevel=3,
            )
        run = Run(settings, steps)
        self._runs.add(run)
        # Last, so that an error of the sampler, say, loses no position.
        number, start = self._progress.begin()
        return number, start, run

    # Lifecycle

    def start_workers(self) -> None:
        """Start the worker processes now, and not with the first batch."""
        if isinstance(self.source, PythonSource) and self.source.pools.options.num_workers:
            self.source.pools.start()

    def close(self) -> None:
        """End every open pass, its threads and all workers; a new pass may begin later."""
        for run in list(self._runs):
            run.close()
        if isinstance(self.source, PythonSource):
            self.source.pools.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_runs"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _runs=weakref.WeakSet())

    def __repr__(self) -> str:
        what = f"{self.source.fingerprint()}, batch_size={self.batch_size}, seed={self.seed}"
        return f"DataLoader({what}, order={self._fingerprint()['order']!r})"
