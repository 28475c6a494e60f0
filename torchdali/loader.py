"""The DataLoader: options, epochs and state around an engine."""

from __future__ import annotations

import copy
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import GenericAlias
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from . import distributed
from ._dali import check_process
from .agreement import check_agreement
from .attribute import Attribute, fixed
from .batch import BadSample
from .batch_function import BatchFunction
from .checks import flag, integer, spell_out
from .clock import Recorder
from .collate import as_dict
from .distributed import Shard
from .engine.plan import Plan
from .engine.run import Run, Settings
from .engine.shelf import Shelf
from .errors import StateMismatchError, first_line, leave_frame, let_through
from .forming import Forming
from .iterator import NOTHING, LoaderIterator, Nothing, OpenPass, Undescribed
from .kinds import AnyKind
from .options import Engine, OnBadSample, Options, Output, Stream
from .order import Batching, Epoch, Order, Rows, Sequential, Shuffled, Step
from .ordering import Ordering
from .pillow import MAX_PIXELS
from .python import as_source
from .registered import Registered
from .samples import as_lists, samples_of
from .source import Pass, Source
from .state import MAX_EPOCH, Position, Progress, pack, unpack
from .stats import Setting, Stats, make_stats, write_trace
from .summary import Summary, how_many, never_raises, shown
from .trainers.asking import trainer_asks
from .trainers.fabric import SharedEpochSampler, TakenByFabric, fabric_asks
from .trainers.overfitting import overfitting_trainer
from .trainers.views import BatchTokens, EpochSampler, SequentialEpochSampler, TokenDataset, only
from .transforms.generators import held_generators

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh


