"""The device part, eagerly: DALI's dynamic mode, operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .. import _dali
from ..errors import TransformError
from ..rand import Rand, derive, shard_seed
from ..transforms.function import Function, FunctionRand
from ..transforms.geometry import Decode
from .plan import Draws, FieldSizes, Plan
from .work import Fetcher, Work


class Fed(NamedTuple):
    """What one step took from the host: the parameters of a field, or one draw of a function."""

    step: int
    field: str | None = None
    call: tuple[str, tuple[Any, ...], dict[str, Any]] | None = None


class Eager:
    """Runs the device part of a plan.

    One `EvalContext` for its whole life, and on a GPU one stream of its own, which is made PyTorch's current stream and
    DALI's for each step: never the training stream, since DALI's JPEG decoders write to memory that is still in use on
    the stream they are given.  Use it in one thread at a time.

    Args:
        fetcher: the stage in front.
        sync: evaluate each operator to its end before the next (for debugging).
    """

    def __init__(self, fetcher: Fetcher, sync: bool = False) -> None:
        ndd = _dali.dynamic()
        self.plan, self.fetcher, self.device = fetcher.plan, fetcher, fetcher.pass_.device
        self.stream = _dali.lease_stream(self, self.device)
        self._context = _dali.context(fetcher.pass_.num_threads, self.device, self.stream)
        self._mode = ndd.EvalMode.sync_full if sync else ndd.EvalMode.sync_cpu
        self.kind = "gpu" if self.stream else "cpu"

    def __call__(self, work: Work) -> None:
        """Fill in `work.rows`; DALI's error, or a function's, rises for the whole batch."""
        with self.session():
            ops = _dali.DynamicOps(self.kind)
            sample = {name: self._enter(name, work) for name in self.plan.inputs}
            outputs = self.apply(ops, sample, work, _dali.as_batch)
            if self.stream:
                outputs = {name: output.gpu() for name, output in outputs.items()}
            work.rows = {name: _dali.Rows(output) for name, output in outputs.items()}
            if self.stream:
                work.rows = {name: own(rows, self.device) for name, rows in work.rows.items()}

    def session(self) -> Any:
        """The block in which operators of this plan run."""
        return _dali.session(self._context, self._mode, self.stream)

    def decodes(self, encoded: Sequence[NDArray[np.uint8]]) -> bool:
        """Whether DALI's decoder takes these files."""
        ops = _dali.DynamicOps(self.kind)
        try:
            with self.session():
                _dali.Rows(Decode().transform(ops, _dali.as_batch(encoded)))
        except Exception:
            return False
        return True

    def _enter(self, name: str, work: Work) -> Any:
        column = work.columns[name]
        batch = _dali.as_batch(column, "HWC" if self.plan.kinds[name] == "image" else "")
        return batch.gpu() if self.stream and self.plan.kinds[name] == "image" else batch

    def apply(
        self,
        ops: _dali.Ops,
        sample: dict[str, Any],
        work: Work,
        feed: Callable[[Any], Any],
        fed: list[Fed] | None = None,
    ) -> dict[str, Any]:
        """The plan's device part in the given operators.

        Args:
            ops: DALI's operators, eager or traced.
            sample: the inputs as batches or nodes.
            work: the step, whose parameters are used.
            feed: makes an array of parameters an operator's argument.
            fed: what was fed is noted here, in order.
        """
        plan, rand, fed = self.plan, self.fetcher.rand(work), [] if fed is None else fed
        for start, stop in plan.runs():
            draws = work.draws if start == 0 else self._draw_behind(start, stop, sample, rand)
            for k in range(start, stop):
                step = plan.transform(k)
                for name in plan.pixels:
                    if name in sample and not (isinstance(step, Decode) and name not in plan.encoded):
                        params = {key: feed(draws[k][name][key]) for key in step.dali_params(draws[k][name])}
                        fed.append(Fed(k, field=name))
                        sample[name] = step.transform(ops, sample[name], **params)
            if stop < plan.split:
                sample = self._call(plan.steps[stop], stop, ops, sample, work, rand, feed, fed)
                if stop + 1 < plan.split and isinstance(ops, _dali.DynamicOps):
                    for name in set(plan.encoded) & set(sample):
                        check_decoded(plan, name, _dali.shapes(sample[name]))
        return sample

    def _draw_behind(self, start: int, stop: int, sample: dict[str, Any], rand: Rand) -> Draws:
        """Parameters behind a function, from the shapes that it gave."""
        needed = any(self.plan.transform(k).needs_sizes for k in range(start, stop))
        sizes: FieldSizes = {
            name: np.array([shape[:2] for shape in _dali.shapes(sample[name])], np.int64) if needed else None
            for name in self.plan.pixels
            if name in sample
        }
        return self.plan.draw((start, stop), rand, sizes)[0]

    def _call(
        self, function: Any, k: int, ops: Any, sample: Any, work: Work, rand: Rand, feed: Any, fed: list[Fed]
    ) -> dict[str, Any]:
        assert isinstance(function, Function)
        start, pass_ = work.step.start, self.fetcher.pass_
        if self.stream:
            self.stream.synchronize()  # the function may decode, onto memory that operators before it still use
        seed = derive(shard_seed(pass_.seed, pass_.shard.rank), start.key, start.samples_seen, k) % 2**63
        make_rng = None if function.traceable else lambda: _dali.dynamic().random.RNG(seed=seed)
        function_rand = FunctionRand(rand.child(k), self.kind, feed, make_rng)
        if function.traceable:
            result: dict[str, Any] = function(ops, sample, function_rand)
        else:
            with _dali.default_rng(seed):
                result = function(ops, sample, function_rand)
        fed += [Fed(k, call=call) for call in function_rand.calls]
        return result


def own(rows: _dali.Rows, device: torch.device) -> tuple[Any, str, list[tuple[int, ...]]]:
    """(copy, layout, shapes): rows of DALI's GPU memory copied into torch's, on the current stream.

    Never DALI's memory itself: its DLPack deleter synchronises the whole device.
    """
    views = rows.on_gpu(device)
    copied = (
        [torch.empty_like(v).copy_(v) for v in views]
        if isinstance(views, list)
        else torch.empty_like(views).copy_(views)
    )
    return copied, rows.layout, rows.shapes()


def check_decoded(plan: Plan, name: str, shapes: list[tuple[int, ...]]) -> None:
    """Raise where a function left an image encoded.

    Raises:
        TransformError: one dimension.
    """
    if name in plan.encoded and shapes and len(shapes[0]) == 1:
        raise TransformError(
            f"the field {name!r} left the transform still encoded: decode it with ndd.decoders.image, "
            "or put Decode() in front of the function"
        )
