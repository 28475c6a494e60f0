"""The panels of a figure: pictures with what lies in them, curves, spectrograms and text; numbers, and no drawing."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import map_leaves
from ..checks import last_part
from ..forms.boxes import convert_boxes
from ..kinds import ARRAY, Audio, Boxes, Image, Kind, Mask, Number, Object, Points, Polygons, Video, Volume
from ..schema import GROUPED
from .batches import guess
from .levels import limits, normalizers, to_screen, undo
from .look import Look, Sample

LABELS = frozenset("label labels target targets class classes category categories category_id y fine_label".split())
"""Names of fields that hold classes."""
BESIDE = frozenset(["index", "valid"])
WIDTH, LINES = 30, 9  # characters of a line of text, and lines of a panel
COLORS = 10  # of classes and objects, which repeat
TOKENS = 48  # ids of a row that are shown

Classes = Mapping[int, str]


class Box(NamedTuple):
    """A box in a picture: the left, top, right and bottom edge in pixels, the class's name, and its number."""

    edges: tuple[float, float, float, float]
    name: str
    number: int


@dataclass(frozen=True)
class Panel:
    """One picture, curve, heat map or text.

    Attributes:
        form: what it is.
        values: a picture [H, W, 3] in [0, 1], a curve [C, n], or a heat map [rows, columns] with the first at
            the bottom.
        title: stands above it.
        text: of a text.
        ids: masks of ids [H, W], which are laid over the picture; 0 is clear.
        boxes: boxes in the picture.
        points: for each object, its points [k, 2] in pixels.
        unit: what a curve's numbers count along its length.
        step: the length of one of its numbers, in that unit.
    """

    form: Literal["picture", "curve", "heat", "text"]
    values: NDArray[Any] = field(default_factory=lambda: np.zeros((0, 0, 3), np.float32))
    title: str = ""
    text: str = ""
    ids: Sequence[NDArray[np.int64]] = ()
    boxes: Sequence[Box] = ()
    points: Sequence[NDArray[Any]] = ()
    unit: str = ""
    step: float = 1.0


@dataclass(frozen=True)
class Cell:
    """A sample as one draw shows it: panels beside each other, and the words above them."""

    panels: Sequence[Panel]
    caption: str


