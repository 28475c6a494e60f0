"""The last stage: it runs the plan's host part in torch, and puts the batch together."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from .. import _dali
from ..batch import Columns
from ..buffers import Pool
from ..collate import Padding
from .chain import Chain
from .fetch import Fetcher
from .finished import Finisher
from .hostpass import Drawn, FieldSizes
from .threads import SampleThreads
from .work import Work


class HostStage:
    """Runs the host part on the CPU, sample by sample, and finishes batches for the user.

    Args:
        fetcher: the first stage.
        device: the batches' device.
        num_threads: the number of samples to work on at a time; 0: one, in the calling thread.
        padding: for ragged fields.
        memory_format: of batches of images.
        pool: gives batches their memory on the host.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        device: torch.device,
        num_threads: int,
        padding: Padding,
        memory_format: torch.memory_format | None,
        pool: Pool,
    ) -> None:
        self.plan, self.fetcher = fetcher.plan, fetcher
        self._threads = threads = SampleThreads(num_threads)
        self.each = threads.each
        self._make = Finisher(
            fetcher.plan, device, padding, memory_format, fetcher.max_pixels, threads.each, fetcher.rand, pool
        )
        self._stream = fetcher.pass_.stream or _dali.lease_stream(self, device)

    def close(self) -> None:
        """End the threads."""
        self._threads.close()

    def __call__(self, work: Work) -> None:
        """Fill in `work.batch`, unless the device part has done it within its session on a GPU."""
        if work.batch:
            return
        if self._stream is None:
            self.finish(work)
            return
        columns = work.columns
        try:
            with torch.cuda.stream(self._stream):
                self.finish(work)
        finally:
            self._stream.synchronize()  # before what it reads is dropped, and so that any stream may go on
            del columns

    def finish(self, work: Work) -> None:
        """Fill in `work.batch`: the dataset's fields in their order, then what functions added.

        On a GPU it works on the current stream, and its caller waits for that before anything is dropped.
        """
        plan = self.plan
        shared, views = self._drawn(work)
        # Numbers that functions leave out stay.
        names = [
            name
            for name, kind in plan.kinds.items()
            if self._is_output(name, work)
            or (name not in plan.added and (not plan.any_functions or name not in plan.inputs or kind.held == "number"))
        ]
        ours = {key for name in plan.kinds for key in (name, *plan.leaves_as(name))}
        names += [name for name in (*work.outputs, *work.lists) if name not in ours]
        batch: dict[str, Any] = {}  # the work has all of it or none: a field may fail after others
        for name in names:
            if plan.views and plan.viewed(name):
                values = {
                    view.key: self._make(work, name, f"{name}.{view.key}", view, drawn)
                    for view, drawn in zip(plan.views, views, strict=True)
                }
                batch[name] = plan.form_views(values)
            else:
                batch[name] = self._make(work, name, name, plan, shared)
        work.batch = batch
        work.outputs, work.lists, work.columns, work.shared, work.drawn, work.views = {}, {}, {}, {}, Drawn(), []

    def _is_output(self, name: str, work: Work) -> bool:
        return any(key in work.outputs or key in work.lists for key in (name, *self.plan.leaves_as(name)))

    def _drawn(self, work: Work) -> tuple[Drawn, list[Drawn]]:
        """Draw what follows functions, from the shapes that came out of them."""
        plan, rand = self.plan, self.fetcher.rand(work)
        shared = work.drawn
        if plan.functions:
            begin = self._begin(work, "", plan)
            shared = plan.host.draw(plan, (plan.split, len(plan)), rand, begin)
        views = work.views or plan.draw_views(rand, shared)
        for number, view in enumerate(plan.views):
            if view.functions:
                begin = self._begin(work, f".{view.key}", view)
                views[number] = plan.host.draw(view, (view.split, len(view)), view.of_view(rand), begin)
        return shared, views

    def _begin(self, work: Work, suffix: str, chain: Chain) -> Drawn:
        """Where the samples stand after the last function of a chain."""
        plan = self.plan
        found = {
            name: work.outputs[name + suffix]
            for name in plan.kinds
            if plan.viewed(name) and name + suffix in work.outputs
        }
        sizes: FieldSizes = {
            name: np.array([shape[-3:-1] for shape in output.shapes()], np.int64)
            for name, output in found.items()
            if name in plan.pixels and len(output.shapes()[0]) > 2
        }
        if not plan.host.annotated:
            return Drawn(sizes=sizes)
        columns: Columns = {name: output.as_arrays() for name, output in found.items() if name not in plan.pixels}
        return plan.host.enter(columns, sizes, plan.formats(chain, chain.split))
