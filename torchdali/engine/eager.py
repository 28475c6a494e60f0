"""The device part, eagerly: DALI's dynamic mode, operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .. import _dali
from ..errors import let_through
from ..kinds import Video
from ..transforms.decode import Decode
from .fetch import Fetcher
from .images import Each
from .program import Argument, Program, layout_of
from .work import Work


class Eager:
    """Runs the device part of a plan.

    Use it in one thread at a time.

    Args:
        session: the blocks in which operators of this plan run.
        fetcher: the first stage.
        finish: the last stage, which on a GPU takes the outputs over within the session: a batch costs one wait.
        each: calls functions of single samples, several at a time.
        inline: it runs in the caller's thread.

    Attributes:
        alone: no other rank is on this machine.
    """

    def __init__(
        self,
        session: _dali.Session,
        fetcher: Fetcher,
        finish: Callable[[Work], None],
        each: Each,
        inline: bool = False,
    ) -> None:
        self._finish = finish
        self.plan, self.device = fetcher.plan, fetcher.pass_.device
        self.session, self.stream, self.alone = session, session.stream, fetcher.pass_.alone
        self.kind = "gpu" if self.stream else "cpu"
        self.program = Program(fetcher, self.kind, self.stream, inline, each)

    def __call__(self, work: Work) -> None:
        """Fill in `work.outputs`, on a GPU `work.batch`; DALI's error, or a function's, rises for the whole batch."""
        with self.session:
            beside = {name: list(work.columns[name]) for name in self.plan.beside}
            made = self.program(self.ops(), {**self.inputs(work), **beside}, work, _feed)
            batches = {name: value for name, value in made.items() if not isinstance(value, list)}
            work.lists = {n: value for n, value in made.items() if isinstance(value, list)}
            if self.stream:
                batches = {name: batch.gpu() for name, batch in batches.items()}
            outputs = {name: _dali.Output(batch) for name, batch in batches.items()}
            self.hand_over(work, outputs)

    def ops(self) -> _dali.DynamicOps:
        """DALI's operators, as they run in this process."""
        ops = _dali.DynamicOps(self.kind)
        ops.alone = self.alone
        return ops

    def inputs(self, work: Work) -> dict[str, Any]:
        """A work's columns as batches."""
        inputs = {}
        for name in self.plan.inputs:
            kind = self.plan.kinds[name]
            layout = layout_of(self.plan, name)
            image = kind.pixels and name not in self.plan.encoded
            column = work.columns[name]
            if isinstance(kind, Video) and isinstance(column[0], torch.Tensor):
                column = self.plan.frames(column)
            if kind.held == "number":
                column = np.array(column)  # as numbers leave that no function sees
            batch = _dali.as_batch(column, layout)
            inputs[name] = batch.gpu() if self.stream and image else batch
        return inputs

    def hand_over(self, work: Work, outputs: dict[str, _dali.Output]) -> None:
        """Give a work its outputs, within a session; the caller keeps them until its end."""
        work.outputs = dict(outputs)
        if self.stream:
            self._finish(work)

    def decodes(self, encoded: Sequence[NDArray[np.uint8]]) -> bool:
        """Whether DALI's decoder takes these files."""
        try:
            with self.session:
                _dali.Output(Decode().transform(self.ops(), _dali.as_batch(encoded)))
        except Exception as error:
            let_through(error)
            return False
        return True


def _feed(_: Argument, values: NDArray[Any]) -> Any:
    return _dali.as_batch(values)
