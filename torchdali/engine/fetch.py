"""The first stage: it reads the samples of each step and draws their parameters."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import Column, Columns
from ..clock import DECODE, HEADER, ORDER, PARAMETERS, STORAGE, count, switch
from ..columns import writable
from ..errors import FieldTypeError, leave_frame, let_through
from ..fields import Fields
from ..formats.decode import decode_value
from ..formats.image import check_header, check_orientation, make_readable
from ..kinds import Image, Mask, Polygons, Video, Volume
from ..moves import Sizes
from ..order import Rows, Step
from ..pillow import decode_mask, transcode
from ..rand import Rand
from ..signature import check_arrays
from ..source import Failed, Lent, Pass, Source
from ..state import Position
from .hostpass import FieldSizes
from .masks import move_masks, move_outlines
from .plan import Plan
from .work import Work


class Fetcher:
    """The first stage: read the samples, look into the files' headers, draw parameters.

    Args:
        source, pass_, plan: what is read, for which pass, and what becomes of it.
        max_pixels: how many pixels an image file's header may promise; None: any number.
    """

    def __init__(self, source: Source, pass_: Pass, plan: Plan, max_pixels: int | None) -> None:
        self.source, self.pass_, self.plan, self.max_pixels = source, pass_, plan, max_pixels
        self.reading = source.open(pass_)
        self._fields = Fields(tuple(plan.read), plan.kinds)

    def rand(self, work: Work) -> Rand:
        """The random numbers of a step's samples."""
        return Rand(self.pass_.seed, self.pass_.key, work.samples.keys)

    def works(self, steps: Iterable[Step], busy: dict[str, Position]) -> Iterator[Work]:
        """The steps with columns, draws and sizes filled in, or an error; `busy` says which step is read."""
        asked: deque[Work] = deque()

        def rows() -> Iterator[Rows]:
            before = switch(ORDER)
            for step in steps:
                asked.append(Work.of(step))
                busy["read"] = step.start
                switch(before)
                yield step.rows
                before = switch(ORDER)
            switch(before)

        switch(STORAGE)
        with contextlib.closing(self.reading.stream(rows())) as stream:  # type: ignore[type-var]
            for columns in stream:
                work = asked.popleft()
                try:
                    if isinstance(columns, Failed):
                        work.error, work.failed = columns.error, columns
                    elif isinstance(columns, Exception):
                        raise columns
                    else:
                        self._fill(work, columns)
                except Exception as error:
                    let_through(error)
                    work.error = leave_frame(error)
                del columns  # not kept while the next ones are read
                yield work
                switch(STORAGE)

    def _fill(self, work: Work, columns: Columns) -> None:
        if work.step.counts is not None:
            # The step is as long as what came.
            work.step = work.step.resized(max(len(column) for column in columns.values()))
            work.samples, work.valid = work.step.rows, work.step.valid
        work.read = columns
        if isinstance(columns, Lent):
            work.release, work.snapshot = columns.release, columns.snapshot
            work.bad += columns.bad
        self.enter(work, columns)

    def enter(self, work: Work, columns: Columns) -> None:
        """Fill in columns, draws and sizes from what was read; any error may rise."""
        plan = self.plan
        if plan.encoded:
            switch(HEADER)
        work.columns = self._fields.fill(columns, work.samples.indices, self.source.path, work.valid)
        sizes: FieldSizes = {}
        for name in plan.encoded:
            kind = plan.kinds[name]
            assert isinstance(kind, Image)
            files = [make_readable(data, self.max_pixels, kind.exif, self._annotated(kind)) for data in columns[name]]
            work.columns[name] = [file.data for file in files]
            count("bytes", sum(map(len, columns[name])))
            if others := sum(file.data is not data for file, data in zip(files, columns[name], strict=True)):
                count("pillow", others)
            sizes[name] = np.array([file.size for file in files], np.int64) if plan.peeks else None
        if plan.decoded:
            switch(DECODE)
        for name in plan.decoded:
            values = [decode_value(plan.kinds[name], data, self.max_pixels) for data in columns[name]]
            work.columns[name] = values
        for name in plan.pixels:
            if isinstance(plan.kinds[name], Video) and name not in plan.added:
                work.columns[name] = self._frames(name, work.columns[name], work.samples.indices.tolist())
        if not plan.empty:
            switch(PARAMETERS)
        for name in plan.pixels:
            if name not in sizes and name not in plan.added:
                sizes[name] = _extents(work.columns[name])
        for scene in plan.host.scenes.values():
            masks, volumes = ([n for n in names if n in work.columns] for names in (scene.masks, scene.volumes))
            if masks and not any(name in sizes for name in scene.pixels):
                sizes[masks[0]] = self._mask_sizes(work, masks[0])
            elif volumes:
                column = work.columns[volumes[0]]
                sizes[volumes[0]] = np.array([np.shape(volume)[-3:] for volume in column], np.int64)
        samples = work.samples.indices.tolist()
        for name in plan.inputs:
            if plan.kinds[name].held == "array":
                check_arrays(name, columns[name], samples)  # DALI would convert them
        if sizes:
            begin = plan.host.enter(work.columns, sizes)
            work.drawn, work.views = plan.draw_first(self.rand(work), begin)
        if plan.any_functions:
            self._show(work)
        switch(STORAGE)
        for name in plan.inputs:
            work.columns[name] = writable(work.columns[name])

    def _frames(self, name: str, clips: Column, samples: list[int]) -> Column:
        """Choose the frames of clips [F, H, W, C]; those on a GPU come later, on the stream of their stage.

        Raises:
            FieldTypeError: they have different numbers of them.
        """
        if not isinstance(clips[0], torch.Tensor):
            clips = self.plan.frames(clips)
        for sample, clip in zip(samples, clips, strict=True):
            if len(clip) != len(clips[0]):
                raise FieldTypeError(
                    name,
                    f"{len(clips[0])} frames",
                    str(len(clip)),
                    f"sample {samples[0]}",
                    f"sample {sample}",
                    f"write UniformTemporalSubsample(16), or kinds={{{name!r}: kinds.Video(frames=16)}} for files",
                )
        return clips

    def check_file(self, name: str, data: NDArray[np.uint8]) -> None:
        """Look into the header of an image file.

        Raises:
            ValueError: it promises too many pixels, or an orientation that annotations may not know.
        """
        kind = self.plan.kinds[name]
        assert isinstance(kind, Image)
        check_header(data, self.max_pixels)
        check_orientation(data, kind.exif, self._annotated(kind))

    def transcode(self, name: str, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Make a file of the pixels that Pillow decodes; errors are Pillow's."""
        kind = self.plan.kinds[name]
        return transcode(data, self.max_pixels, not (isinstance(kind, Image) and kind.exif is False))

    def _annotated(self, kind: Image) -> bool:
        """Whether something lies in the picture that counts the file's own rows and columns."""
        return bool(self.plan.host.scenes[kind.scene].annotations)

    def _mask_sizes(self, work: Work, name: str) -> Sizes:
        """Give the sizes of masks that lie in no picture; their files are decoded for it."""
        if self.plan.kinds[name].encoded:
            work.columns[name] = [decode_mask(data, self.max_pixels) for data in work.columns[name]]
        return np.array([np.shape(mask)[-2:] for mask in work.columns[name]], np.int64)

    def _show(self, work: Work) -> None:
        """Put what lies in the pictures where the first function sees it: as it is after the steps before it."""
        plan, drawn = self.plan, work.drawn
        for name, column in plan.host.leave(drawn).items():
            if name in plan.inputs:
                work.columns[name] = column
        for name in plan.inputs:
            if isinstance(plan.kinds[name], (Mask, Volume)):
                work.columns[name] = move_masks(plan, name, work.columns[name], drawn, self.max_pixels)
        for name in plan.beside:
            if isinstance(plan.kinds[name], Polygons):
                work.columns[name] = move_outlines(plan, name, work.columns[name], drawn)


def _extents(images: Column) -> Sizes:
    """Heights and widths of images [H, W, C], or of clips [F, H, W, C]."""
    if isinstance(images, np.ndarray):
        return np.array([images.shape[-3:-1]], np.int64).repeat(len(images), 0)
    return np.array([image.shape[-3:-1] for image in images], np.int64)
