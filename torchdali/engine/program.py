"""The device part of a plan as a program in DALI's operators, the same for eager and traced execution."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .. import _dali
from ..errors import TransformError
from ..rand import Rand, derive, shard_seed
from ..transforms.function import Call, Function, FunctionRand, as_argument
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
    """

    def __init__(self, fetcher: Fetcher, kind: str, stream: torch.cuda.Stream | None) -> None:
        self.plan, self.kind = fetcher.plan, kind
        self._fetcher, self._stream = fetcher, stream

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
                        fed = {key: feed(Argument(k, name, key), params[key]) for key in step.dali_params(params)}
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
        children: dict[int, Rand] = {}
        values = []
        for step, field, key, call in arguments:
            if call is None:
                values.append(draws[step][field][key])
            else:
                child = children.setdefault(step, plan.child(step, rand))  # one for all calls: it counts them
                values.append(draw(child, call))
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
        function, start, pass_ = self.plan.steps[k], work.step.start, self._fetcher.pass_
        assert isinstance(function, Function)
        if self._stream:
            self._stream.synchronize()  # the function may decode, onto memory that operators before it still use
        seed = (
            derive(shard_seed(pass_.seed, pass_.shard.rank), start.key, start.samples_seen, k + self.plan.skipped)
            % 2**63
        )
        child = self.plan.child(k, rand)

        def feed_call(call: Call) -> Any:
            return feed(Argument(k, call=call), draw(child, call))

        def make_rng() -> Any:
            return _dali.dynamic().random.RNG(seed=seed)

        if function.traceable:
            return function(ops, sample, FunctionRand(child, self.kind, feed_call, None))
        with _dali.default_rng(seed):
            return function(ops, sample, FunctionRand(child, self.kind, feed_call, make_rng))


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