class Panels:
    """Makes the panels of all samples of a look.

    Args:
        look: the samples.
        classes: names of classes by their numbers.
        frames: frames of a clip, and slices of a volume, that are shown.
        decode: makes a text of a list of ids.

    Attributes:
        notes: how values were brought to the screen's range, for the title.
    """

    def __init__(
        self, look: Look, classes: Classes, frames: int, decode: Callable[[list[int]], str] | None = None
    ) -> None:
        draws = [[map_leaves(sample, _on_host) for sample in draw] for draw in look.draws]
        self._look, self._classes, self._frames, self._decode = replace(look, draws=draws), classes, frames, decode
        self._kinds = self._find_kinds()
        self.notes: list[str] = []
        self._limits: dict[str, tuple[float, float]] = {}
        self._normal = {view: normalizers(steps) for view, steps in look.steps.items()}
        for name, kind in self._kinds.items():
            if isinstance(kind, (Image, Video, Volume)):
                self._limits[name] = self._find_limits(name, kind)

    def cells(self) -> list[list[Cell]]:
        """Give for each draw the cells of its samples."""
        return [[self._cell(sample) for sample in draw] for draw in self._look.draws]

    # Kinds and levels, which all samples share

    def _find_kinds(self) -> dict[str, Kind]:
        samples = [sample for draw in self._look.draws for sample in draw]
        kinds = dict(self._look.kinds)
        sample = self._look.of_view(samples[0], self._look.views[0]) if samples else {}
        # Arrays that no kind was told for may be pictures too.
        unknown = [name for name in sample if kinds.get(name, ARRAY) == ARRAY and name not in BESIDE]
        for name in unknown:
            kinds[name] = guess(name, sample[name])
        sizes = [_hw(sample[name], kind) for name, kind in kinds.items() if isinstance(kind, Image) and name in sample]
        for name in unknown:
            kinds[name] = guess(name, sample[name], sizes)
        return {name: kinds[name] for name in sample}

    def _find_limits(self, name: str, kind: Kind) -> tuple[float, float]:
        pictures, normalized = [], False
        for view in self._look.views:
            normal = self._normal.get(view, [])
            normalized = normalized or (bool(normal) and kind.pixels)
            for draw in self._look.draws:
                for sample in draw:
                    value = self._look.of_view(sample, view).get(name)
                    if isinstance(value, (torch.Tensor, np.ndarray)):
                        pixels = _channels_last(value, kind)
                        pictures.append(undo(pixels, normal) if kind.pixels else pixels)
        low, high = limits(pictures, normalized)
        if normalized:
            self._note("Normalize undone")
        if (low, high) not in ((0.0, 1.0), (0.0, 255.0)):
            self._note(f"{name} from {low:.3g} (black) to {high:.3g} (white)")
        return low, high

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    # Cells

    def _cell(self, sample: Sample) -> Cell:
        panels = []
        for view in self._look.views:
            for panel in self._panels(self._look.of_view(sample, view), view):
                title = " ".join(filter(None, [f"view {view}" if len(self._look.views) > 1 else "", panel.title]))
                panels.append(Panel(**{**panel.__dict__, "title": title}))
        return Cell(panels, self._caption(sample))

    def _caption(self, sample: Sample) -> str:
        words: list[str] = []
        for name, kind in self._kinds.items():
            value, last = sample.get(name), last_part(name)
            if name == "index" and isinstance(value, int):
                words.insert(0, f"#{value:,}")
            elif name == "valid":
                words += [] if value else ["not valid"]
            elif self._is_label(name, value):
                words.append(self._named(value))
            elif isinstance(kind, Mask) and isinstance(value, torch.Tensor) and value.ndim == 2:
                found = [
                    self._classes[number] for number in np.unique(value.numpy()).tolist() if number in self._classes
                ]
                words += [textwrap.shorten(", ".join(found), WIDTH)] if found else []
            elif isinstance(kind, Number) and not kind.group:
                words.append(f"{last} {value:.4g}" if isinstance(value, float) else f"{last} {value}")
            elif isinstance(kind, Object) and isinstance(value, str):
                words.append(value.rpartition("/")[2][-WIDTH:] if name == "path" else textwrap.shorten(value, WIDTH))
        return "  ".join(words)

    def _is_label(self, name: str, value: Any) -> bool:
        """Whether a value is a sample's class, or the weights of classes that were mixed."""
        if last_part(name) not in LABELS:
            return False
        if isinstance(value, (int, np.integer)):
            return True
        soft = isinstance(value, torch.Tensor) and value.ndim == 1 and value.is_floating_point()
        return soft and self._kinds[name].group is None

    def _named(self, value: Any) -> str:
        """Name a class, or the heaviest of mixed ones."""
        if not isinstance(value, torch.Tensor):
            return self._classes.get(int(value), str(value))
        weights = value.float()
        order = weights.argsort(descending=True)[:2].tolist()
        return ", ".join(f"{self._classes.get(k, str(k))} {weights[k]:.2f}" for k in order if weights[k] > 0)

    # Panels

    def _panels(self, sample: Sample, view: str) -> list[Panel]:
        panels: list[Panel] = []
        pictures = [name for name, kind in self._kinds.items() if isinstance(kind, (Image, Video))]
        first: dict[str, str] = {}  # the picture of each scene
        for name in pictures:
            first.setdefault(self._kinds[name].scene, name)
        several = len(pictures) > 1
        for name, kind in self._kinds.items():
            value = sample.get(name)
            if value is None or isinstance(kind, (Number, Object)) or name in BESIDE:
                continue
            array = _array(value)
            if array is None or (self._is_label(name, value)):
                continue
            title = last_part(name) if several or not pictures else ""
            if isinstance(kind, (Image, Video)):
                inside = self._inside(sample, view, array, kind) if first[kind.scene] == name else {}
                panels += self._pictures(name, array, kind, view, title, inside)
            elif isinstance(kind, Volume):
                panels += self._slices(name, array, title)
            elif isinstance(kind, (Mask, Polygons)):
                if kind.scene not in first:
                    panels += [Panel("picture", _blank(array), last_part(name), ids=_ids(array))]
            elif isinstance(kind, (Boxes, Points)):
                if kind.scene not in first:
                    panels.append(Panel("text", text=f"{last_part(name)} {list(array.shape)}"))
            elif isinstance(kind, Audio):
                panels.append(self._sound(array, kind, title))
            elif not self._of_objects(sample, name):
                panels += self._values(name, array)
        return panels

    def _of_objects(self, sample: Sample, name: str) -> bool:
        """Whether a field has a row for each object: by its group, or by its name beside boxes."""
        if self._kinds[name].group is not None:
            return True
        place = name.rpartition(".")[0]
        beside = [one for one in sample if isinstance(self._kinds[one], Boxes) and one.rpartition(".")[0] == place]
        return bool(beside) and last_part(name) in GROUPED

    def _pictures(
        self, name: str, array: NDArray[Any], kind: Kind, view: str, title: str, inside: Mapping[str, Any]
    ) -> list[Panel]:
        pixels = undo(_channels_last(array, kind), self._normal.get(view, []))
        screen = to_screen(pixels, *self._limits[name])
        if isinstance(kind, Image):
            return [Panel("picture", screen, title, **inside)]
        places = _spread(len(screen), self._frames)
        return [Panel("picture", screen[place], f"{title} frame {place}".strip(), **inside) for place in places]

    def _slices(self, name: str, array: NDArray[Any], title: str) -> list[Panel]:
        slices = array if array.ndim == 3 else array[0]
        low, high = self._limits[name]
        return [
            Panel("picture", to_screen(slices[place][..., None], low, high), f"{title} slice {place}".strip())
            for place in _spread(len(slices), self._frames)
        ]

    def _inside(self, sample: Sample, view: str, picture: NDArray[Any], of: Kind) -> dict[str, Any]:
        """Find what lies in a picture: masks, boxes and points of its scene."""
        height, width = _hw(picture, of)
        ids: list[NDArray[np.int64]] = []
        boxes: list[Box] = []
        points: list[NDArray[Any]] = []
        scale = np.array([width, height], np.float64)
        for name, kind in self._kinds.items():
            array = _array(sample.get(name))
            if array is None or kind.scene != of.scene:
                continue
            if isinstance(kind, (Mask, Polygons)) and array.shape[-2:] == (height, width) and array.ndim in (2, 3):
                numbers = [number for _, number in self._names(sample, name, kind, len(array))]
                ids += _ids(array, numbers if array.ndim == 3 else ())
            elif isinstance(kind, Boxes) and array.ndim == 2 and array.shape[1] == 4:
                format = self._look.formats.get(view, {}).get(name, kind.format)
                edges = convert_boxes(array.astype(np.float64), format, "xyxy")
                edges = edges * np.tile(scale, 2) if kind.normalized else edges
                names = self._names(sample, name, kind, len(edges))
                boxes += [Box((a, b, c, d), *label) for (a, b, c, d), label in zip(edges.tolist(), names, strict=True)]
            elif isinstance(kind, Points) and array.shape[-1] in (2, 3) and array.ndim in (2, 3):
                rows = array.astype(np.float64) if array.ndim == 3 else array.astype(np.float64)[None]
                for row in rows:
                    seen = row[row[:, 2] > 0] if row.shape[1] == 3 else row
                    points.append(seen[:, :2] * scale if kind.normalized else seen[:, :2])
        return {"ids": ids, "boxes": boxes, "points": points}

    def _names(self, sample: Sample, objects: str, kind: Kind, size: int) -> list[tuple[str, int]]:
        """Give for each object the name and the number of its class; without classes, objects are numbered."""
        for name, value in sample.items():
            own = self._kinds[name]
            place = name.rpartition(".")[0] == objects.rpartition(".")[0]
            array = _array(value)
            if array is None or array.shape != (size,) or last_part(name) not in LABELS:
                continue
            if (own.group is not None and own.group == kind.group) or (own.group is None and place):
                return [(self._classes.get(int(number), str(number)), int(number)) for number in array.tolist()]
        return [("", number) for number in range(size)]

    def _sound(self, array: NDArray[Any], kind: Audio, title: str) -> Panel:
        if array.ndim == 3:
            return Panel("heat", array[0].astype(np.float32), title)
        curve = array.reshape(-1, array.shape[-1]).astype(np.float32)
        if kind.rate is None:
            return Panel("curve", curve, title, unit="samples")
        return Panel("curve", curve, title, unit="s", step=1 / kind.rate)

    def _values(self, name: str, array: NDArray[Any]) -> list[Panel]:
        title = last_part(name)
        if array.ndim == 1 and array.dtype.kind in "iu":
            return [Panel("text", title=title, text=self._tokens(array))]
        if array.ndim == 1:
            return [Panel("curve", array[None].astype(np.float32), title)]
        if array.ndim == 2 and array.size:
            return [Panel("heat", array.astype(np.float32), title)]
        return [Panel("text", title=title, text=f"{array.dtype} {list(array.shape)}")]

    def _tokens(self, array: NDArray[Any]) -> str:
        ids = array.tolist()
        text = " ".join(map(str, ids[:TOKENS])) if self._decode is None else str(self._decode(ids))
        more = f" ... {len(ids):,} in all" if self._decode is None and len(ids) > TOKENS else ""
        lines = textwrap.wrap(text + more, WIDTH) or [""]
        return "\n".join([*lines[: LINES - 1], "..."] if len(lines) > LINES else lines)


