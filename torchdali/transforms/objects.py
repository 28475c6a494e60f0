"""Transforms of boxes and points alone: which objects stay, and how they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from ..forms.boxes import clamp_boxes, convert_boxes, keep_boxes
from ..forms.points import clamp_points, keep_points
from ..kinds import Boxes
from ..moves import Sizes
from ..ragged import Ragged
from .arguments import is_number
from .of_objects import Convert, Filter


@dataclass(frozen=True)
class SanitizeBoundingBoxes(Filter):
    """Objects dropped whose boxes are too small, or not inside of the image.

    All fields of the boxes' group lose the same rows: labels, masks, areas and what else has one row per object.

    Args:
        min_size: the smallest width and height, in pixels, at least 1.
        min_area: the smallest area, at least 1.
        labels_getter: "default" or None; torchvision's functions that name the labels are not needed.

    Raises:
        ValueError: an invalid argument.
        TypeError: a function for `labels_getter`.
    """

    min_size: float = 1.0
    min_area: float = 1.0
    labels_getter: Literal["default"] | None = "default"

    def __post_init__(self) -> None:
        for name in ("min_size", "min_area"):
            value = getattr(self, name)
            if not is_number(value) or not value >= 1:
                raise ValueError(f"{name} must be a number of at least 1, got {value!r}")
        _check_getter(self.labels_getter, "default")

    def keep(self, rows: Ragged, format: str, sizes: Sizes) -> NDArray[np.bool_]:
        return keep_boxes(rows, format, sizes, self.min_size, self.min_area)


@dataclass(frozen=True)
class SanitizeKeyPoints(Filter):
    """Objects dropped that have a point outside of the image; those whose visibility is 0 do not count.

    All fields of the points' group lose the same rows.

    Args:
        labels_getter: None or "default"; torchvision's functions that name the labels are not needed.

    Raises:
        TypeError: a function for `labels_getter`.
    """

    labels_getter: Literal["default"] | None = None

    acts_on: ClassVar[Literal["boxes", "points"]] = "points"

    def __post_init__(self) -> None:
        _check_getter(self.labels_getter, None)

    def keep(self, rows: Ragged, format: str, sizes: Sizes) -> NDArray[np.bool_]:
        return keep_points(rows, sizes)


def _check_getter(getter: Any, default: str | None) -> None:
    if callable(getter):
        raise TypeError(
            "labels_getter is not needed: the fields of one group lose the same rows.  Leave it out, and write "
            "kinds={'area': kinds.Array(group=...)} for a field that should join the group of the boxes"
        )
    if getter not in ("default", None):
        raise ValueError(f"labels_getter must be 'default' or None, got {getter!r}: leave it out ({default!r})")


@dataclass(frozen=True)
class ClampBoundingBoxes(Convert):
    """Boxes cut off at the edges of the image.  Movers do so already.

    Args:
        clamping_mode: "auto", "soft" or "hard", which do the same to upright boxes; None: nothing is cut off.

    Raises:
        ValueError: an invalid argument.
    """

    clamping_mode: Literal["auto", "soft", "hard"] | None = "auto"

    def __post_init__(self) -> None:
        if self.clamping_mode not in ("auto", "soft", "hard", None):
            raise ValueError(f"clamping_mode must be auto, soft, hard or None, got {self.clamping_mode!r}")

    def convert(self, rows: Ragged, format: str, sizes: Sizes) -> tuple[Ragged, str]:
        return (rows if self.clamping_mode is None else clamp_boxes(rows, format, sizes)), format


@dataclass(frozen=True)
class ClampKeyPoints(Convert):
    """Points outside of the image moved to its edges."""

    acts_on: ClassVar[Literal["boxes", "points"]] = "points"

    def convert(self, rows: Ragged, format: str, sizes: Sizes) -> tuple[Ragged, str]:
        return clamp_points(rows, sizes), format


@dataclass(frozen=True)
class ConvertBoundingBoxFormat(Convert):
    """Boxes in another format.

    Args:
        format: "xyxy", "xywh" or "cxcywh", in capitals too, or torchvision's BoundingBoxFormat.

    Raises:
        ValueError: another format.
    """

    format: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", Boxes(self.format).format)

    def convert(self, rows: Ragged, format: str, sizes: Sizes) -> tuple[Ragged, str]:
        return Ragged(convert_boxes(rows.data, format, self.format), rows.counts), self.format
