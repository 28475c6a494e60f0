"""The device part, traced: the same operator code in a DALI pipeline, its fastest execution."""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .. import _dali
from ..batch import take
from ..clock import DECODE, INPUT, START, switch
from ..errors import first_line, leave_frame, let_through
from ..transforms.decode import Decode
from .eager import Eager
from .program import Argument, layout_of
from .shelf import Shelf
from .work import Work


class Traced:
    """Runs the device part of a plan for a stream of works, in order.

    The pipeline is fed by our own steps: inputs and every parameter come from `fn.external_source`, so it holds no
    state.  A work that fails comes out with its error, and a new pipeline takes over the works that were in flight.
    The second one in a row is tried eagerly: where it passes, the pipeline is to blame and not the samples, and the
    rest of the pass runs eagerly.

    Args:
        eager: the same plan's eager form; it tells how the code behaves on one sample, and lends its stream.
        batch_size: the largest number of samples in a step.
        num_threads: of the pipeline's pool.
        shelf: keeps the pipeline for the next pass, where nothing is left inside and the plan can't change.
    """

    def __init__(self, eager: Eager, batch_size: int, num_threads: int, shelf: Shelf) -> None:
        self._eager, self._batch_size, self._num_threads, self._shelf = eager, batch_size, num_threads, shelf
        self._failed = 0  # works in a row
        self._given_up = False

    def __call__(self, works: Iterable[Work]) -> Iterator[Work]:
        feed = _Feed(iter(works))
        while (first := feed.take()) is not None:
            if first.error is None and self._given_up:
                self._run_eagerly(first)
                yield first
                continue
            if first.error is not None:
                yield first
                continue
            feed.again.appendleft(first)
            switch(START)
            try:
                trace = self._trace(first)
            except Exception as error:
                let_through(error)
                feed.again.popleft()
                self._fail(first, error)
                yield first
                continue
            feed.inputs = functools.partial(self._inputs, trace.arguments)
            yield from self._serve(trace, feed)
            del trace

    def _serve(self, trace: Trace, feed: _Feed) -> Iterator[Work]:
        """Run a pipeline, and put it on the shelf afterwards, if nothing is left inside."""
        trace.begin(feed)
        try:
            yield from self._run(trace, feed)
        except GeneratorExit:  # the pass was broken
            with _dali.on_device(self._eager.device):
                trace.drain()
            raise
        finally:
            if self._eager.plan.unchanging:
                self._shelf.put("trace", trace)

    def _run(self, trace: Trace, feed: _Feed) -> Iterator[Work]:
        """Run a pipeline until the works end, or one of them fails."""
        # The first batch's transforms, in other threads, get the cores that the next one's decoding would take.
        ahead = not self._eager.plan.host_steps
        while True:
            switch(DECODE)
            try:
                with _dali.on_device(self._eager.device):
                    results = trace.run(ahead)
            except StopIteration:
                yield from feed.flying  # only failed ones are left
                feed.flying.clear()
                return
            except Exception as error:
                let_through(error)
                yield from feed.failed_ahead()
                work = feed.flying.popleft()
                self._fail(work, error)
                feed.take_back()
                yield work
                return
            ahead = True
            yield from feed.failed_ahead()
            work = feed.flying.popleft()
            try:
                self._collect(work, trace.names, results)
                self._failed = 0
            except Exception as error:
                let_through(error)
                self._fail(work, error)
            del results
            yield work
            if self._given_up:
                feed.take_back()
                return

    def _fail(self, work: Work, error: Exception) -> None:
        """Leave the pipeline's error in a work, unless it is the second in a row and the work passes eagerly."""
        work.error = leave_frame(error)
        self._failed += 1
        if self._failed < 2:
            return
        reason, work.error = work.error, None
        self._run_eagerly(work)
        if work.error is not None:  # the samples are to blame
            work.error = reason
            return
        self._given_up = True
        warnings.warn(
            "DALI's pipeline has failed twice in a row, and the batch passes without it: the rest of this pass runs "
            f"eagerly, which is slower.  The pipeline's error: {first_line(reason)}",
            RuntimeWarning,
            stacklevel=2,
        )

    def _run_eagerly(self, work: Work) -> None:
        try:
            self._eager(work)
        except Exception as error:
            let_through(error)
            work.error = leave_frame(error)

    def _collect(self, work: Work, names: list[str], results: Any) -> None:
        eager = self._eager
        outputs = {name: _dali.Output(result) for name, result in zip(names, results, strict=True)}
        # `run` has waited for these outputs; on a GPU they are copied before the next run may free them.
        with eager.session if eager.stream else nullcontext():
            eager.hand_over(work, outputs)

    def _trace(self, first: Work) -> Trace:
        """Take the pipeline of an earlier pass whose first samples had the same form, or build one."""
        form = self._form(first)
        trace: Trace | None = self._shelf.take("trace")
        return trace if trace is not None and trace.form == form else self._build(first, form)

    def _form(self, work: Work) -> Form:
        """Give dtype, dimensions, and an image's channels, of each input: what a trace depends on beside the plan."""
        plan = self._eager.plan
        found = []
        for name in plan.inputs:
            value = np.asarray(work.columns[name][0])
            channels = value.shape[-1] if name in plan.pixels and name not in plan.encoded else 0
            found.append((value.dtype.str, value.ndim, channels))
        return found

    def _inputs(self, arguments: list[Argument], work: Work) -> list[Any]:
        plan = self._eager.plan
        numbers = [plan.kinds[name].held == "number" for name in plan.inputs]
        columns = [work.columns[name] for name in plan.inputs]
        columns = [np.array(column) if number else column for column, number in zip(columns, numbers, strict=True)]
        return columns + self._eager.program.values(work, arguments)

    def _build(self, first: Work, form: Form) -> Trace:
        program, probe = self._eager.program, _one_sample(first)
        plan = self._eager.plan
        if not plan.any_functions and all(
            isinstance(step, Decode) for chain in plan.chains for step in chain.steps[: chain.split]
        ):
            # What decoders take is known: the first batch comes a quarter earlier than after a call of dynamic mode,
            # which analyses the code that calls it.
            return self._traced(probe, form, program.arguments(probe), ())
        arguments: list[Argument] = []

        def note(argument: Argument, values: NDArray[Any]) -> Any:
            arguments.append(argument)
            return _dali.as_batch(values)

        # One sample, eagerly, shows which arguments there are, and the element types in between.
        ops = self._eager.ops()
        with self._eager.session:
            program(ops, self._eager.inputs(probe), probe, note)
        return self._traced(probe, form, arguments, ops.seen)

    def _traced(self, probe: Work, form: Form, arguments: list[Argument], seen: Sequence[torch.dtype | int]) -> Trace:
        """Build the pipeline."""
        eager, program, plan = self._eager, self._eager.program, self._eager.plan
        layouts = [layout_of(plan, name) for name in plan.inputs] + [""] * len(arguments)
        pipe = _dali.pipeline(self._batch_size, self._num_threads, eager.device)
        inlet = Inlet()
        with _dali.on_device(eager.device), pipe:
            sources = _dali.external_source(inlet, layouts, eager.device)
            nodes = iter(sources[len(plan.inputs) :])
            inputs = dict(zip(plan.inputs, sources, strict=False))
            if eager.kind == "gpu":
                inputs = {name: node.gpu() if layout_of(plan, name) else node for name, node in inputs.items()}
            ops = _dali.TracedOps(eager.kind, seen)
            ops.alone = eager.alone
            traced = program(ops, inputs, probe, lambda *_: next(nodes))
            pipe.set_outputs(*(node.gpu() if eager.kind == "gpu" else node for node in traced.values()))
            pipe.build()
        return Trace(pipe, inlet, list(traced), arguments, form)


