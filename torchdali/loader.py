"""The DataLoader: options, epochs and state around an engine."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from types import GenericAlias
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import RandomSampler, default_convert

from . import distributed
from .attribute import Attribute, fixed
from .batch import BadSample
from .checks import flag
from .distributed import Shard
from .drawn import Batches
from .errors import first_line, let_through
from .iterator import LoaderIterator
from .kinds import AnyKind
from .options import Engine, OnBadSample, Options, Output, Stream
from .order import Epoch, Order, Rows, Sequential, Shuffled, Step
from .passes import Passes
from .pillow import MAX_PIXELS
from .place import Place
from .python import as_source
from .source import Source
from .stats import Setting, Stats, make_stats, write_trace
from .summary import Summary, how_many, never_raises, shown
from .trainers.asking import trainer_asks
from .trainers.fabric import SharedEpochSampler, TakenByFabric, fabric_asks
from .trainers.overfitting import overfitting_trainer
from .trainers.together import Together
from .trainers.views import (
    BatchTokens,
    EpochSampler,
    SequentialEpochSampler,
    ShuffledEpochSampler,
    TokenDataset,
    only,
)

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
        timeout: seconds to wait for a batch, and with workers those that a sample may take; 0: any time.  Time in which
            the process is stopped, by Ctrl-Z say, does not count.
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
        snapshot_every_n_steps: of torchdata's StatefulDataLoader, whose scripts may keep it; the state is that of the
            last batch whatever it is.

    Other arguments of torch's DataLoader are refused with the word to write instead.

    Raises:
        ValueError, TypeError: an invalid argument.
    """

    # Every option is an attribute; trainers would build torch's own workers around ours.
    seed, drop_last, pad_last, shuffle = Attribute(), Attribute(), Attribute(), Attribute()
    num_workers, pin_memory = Attribute(0), Attribute(False)
    prefetch_factor, timeout = Attribute(None, without_workers=None), Attribute(0, without_workers=0)
    persistent_workers, worker_init_fn, multiprocessing_context = Attribute(False), Attribute(None), Attribute(None)
    generator, pin_memory_device, in_order, output = Attribute(), Attribute(), Attribute(), Attribute()
    _num_samples: int | None = None
    _is_accelerate_prepared = use_stateful_dataloader = True
    _iterator = None  # torch's loader keeps one there with persistent workers, and Composer looks for it

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
        snapshot_every_n_steps: int | None = 1,
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
            snapshot_every_n_steps=snapshot_every_n_steps,
            pickler=pickler,
        )
        options = self.options
        self._dataset = dataset
        self.source: Source = as_source(dataset).bind(options)
        self._place = Place(self.source, options)
        options.most_bad(self._place.samples_of(Shard(0, 1)))  # raises where a share is of no known number
        self._passes = Passes(self.source, options, self._place)
        self.transform = transform
        self.batch_transform = batch_transform
        self.for_fabric(dataset=dataset, batch_size=self.batch_size, num_workers=num_workers, drop_last=drop_last)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "collate_fn" and value is not None and value == self.options.collate_fn:
            return  # sentence-transformers sets its own, which the loader has
        known = getattr(type(self), name, None)
        if isinstance(known, property) and (known.fset is None or name == "batch_sampler"):
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
        return None if self.options.batch_size is None or self._place.order.any_size else self._place.batch_size

    @property
    def sampler(self) -> EpochSampler:
        """The order of the epoch in progress: the samples' indices, over all ranks."""
        if fabric_asks():
            return SharedEpochSampler(self)
        if (trainer := overfitting_trainer()) is not None:
            self._place.ordering.overfit(trainer)
        order = self._place.order
        if type(order) is Shuffled or isinstance(self.given_sampler, RandomSampler):
            return ShuffledEpochSampler(self)
        return (SequentialEpochSampler if order.in_order else EpochSampler)(self)

    @property
    def batch_sampler(self) -> BatchTokens:
        """The batches of the epoch in progress, as the indices of this rank's samples.

        It can't be changed, as timm's and YOLO's loaders do it to keep their workers: `persistent_workers` keeps them.
        """
        return BatchTokens(self, moves=trainer_asks())

    @batch_sampler.setter
    def batch_sampler(self, value: Any) -> None:
        raise fixed("batch_sampler")  # by object.__setattr__

    @property
    def collate_fn(self) -> Callable[[list[Any]], Any]:
        """The function that makes a batch of samples of the dataset, for code that builds another loader.

        It is the given one, or puts samples together as this loader does, on the CPU.  It can't be changed.  Where the
        loader has a `transform` or a `batch_transform`, which batches made elsewhere would lack, a call of the function
        is a TypeError.
        """
        if trainer_asks():
            return only
        given = self.options.collate_fn
        if self.options.batch_size is None:
            return given or default_convert
        together = Together.of(DataLoader, self.options, self.source, self.transform, self.batch_transform)
        return together if given is None or together.refusal else given

    @property
    def given_sampler(self) -> Any:
        """The sampler that was given; None: there is none."""
        return None if isinstance(self.options.sampler, Batches) else self.options.sampler

    @property
    def given_batch_sampler(self) -> Any:
        """The batch sampler that was given, unless it is torch's own; None: there is none."""
        return self.options.sampler.sampler if isinstance(self.options.sampler, Batches) else None

    @property
    def transform(self) -> Any:
        """The transform of the samples: the loader's, else the dataset's own.

        It may be set, for progressive resizing, say; the next pass is the first with it.
        """
        return self._passes.transform

    @transform.setter
    def transform(self, transform: Any) -> None:
        self._passes.set_transform(transform)

    @property
    def batch_transform(self) -> Callable[..., Any] | None:
        """The function of whole batches.  It may be set; the next pass is the first with it."""
        return self._passes.batch_transform

    @batch_transform.setter
    def batch_transform(self, function: Callable[..., Any] | None) -> None:
        self._passes.set_batch_transform(function)

    # Epochs

    def epoch_order(self, later: int = 0) -> Epoch:
        """Give the order of the epoch in progress, or of one that comes some epochs later."""
        return self._place.epoch(later)

    def steps(self, later: int = 0) -> Iterator[Step]:
        """The steps of this rank in the epoch in progress, or in one some epochs later, from its start."""
        return self._place.steps(later)

    @property
    def num_samples(self) -> int:
        """Samples of an epoch, over all ranks; it may be set, as open_clip does, and changes nothing then."""
        return self.order_length if self._num_samples is None else self._num_samples

    @num_samples.setter
    def num_samples(self, number: int) -> None:
        self._num_samples = number

    @property
    def order_length(self) -> int:
        """Samples of an epoch, over all ranks, whatever `num_samples` was set to."""
        return self._place.num_samples

    def __len__(self) -> int:
        """Batches of a whole epoch; the same on every rank, and after a resume.

        Raises:
            TypeError: it is not known before the source ends.
        """
        return self._place.order.num_steps(self._place.batching(self._place.shard()))

    @property
    def strided(self) -> bool:
        """The ranks take turns in the global order, sample by sample, and not one slice of each global batch."""
        return self._place.order.strided

    @property
    def epoch(self) -> int:
        """The epoch in progress; between two passes, the one that comes."""
        return self._place.progress.epoch

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this epoch; without it, every pass is the next epoch."""
        self._place.progress.set_epoch(epoch)

    @property
    def step(self) -> int:
        """This rank's number of the next batch in the epoch: `for step, batch in enumerate(loader, loader.step)`.

        It is 0 but after a state was loaded or a pass was broken off.
        """
        return self._place.step

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
        return LoaderIterator(self._passes.begin, self.__len__, self._passes.recorder)

    # State

    def state_dict(self) -> dict[str, Any]:
        """Get where the stream stands after the last batch handed over: flat, under 1 KiB, equal on all ranks.

        That of an `IterableSource` holds its workers too.
        """
        return self._place.pack(self._place.progress.position)

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
        self._place.registered.add(name, obj)

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
        self._place.load(state_dict, strict)

    def seek(self, epoch: int | None, step: int) -> None:
        """Go on with a step (of this rank's batches) of an epoch; None: the one in progress."""
        self._place.seek(epoch, step)

    def rows_ahead(self, count: int) -> Rows:
        """Give this rank's next samples, at most `count` of them, and fewer where the epoch ends."""
        return self._place.rows_ahead(count)

    def beside(self, **options: Any) -> DataLoader:
        """Make another loader of the same stream, at the same place; this one does not move with it, nor the reverse.

        It is alone with its rank's share: ranks are not compared.  An iterable that is read in this process is copied.

        Args:
            options: those of a `DataLoader` that differ, such as `prefetch_factor`.

        Raises:
            TypeError: the iterable can't be copied.
        """
        shard, dataset = self._place.shard(), self._dataset
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
        told |= {"transform": self._passes.own_transform, "batch_transform": self.batch_transform}
        other = DataLoader(dataset, **{**told, **options})
        other._place.progress.load(self._place.progress.current)
        return other

    # Execution

    @property
    def bad_samples(self) -> list[BadSample]:
        """Every bad sample that was met up to the last batch, in order."""
        return self._passes.bad_samples

    @property
    def device(self) -> torch.device:
        """Where batches arrive."""
        return distributed.resolve_device(self.options.device)

    @property
    def engine(self) -> str:
        """The execution that runs: "eager", "pipeline" or "debug"."""
        return self._passes.chosen()[0]

    @property
    def engine_reason(self) -> str:
        """Why this one."""
        return self._passes.chosen()[1]

    @property
    def box_formats(self) -> dict[str, str]:
        """The formats in which boxes leave, by field: "xyxy", "xywh" or "cxcywh"."""
        plan = self._passes.plan()
        return plan.formats(plan, len(plan))

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
            write_trace(self._passes.recorder, trace)
        source, options = self.source, self.options
        cores = distributed.default_num_threads()
        stats = make_stats(
            self._passes.recorder,
            Setting(
                engine=self.engine if self._passes.recorder.counts["batches"] else options.engine,
                device=str(self.device),
                num_threads=options.num_threads or cores,
                num_workers=options.num_workers,
                cores=cores,
                inline=source.inline,
                pids=source.pids,
            ),
        )
        if reset:
            self._passes.recorder.reset()
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
        self._passes.close()
        self.source.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

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
        options, at = self.options, self._place.progress.current
        standard = {field.name: field.default for field in fields(options)} | {"memory_format": torch.channels_last}
        said = {"dataset": shown(self.source), "batch_size": str(self.batch_size)}
        said["order"] = (
            repr(self._place.order.fingerprint()) if type(self._place.order) in (Sequential, Shuffled) else ""
        )
        said["order"] = said["order"] or shown(self._place.order)
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
