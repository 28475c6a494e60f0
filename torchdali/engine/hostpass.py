"""The host pass: it draws the parameters of steps, and moves and filters what lies in the pictures.

Draws, boxes, points, groups of objects and sizes need no pixel.  They are done on the host, in numpy, for the whole
batch, before anything is decoded; what is left for pixels are params, and for masks a list of moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch import Columns, take
from ..errors import TransformError
from ..forms.boxes import as_xyxy, move_boxes
from ..forms.points import move_points
from ..forms.units import to_fractions, to_pixels
from ..kinds import Boxes, Kind, Mask, Points, Polygons
from ..moves import Move, Sizes
from ..ragged import Ragged
from ..rand import Key, Rand
from ..transforms.base import Mover, Params, Transform
from ..transforms.of_objects import Convert, Filter
from ..transforms.sound import is_sound
from .chain import Chain
from .scenes import Scene, find_scenes

Draws = dict[int, dict[str, Params]]
"""Parameters by step and field."""
FieldSizes = dict[str, "Sizes | None"]
"""By field of pixels, and under a scene's mask where there are none."""


@dataclass
class Drawn:
    """Where the samples of a batch stand after some steps, as far as the host knows it.

    Attributes:
        draws: the params of the last run of steps.
        sizes: of the images after them; None: nothing needs them.
        columns: boxes, points and other fields of objects, moved and filtered: lists of arrays.
        formats: of boxes, where a step has changed it.
        moves: by scene, the moves that its masks and polygons still have to make.
        begin: by scene, the sizes before those moves.
        kept: by group, the objects of each sample that are left, where a step has dropped some.
    """

    draws: Draws = field(default_factory=dict)
    sizes: FieldSizes = field(default_factory=dict)
    columns: Columns = field(default_factory=dict)
    formats: dict[str, str] = field(default_factory=dict)
    moves: dict[str, list[Move]] = field(default_factory=dict)
    begin: dict[str, Sizes] = field(default_factory=dict)
    kept: dict[str, list[NDArray[np.int64]]] = field(default_factory=dict)

    def take(self, rows: NDArray[np.int64]) -> Drawn:
        """Take some rows of the batch."""
        return Drawn(
            {
                k: {name: {key: values[rows] for key, values in params.items()} for name, params in fields.items()}
                for k, fields in self.draws.items()
            },
            {name: None if sizes is None else sizes[rows] for name, sizes in self.sizes.items()},
            take(self.columns, rows),
            dict(self.formats),
            {scene: [_rows(move, rows) for move in moves] for scene, moves in self.moves.items()},
            {scene: sizes[rows] for scene, sizes in self.begin.items()},
            {group: [kept[row] for row in rows] for group, kept in self.kept.items()},
        )


def _rows(move: Move, rows: NDArray[np.int64]) -> Move:
    arrays: dict[str, Any] = {name: value[rows] for name, value in vars(move).items() if isinstance(value, np.ndarray)}
    return replace(move, **arrays)