class DataLoader(TakenByFabric):
    """Batches of a dataset as torch tensors; each one a pure function of (dataset, seed, epoch, position).

    A plain class with torch's attributes, which trainers take as it is.

    Args:
        dataset: a dataset of torchdali (ImageFolder, TarDataset, ...), a native reader (torchdali.readers), or any
            dataset of torch, whose samples are made by Python code (see `sources`).
        batch_size: samples per batch and rank.  None: each item of a dataset of Python code is a batch already; its
            arrays and numbers become tensors.
        shuffle: draw a new order for each epoch.
        sampler: the order instead: one of `torchdali.samplers`; or a torch `Sampler` or an iterable of indices over
            the whole dataset, drawn once per epoch, with all generators seeded by (seed, epoch).  For a dataset of
            Python code it may yield ids, such as strings or tuples, which the dataset is asked for.  One without a
            length may be endless: it is drawn while the loader is iterated, so no batch is made ahead but in workers.
        transform: a transform, a Compose, or a function `f(sample, rand)` over DALI batches; None: the dataset's own,
            if it has one (`from_torchvision`).
        batch_transform: a function of the whole batch, such as MixUp of `torchdali.transforms`, torchvision or timm.
            It gets the batch as it would be handed out, f(batch); a parameter `rand` gets a `rand.BatchRand`, and one
            that needs several arguments beside it gets the batch's parts, f(*batch).  It is called in the caller's
            thread, after `collate_fn`, with all global generators (this GPU's too) seeded by (seed, rank, epoch,
            position) and put back.  Its result is handed out as it is.
        seed: of order and augmentations; the same on all ranks.
        drop_last: leave out what does not fill a global batch.  Otherwise the last one is split evenly over the ranks.
        pad_last: fill the last batch with repeated rows, which the field `valid` marks False.
        device: "cpu" or "cuda"; None: this process's GPU where there is one, else the CPU.
        prefetch_factor: batches made ahead; 0: none, each is made when it is asked for.  None: 2.
        num_threads: threads that decode; None: DALI_NUM_THREADS, else this process's CPUs divided by the local ranks.
        rank, world_size: among the data-parallel processes; None: from `mesh`, torch.distributed or the environment.
        mesh: the 1-d data-parallel `DeviceMesh`.
        process_group: the data-parallel process group, instead of `mesh`.
        engine: "eager", "pipeline", "debug" (in the caller's thread, synchronous), or "auto".
        output: "tuple" (in the order of the dataset's fields; ragged fields as `Padded`) or "dict" (plain values, a
            ragged field `x` with its `x_sizes`); "list": each part of the sample as a list of the samples' parts, as in
            `tuple(zip(*samples))`, with tensors of their true sizes: what torchvision's detection models take.  Or a
            function of the batch's fields, a dict, that returns any form.
        on_bad_sample: "raise"; "skip": the batch is smaller, and where all its samples are bad, another one takes the
            first one's place; "substitute": another sample takes its place; or a function of a `BadSample` that returns
            one of these or an index.  Each bad sample counts as seen, so steps and positions stay as they are.
        max_bad_samples: a pass with more bad samples than this on one rank raises TooManyBadSamplesError: a number, or
            as a float the share of the rank's samples of an epoch; None: any number.
        max_pixels: an image file whose header promises more pixels is a bad sample, and is not decoded; the default is
            Pillow's, a picture of 9,459 x 9,459; None: no limit.
        timeout: seconds to wait for a batch, and with workers those that a sample may take; 0: any time.
        pad_value: fills up the samples of ragged fields: a number, or a dict of numbers by field (0 in the others), or
            by the last part of a field's name where one field has it, "boxes" for "target.boxes".  It must fit the
            dtype of each field that may be ragged.
        pad_multiple: the extents of ragged fields are rounded up to a multiple of it.
        ragged, uniform: fields of images or arrays that always leave as `Padded`, and those that always leave as one
            tensor (samples of different shapes are then an error), by their names or the last parts of them.  Otherwise
            the dataset and the transforms say it, for Python code some samples that are spread over the dataset, and
            for what a function makes the first batch.
        kinds: what fields hold, by their names, or the last parts of their names: one of `torchdali.kinds`, or a word
            such as "mask" or "boxes".  It overrides what the dataset says and what its samples show.
        with_state: with output="dict", each batch holds under "loader_state" the loader's state after it, for code
            that takes batches ahead of the training loop.
        stream: the CUDA stream on which the loader works: "private", one of its own; "current", the one that is current
            where a pass begins (DALI's `set_current_stream`); or a `torch.cuda.Stream` of the loader's GPU.  Batches
            may be used at once on any stream.  On a stream of yours each batch waits, on the host, for all that you
            have queued there before, and for the batch itself: DALI's decoders write at once to memory that the stream
            may still use.  So training and loading take turns, and the CPU can't run ahead; write it only where
            everything has to be on one stream, and leave other DALI operators off it.  The CPU has no streams.
        memory_format: how batches of images lie in memory: None: torch.channels_last, which is the fastest; or
            torch.contiguous_format, for models that flatten them with `view`.
        num_workers: processes that make the samples of a dataset of Python code; 0: they are made in the caller's
            thread when a batch is asked for, as in torch.  torchdali's own datasets need none, and warn once.
        batch_sampler: the batches instead of `batch_size`, `shuffle`, `sampler` and `drop_last`: an iterable of lists
            of indices, drawn as `sampler` is.  Ranks take whole batches in turn.
        generator: its `initial_seed()` is the seed, unless `seed` is given.
        collate_fn: makes a batch of a list of samples, with all global generators seeded by (seed, epoch, place of the
            batch); its result is handed over as it is.  Samples of Python code without a `transform` go to it as they
            are, in the worker, and with device="cuda" the tensors in its result are moved there.  All others are
            decoded and transformed first, and it is called in the caller's thread: samples have their own form, with
            tensors on the loader's device (views of the batch), numbers and objects.
        worker_init_fn, multiprocessing_context, persistent_workers: as in torch; None is a fork server.
        pickler: a module with `dumps` and `loads` that carries the dataset to the workers, or (module, keywords of
            dumps, keywords of loads); None: cloudpickle, which shares large tensors.
        pin_memory: batches on the CPU lie in pinned memory, where there is a GPU.

    Other arguments of torch's DataLoader are refused with the word to write instead.

    Attributes:
        bad_samples: every bad sample that was met up to the last batch, in order.

    Raises:
        ValueError, TypeError: an invalid argument.
    """

    # Every option is an attribute; trainers would build torch's own workers around ours.
    seed, drop_last, pad_last, shuffle = Attribute(), Attribute(), Attribute(), Attribute()
    num_workers, prefetch_factor, timeout, pin_memory = Attribute(0), Attribute(None), Attribute(0), Attribute(False)
    persistent_workers, worker_init_fn, multiprocessing_context = Attribute(False), Attribute(None), Attribute(None)
    generator, pin_memory_device, in_order, output = Attribute(), Attribute(), Attribute(), Attribute()
    collate_fn = staticmethod(only)
    _is_accelerate_prepared = use_stateful_dataloader = True

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Iterable[int] | Order | None = None,
        *,
        transform: Any = None,
        batch_transform: Callable[..., Any] | None = None,
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
        engine: Engine = "auto",
        output: Output = "tuple",
        on_bad_sample: OnBadSample = "raise",
        max_bad_samples: int | float | None = None,
        max_pixels: int | None = MAX_PIXELS,
        timeout: float = 120.0,
        pad_value: float | Mapping[str, float] = 0,
        pad_multiple: int = 1,
        ragged: Sequence[str] = (),
        uniform: Sequence[str] = (),
        kinds: Mapping[str, AnyKind] | None = None,
        with_state: bool = False,
        memory_format: torch.memory_format | None = None,
        stream: Stream = "private",
        num_workers: int = 0,
        collate_fn: Any = None,
        batch_sampler: Any = None,
        generator: Any = None,
        pin_memory: bool = False,
        pin_memory_device: str = "",
        worker_init_fn: Callable[[int], object] | None = None,
        multiprocessing_context: Any = None,
        persistent_workers: bool = False,
        in_order: bool = True,
        pickler: Any = None,
    ) -> None:
        self.options = Options(
            batch_size=batch_size,
            shuffle=shuffle,
            sampler=sampler,
            transform=transform,
            batch_transform=batch_transform,
            seed=seed,
            drop_last=drop_last,
            pad_last=pad_last,
            device=device,
            prefetch_factor=prefetch_factor,
            num_threads=num_threads,
            rank=rank,
            world_size=world_size,
            mesh=mesh,
            process_group=process_group,
            engine=engine,
            output=output,
            on_bad_sample=on_bad_sample,
            max_bad_samples=max_bad_samples,
            max_pixels=max_pixels,
            timeout=timeout,
            pad_value=pad_value,
            pad_multiple=pad_multiple,
            ragged=ragged,
            uniform=uniform,
            kinds=kinds,
            with_state=with_state,
            memory_format=memory_format,
            stream=stream,
            num_workers=num_workers,
            collate_fn=collate_fn,
            batch_sampler=batch_sampler,
            generator=generator,
            pin_memory=pin_memory,
            pin_memory_device=pin_memory_device,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            persistent_workers=persistent_workers,
            in_order=in_order,
            pickler=pickler,
        )
        options = self.options
        self._dataset = dataset
        self.source: Source = as_source(dataset).bind(options)
        self._progress = Progress()
        self._ordering = Ordering(self.source, self.source.order(options.shuffle, options.sampler))
        options.most_bad(self._samples_of(Shard(0, 1)))  # raises where a share is of no known number
        self._batch_size = self._batching(Shard(0, 1)).batch_size  # some orders bring their own
        self.bad_samples: list[BadSample] = []
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()
        self._plan: Plan | None = None
        self._shelf: Shelf | None = None
        self._registered = Registered()
        self._recorder = Recorder()
        self.transform = transform
        self.batch_transform = batch_transform

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("dataset", "batch_size", "sampler", "batch_sampler", "collate_fn"):
            raise fixed(name)
        super().__setattr__(name, value)

    # Data

    @property
    def dataset(self) -> Any:
        """The dataset that was given.  It can't be changed."""
        return TokenDataset(self) if trainer_asks() else self._dataset

    @property
    def batch_size(self) -> int | None:
        """Samples per batch on this rank; the largest number, where the order makes its own batches.

        None where a batch sampler does, or each item of the dataset is a batch.
        """
        return None if self.options.batch_size is None or self._order.any_size else self._batch_size

    @property
    def sampler(self) -> EpochSampler:
        """The order of the epoch in progress: the samples' indices, over all ranks."""
        if fabric_asks():
            return SharedEpochSampler(self)
        if (trainer := overfitting_trainer()) is not None:
            self._ordering.overfit(trainer)
        return (SequentialEpochSampler if self._order.in_order else EpochSampler)(self)

    @property
    def _order(self) -> Order:
        return self._ordering.now(between=not self._progress.current.samples_seen)

    @property
    def batch_sampler(self) -> BatchTokens:
        """The batches of the epoch in progress, as the indices of this rank's samples."""
        return BatchTokens(self)

    @property
    def transform(self) -> Any:
        """The transform of the samples: the loader's, else the dataset's own.

        It may be set, for progressive resizing, say; the next pass is the first with it.
        """
        return self.source.transform if self._transform is None else self._transform

    @transform.setter
    def transform(self, transform: Any) -> None:
        before = self.__dict__.get("_transform"), self._plan
        if transform is not None and self.source.collated:
            if self.options.batch_size is None:
                raise ValueError(
                    f"transform= acts on the fields of a batch, and {self.options.collated} makes one without: write "
                    "the transform in the dataset"
                )
            raise ValueError(
                f"{self.options.collated} gets the dataset's own samples, since the loader was made without a "
                "transform: make it with transform=, and it gets transformed ones"
            )
        self._transform, self._plan = transform, None
        if self.source.described:  # else a sample would have to be made
            try:
                self._compiled()  # raises for an invalid transform
            except BaseException:
                self._transform, self._plan = before
                raise
        if self._plan is not before[1]:
            self._clear_shelf()

    @property
    def batch_transform(self) -> Callable[..., Any] | None:
        """The function of whole batches.  It may be set; the next pass is the first with it."""
        return self._batch_function and self._batch_function.function

    @batch_transform.setter
    def batch_transform(self, function: Callable[..., Any] | None) -> None:
        checked = self.options.check_batch_transform(function)
        if checked is not None and getattr(function, "group", None) and self._order.strided:
            raise ValueError(
                f"{checked.name}(group=...) mixes samples that follow each other in the order, and with this sampler "
                "they go to the ranks in turn: leave group out"
            )
        self._batch_function = checked

    # Epochs

    def epoch_order(self) -> Epoch:
        """Give the order of the epoch in progress."""
        return self._order.epoch(self.seed, self._progress.current)

    def steps(self) -> Iterator[Step]:
        """The steps of this rank in the epoch in progress, from its start."""
        if self._sized and not self.num_samples:
            return iter(())
        start = self._progress.current._replace(samples_seen=0, snapshot=None)
        return self._order.epoch(self.seed, start).steps(start, self._batching(self._shard()))

    @property
    def num_samples(self) -> int:
        """Samples of an epoch, over all ranks."""
        return len(self._order)

    def __len__(self) -> int:
        """Batches of a whole epoch; the same on every rank, and after a resume.

        Raises:
            TypeError: it is not known before the source ends.
        """
        return self._order.num_steps(self._batching(self._shard()))

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

    @property
    def step(self) -> int:
        """This rank's number of the next batch in the epoch: `for step, batch in enumerate(loader, loader.step)`.

        It is 0 but after a state was loaded or a pass was broken off.
        """
        now = self._progress.current
        if not now.samples_seen:
            return 0
        known = self.source.steps_before(now)
        if known is not None:
            return known
        return self._order.epoch(self.seed, now).step_at(now.samples_seen, self._batching(self._shard()))

    __class_getitem__: Any = classmethod(GenericAlias)

    def next_epoch(self, *_: Any, **__: Any) -> Any:
        """Say what to write instead of the method of DALI's readers.

        Raises:
            TypeError: always.
        """
        raise TypeError("a loader has no next_epoch: iter(loader) starts the next epoch, and set_epoch(n) names one")

    def __iter__(self) -> Iterator[Any]:
        """A pass over the epoch, or over its rest after `load_state_dict`.

        Nothing happens before its first `next`, in which the ranks of a process group compare where they stand: all
        of them have to come.  Several passes may be open; the state follows the one begun last.
        """
        return LoaderIterator(self._begin, self.__len__, self._recorder)

    # State

    def state_dict(self) -> dict[str, Any]:
        """Get where the stream stands after the last batch handed over: flat, under 1 KiB, equal on all ranks.

        That of an `IterableSource` holds its workers too.
        """
        return self._state_at(self._progress.position)

    def _state_at(self, position: Position) -> dict[str, Any]:
        state = pack(position, self._fingerprint()) | self.source.pack(position)
        return state | self._registered.pack()

    def register(self, name: str, obj: Any) -> None:
        """Save and restore an object with the loader: its state goes into the loader's, under `registered.<name>`.

        This is meant for a generator of your training loop.  A generator that a transform function holds may be
        registered only with prefetch_factor=0: otherwise functions run ahead of the state.  `rand` needs no state.

        Args:
            name: a name; the same one where the state is loaded.
            obj: has `get_state` and `set_state`, as generators of torch, numpy and DALI have, or `state_dict` and
                `load_state_dict`.  Your checkpoint must be able to hold its state; with several ranks, each rank saves
                its own.

        Raises:
            TypeError: it has neither.
            ValueError: the name is taken, or is not a string.
        """
        self._registered.add(name, obj)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> None:
        """Go on there with the next pass, or with the next batch of the pass that was begun last and is still open.

        An iterator that has not begun goes there too.  After a state of an epoch's end, an open pass ends.

        Args:
            state_dict: from `state_dict`, of any number of ranks, batch size or engine.
            strict: False accepts the state of another dataset, order or seed, and of an iterable that does not give the
                same samples again.

        Raises:
            StateMismatchError: it does not fit; the loader is as it was.
        """
        own: dict[str, Any] = {}
        registered: dict[str, Any] = {}
        if isinstance(state_dict, Mapping):
            own = {name: state_dict[name] for name in self.source.state_keys if name in state_dict}
            registered = self._registered.entries(state_dict)
            state_dict = {name: value for name, value in state_dict.items() if name not in {**own, **registered}}
        try:
            position = unpack(state_dict, self._fingerprint(), strict)
            snapshot = self.source.unpack(own, position, self._shard(), strict)
            self._registered.load(registered, strict)
        except StateMismatchError as error:
            raise self.source.explain(error) from None
        self._progress.load(position._replace(snapshot=snapshot))

    def seek(self, epoch: int | None, step: int) -> None:
        """Go on with a step (of this rank's batches) of an epoch; None: the one in progress."""
        if epoch is not None:
            integer("epoch", epoch, 0, MAX_EPOCH)
        integer("step", step, 0)
        if step and not self.source.seekable:
            raise ValueError("an iterable can't be sought, but for the start of an epoch: load a state")
        now = self._progress.current
        cycle = now.cycle if epoch in (None, now.epoch) else 0
        to = Position(now.epoch if epoch is None else epoch, cycle)
        at = self._order.epoch(self.seed, to).start_of(step, self._batching(self._shard()))
        self._progress.load(to._replace(samples_seen=at))

    def rows_ahead(self, count: int) -> Rows:
        """Give this rank's next samples, at most `count` of them, and fewer where the epoch ends."""
        now, batching = self._progress.current, self._batching(self._shard())
        found = [Rows(np.zeros(0, np.int64), np.zeros(0, np.uint64))]
        for step in self._order.epoch(self.seed, now).steps(now, batching) if len(self._order) else ():
            found.append(step.rows)
            if sum(len(rows.indices) for rows in found) >= count:
                break
        return Rows(*(np.concatenate(parts)[:count] for parts in zip(*found, strict=True)))

    def beside(self, **options: Any) -> DataLoader:
        """Make another loader of the same stream, at the same place; this one does not move with it, nor the reverse.

        It is alone with its rank's share: ranks are not compared.  An iterable that is read in this process is copied.

        Args:
            options: those of a `DataLoader` that differ, such as `prefetch_factor`.

        Raises:
            TypeError: the iterable can't be copied.
        """
        shard, dataset = self._shard(), self._dataset
        if self.source.endless and self.source.inline:
            try:
                dataset = copy.deepcopy(dataset)
            except Exception as error:
                let_through(error)
                raise TypeError(
                    f"{type(dataset).__name__} can't be copied ({first_line(error)}), and reading it here would move "
                    "the loader's own pass: write num_workers=1, or look at a batch"
                ) from error
        told = {field.name: getattr(self.options, field.name) for field in fields(self.options)}
        told |= {"mesh": None, "process_group": None, "rank": shard.rank, "world_size": shard.world_size}
        told |= {"transform": self._transform, "batch_transform": self.batch_transform}
        other = DataLoader(dataset, **{**told, **options})
        other._progress.load(self._progress.current)
        return other

    @property
    def _sized(self) -> bool:
        """Whether every epoch has the same number of samples, and it is known."""
        return self._order.sized and not self.source.endless

    def _fingerprint(self) -> dict[str, int | str]:
        world_size = self._shard().world_size if self._order.strided else 1
        return {
            "seed": self.seed,
            "order": self._order.fingerprint(self.seed, world_size),
            "num_samples": self.num_samples if self._sized else -1,
            "dataset": self.source.fingerprint(),
        }

    # Execution

    def _compiled(self) -> Plan:
        if self._plan is None:
            options, source = self.options, self.source
            kind = torch.device(options.device).type if options.device is not None else _default_kind()
            plan = Plan(
                self.transform,
                source.kinds,
                kind,
                source.uniform if self._apart else source.settled,
                spell_out(options.ragged, list(source.kinds)),
                spell_out(options.uniform, list(source.kinds)),
                source.doubts,
            )
            if self.options.engine == "pipeline" and plan.on_dali and plan.why_not_traced:
                raise ValueError(
                    f"engine='pipeline' cannot run this transform: {plan.why_not_traced}; write engine='auto'"
                )
            plan.check_padding(self.options.padding, self.source.dtype)
            self._plan = plan
        return self._plan

    @property
    def device(self) -> torch.device:
        """Where batches arrive."""
        return distributed.resolve_device(self.options.device)

    @property
    def _any_size(self) -> bool:
        return self.source.whole_batches or self._order.any_size

    @property
    def engine(self) -> str:
        """The execution that runs: "eager", "pipeline" or "debug"."""
        return self._chosen()[0]

    @property
    def engine_reason(self) -> str:
        """Why this one."""
        return self._chosen()[1]

    @property
    def box_formats(self) -> dict[str, str]:
        """The formats in which boxes leave, by field: "xyxy", "xywh" or "cxcywh"."""
        plan = self._compiled()
        return plan.formats(plan, len(plan))

    def _chosen(self) -> tuple[str, str]:
        return self._compiled().choose(self.options.engine, self._any_size, self.source.on_gpu)

    def _shard(self) -> Shard:
        options = self.options
        return distributed.resolve_shard(options.shard, options.mesh, options.process_group)

    def _batching(self, shard: Shard) -> Batching:
        options = self.options
        return self._order.batching(options.samples, shard, options.drop_last, options.pad_last)

    def _agree(self, start: Position, device: torch.device) -> None:
        """Make sure that all ranks stand at the same place of the same stream; all come."""
        options = self.options
        group = distributed.resolve_group(options.shard, options.mesh, options.process_group)
        if group is not None:
            facts = {**pack(start, self._fingerprint()), "batch_size": self._batch_size}
            facts |= {"drop_last": self.drop_last, "pad_last": self.pad_last}
            if self.source.endless:
                del facts["samples_seen"]  # each rank counts its own
            check_agreement(facts, group, gpu=distributed.own_gpu(device))

    def _begin(self, at: Position | None = None) -> OpenPass:
        """Start a pass, perhaps at a place; everything that depends on this process is looked up here."""
        check_process()
        options, shard, device = self.options, self._shard(), self.device
        batching = self._batching(shard)
        start = self._progress.upcoming if at is None else at
        distributed.warn_of_tasks(options.shard, options.mesh, options.process_group)
        self._agree(start, device)  # first: where a rank failed before, the others would wait for it
        if not self.source.endless and not self._order.ahead and not self._order.num_steps(batching):
            return self._open(NOTHING, shard, at)
        # Drawn in the caller's thread: a sampler may use the global generators.
        epoch = self._order.epoch(self.seed, start)
        self.source.prepare(self.seed, start, shard, epoch)
        try:
            if self.source.empty:
                return self._open(NOTHING, shard, at)
        except Exception as error:  # no sample that was tried can be made: those of this batch are bad ones
            let_through(error)
            step = next(epoch.steps(start, batching), None)
            if step is None or self.source.endless:
                raise
            return self._open(Undescribed(step, leave_frame(error)), shard, at)
        plan, engine = self._compiled(), self.engine
        num_threads = options.num_threads or distributed.default_num_threads()
        stream, alone = distributed.resolve_stream(options.stream, device), distributed.alone_on_machine()
        settings = Settings(
            source=self.source,
            pass_=Pass(
                seed=self.seed,
                start=start,
                shard=shard,
                batch_size=self._batch_size,
                num_threads=num_threads,
                device=device,
                drop_last=self.drop_last,
                stream=stream,
                alone=alone,
            ),
            plan=plan,
            engine=engine,
            prefetch=0 if self._order.ahead else options.prefetch,
            padding=options.padding,
            memory_format=options.memory_format,
            policy=options.on_bad_sample,
            max_pixels=options.max_pixels,
            recorder=self._recorder,
            shelf=self._shelf_of((plan, engine, num_threads, device, stream, alone), device),
        )
        self._recorder.nvtx = device.type == "cuda" and torch.cuda.is_available()
        steps = epoch.steps(start, batching, self.source.steps_before(start))
        self._warn_of_repeats(start, batching)
        self._warn_of_held_generators()
        run = Run(settings, steps)
        self._runs.add(run)
        return self._open(run, shard, at)  # last, so that an error of the sampler, say, loses no position

    def _shelf_of(self, key: Any, device: torch.device) -> Shelf:
        """Give the shelf of passes that depend on these things; one of others is closed."""
        if self._shelf is None or self._shelf.key != key:
            self._clear_shelf()
            self._shelf = Shelf(key, device)
        return self._shelf

    def _clear_shelf(self) -> None:
        if self._shelf is not None:
            self._shelf.close()
            self._shelf = None

    def _open(self, run: Run | Nothing | Undescribed, shard: Shard, at: Position | None) -> OpenPass:
        number, start = self._progress.begin(at)
        options = self.options
        try:
            return OpenPass(
                run=run,
                start=start,
                move=partial(self._progress.move, number),
                loaded=partial(self._progress.loaded, number),
                go_back=self._progress.load,
                form=Forming(
                    form=self._form,
                    rebuild=self.source.rebuild,
                    objects=self._objects if isinstance(run, Run) else [],
                    collate=self._collate,
                    transform=self._batch_function,
                    seed=self.seed,
                    shard=shard,
                    device=self.device,
                ),
                state=self._state_at if options.with_state else None,
                bad_samples=self.bad_samples,
                most_bad=options.most_bad(self._samples_of(shard)),
                timeout=options.timeout or None,
                pin=options.pin_memory,
                ends_unseen=self.source.endless,
                padded=self.pad_last,
                ranks=shard.world_size,
            )
        except BaseException:
            # An interrupt: the pass was not begun for its user, and the next one begins at the same place.
            run.close()
            self._progress.load(start)
            raise

    def _samples_of(self, shard: Shard) -> int | None:
        """A rank's samples of an epoch, rounded up; None where that is not known."""
        return -(-self.num_samples // shard.world_size) if self._sized else None

    @property
    def _apart(self) -> bool:
        """Whether batches are taken apart into samples, so that it is no matter how they are padded."""
        return self.options.output == "list" or self.options.collate_fn is not None

    @property
    def _form(self) -> Callable[[dict[str, Any]], Any]:
        """The function that puts a batch's fields into the form that the user asked for."""
        output = self.options.output
        if callable(output):
            return output
        if output == "list":
            return self._lists
        return self.source.rebuild if output == "tuple" else as_dict

    def _lists(self, fields: dict[str, Any]) -> Any:
        return as_lists(samples_of(fields, self.source.rebuild, self._objects))

    @property
    def _objects(self) -> list[str]:
        kinds = {**self.source.kinds, **self._compiled().added}
        return [name for name, kind in kinds.items() if str(kind) == "object"]

    @property
    def _collate(self) -> BatchFunction | None:
        """The user's `collate_fn`, where it gets the samples that the loader decoded and transformed."""
        function = self.options.collate_fn
        return None if function is None or self.source.collated else BatchFunction("collate_fn", function, alone=True)

    def _warn_of_held_generators(self) -> None:
        plan = self._compiled()
        for function in plan.held:
            names = [name for name, rng in held_generators(function.function) if rng not in self._registered]
            if names:
                warnings.warn(
                    f"the transform {function.name} holds the generator {names[0]}, which gives other numbers after a "
                    "resume, since batches are made ahead: draw from rand.ndd, or write prefetch_factor=0 and "
                    f"loader.register({names[0]!r}, {names[0]})",
                    RuntimeWarning,
                    stacklevel=5,
                )
        plan.held = []  # once

    def _warn_of_repeats(self, start: Position, batching: Batching) -> None:
        if self._order.ahead and start.samples_seen:
            warnings.warn(
                f"the sampler has no length: {start.samples_seen} indices are drawn again to go on there",
                RuntimeWarning,
                stacklevel=4,
            )
        left = self.num_samples - start.samples_seen if self._sized else 0
        if 0 < left < batching.shard.world_size and not (self.drop_last or self.pad_last):
            warnings.warn(
                f"{left} samples of the epoch are left for {batching.shard.world_size} ranks: some repeat one (valid "
                "is False)",
                RuntimeWarning,
                stacklevel=4,
            )

    # Looking

    def stats(self, *, reset: bool = False, trace: str | Path | None = None) -> Stats:
        """Tell where the time goes: per batch and stage, how full queues are, and what to change, in one sentence.

        It may be called at any time, in a pass or after it: the clocks always run.  `print` shows a table, and
        `as_dict()` gives plain values.

        torch.profiler shows the stages as `torchdali.decode` and the like: those of the caller's thread, and with
        `experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True)` those of all threads.  On
        a GPU NVIDIA's profilers show them, as NVTX ranges.

        Args:
            reset: count anew from here on.
            trace: a file for the last thousand batches or so of all threads and workers, as a Chrome trace; open it in
                https://ui.perfetto.dev.

        Raises:
            TypeError: an argument of another type.
            OSError: the file can't be written.
        """
        flag("reset", reset)
        if trace is not None:
            if not isinstance(trace, (str, Path)):
                raise TypeError(f"trace must be the path of a file, such as 'trace.json', got {trace!r:.80}")
            write_trace(self._recorder, trace)
        source, options = self.source, self.options
        cores = distributed.default_num_threads()
        stats = make_stats(
            self._recorder,
            Setting(
                engine=self.engine if self._recorder.counts["batches"] else options.engine,
                device=str(self.device),
                num_threads=options.num_threads or cores,
                num_workers=options.num_workers,
                cores=cores,
                inline=source.inline,
                pids=source.pids,
            ),
        )
        if reset:
            self._recorder.reset()
        return stats

    # Lifecycle

    def start_workers(self) -> None:
        """Start the worker processes now, and not with the first batch."""
        self.source.start()

    def close(self) -> None:
        """End every open pass, its threads and all workers, and give back what is kept for the next pass.

        A new pass may begin later.  Between two passes a loader keeps DALI's thread pools with their decoders, a
        pipeline, and the memory of the batches that were made ahead (at most 8), but no thread of its own.
        """
        for run in list(self._runs):
            run.close()
        self._clear_shelf()
        self.source.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        left = {"_runs", "_shelf", "_recorder"}
        return {name: value for name, value in self.__dict__.items() if name not in left}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _runs=weakref.WeakSet(), _shelf=None, _recorder=Recorder())

    @never_raises
    def __repr__(self) -> str:
        told = {name: text for name, text in self._told().items() if name not in ("dataset", "position")}
        return f"DataLoader({self.source!r}, {', '.join(f'{name}={text}' for name, text in told.items())})"

    @never_raises
    def _repr_html_(self) -> str:
        own = self.source.summary()
        rows = [(*row[:2], f"[N, {row[2][1:]}".replace(", ]", "]")) for row in own.rows]
        return Summary("DataLoader", self._told(), ("field", "kind", "a batch"), rows).html()

    def _told(self) -> dict[str, str]:
        """Say what the loader was told, and where it stands; nothing is read, and no GPU is looked for."""
        options, at = self.options, self._progress.current
        standard = {field.name: field.default for field in fields(options)} | {"memory_format": torch.channels_last}
        said = {"dataset": shown(self.source), "batch_size": str(self.batch_size)}
        said["order"] = repr(self._order.fingerprint()) if type(self._order) in (Sequential, Shuffled) else ""
        said["order"] = said["order"] or shown(self._order)
        said["seed"] = str(self.seed)
        for name, value in {"transform": self.transform, "batch_transform": self.batch_transform}.items():
            said |= {} if value is None else {name: shown(value)}
        beside = {*said, "shuffle", "sampler", "generator", "transform", "batch_transform"}
        for name, usual in standard.items():
            value = getattr(options, name)
            if name not in beside and value is not usual and value != usual:
                said[name] = shown(str(value) if isinstance(value, torch.device) else value, 80)
        said["position"] = f"epoch {at.epoch}, after {how_many(at.samples_seen, 'sample')}"
        return said


def _default_kind() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
