"""The rules of translation for torchvision's geometric transforms but crops and flips."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import transforms as T
from ..transforms.arguments import mode_name
from ..transforms.base import Transform
from .picture import Picture


def _padding(t: Any) -> Any:
    return tuple(t.padding) if isinstance(t.padding, Sequence) else t.padding


def _pair(values: Any) -> Any:
    return None if values is None else tuple(values)


def _pad(t: Any, at: Picture) -> list[Transform]:
    return [T.Pad(_padding(t), at.fill(t.fill), t.padding_mode)]


def _rotation(t: Any, at: Picture) -> list[Transform]:
    return [T.RandomRotation(tuple(t.degrees), mode_name(t.interpolation), t.expand, _pair(t.center), at.fill(t.fill))]


def _affine(t: Any, at: Picture) -> list[Transform]:
    ranges = tuple(t.degrees), _pair(t.translate), _pair(t.scale), _pair(t.shear)
    return [T.RandomAffine(*ranges, mode_name(t.interpolation), at.fill(t.fill), _pair(t.center))]


def _perspective(t: Any, at: Picture) -> list[Transform]:
    return [T.RandomPerspective(t.distortion_scale, t.p, mode_name(t.interpolation), at.fill(t.fill))]


def _elastic(t: Any, at: Picture) -> list[Transform]:
    return [T.ElasticTransform(tuple(t.alpha), tuple(t.sigma), mode_name(t.interpolation), at.fill(t.fill))]


def _zoom_out(t: Any, at: Picture) -> list[Transform]:
    return [T.RandomZoomOut(at.fill(t.fill), tuple(t.side_range), t.p)]


def _random_resize(t: Any, at: Picture) -> list[Transform]:
    return [T.RandomResize(t.min_size, t.max_size, at.mode(t.interpolation), at.antialias(t.antialias))]


def _shortest_size(t: Any, at: Picture) -> list[Transform]:
    mode, antialias = at.mode(t.interpolation), at.antialias(t.antialias)
    return [T.RandomShortestSize(tuple(t.min_size), t.max_size, mode, antialias)]


def _scale_jitter(t: Any, at: Picture) -> list[Transform]:
    mode, antialias = at.mode(t.interpolation), at.antialias(t.antialias)
    return [T.ScaleJitter(tuple(t.target_size), tuple(t.scale_range), mode, antialias)]


GEOMETRY: dict[str | None, Callable[[Any, Picture], list[Transform]]] = {
    "ElasticTransform": _elastic,
    "Pad": _pad,
    "RandomAffine": _affine,
    "RandomPerspective": _perspective,
    "RandomResize": _random_resize,
    "RandomRotation": _rotation,
    "RandomShortestSize": _shortest_size,
    "RandomZoomOut": _zoom_out,
    "ScaleJitter": _scale_jitter,
}