Form = list[tuple[str, int, int]]


class Inlet:
    """Gives a pipeline the inputs of the pass that it serves.

    Attributes:
        feed: of that pass; None: there is no pass.
        left: works that it still gives.
    """

    feed: _Feed | None = None
    left = math.inf

    def __call__(self) -> list[Any]:
        if self.feed is None or not self.left:
            raise StopIteration
        self.left -= 1
        return self.feed()


class Trace:
    """A pipeline, which serves one pass after the other.

    Args:
        pipe: the pipeline.
        inlet: gives it its inputs.
        names: of its outputs.
        arguments: of its operators, which follow the inputs.
        form: of the samples that it was traced with.
    """

    def __init__(self, pipe: Any, inlet: Inlet, names: list[str], arguments: list[Argument], form: Form) -> None:
        self._pipe, self._inlet, self._ended = pipe, inlet, False
        self.names, self.arguments, self.form = names, arguments, form

    def begin(self, feed: _Feed) -> None:
        """Serve a pass from its first batch on."""
        self._inlet.feed, self._ended = feed, False

    def run(self, ahead: bool = True) -> Any:
        """Give the outputs of the next work.

        Args:
            ahead: begin the works behind it, too; nothing may be inside where it is False.

        Raises:
            StopIteration: there is none, and nothing is left inside.
        """
        self._inlet.left = math.inf if ahead else 1
        try:
            results = self._pipe.run()
        except StopIteration:
            self._ended = True
            raise
        if not ahead:
            self._pipe.reset()  # it takes the work for the last one
        return results

    def drain(self) -> None:
        """Come to the end without another work, and drop what comes out; it costs as much to drop the pipeline."""
        self._inlet.feed = None
        with contextlib.suppress(Exception):  # StopIteration; after another one it is not at its end
            while True:
                self.run()

    def rest(self) -> bool:
        """Stand at the start again; False where works may be left inside."""
        self._inlet.feed = None
        if self._ended:
            self._pipe.reset()
        return self._ended


