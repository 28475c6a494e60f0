"""The device part of a plan as a program in DALI's operators, the same for eager and traced execution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .. import _dali
from ..clock import TRANSFORM, switch
from ..columns import writable
from ..errors import TransformError
from ..rand import Key, Rand, derive, shard_seed
from ..seeding import GLOBAL, global_states, preserved, seed_all
from ..transforms.base import Params
from ..transforms.decode import Decode
from ..transforms.function import Call, Function, FunctionRand, Moment, as_argument
from ..transforms.per_sample import PerSample
from .chain import Chain
from .fetch import Fetcher
from .hostpass import Drawn, Draws, FieldSizes
from .images import Each
from .masks import move_masks, move_outlines
from .per_sample import SampleCalls, sample_rands
from .plan import Plan
from .work import Work


class Argument(NamedTuple):
    """The origin of one argument of an operator: a step's parameter for a field, or a draw of a function.

    Attributes:
        chain: the number of the chain: 0 is the shared steps', then come the views'.
        step: the number of the step in it.
        field, key: the field, and the parameter's name.
        call: the draw instead.
    """

    chain: int
    step: int
    field: str = ""
    key: str = ""
    call: Call | None = None


Feed = Callable[[Argument, NDArray[Any]], Any]
"""Makes an operator's argument of its values, [N, ...]."""


