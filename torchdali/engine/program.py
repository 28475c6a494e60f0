"""The device part of a plan as a program in DALI's operators, the same for eager and traced execution."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .. import _dali
from ..errors import TransformError
from ..rand import Key, Rand, derive, shard_seed
from ..seeding import GLOBAL, global_states, preserved, seed_all
from ..transforms.function import Call, Function, FunctionRand, Moment, as_argument
from ..transforms.geometry import Decode
from .fetch import Fetcher
from .plan import Draws, FieldSizes, Plan
from .work import Work


class Argument(NamedTuple):
    """The origin of one argument of an operator: a step's parameter for a field, or a draw of a function.

    Attributes:
        step: the number of the step.
        field, key: the field, and the parameter's name.
        call: the draw instead.
    """

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
    """

    def __init__(self, fetcher: Fetcher, kind: str, stream: torch.cuda.Stream | None, inline: bool) -> None:
        self.plan, self.kind = fetcher.plan, kind
        self._fetcher, self._stream, self._inline = fetcher, stream, inline

    def __call__(self, ops: _dali.Ops, sample: dict[str, Any], work: Work, feed: Feed) -> dict[str, Any]:
        """The outputs by field, as batches or nodes; errors of DALI and of functions rise.

        Args:
            ops: DALI's operators, eager or traced.
            sample: the inputs as batches or nodes.
            work: the step, whose parameters are used.
            feed: makes arguments of parameters, in an order that is the same for all works.
        """
        plan, rand = self.plan, self._fetcher.rand(work)
        for start, stop in plan.runs():
            draws = work.draws if start == 0 else self._draw_after_function(start, stop, sample, rand)
            for k in range(start, stop):
                step = plan.transform(k)
                for name in plan.pixels:
                    if name in sample and not (isinstance(step, Decode) and name not in plan.encoded):
                        params = draws[k][name]
                        keys = step.dali_params(params)
                        fed = {key: feed(Argument(k, name, key), as_argument(params[key])) for key in keys}
                        sample[name] = step.transform(ops, sample[name], **fed)
            if stop < plan.split:
                sample = self._call(stop, ops, sample, work, rand, feed)
                if stop + 1 < plan.split and isinstance(ops, _dali.DynamicOps):
                    for name in set(plan.encoded) & set(sample):
                        check_decoded(plan, name, _dali.shapes(sample[name]))
        return sample

    def values(self, work: Work, arguments: Sequence[Argument]) -> list[NDArray[Any]]:
        """The values of arguments for a work, of a plan that can be traced."""
        plan, rand = self.plan, self._fetcher.rand(work)
        draws = dict(work.draws)
        for run in plan.runs()[1:]:  # after functions nothing needs sizes, or the plan could not be traced
            draws |= plan.draw(run, rand, dict.fromkeys(plan.pixels))[0]
        children: dict[tuple[int, str | None], Rand] = {}
        values = []
        for step, field, key, call in arguments:
            if call is None:
                values.append(as_argument(draws[step][field][key]))
            else:
                if (step, call.stream) not in children:  # one for all calls: it counts them
                    child = plan.rand(step, rand)
                    children[step, call.stream] = child if call.stream is None else child.stream(call.stream)
                values.append(draw(children[step, call.stream], call))
        return values

    def _draw_after_function(self, start: int, stop: int, sample: dict[str, Any], rand: Rand) -> Draws:
        """The parameters of a run of steps after a function, from the shapes that it gave."""
        needed = any(self.plan.transform(k).needs_sizes for k in range(start, stop))
        sizes: FieldSizes = {
            name: np.array([shape[:2] for shape in _dali.shapes(sample[name])], np.int64) if needed else None
            for name in self.plan.pixels
            if name in sample
        }
        return self.plan.draw((start, stop), rand, sizes)[0]

    def _call(
        self, k: int, ops: _dali.Ops, sample: dict[str, Any], work: Work, rand: Rand, feed: Feed
    ) -> dict[str, Any]:
        plan, start, pass_ = self.plan, work.step.start, self._fetcher.pass_
        function = plan.steps[k]
        assert isinstance(function, Function)
        if self._stream and k:
            self._stream.synchronize()  # the function may decode, onto memory that operators before it still use
        batch = derive(shard_seed(pass_.seed, pass_.shard.rank), start.key, start.samples_seen)
        seed = plan.seed(k, batch) % 2**63

        def feed_call(call: Call, host: Rand) -> Any:
            return feed(Argument(k, call=call), draw(host, call))

        def make_rng(seed: int) -> Any:
            return _dali.dynamic().random.RNG(seed=seed)

        moment = None if function.traceable else Moment(batch, seed, start.epoch, work.step.number, make_rng)
        function_rand = FunctionRand(plan.rand(k, rand), self.kind, feed_call, moment)
        given = dict(sample)
        with nullcontext() if function.traceable else _dali.default_rng(seed), self._watched(k, function, seed, work):
            sample = function(ops, sample, function_rand)
        plan.uniform.replaced([name for name, value in sample.items() if value is not given.get(name)])
        return sample

    @contextmanager
    def _watched(self, k: int, function: Function, seed: int, work: Work) -> Iterator[None]:
        """Seed the global generators for a function in the caller's thread, and put them back after it.

        In another thread they can't be seeded, since the caller draws from them too.  But the caller waits while the
        first batch of a pass is made: a generator that moves then was moved by the function.
        """
        if self._inline and not function.traceable:
            with preserved():
                seed_all(derive(seed, Key.GLOBAL))
                yield
            return
        if k in self.plan.tried or work.step.start != self._fetcher.pass_.start:
            yield
            return
        before = global_states()
        yield
        self.plan.tried.add(k)
        if moved := [name for name, a, b in zip(GLOBAL, before, global_states(), strict=True) if a != b]:
            work.warnings.append(
                f"the transform {function.name} draws from the global generator of {' and '.join(moved)}, which gives "
                "other numbers after a resume: write rand.uniform(...) and the like, or draw from rand.torch, "
                "rand.numpy or rand.ndd, which follow (seed, epoch, position)"
            )


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
