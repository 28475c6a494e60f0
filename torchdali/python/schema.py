"""The kinds of the values of Python samples: told, shown by their types, or guessed where a wrong guess shows.

A guess that could be wrong in silence is a doubt: it is an error as soon as a transform depends on it, and the error
says what to write.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from ..batch import Held
from ..checks import resolve
from ..formats.image import own_size
from ..kinds import (
    ARRAY,
    ENCODED,
    IMAGE,
    MASK,
    OBJECT,
    WORDS,
    AnyKind,
    Boxes,
    Doubt,
    Image,
    Kind,
    Mask,
    Object,
    Points,
    Polygons,
    Video,
)
from ..kinds import tell as told_kind

GROUPED = frozenset("labels masks area areas iscrowd keypoints scores ids polygons segmentation".split())
"""The names that detection gives to the fields beside boxes which have one row per object."""

_PNG = b"\x89PNG"
_MODES = ("1", "L", "P", "I", "F", "I;16", "I;16L", "I;16B", "I;16N")


class Seen(NamedTuple):
    """A value of the first sample.

    Attributes:
        name: of the field.
        place: the container that holds it.
        key: of the value in its container.
        value: the value.
        held: how a column holds it.
    """

    name: str
    place: tuple[Any, ...]
    key: Any
    value: Any
    held: Held


def find_kinds(seen: Sequence[Seen], told: Mapping[str, AnyKind]) -> tuple[dict[str, Kind], dict[str, Doubt]]:
    """Find the kinds of a sample's fields, and the doubts about them.

    Args:
        seen: the values of a sample.
        told: kinds by the fields' names, or by the last parts of their names where these are unique.

    Raises:
        ValueError: `told` names no field, or several.
    """
    names = {one.name: one for one in seen}
    given = {name: told_kind(kind, names[name].held) for name, kind in resolve(told, list(names), "kinds").items()}
    shown = {one.name: kind for one in seen if (kind := typed(one.value)) is not None}
    kinds = {one.name: given.get(one.name) or shown.get(one.name) or WORDS[one.held] for one in seen}
    doubts = {one.name: doubt for one in seen if (doubt := _doubt(one, seen, kinds, {*given, *shown})) is not None}
    _group(seen, kinds, doubts, set(given))
    return kinds, doubts


def typed(value: Any) -> Kind | None:
    """Tell the kind that a value's own type says: those of torchvision's tv_tensors; None for other values."""
    if not isinstance(value, torch.Tensor) or type(value) is torch.Tensor:
        return None
    name = type(value).__name__
    if name == "BoundingBoxes":
        return Boxes(value.format.value.lower())  # type: ignore[attr-defined]
    return {"Image": IMAGE, "Mask": MASK, "Video": Video(), "KeyPoints": Points()}.get(name)


def _doubt(one: Seen, seen: Sequence[Seen], kinds: Mapping[str, Kind], sure: set[str]) -> Doubt | None:
    if one.name in sure:
        return None
    others = [other for other in seen if other.name != one.name and isinstance(kinds[other.name], (Image, Video))]
    if not others:
        return None
    value, kind = one.value, kinds[one.name]
    mode = getattr(value, "mode", None)
    if type(value).__module__.startswith("PIL.") and mode in _MODES:
        # Of two grey images either may be the mask: the first one is taken for the picture.
        if kind == IMAGE and _first_of(one, seen, kinds):
            return None
        return Doubt(f"a picture of mode {mode} beside an image: a mask, or an image?", _matters(kind))
    if kind == ENCODED:
        if bytes(value[:4]) == _PNG and not _first_of(one, seen, kinds):
            return Doubt("a PNG file beside an image: a mask, or an image?", "values")
        return None
    shape = tuple(getattr(value, "shape", ()))
    if kind == IMAGE:
        if shape and 1 in (shape[0], shape[-1]) and not _first_of(one, seen, kinds):
            return Doubt(f"{list(shape)} beside an image: a mask, or a grey image?", "values")
        return None
    if kind == OBJECT and (key := _annotation(value)):
        say = "Write torchvision.datasets.wrap_dataset_for_transforms_v2(dataset), or td.CocoDataset for COCO's files"
        return Doubt(f"objects with {key!r} beside an image: boxes that no transform would move?", say=say)
    if kind != ARRAY or len(shape) < 2:
        return None
    sizes = {size for other in others if (size := _size(other.value)) is not None}
    if shape[-2:] in sizes:
        return Doubt(f"its last two dimensions {list(shape[-2:])} are those of the image: a mask?")
    return (
        Doubt(f"{list(shape)} beside an image: boxes, and of which format?")
        if len(shape) == 2 and shape[1] == 4
        else None
    )


def _annotation(value: Any) -> str:
    """Find a key in lists and dicts that annotations in a picture have; "": there is none."""
    if isinstance(value, dict):
        found = [key for key in ("bbox", "bndbox", "segmentation") if key in value]
        return found[0] if found else next(filter(None, map(_annotation, value.values())), "")
    return next(filter(None, map(_annotation, value)), "") if isinstance(value, (list, tuple)) else ""


def _matters(kind: Kind) -> Literal["values", "moves"]:
    """Whether all transforms would act on a picture, or only those that move masks."""
    return "values" if kind.pixels else "moves"


def _first_of(one: Seen, seen: Sequence[Seen], kinds: Mapping[str, Kind]) -> bool:
    return next(other for other in seen if isinstance(kinds[other.name], Image)) is one


def _size(value: Any) -> tuple[int, int] | None:
    """Give height and width of an image, or of an image file."""
    if isinstance(value, (bytes, bytearray, memoryview)) or (isinstance(value, np.ndarray) and value.ndim == 1):
        try:
            height, width, _ = own_size(np.frombuffer(value, np.uint8))
            return height, width
        except (OSError, ValueError):
            return None  # it is damaged, and fails when it is decoded
    if hasattr(value, "height") and hasattr(value, "width"):
        return int(value.height), int(value.width)
    shape = tuple(getattr(value, "shape", ()))
    if len(shape) != 3:
        return None
    return (shape[1], shape[2]) if isinstance(value, torch.Tensor) else (shape[0], shape[1])


def _group(seen: Sequence[Seen], kinds: dict[str, Kind], doubts: dict[str, Doubt], told: set[str]) -> None:
    """Join the fields that have one row per object to the group of the boxes beside them."""
    for one in seen:
        kind = kinds[one.name]
        if isinstance(kind, Boxes):
            own = kind.group or ".".join(map(str, one.place)) or "objects"
            kinds[one.name] = dataclasses.replace(kind, group=own)
    for one in seen:
        boxes = next((b for b in seen if isinstance(kinds[b.name], Boxes) and b.place == one.place), None)
        kind = kinds[one.name]
        if boxes is None or kind.group or isinstance(kind, (Boxes, Image, Video)):
            continue
        group = kinds[boxes.name].group
        if isinstance(one.value, (list, tuple)) and str(one.key) in GROUPED and one.name not in told:
            kind = kinds[one.name] = ARRAY if np.asarray(one.value).dtype.kind in "biuf" else kind
        rows = len(one.value) if hasattr(one.value, "__len__") and np.ndim(one.value) else None
        if isinstance(kind, (Points, Polygons)) or (rows is not None and str(one.key) in GROUPED and _fits(kind, one)):
            if kind == ARRAY and str(one.key) == "masks":
                kind = MASK
            kinds[one.name] = dataclasses.replace(kind, group=group)
            doubts.pop(one.name, None)
        elif kind == ARRAY and one.name not in told and rows is not None and rows == len(boxes.value):
            doubts.setdefault(
                one.name, Doubt(f"it has as many rows as {boxes.name!r}: one for each object?", "filters")
            )


def _fits(kind: Kind, one: Seen) -> bool:
    """Whether a field with a name of detection has rows: a mask [H, W] has none, and objects are told."""
    return not (isinstance(kind, Mask) and np.ndim(one.value) < 3) and not isinstance(kind, Object)