class Program:
    """Runs the device part of a plan in the operators that it is given.

    Args:
        fetcher: the first stage.
        kind: "cpu" or "gpu".
        stream: the GPU's, in which eager operators run.
        inline: functions are called in the caller's thread, whose global random generators are used and put back.
        each: calls functions of single samples, several at a time.
    """

    def __init__(self, fetcher: Fetcher, kind: str, stream: torch.cuda.Stream | None, inline: bool, each: Each) -> None:
        self.plan, self.kind = fetcher.plan, kind
        self._fetcher, self._stream, self._inline = fetcher, stream, inline
        self.samples = SampleCalls(fetcher.plan, fetcher.source.rebuild, each)

    def __call__(self, ops: _dali.Ops, sample: dict[str, Any], work: Work, feed: Feed) -> dict[str, Any]:
        """The outputs by field, as batches or nodes; errors of DALI and of functions rise.

        Fields of views are named as `Plan.leaves_as` names them.

        Args:
            ops: DALI's operators, eager or traced.
            sample: the inputs as batches or nodes.
            work: the step, whose parameters are used.
            feed: makes arguments of parameters, in an order that is the same for all works.
        """
        plan, rand = self.plan, self._fetcher.rand(work)
        shared = self._run(0, ops, sample, work, rand, work.drawn, feed)
        if not any(view.split for view in plan.views):
            return shared
        views = work.views
        if plan.functions:
            sizes = isinstance(ops, _dali.DynamicOps)  # a plan that is traced needs none
            views = plan.draw_views(
                rand,
                self._begin(shared, True, plan.formats(plan, len(plan)))
                if sizes
                else Drawn(sizes=dict.fromkeys(plan.pixels)),
            )
            work.views = views if sizes else []
        outputs = dict(shared)
        for number, view in enumerate(plan.views):
            made = self._run(number + 1, ops, dict(shared), work, view.of_view(rand), views[number], feed)
            for name, value in made.items():
                if name in plan.pixels or (view.functions and (plan.viewed(name) or name not in plan.kinds)):
                    outputs[f"{name}.{view.key}"] = value
        return {name: value for name, value in outputs.items() if name not in plan.pixels}

    def _run(
        self,
        number: int,
        ops: _dali.Ops,
        sample: dict[str, Any],
        work: Work,
        rand: Rand,
        drawn: Drawn,
        feed: Feed,
    ) -> dict[str, Any]:
        """Run the device part of one chain."""
        plan, chain = self.plan, self.plan.chains[number]
        for start, stop in chain.runs():
            if start:
                drawn = self._draw_after_function(chain, (start, stop), sample, rand, drawn, ops)
            for k in range(start, stop):
                for name, params in self._params(chain, k, sample, drawn):
                    fed = {
                        key: feed(Argument(number, k, name, key), as_argument(values)) for key, values in params.items()
                    }
                    ops.frames = plan.kinds[name].word == "video"
                    sample[name] = chain.transform(k).transform(ops, sample[name], **fed)
            if stop < chain.split:
                if number:
                    self._annotations(sample, drawn)  # the first stage has done it for the shared steps
                sample = self._call(number, stop, ops, sample, work, rand, feed)
                if isinstance(ops, _dali.DynamicOps):
                    self._check_kept(chain.steps[stop], drawn, sample)
                if stop + 1 < chain.split and isinstance(ops, _dali.DynamicOps):
                    for name in set(plan.encoded) & set(sample):
                        check_decoded(plan, name, _dali.shapes(sample[name]))
        return sample

    def _params(self, chain: Chain, k: int, present: Iterable[str], drawn: Drawn) -> Iterator[tuple[str, Params]]:
        """The fields that a step transforms, and the params of its device form."""
        step = chain.transform(k)
        for name in self.plan.pixels:
            if name in present and not (isinstance(step, Decode) and name not in self.plan.encoded):
                yield name, step.dali_params(drawn.draws[k].get(name, {}))

    def arguments(self, work: Work) -> list[Argument]:
        """The arguments that a plan without functions takes, in the order in which it feeds them."""
        chains = zip(self.plan.chains, [work.drawn, *work.views], strict=True)
        return [
            Argument(number, k, name, key)
            for number, (chain, drawn) in enumerate(chains)
            for k in range(chain.split)
            for name, params in self._params(chain, k, self.plan.inputs, drawn)
            for key in params
        ]

    def values(self, work: Work, arguments: Sequence[Argument]) -> list[NDArray[Any]]:
        """The values of arguments for a work, of a plan that can be traced."""
        plan, whole = self.plan, self._fetcher.rand(work)
        unknown = Drawn(sizes=dict.fromkeys(plan.pixels))  # after most functions nothing needs sizes, when traced
        views = work.views or plan.draw_views(whole, unknown if plan.functions else work.drawn)
        draws: list[Draws] = []
        rands: list[Rand] = []
        for chain, drawn in zip(plan.chains, [work.drawn, *views], strict=True):
            rand = chain.of_view(whole)
            own = dict(drawn.draws)
            for run in chain.runs()[1:]:
                drawn = plan.host.draw(chain, run, rand, self._after(chain.steps[run[0] - 1], drawn))
                own |= drawn.draws
            draws.append(own)
            rands.append(rand)
        children: dict[tuple[int, int, str | None], Rand] = {}
        given: dict[tuple[int, int, str], Params] = {}
        values = []
        for number, step, field, key, call in arguments:
            if call is None:
                of = number, step, field
                if of not in given:
                    given[of] = plan.chains[number].transform(step).dali_params(draws[number][step][field])
                values.append(as_argument(given[of][key]))
                continue
            place = number, step, call.stream
            if place not in children:  # one for all calls: it counts them
                child = plan.chains[number].rand(step, rands[number])
                children[place] = child if call.stream is None else child.stream(call.stream)
            values.append(draw(children[place], call))
        return values

    def _begin(self, sample: Mapping[str, Any], sizes_needed: bool, formats: Mapping[str, str]) -> Drawn:
        """Where the samples stand after a function, from what it gave."""
        plan = self.plan
        sizes: FieldSizes = {
            name: np.array([shape[-3:-1] for shape in _dali.shapes(sample[name])], np.int64) if sizes_needed else None
            for name in plan.pixels
            if name in sample
        }
        if not plan.host.annotated:
            return Drawn(sizes=sizes)
        annotations = {name: value for name, value in sample.items() if plan.viewed(name) and name not in plan.pixels}
        return plan.host.enter({name: on_host(value) for name, value in annotations.items()}, sizes, formats)

    def _draw_after_function(
        self, chain: Chain, run: tuple[int, int], sample: dict[str, Any], rand: Rand, before: Drawn, ops: _dali.Ops
    ) -> Drawn:
        """The parameters of a run of steps after a function; what lies in the pictures is moved in `sample`."""
        function = chain.steps[run[0] - 1]
        assert isinstance(function, Function)
        if not isinstance(ops, _dali.DynamicOps):  # values are fed, and what lies in pictures is not moved
            return self.plan.host.draw(chain, run, rand, self._after(function, before))
        needed = self.plan.host.annotated or any(chain.transform(k).needs_sizes for k in range(*run))
        begin = self._begin(sample, needed, self.plan.formats(chain, run[0]))
        drawn = self.plan.host.draw(chain, run, rand, begin)
        self._annotations(sample, drawn)
        return drawn

    def _after(self, function: Any, before: Drawn) -> Drawn:
        """Where the samples stand after a traced function: sizes are known where it keeps them.

        Pictures that it adds have those of the others.
        """
        if not function.keeps_size:
            return Drawn(sizes=dict.fromkeys(self.plan.pixels))
        known = next((sizes for sizes in before.sizes.values() if sizes is not None), None)
        return Drawn(sizes={name: before.sizes.get(name, known) for name in self.plan.pixels})

    def _check_kept(self, function: Any, before: Drawn, sample: Mapping[str, Any]) -> None:
        """Raise where a function says that it keeps sizes, and does not."""
        for name in self.plan.pixels if function.keeps_size else ():
            known = before.sizes.get(name)
            if known is None or name not in sample:
                continue
            sizes = np.array([shape[-3:-1] for shape in _dali.shapes(sample[name])], np.int64)
            if known.shape != sizes.shape or (known != sizes).any():
                row = int(np.flatnonzero((known != sizes).any(axis=1))[0])
                raise TransformError(
                    f"the transform {function.name} must keep sizes, since it says keeps_size=True, and made "
                    f"{sizes[row].tolist()} of {known[row].tolist()} for {name!r}"
                )

    def _annotations(self, sample: dict[str, Any], drawn: Drawn) -> None:
        """Put what lies in the pictures where it was moved to."""
        plan = self.plan
        if not plan.host.annotated:
            return
        for name, column in plan.host.leave(drawn).items():
            sample[name] = _dali.as_batch(writable(column))
        for scene in plan.host.scenes.values():
            for name in scene.masks:
                if name in sample:
                    moved = move_masks(plan, name, on_host(sample[name]), drawn, None)
                    sample[name] = _dali.as_batch(writable(moved))
            for name in scene.polygons:
                if name in sample:
                    sample[name] = move_outlines(plan, name, sample[name], drawn)

    def _call(
        self, number: int, k: int, ops: _dali.Ops, sample: dict[str, Any], work: Work, rand: Rand, feed: Feed
    ) -> dict[str, Any]:
        plan, start, pass_ = self.plan, work.step.start, self._fetcher.pass_
        chain = plan.chains[number]
        function = chain.steps[k]
        assert isinstance(function, Function)
        if self._stream and (k or number):
            self._stream.synchronize()  # the function may decode, onto memory that operators before it still use
        batch = derive(shard_seed(pass_.seed, pass_.shard.rank), start.key, start.samples_seen)
        seed = chain.seed(k, batch) % 2**63

        def feed_call(call: Call, host: Rand) -> Any:
            return feed(Argument(number, k, call=call), draw(host, call))

        def make_rng(seed: int) -> Any:
            return _dali.dynamic().random.RNG(seed=seed)

        moment = None if function.traceable else Moment(batch, seed, start.epoch, work.step.number, make_rng)
        function_rand = FunctionRand(chain.rand(k, rand), self.kind, feed_call, moment)
        given = dict(sample)
        beside = {name: value for name, value in sample.items() if isinstance(value, list)}
        if function.traceable:
            sample = {name: value for name, value in sample.items() if name not in beside}
        before = switch(TRANSFORM) if isinstance(function, PerSample) else None
        with (
            nullcontext() if function.traceable else _dali.default_rng(seed),
            self._watched((chain.key, k), function, seed, work),
        ):
            if isinstance(function, PerSample):
                rands = sample_rands(chain.rand(k, rand), rand, start.epoch, work.step.number)
                columns = {name: on_host(value) for name, value in sample.items()}
                sample = self.samples(function, columns, rands, plan.formats(chain, k))
            else:
                sample = function(ops, sample, function_rand)
        if before is not None:
            switch(before)
        if not function.traceable:
            sample = {name: self._enter(function, name, value) for name, value in sample.items()}
        sample = {**beside, **sample}
        plan.uniform.replaced(
            [key for name, value in sample.items() if value is not given.get(name) for key in plan.leaves_as(name)]
        )
        return sample

    def _enter(self, function: Function, name: str, value: Any) -> Any:
        """Make a field of a function's result: batches stay, and host values become one, or a list of objects."""
        if not isinstance(value, (list, tuple, np.ndarray)):
            return value
        kind = self.plan.kinds.get(name)
        if isinstance(value, np.ndarray) and value.dtype.kind in "biuf" and not (kind and kind.holds == "object"):
            values: Any = value
        else:
            values = list(value)
            numeric = [is_numeric(one) for one in values]
            if (kind and kind.holds == "object") or not any(numeric):
                if kind and kind.holds != "object":
                    raise TransformError(
                        f"the transform {function.name} must return numbers or arrays for {name!r}, which is of the "
                        f"kind {kind}, got {type(values[0]).__name__}: give objects a field of another name"
                    )
                return values
            if not all(numeric):
                odd = values[numeric.index(False)]
                raise TransformError(
                    f"the transform {function.name} must return values of one kind for {name!r}, got numbers and "
                    f"{type(odd).__name__}: write @T.function(adds={{{name!r}: 'object'}}) for a list of objects"
                )
            scalars = all(np.ndim(one) == 0 for one in values)
            values = np.array(values) if scalars else [np.asarray(one) for one in values]
            forms = {} if scalars else {(one.dtype, one.ndim): one for one in values}
            if len(forms) > 1:  # DALI would convert them
                (one, ndim), (other, other_ndim) = list(forms)[:2]
                raise TransformError(
                    f"the transform {function.name} must return arrays of one dtype and number of dimensions for "
                    f"{name!r}, got {one} with {ndim} and {other} with {other_ndim}"
                )
        batch = _dali.as_batch(writable(values), layout_of(self.plan, name))
        return batch.gpu() if self._stream and kind and kind.pixels else batch

    @contextmanager
    def _watched(self, place: tuple[str, int], function: Function, seed: int, work: Work) -> Iterator[None]:
        """Seed the global generators for a function in the caller's thread, and put them back after it.

        In another thread they can't be seeded, since the caller draws from them too.  But the caller waits while the
        first batch of a pass is made: a generator that moves then was moved by the function.
        """
        if self._inline and not function.traceable and not isinstance(function, PerSample):
            with preserved():
                seed_all(derive(seed, Key.GLOBAL))
                yield
            return
        if place in self.plan.tried or work.step.start != self._fetcher.pass_.start:
            yield
            return
        before = global_states()
        yield
        self.plan.tried.add(place)
        if moved := [name for name, a, b in zip(GLOBAL, before, global_states(), strict=True) if a != b]:
            work.warnings.append(
                f"the transform {function.name} draws from the global generator of {' and '.join(moved)}, which gives "
                "other numbers after a resume: write rand.uniform(...) and the like, or draw from rand.torch, "
                "rand.numpy or rand.ndd, which follow (seed, epoch, position)"
            )


