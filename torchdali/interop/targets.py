"""The rules of translation for transforms of objects, of clips, and of several views: for typed samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import transforms as T
from ..transforms.base import Transform
from .picture import Picture


def _iou_crop(t: Any, _: Picture) -> list[Transform]:
    ranges = t.min_scale, t.max_scale, t.min_aspect_ratio, t.max_aspect_ratio
    return [T.RandomIoUCrop(*ranges, tuple(t.options), t.trials)]


def _clamp(t: Any, _: Picture) -> list[Transform]:
    return [T.ClampBoundingBoxes(t.clamping_mode)]


def _sanitize(t: Any, _: Picture) -> list[Transform]:
    return [T.SanitizeBoundingBoxes(t.min_size, t.min_area)]


def _format(t: Any, _: Picture) -> list[Transform]:
    return [T.ConvertBoundingBoxFormat(str(getattr(t.format, "value", t.format)).lower())]


def _plain(t: Any, _: Picture) -> list[Transform]:
    made: Transform = getattr(T, type(t).__name__)()
    return [made]


def _five(t: Any, _: Picture) -> list[Any]:
    return [T.FiveCrop(tuple(t.size))]


def _ten(t: Any, _: Picture) -> list[Any]:
    return [T.TenCrop(tuple(t.size), t.vertical_flip)]


def _subsample(t: Any, _: Picture) -> list[Transform]:
    return [T.UniformTemporalSubsample(t.num_samples)]


TARGETS: dict[str | None, Callable[[Any, Picture], list[Transform]]] = {
    "ClampBoundingBoxes": _clamp,
    "ClampKeyPoints": _plain,
    "ConvertBoundingBoxFormat": _format,
    "FiveCrop": _five,
    "RandomIoUCrop": _iou_crop,
    "SanitizeBoundingBoxes": _sanitize,
    "SanitizeKeyPoints": _plain,
    "TenCrop": _ten,
    "UniformTemporalSubsample": _subsample,
}