class HostPass:
    """Draws runs of steps.

    Args:
        kinds: the fields.
    """

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self.kinds = dict(kinds)
        self.scenes = find_scenes(kinds)
        self.annotated = any(scene.annotations for scene in self.scenes.values())

    def enter(self, columns: Columns, sizes: FieldSizes, formats: Mapping[str, str] | None = None) -> Drawn:
        """Begin with fields as they were read: boxes and points count in pixels from here on.

        Args:
            columns: the fields; those of objects are lists of arrays.
            sizes: of the images, and of a mask where a scene has no image.
            formats: those of boxes that a step before a function has changed.

        Raises:
            ValueError: fields of one scene differ in size, or fields of one group in their numbers of rows.
        """
        drawn = Drawn(sizes=dict(sizes), formats=dict(formats or {}))
        for scene in self.scenes.values():
            if not scene.annotations:
                continue
            self._check_sizes(scene, sizes)
            lead = sizes.get(self.lead(scene, sizes))
            if lead is not None:
                drawn.begin[scene.name] = lead
            drawn.moves[scene.name] = []
            self._check_groups(scene, columns)
            for name in {*scene.boxes, *scene.points, *(one for names in scene.groups.values() for one in names)}:
                kind = self.kinds[name]
                if isinstance(kind, (Mask, Polygons)) or name not in columns:
                    continue
                column = [np.asarray(value) for value in columns[name]]
                if isinstance(kind, (Boxes, Points)) and kind.normalized and lead is not None:
                    column = to_pixels(Ragged.of(column), lead).split()
                drawn.columns[name] = column
        return drawn

    def leave(self, drawn: Drawn) -> Columns:
        """Give the fields of objects as they leave: normalised again, where they were."""
        columns = dict(drawn.columns)
        for scene in self.scenes.values():
            sizes = drawn.sizes.get(self.lead(scene, drawn.sizes)) if scene.annotations else None
            for name in (*scene.boxes, *scene.points):
                kind = self.kinds[name]
                if name in columns and getattr(kind, "normalized", False) and sizes is not None:
                    columns[name] = to_fractions(Ragged.of(columns[name]), sizes).split()
        return columns

    def shown(self, drawn: Drawn) -> Drawn:
        """Where the samples stand once masks and outlines have made their moves, as functions see them."""
        begin = {name: drawn.sizes.get(self.lead(self.scenes[name], drawn.sizes)) for name in drawn.moves}
        return replace(
            drawn,
            moves={name: [] for name in drawn.moves},
            begin={name: sizes for name, sizes in begin.items() if sizes is not None},
            kept={},
        )

    def lead(self, scene: Scene, sizes: Mapping[str, Any]) -> str:
        """The field whose sizes are the scene's: its first picture, else its first mask or volume."""
        names = (*scene.pixels, *scene.masks, *scene.volumes)
        return next((name for name in names if name in sizes), next(iter(names), ""))

    def draw(self, chain: Chain, run: tuple[int, int], rand: Rand, before: Drawn) -> Drawn:
        """Draw a run of steps of a chain, and move what lies in the pictures.

        Args:
            chain: the steps.
            run: the first step and the one after the last.
            rand: the numbers of the samples in this chain.
            before: where they stand; it is not changed.
        """
        drawn = replace(
            before,
            draws={},
            sizes=dict(before.sizes),
            columns=dict(before.columns),
            formats=dict(before.formats),
            moves={scene: list(moves) for scene, moves in before.moves.items()},
            kept=dict(before.kept),
        )
        for k in range(*run):
            step = chain.transform(k)
            drawn.draws[k] = {}
            if is_sound(step):
                continue  # it draws when the batch is put together
            for scene in self.scenes.values():
                fresh = partial(chain.rand, k, rand.branch(Key.SCENE, scene.name) if scene.name else rand)
                if isinstance(step, (Filter, Convert)):
                    drawn.draws[k] |= {name: {} for name in scene.pixels}
                if isinstance(step, Filter):
                    self._filter(step, scene, drawn)
                elif isinstance(step, Convert):
                    self._convert(step, scene, drawn)
                else:
                    self._step(step, k, scene, fresh, drawn)
        return drawn

    def _step(self, step: Transform, k: int, scene: Scene, fresh: Callable[[], Rand], drawn: Drawn) -> None:
        lead = self.lead(scene, drawn.sizes)
        if lead not in drawn.sizes:
            return
        sizes = drawn.sizes[lead]
        extra = {"boxes": self._boxes(scene, drawn)} if isinstance(step, Mover) and step.needs_boxes else {}
        flat = scene.volumes and getattr(step, "dims", 2) == 2 and sizes is not None
        params: Params
        if type(step).make_params is Transform.make_params:  # nothing is drawn: the numbers' keys need not be made
            params, after = {}, sizes
        elif flat:  # of volumes, the height and width
            assert sizes is not None
            params, after = step.make_params(fresh(), sizes[:, 1:], **extra)
            after = None if after is None else np.concatenate([sizes[:, :1], after], 1)
        else:
            params, after = step.make_params(fresh(), sizes, **extra)
        if scene.annotations:
            self._move(step, scene, params, sizes, after, drawn)
        for name in scene.pixels or [lead]:
            if name not in drawn.sizes:
                continue
            own = drawn.sizes[name]
            if own is sizes or scene.annotations or (own is not None and sizes is not None and (own == sizes).all()):
                drawn.draws[k][name], drawn.sizes[name] = params, after
            else:  # an unrelated image of another size: the same numbers
                drawn.draws[k][name], drawn.sizes[name] = step.make_params(fresh(), own)

    def _move(
        self, step: Transform, scene: Scene, params: Params, sizes: Sizes | None, after: Sizes | None, drawn: Drawn
    ) -> None:
        """Move the annotations of a scene."""
        if not step.moving:
            if after is not sizes and (after is None or sizes is None or (after != sizes).any()):
                raise TransformError(
                    f"{type(step).__name__} changes the size of images that have {scene.annotations[0]!r} beside them, "
                    "and does not say how: make it a subclass of torchdali.transforms.Mover"
                )
            return
        if sizes is None:
            assert isinstance(step, Mover)
            drawn.moves[scene.name] += step.moves(params)
            return
        moves = step.drawn_moves(params, sizes[:, -2:])
        drawn.moves[scene.name] += moves
        for name in (name for name in scene.boxes if name in drawn.columns):
            kind = self.kinds[name]
            assert isinstance(kind, Boxes)
            rows = Ragged.of(drawn.columns[name])
            format = drawn.formats.get(name, kind.format)
            moved = move_boxes(rows, format, sizes, moves)
            emptied = step.emptied(params, _float_xyxy(rows, format)) if isinstance(step, Mover) else None
            if emptied is not None and emptied.any():
                moved = Ragged(np.where(emptied[:, None], np.zeros((), moved.data.dtype), moved.data), moved.counts)
            drawn.columns[name] = moved.split()
        for name in (name for name in scene.points if name in drawn.columns):
            points = self.kinds[name]
            assert isinstance(points, Points)
            drawn.columns[name] = move_points(Ragged.of(drawn.columns[name]), sizes, moves, points.swap).split()

    def _boxes(self, scene: Scene, drawn: Drawn) -> Ragged:
        """The scene's boxes, as floats xyxy in pixels; of samples without any there are none."""
        if not any(name in drawn.columns for name in scene.boxes):
            size = drawn.sizes[self.lead(scene, drawn.sizes)]
            assert size is not None
            return Ragged(np.zeros((0, 4), np.float32), np.zeros(len(size), np.int64))
        name = next(name for name in scene.boxes if name in drawn.columns)
        kind = self.kinds[name]
        assert isinstance(kind, Boxes)
        return _float_xyxy(Ragged.of(drawn.columns[name]), drawn.formats.get(name, kind.format))

    def _filter(self, step: Filter, scene: Scene, drawn: Drawn) -> None:
        sizes = drawn.sizes.get(self.lead(scene, drawn.sizes))
        for name in scene.boxes if step.acts_on == "boxes" else scene.points:
            if name not in drawn.columns:
                continue
            assert sizes is not None
            kind = self.kinds[name]
            rows = Ragged.of(drawn.columns[name])
            keep = step.keep(rows, self._format(name, drawn), sizes)
            parts = np.split(keep, np.cumsum(rows.counts)[:-1])
            group = kind.group
            for other in scene.groups.get(group, [name]) if group else [name]:
                if other in drawn.columns:
                    drawn.columns[other] = [v[part] for v, part in zip(drawn.columns[other], parts, strict=True)]
            if group:
                before = drawn.kept.get(group) or [np.arange(len(part)) for part in parts]
                drawn.kept[group] = [kept[part] for kept, part in zip(before, parts, strict=True)]

    def _convert(self, step: Convert, scene: Scene, drawn: Drawn) -> None:
        sizes = drawn.sizes.get(self.lead(scene, drawn.sizes))
        for name in scene.boxes if step.acts_on == "boxes" else scene.points:
            if name not in drawn.columns:
                continue
            assert sizes is not None
            rows, format = step.convert(Ragged.of(drawn.columns[name]), self._format(name, drawn), sizes)
            drawn.columns[name], drawn.formats[name] = rows.split(), format

    def _format(self, name: str, drawn: Drawn) -> str:
        kind = self.kinds[name]
        return drawn.formats.get(name, kind.format) if isinstance(kind, Boxes) else ""

    def _check_sizes(self, scene: Scene, sizes: FieldSizes) -> None:
        lead = self.lead(scene, sizes)
        first = sizes.get(lead)
        for name in scene.pixels[1:]:
            other = sizes.get(name)
            if first is None or other is None or (first == other).all():
                continue
            row = int(np.flatnonzero((first != other).any(axis=1))[0])
            raise ValueError(
                f"fields of one scene must have one size, got {lead!r} of {first[row].tolist()} and {name!r} of "
                f"{other[row].tolist()}: write kinds={{{name!r}: kinds.Image(scene='other')}} for a picture of "
                "another place"
            )

    def _check_groups(self, scene: Scene, columns: Columns) -> None:
        for names in scene.groups.values():
            counts = {name: [len(value) for value in columns[name]] for name in names if name in columns}
            for name, own in counts.items():
                first = next(iter(counts))
                if own != counts[first] and not isinstance(self.kinds[name], Mask):
                    row = next(i for i, (a, b) in enumerate(zip(own, counts[first], strict=True)) if a != b)
                    raise ValueError(
                        f"the fields of a group must have one row per object, got {own[row]} in {name!r} and "
                        f"{counts[first][row]} in {first!r}: write kinds={{{name!r}: kinds.Array()}} for a field of "
                        "another kind"
                    )


def _float_xyxy(rows: Ragged, format: str) -> Ragged:
    data = as_xyxy(rows.data, format)
    return Ragged(data if data.dtype.kind == "f" else data.astype(np.float32), rows.counts)