def is_numeric(value: Any) -> bool:
    """Whether a value is a number, or an array of numbers."""
    return isinstance(value, (bool, int, float)) or (
        isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "biuf"
    )


def layout_of(plan: Plan, name: str) -> str:
    """Give DALI's layout of a field's values; files have none."""
    kind = plan.kinds.get(name)
    return "" if kind is None or name in plan.encoded else LAYOUTS.get(type(kind).__name__.lower(), "")


LAYOUTS = {"image": "HWC", "video": "FHWC"}
"""DALI's layouts of decoded fields, by the words of their kinds."""


def draw(rand: Rand, call: Call) -> NDArray[Any]:
    """The numbers of a function's draw, as DALI's arguments."""
    return as_argument(getattr(rand, call.method)(*call.args, **call.kwargs))


def check_decoded(plan: Plan, name: str, shapes: list[tuple[int, ...]]) -> None:
    """Raise where a function left an image encoded.

    Raises:
        TransformError: its values have one dimension.
    """
    if name in plan.encoded and shapes and len(shapes[0]) == 1:
        raise TransformError(
            f"the field {name!r} left the transform still encoded: decode it with ndd.decoders.image, "
            "or write Decode() before the function"
        )


def on_host(batch: Any) -> list[Any]:
    """Copy the samples of a batch of dynamic mode to the host; lists are there."""
    if isinstance(batch, list):
        return batch
    return [array.copy() for array in _dali.Output(batch.cpu()).arrays()]