def _on_host(value: Any) -> Any:
    return value.detach().cpu() if isinstance(value, torch.Tensor) else value


def _array(value: Any) -> NDArray[Any] | None:
    if isinstance(value, torch.Tensor):
        return np.asarray((value.float() if value.dtype == torch.bfloat16 else value).numpy())
    return value if isinstance(value, np.ndarray) else None


def _channels_last(value: Any, kind: Kind) -> NDArray[Any]:
    """Give [..., H, W, C] of an image, a clip or a volume."""
    array = _array(value)
    assert array is not None
    if isinstance(kind, Volume):
        return array[..., None]
    if array.ndim == 2:
        return array[..., None]
    if getattr(kind, "layout", None) in ("HWC", "FHWC") and array.shape[-1] in (1, 3, 4):
        return array
    return np.moveaxis(array, -3, -1)


def _hw(value: Any, kind: Kind) -> tuple[int, int]:
    height, width = _channels_last(value, kind).shape[-3:-1]
    return int(height), int(width)


def _ids(array: NDArray[Any], numbers: Sequence[int] = ()) -> list[NDArray[np.int64]]:
    """Give masks of ids: one [H, W] as it is, those of objects [K, H, W] with the colours of their numbers."""
    if array.ndim == 2:
        return [array.astype(np.int64)]
    numbers = numbers or range(len(array))
    return [(mask > 0) * np.int64(COLORS + number % COLORS) for number, mask in zip(numbers, array, strict=False)]


def _blank(array: NDArray[Any]) -> NDArray[np.float32]:
    return np.zeros((*array.shape[-2:], 3), np.float32)


def _spread(length: int, most: int) -> list[int]:
    """Give at most `most` places, evenly spread over a length, with both ends."""
    if length <= most:
        return list(range(length))
    return [round(place) for place in np.linspace(0, length - 1, most)] if most > 1 else [0]
