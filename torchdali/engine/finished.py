"""The fields of a batch as they leave: images, masks, rows of objects, arrays, numbers and objects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import Collated, Column, Padded
from ..buffers import Pool
from ..clock import COLLATE, COPY, TRANSFORM, switch
from ..collate import Padding, collate_arrays, collate_numbers
from ..errors import EngineError, TransformError
from ..kinds import Audio, Mask, Polygons, Volume
from ..rand import Rand
from .batches import in_torch, on_device
from .chain import Chain
from .hostpass import Drawn
from .images import Each, Target, make_images, sizes_of, transform_images
from .masks import make_mask
from .plan import Plan
from .program import check_decoded
from .sounds import draw_sounds, make_sounds
from .work import Work


class Finisher:
    """Makes the fields of batches.

    Args:
        plan: what becomes of the samples.
        device: the batches' device.
        padding: for ragged fields.
        memory_format: of batches of images.
        max_pixels: the largest number of pixels that the header of a mask's file may promise.
        each: runs a function for all samples, several at a time.
        rand: gives the random numbers of a step's samples.
        pool: gives batches their memory on the host.
    """

    def __init__(
        self,
        plan: Plan,
        device: torch.device,
        padding: Padding,
        memory_format: torch.memory_format | None,
        max_pixels: int | None,
        each: Each,
        rand: Callable[[Work], Rand],
        pool: Pool,
    ) -> None:
        self._plan, self._device, self._padding, self._each = plan, device, padding, each
        self._memory_format, self._max_pixels = memory_format, max_pixels
        self._pool, self._rand = pool, rand

    def __call__(self, work: Work, name: str, key: str, chain: Chain, drawn: Drawn) -> Any:
        """Make one field.

        Args:
            work: a batch after the device part.
            name: the field.
            key: its name among the outputs, which says the view.
            chain: the steps that it makes last.
            drawn: their params, and where the samples stand after them.
        """
        plan, kind = self._plan, self._plan.kinds.get(name)
        source = key if key in work.outputs or key in work.lists else name
        if name in plan.pixels:
            left = chain.split < len(chain) or (chain is not plan and plan.split < len(plan))
            if source not in work.outputs or left:
                make = self._on_gpu if self._device.type == "cuda" else self._images
                return make(work, name, key, source, chain, drawn)
            return self._output(work, name, source, key)
        if isinstance(kind, (Mask, Polygons, Volume)):
            return self._masks(work, name, key, source, chain, drawn)
        if isinstance(kind, Audio) and (plan.sounds or chain.sounds):
            return self._sounds(work, name, key, source, chain)
        if name in drawn.columns:
            return self._rows(work, name, drawn)
        if source in work.outputs:
            return self._output(work, name, source, key)
        if source in work.lists:
            return list(work.lists[source])
        column = work.columns[name]
        if isinstance(column, Collated):
            return column.to(self._device) if self._device.type == "cuda" else column
        assert kind is not None
        if kind.held == "number":
            return collate_numbers(column, self._device)
        if kind.held in ("array", "encoded"):
            samples = work.samples.indices.tolist()
            if plan.uniform[name] and not isinstance(column, np.ndarray):
                plan.uniform.settle(name, [tuple(row.shape) for row in column], samples=samples)
            return collate_arrays(name, column, plan.uniform[name], self._padding, self._device, samples)
        return list(column)

    def _images(self, work: Work, name: str, key: str, source: str, chain: Chain, drawn: Drawn) -> Any:
        """Make a batch of images that leave through the host part."""
        plan = self._plan
        if source in work.outputs:
            output = work.outputs[source]
            check_decoded(plan, name, output.shapes())
            arrays: Column = output.arrays()  # the host part is for the CPU
        else:
            column = work.columns[name]
            arrays = column if isinstance(column, np.ndarray) else list(column)
        video = plan.kinds[name].word == "video"
        _check_dimensions(arrays[0], video, [*chain.steps[chain.split :], *plan.steps[plan.split :]])
        images: Column = arrays
        steps = [(chain.transform(k), drawn.draws[k].get(name, {})) for k in range(chain.split, len(chain))]
        if chain is not plan and source == name and plan.split < len(plan):
            shared = [(plan.transform(k), work.drawn.draws[k].get(name, {})) for k in range(plan.split, len(plan))]
            if video:
                steps = shared + steps
            else:
                images = self._shared(work, name, shared, list(arrays))
        sizes = drawn.sizes.get(name)
        sizes = sizes_of(images) if sizes is None else sizes
        first = images[0]
        dtype = first.dtype if isinstance(first, torch.Tensor) else torch.from_numpy(first[:0]).dtype
        for step, _ in steps:
            dtype = step.out_dtype(dtype)
        samples = work.samples.indices.tolist()
        shapes = [(*sizes[0],)] if (sizes == sizes[0]).all() else list(map(tuple, sizes.tolist()))
        uniform = plan.uniform.settle(key, shapes, not work.alone, samples)
        extent = tuple(int(v) for v in sizes[0]) if uniform else self._extent(name, sizes)
        fill = 0.0 if plan.uniform[key] else self._padding.value_for(name, dtype)
        before = switch(TRANSFORM) if steps else COLLATE
        made = self._laid_out(make_images(images, Target(steps, sizes, extent, fill), self._pool, self._each))
        if self._device.type == "cuda":
            switch(COPY)
            made = made.to(self._device, non_blocking=True)
        switch(before)
        return made if uniform else Padded(made, torch.from_numpy(sizes.copy()).to(self._device, non_blocking=True))

    def _on_gpu(self, work: Work, name: str, key: str, source: str, chain: Chain, drawn: Drawn) -> Any:
        """Make a batch of images that leave through the torch part on a GPU."""
        plan = self._plan

        def steps(chain: Chain, draws: Any) -> list[Any]:
            return [(chain.transform(k), draws[k].get(name, {})) for k in range(chain.split, len(chain))]

        images = work.shared.get(source)
        if images is None:
            output = work.outputs.get(source)
            if output is not None:
                check_decoded(plan, name, output.shapes())
            if output is None:
                column = work.columns[name]
                column = plan.frames(column) if isinstance(column[0], torch.Tensor) else column
                some = chain is not plan or chain.split < len(chain)
                images = on_device(column, self._device, steps=some)
            else:
                images = on_device(output.tensors(), self._device)
            if chain is not plan and source == name:
                images = work.shared[name] = in_torch(images, steps(plan, work.drawn.draws))
        video = plan.kinds[name].word == "video"
        _check_dimensions(images[0], video, [*plan.steps[plan.split :], *chain.steps[chain.split :]])
        images = in_torch(images, steps(chain, drawn.draws))
        shapes = [(int(image.shape[-2]), int(image.shape[-1])) for image in images]
        samples = work.samples.indices.tolist()
        if plan.uniform.settle(key, shapes, not work.alone, samples):
            assert isinstance(images, torch.Tensor)
            last = images.ndim == 4 and self._memory_format == torch.channels_last
            layout = torch.channels_last if last else torch.contiguous_format
            return images if images.is_contiguous(memory_format=layout) else images.clone(memory_format=layout)

        def empty(shape: tuple[int, ...]) -> torch.Tensor:
            return torch.empty(shape, dtype=images[0].dtype, device=self._device)

        end = images[0].ndim
        self._extent(name, np.array(shapes, np.int64))
        out, sizes = self._padding.pad(name, list(images), empty, slice(end - 2, end))
        return Padded(out, torch.from_numpy(sizes).to(self._device, non_blocking=True))

    def _shared(self, work: Work, name: str, steps: list[Any], arrays: list[Any]) -> list[Any]:
        """The images after the steps that all views share, made once."""
        if name not in work.shared:
            before = switch(TRANSFORM)
            work.shared[name] = transform_images(arrays, steps, self._each)
            switch(before)
        return list(work.shared[name])

    def _masks(self, work: Work, name: str, key: str, source: str, chain: Chain, drawn: Drawn) -> Any:
        """Make a batch of masks or volumes, each moved as its image or its scene was."""
        plan = self._plan
        output = work.outputs.get(source)
        values = work.lists.get(source, work.columns.get(name, ())) if output is None else output.as_arrays()
        masks: list[Any] = [None] * len(values)
        dtype = None if isinstance(plan.kinds[name], Volume) else plan.mask_dtype(chain)

        def run(part: range) -> None:
            for i in part:
                mask = make_mask(plan, name, values[i], drawn, i, self._max_pixels)
                masks[i] = mask if dtype is None else mask.astype(dtype, copy=False)

        before = switch(TRANSFORM)
        self._each(run, len(values))
        switch(before)
        shapes = [tuple(mask.shape) for mask in masks]
        uniform: bool | None = False
        if not plan.kinds[name].group:
            uniform = plan.uniform.settle(key, shapes, not work.alone)
        samples = work.samples.indices.tolist()
        return collate_arrays(name, masks, uniform, self._padding, self._device, samples)

    def _sounds(self, work: Work, name: str, key: str, source: str, chain: Chain) -> Any:
        """Make a batch of sounds, or of their spectrograms."""
        plan = self._plan
        sounds: Any = work.outputs[source].as_arrays() if source in work.outputs else work.columns[name]
        before = switch(TRANSFORM)
        made = make_sounds(name, sounds, draw_sounds(plan, chain, self._rand(work)), self._each)
        switch(before)
        samples = work.samples.indices.tolist()
        uniform = plan.uniform.settle(key, [value.shape for value in made], not work.alone, samples)
        return collate_arrays(name, made, uniform, self._padding, self._device, samples)

    def _rows(self, work: Work, name: str, drawn: Drawn) -> Padded:
        """Make a batch of rows of objects, which may be more or fewer in each sample."""
        column = self._plan.host.leave(drawn)[name]
        array, sizes = self._padding.pad(name, column, lambda shape: np.empty(shape, column[0].dtype), slice(0, 1))
        data = torch.from_numpy(array).to(self._device, non_blocking=True)
        return Padded(data, torch.from_numpy(sizes).to(self._device, non_blocking=True))

    def _output(self, work: Work, name: str, source: str, key: str) -> Any:
        """Make a batch of a field that comes out of DALI as it leaves."""
        plan, output = self._plan, work.outputs[source]
        shapes, layout, data = output.shapes(), output.layout, output.tensors()
        check_decoded(plan, name, shapes)
        image = name in plan.pixels and len(shapes[0]) in (3, 4)
        channels_first = layout.startswith(("C", "FC"))
        # By shapes: engines differ in how they lay memory out.
        number = name not in plan.pixels and set(shapes) == {()}
        uniform = number or plan.uniform.settle(key, shapes, not work.alone)
        if not (number or plan.uniform[key]):
            self._padding.value_for(name, data[0].dtype)  # a later batch may need it
        if uniform:
            if isinstance(data, list):
                data = torch.stack(data)
            elif output.on_device:
                data = data.clone()  # DALI's memory is gone with the session
            return self._laid_out(data) if image and not channels_first else data
        end = len(shapes[0])
        dims = slice(end - 2, end) if image and channels_first else slice(end - 3, end - 1) if image else slice(None)
        if image:
            self._extent(name, np.array([shape[dims] for shape in shapes], np.int64))

        def empty(shape: tuple[int, ...]) -> torch.Tensor:
            return torch.empty(shape, dtype=data[0].dtype, device=self._device)

        out, sizes = self._padding.pad(name, list(data), empty, dims)
        out = self._laid_out(out) if image and not channels_first else out
        return Padded(out, torch.from_numpy(sizes).to(self._device, non_blocking=True))

    def _extent(self, name: str, sizes: NDArray[np.int64]) -> tuple[int, ...]:
        """Give the extent of padded images from their heights and widths, [N, 2].

        Raises:
            EngineError: it has more than `max_pixels`, which none of the images has: a row and a column may be small
                files, and their batch all of the memory.
        """
        extent = self._padding.extent(sizes)
        height, width = extent
        if self._max_pixels is not None and height * width > max(self._max_pixels, int(sizes.prod(axis=1).max())):
            raise EngineError(
                f"the images of {name!r} in one batch would be padded to height {height} and width {width}, and at "
                f"most {self._max_pixels} pixels were expected: crop or resize them, put those of similar sizes into "
                "one batch, or set the loader's max_pixels"
            )
        return extent

    def _laid_out(self, images: torch.Tensor) -> torch.Tensor:
        """Make [N, C, H, W] of [N, H, W, C], in the memory format that the user asked for; of clips [N, F, C, H, W]."""
        if images.ndim == 5:
            return images.permute(0, 1, 4, 2, 3).clone(memory_format=torch.contiguous_format)
        view = images.permute(0, 3, 1, 2)
        if self._memory_format == torch.channels_last:
            return view
        return view.contiguous() if view.is_cuda else self._pool.empty(view.shape, view.dtype).copy_(view)


def _check_dimensions(image: Any, video: bool, steps: Sequence[Any]) -> None:
    """Raise where a function has made something else of pictures.

    Raises:
        TransformError: it names the step that would get it.
    """
    if image.ndim != (4 if video else 3):
        before = f" before {steps[0]!r}" if steps else ""
        raise TransformError(f"images must be [H, W, C]{before}, got {tuple(image.shape)}")
