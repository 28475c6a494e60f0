"""The passes of a loader: how one begins, and what is kept from one for the next."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from . import distributed
from ._dali import check_process
from .batch import BadSample
from .batch_function import BatchFunction
from .checks import spell_out
from .clock import Recorder
from .collate import as_dict
from .distributed import Shard
from .engine.plan import Plan
from .engine.run import Run, Settings
from .engine.shelf import Shelf
from .errors import leave_frame, let_through
from .forming import Forming
from .iterator import NOTHING, Nothing, OpenPass, Undescribed
from .options import Options
from .order import Batching
from .place import Place
from .samples import as_lists, samples_of
from .source import Pass, Source
from .state import Position
from .transforms.generators import held_generators, is_dalis
from .transforms.per_sample import PerSample
from .watchdog import watching


class Passes:
    """Begins the passes of a loader; everything that depends on the process is looked up as one begins.

    Args:
        source: the loader's.
        options: the loader's.
        place: where the loader stands.

    Attributes:
        recorder: of the loader's clocks.
        bad_samples: every bad sample that was met, in order.
    """

    def __init__(self, source: Source, options: Options, place: Place) -> None:
        self._source, self._options, self._place = source, options, place
        self.recorder = Recorder()
        self.bad_samples: list[BadSample] = []
        self._own_transform: Any = None
        self._batch_function: BatchFunction | None = None
        self._plan: Plan | None = None
        self._shelf: Shelf | None = None
        self._runs: weakref.WeakSet[Run] = weakref.WeakSet()

    # The user's functions

    @property
    def own_transform(self) -> Any:
        """The loader's own transform; None: it has none."""
        return self._own_transform

    @property
    def transform(self) -> Any:
        """The transform of the samples: the loader's, else the dataset's own."""
        return self._source.transform if self._own_transform is None else self._own_transform

    def set_transform(self, transform: Any) -> None:
        """Give the next passes another transform.

        Raises:
            ValueError: samples do not come as fields here.
            TransformError: it is no transform, or does not fit the fields; the one before stays.
        """
        before = self._own_transform, self._plan
        collated = self._options.collated
        if transform is not None and self._source.collated:
            if self._options.batch_size is None:
                raise ValueError(
                    f"transform= acts on the fields of a batch, and {collated} makes one without: write the transform "
                    "in the dataset"
                )
            raise ValueError(
                f"{collated} gets the dataset's own samples, since the loader was made without a transform: make it "
                "with transform=, and it gets transformed ones"
            )
        self._own_transform, self._plan = transform, None
        if self._source.described:  # else a sample would have to be made
            try:
                self.plan()  # raises for an invalid transform
            except BaseException:
                self._own_transform, self._plan = before
                raise
        if self._plan is not before[1]:
            self._clear_shelf()

    @property
    def batch_transform(self) -> Callable[..., Any] | None:
        """The function of whole batches; None: there is none."""
        return self._batch_function and self._batch_function.function

    def set_batch_transform(self, function: Callable[..., Any] | None) -> None:
        """Give the next passes another function of whole batches.

        Raises:
            ValueError: it mixes samples that go to other ranks.
            TypeError: it can't be called so.
        """
        checked = self._options.check_batch_transform(function)
        if checked is not None and getattr(function, "group", None) and self._place.order.strided:
            raise ValueError(
                f"{checked.name}(group=...) mixes samples that follow each other in the order, and with this sampler "
                "they go to the ranks in turn: leave group out"
            )
        self._batch_function = checked

    # The way in which batches are made

    def plan(self) -> Plan:
        """Give the transform, compiled for the source's fields."""
        if self._plan is None:
            options, source = self._options, self._source
            apart = options.output == "list" or options.collate_fn is not None  # it is no matter how they are padded
            plan = Plan(
                self.transform,
                source.kinds,
                torch.device(options.device).type if options.device is not None else _default_kind(),
                source.uniform if apart else source.settled,
                spell_out(options.ragged, list(source.kinds)),
                spell_out(options.uniform, list(source.kinds)),
                source.doubts,
            )
            if options.engine == "pipeline" and plan.on_dali and plan.why_not_traced:
                raise ValueError(
                    f"engine='pipeline' cannot run this transform: {plan.why_not_traced}; write engine='auto'"
                )
            plan.check_padding(plan.padding(options.padding), source.dtype)
            self._plan = plan
        return self._plan

    def chosen(self) -> tuple[str, str]:
        """Give the engine that runs, and why."""
        any_size = self._source.whole_batches or self._place.order.any_size
        return self.plan().choose(self._options.engine, any_size, self._source.on_gpu)

    @property
    def objects(self) -> list[str]:
        """The fields that leave as lists of objects."""
        kinds = {**self._source.kinds, **self.plan().added}
        return [name for name, kind in kinds.items() if str(kind) == "object"]

    def forming(self, shard: Shard, objects: list[str]) -> Forming:
        """Give the way of a batch from its fields to its user."""
        options, source, form = self._options, self._source, self._options.output
        collate = options.collate_fn
        if form == "list":

            def form(fields: dict[str, Any]) -> Any:
                return as_lists(samples_of(fields, source.rebuild, self.objects))

        elif not callable(form):
            form = source.rebuild if form == "tuple" else as_dict
        return Forming(
            form=form,
            rebuild=source.rebuild,
            objects=objects,
            together=options.output != "list",
            # Where samples of Python code go to it as they are, the worker calls it.
            collate=None if collate is None or source.collated else BatchFunction("collate_fn", collate, alone=True),
            transform=self._batch_function,
            seed=options.seed,
            shard=shard,
            device=distributed.resolve_device(options.device),
        )

    # Beginning and ending

    def begin(self, at: Position | None = None) -> OpenPass:
        """Start a pass, perhaps at a place; the ranks of a process group compare where they stand."""
        if self._options.prefetch or not self._source.inline:
            check_process()  # without threads, and of Python's own samples, DALI may not be needed, and looks by itself
        # A sample of Python code may have to be made first.  Workers have a limit of their own, and where they are
        # forked no thread should be beside them.
        if self._source.described or self._options.num_workers:
            return self._begin(at)
        with watching("the beginning of a pass"):
            return self._begin(at)

    def _begin(self, at: Position | None) -> OpenPass:
        source, options, place = self._source, self._options, self._place
        shard, device = place.shard(), distributed.resolve_device(options.device)
        batching = place.batching(shard)
        start = place.progress.upcoming if at is None else at
        distributed.warn_of_tasks(options.shard, options.mesh, options.process_group)
        place.agree(start, device)  # first: where a rank failed before, the others would wait for it
        if not source.endless and not place.order.ahead and not place.order.num_steps(batching):
            return self._open(NOTHING, shard, at)
        # Drawn in the caller's thread: a sampler may use the global generators.
        epoch = place.order.epoch(options.seed, start)
        source.prepare(options.seed, start, shard, epoch)
        try:
            if source.empty:
                return self._open(NOTHING, shard, at)
        except Exception as error:  # no sample that was tried can be made: those of this batch are bad ones
            let_through(error)
            step = next(epoch.steps(start, batching), None)
            if step is None or source.endless:
                raise
            return self._open(Undescribed(step, leave_frame(error)), shard, at)
        settings = self._settings(start, shard, device)
        self.recorder.nvtx = device.type == "cuda" and torch.cuda.is_available()
        steps = epoch.steps(start, batching, source.steps_before(start))
        self._warn_of_repeats(start, batching)
        self._warn_of_held_generators()
        run = Run(settings, steps)
        self._runs.add(run)
        return self._open(run, shard, at)  # last, so that an error of the sampler, say, loses no position

    def _settings(self, start: Position, shard: Shard, device: torch.device) -> Settings:
        source, options, place = self._source, self._options, self._place
        plan, engine = self.plan(), self.chosen()[0]
        num_threads = options.num_threads or distributed.default_num_threads()
        stream, alone = distributed.resolve_stream(options.stream, device), distributed.alone_on_machine()
        shelf = self._shelf_of((plan, engine, num_threads, device, stream, alone), device)
        return Settings(
            source=source,
            pass_=Pass(
                seed=options.seed,
                start=start,
                shard=shard,
                batch_size=place.batch_size,
                num_threads=num_threads,
                device=device,
                drop_last=options.drop_last,
                stream=stream,
                alone=alone,
                shelf=shelf,
            ),
            plan=plan,
            engine=engine,
            prefetch=0 if place.order.ahead else options.prefetch,
            padding=plan.padding(options.padding),
            memory_format=options.memory_format,
            policy=options.on_bad_sample,
            max_pixels=options.max_pixels,
            recorder=self.recorder,
            shelf=shelf,
        )

    def _open(self, run: Run | Nothing | Undescribed, shard: Shard, at: Position | None) -> OpenPass:
        progress, options = self._place.progress, self._options
        number, start = progress.begin(at)
        try:
            return OpenPass(
                run=run,
                start=start,
                move=partial(progress.move, number),
                stands=partial(progress.stands, number),
                loaded=partial(progress.loaded, number),
                go_back=progress.load,
                form=self.forming(shard, self.objects if isinstance(run, Run) else []),
                state=self._place.pack if options.with_state else None,
                bad_samples=self.bad_samples,
                most_bad=options.most_bad(self._place.samples_of(shard)),
                timeout=options.timeout or None,
                pin=options.pin_memory,
                ends_unseen=self._source.endless,
                padded=options.pad_last,
                ranks=shard.world_size,
            )
        except BaseException:
            # An interrupt: the pass was not begun for its user, and the next one begins at the same place.
            run.close()
            progress.load(start)
            raise

    def close(self) -> None:
        """End every open pass, and drop what is kept for the next one."""
        for run in list(self._runs):
            run.close()
        self._clear_shelf()

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

    def __getstate__(self) -> dict[str, Any]:
        left = {"_runs", "_shelf", "recorder"}
        return {name: value for name, value in self.__dict__.items() if name not in left}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _runs=weakref.WeakSet(), _shelf=None, recorder=Recorder())

    # Warnings

    def _warn_of_held_generators(self) -> None:
        plan = self.plan()
        for function in plan.held:
            held = [] if isinstance(function, PerSample) else held_generators(function.function)
            found = [(name, rng) for name, rng in held if rng not in self._place.registered]
            if found:
                name, rng = found[0]
                own = "rand.ndd" if is_dalis(rng) else "rand.numpy or rand.torch"
                register = f", or write prefetch_factor=0 and loader.register({name!r}, {name})"
                warnings.warn(
                    f"the transform {function.name} holds the generator {name}, which gives other numbers after a "
                    f"resume, since batches are made ahead: draw from {own}"
                    f"{register if hasattr(rng, 'get_state') else ''}",
                    RuntimeWarning,
                    stacklevel=6,
                )
        plan.held = []  # once

    def _warn_of_repeats(self, start: Position, batching: Batching) -> None:
        place, options = self._place, self._options
        if place.order.ahead and start.samples_seen:
            warnings.warn(
                f"the sampler has no length: {start.samples_seen} indices are drawn again to go on there",
                RuntimeWarning,
                stacklevel=5,
            )
        left = place.num_samples - start.samples_seen if place.sized else 0
        if 0 < left < batching.shard.world_size and not (options.drop_last or options.pad_last):
            warnings.warn(
                f"{left} samples of the epoch are left for {batching.shard.world_size} ranks: some repeat one (valid "
                "is False)",
                RuntimeWarning,
                stacklevel=5,
            )


def _default_kind() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