class _Feed:
    """Feeds the pipeline: takes works in order, and remembers which are inside.

    It raises StopIteration only: another exception in DALI's callback would lose the works in flight.  Failed works
    keep their place among them, beside the pipeline.
    """

    def __init__(self, works: Iterator[Work]) -> None:
        self._works = works
        self.again: deque[Work] = deque()  # these come first
        self.flying: deque[Work] = deque()
        self.inputs: Any = None

    def take(self) -> Work | None:
        if self.again:
            return self.again.popleft()
        before = switch(INPUT)
        work = next(self._works, None)
        switch(before)  # in the caller's thread, the stages before have moved it
        return work

    def take_back(self) -> None:
        """Let the works in flight come first again."""
        self.again.extendleft(reversed(self.flying))
        self.flying.clear()

    def failed_ahead(self) -> Iterator[Work]:
        while self.flying and self.flying[0].error is not None:
            yield self.flying.popleft()

    def __call__(self) -> list[Any]:
        while True:
            work = self.take()
            if work is None:
                raise StopIteration
            self.flying.append(work)
            if work.error is None:
                try:
                    return [_contiguous(values) for values in self.inputs(work)]
                except Exception as error:
                    let_through(error)
                    work.error = leave_frame(error)


def _contiguous(values: Any) -> Any:
    return np.ascontiguousarray(values) if isinstance(values, np.ndarray) else values


def _one_sample(work: Work) -> Work:
    first = np.zeros(1, np.int64)
    samples = work.samples
    return Work(
        work.step,
        samples._replace(indices=samples.indices[first], keys=samples.keys[first]),
        work.valid[first],
        columns=take(work.columns, first),
        drawn=work.drawn.take(first),
        views=[drawn.take(first) for drawn in work.views],
        warnings=work.warnings,
    )
