"""The last stage: it runs the plan's host part in torch, and puts the batch together."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from .. import _dali
from ..batch import Collated, Padded
from ..buffers import Pool
from ..collate import Padding, collate_arrays, collate_numbers
from ..errors import TransformError
from .fetch import Fetcher
from .program import check_decoded
from .work import Work

_setting_threads = threading.Lock()


class HostStage:
    """Runs the host part on the CPU, sample by sample, and finishes batches for the user.

    Each sample is transformed straight into its row of a pooled, channels_last batch, while it is in the CPU's cache.

    Args:
        fetcher: the first stage.
        device: the batches' device.
        num_threads: the number of samples to work on at a time; 0: one, in the calling thread.
        padding: for ragged fields.
        memory_format: of batches of images.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        device: torch.device,
        num_threads: int,
        padding: Padding,
        memory_format: torch.memory_format | None,
    ) -> None:
        self.plan, self.fetcher, self.device, self.padding = fetcher.plan, fetcher, device, padding
        self._memory_format = memory_format
        self._pool = Pool()
        self._stream = _dali.lease_stream(self, device)
        self._workers = num_threads
        self._threads: ThreadPoolExecutor | None = None

    def close(self) -> None:
        """End the threads."""
        if self._threads:
            self._threads.shutdown()
            self._threads = None

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
        # Numbers that functions leave out stay.
        names = [
            name
            for name, kind in plan.kinds.items()
            if not plan.functions or name not in plan.inputs or name in work.outputs or kind == "number"
        ]
        names += [name for name in work.outputs if name not in plan.kinds]
        work.batch = {name: self._field(name, work) for name in names}
        work.outputs, work.columns, work.draws = {}, {}, {}

    def _field(self, name: str, work: Work) -> Any:
        plan, kind = self.plan, self.plan.kinds.get(name)
        if name in plan.pixels and (name not in work.outputs or plan.split < len(plan.steps)):
            return self._images(name, work)
        if name in work.outputs:
            return self._output(name, work)
        column = work.columns[name]
        if isinstance(column, Collated):
            return column.to(self.device) if self.device.type == "cuda" else column
        if kind == "number":
            return collate_numbers(column, self.device)
        if kind == "array":
            samples = work.samples.indices.tolist()
            if plan.uniform[name] and not isinstance(column, np.ndarray):
                plan.uniform.settle(name, [tuple(row.shape) for row in column])
            return collate_arrays(name, column, plan.uniform[name], self.padding, self.device, samples)
        return list(column)

    def _images(self, name: str, work: Work) -> Any:
        """Make a batch of images that leave through the host part."""
        plan = self.plan
        if name in work.outputs:
            output = work.outputs[name]
            assert isinstance(output, _dali.Output)  # the host part is for the CPU
            check_decoded(plan, name, output.shapes())
            arrays = output.arrays()
        else:
            arrays = list(work.columns[name])
        if arrays[0].ndim != 3:
            raise TransformError(f"images must be [H, W, C] before {plan.steps[plan.split]!r}, got {arrays[0].shape}")
        actual = np.array([array.shape[:2] for array in arrays], np.int64)
        draws, sizes = work.draws, work.sizes.get(name)
        if plan.functions:  # drawn from the shapes that came out
            draws, ends = plan.draw((plan.split, len(plan.steps)), self.fetcher.rand(work), {name: actual})
            sizes = ends[name]
        sizes = actual if sizes is None else sizes
        steps = [
            # As plain numbers and lists, once for the batch: an array's elements cost more one by one.
            (plan.transform(k), {key: values.tolist() for key, values in draws[k][name].items()})
            for k in range(plan.split, len(plan.steps))
        ]
        dtype, channels = torch.from_numpy(arrays[0][:0]).dtype, arrays[0].shape[2]
        for step, _ in steps:
            dtype, channels = step.out_dtype(dtype), step.out_channels(channels)

        uniform = plan.uniform.settle(name, list(map(tuple, sizes.tolist())), not work.alone)
        extent = tuple(int(v) for v in sizes[0]) if uniform else self.padding.extent(sizes)
        fill = 0.0 if plan.uniform[name] else self.padding.value_for(name, dtype)
        batch = self._pool.empty((len(arrays), *extent, channels), dtype)

        def run(part: range) -> None:
            for i in part:
                height, width = sizes[i]
                if not uniform and (height, width) != extent:
                    batch[i].fill_(fill)
                out = batch[i, :height, :width].permute(2, 0, 1)
                image = torch.from_numpy(arrays[i]).permute(2, 0, 1)
                for k, (step, params) in enumerate(steps):
                    place = out if k == len(steps) - 1 else None
                    image = step.transform_host(image, out=place, **{key: values[i] for key, values in params.items()})
                if image is not out:
                    out.copy_(image)

        self._each(run, len(arrays))
        images = self._laid_out(batch).to(self.device, non_blocking=True)
        return images if uniform else Padded(images, torch.from_numpy(sizes.copy()).to(self.device, non_blocking=True))

    def _laid_out(self, images: torch.Tensor) -> torch.Tensor:
        """Make [N, C, H, W] of [N, H, W, C], in the memory format that the user asked for."""
        view = images.permute(0, 3, 1, 2)
        if self._memory_format == torch.channels_last:
            return view
        return view.contiguous() if view.is_cuda else self._pool.empty(view.shape, view.dtype).copy_(view)

    def _each(self, run: Any, n: int) -> None:
        if not self._workers:
            run(range(n))
            return
        if self._threads is None:
            self._threads = _thread_pool(self._workers)
        parts = [range(start, n, self._workers) for start in range(min(self._workers, n))]
        for future in [self._threads.submit(run, part) for part in parts]:
            future.result()

    def _output(self, name: str, work: Work) -> Any:
        """Make a batch of a field that comes out of DALI as it leaves."""
        output = work.outputs[name]
        shapes, layout, data = output.shapes(), output.layout, output.tensors()
        check_decoded(self.plan, name, shapes)
        image = name in self.plan.pixels and len(shapes[0]) == 3
        channels_first = layout.startswith("C")
        # By shapes: engines differ in how they lay memory out.
        number = name not in self.plan.pixels and set(shapes) == {()}
        uniform = number or self.plan.uniform.settle(name, shapes, not work.alone)
        if not (number or self.plan.uniform[name]):
            self.padding.value_for(name, data[0].dtype)  # a later batch may need it
        if uniform:
            if isinstance(data, list):
                data = torch.stack(data)
            elif output.on_device:
                data = data.clone()  # DALI's memory is gone with the session
            return self._laid_out(data) if image and not channels_first else data
        dims = slice(1, 3) if image and channels_first else slice(0, 2) if image else slice(None)

        def empty(shape: tuple[int, ...]) -> torch.Tensor:
            return torch.empty(shape, dtype=data[0].dtype, device=self.device)

        out, sizes = self.padding.pad(name, list(data), empty, dims)
        out = self._laid_out(out) if image and not channels_first else out
        return Padded(out, torch.from_numpy(sizes).to(self.device, non_blocking=True))


def _thread_pool(workers: int) -> ThreadPoolExecutor:
    """Start threads in which torch's own parallelism is off: they work on several samples at a time already.

    `torch.set_num_threads` holds for the calling thread, and for threads that start later: it is put back at once.
    """
    before = torch.get_num_threads()

    def begin() -> None:
        torch.get_num_threads()  # a thread's first look takes over the process's number, and must not come later
        with _setting_threads:
            torch.set_num_threads(1)

    pool = ThreadPoolExecutor(workers, thread_name_prefix="torchdali-host", initializer=begin)
    ready = threading.Barrier(workers)
    for future in [pool.submit(ready.wait, 10.0) for _ in range(workers)]:
        future.result()
    with _setting_threads:
        torch.set_num_threads(before)
    return pool
