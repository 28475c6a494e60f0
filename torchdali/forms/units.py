"""Boxes and points that count in the image's width and height, from 0 to 1: into pixels, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..moves import Sizes
from ..ragged import Ragged


def to_pixels(rows: Ragged, sizes: Sizes) -> Ragged:
    """Multiply boxes [T, 4], or points [T, ..., 2 or 3], by the widths and heights of their images [N, 2].

    Raises:
        ValueError: they are integers.
    """
    return Ragged(rows.data * _units(rows, sizes), rows.counts)


def to_fractions(rows: Ragged, sizes: Sizes) -> Ragged:
    """Divide boxes [T, 4], or points [T, ..., 2 or 3], by the widths and heights of their images [N, 2].

    Raises:
        ValueError: they are integers.
    """
    return Ragged(rows.data / _units(rows, sizes), rows.counts)


def _units(rows: Ragged, sizes: Sizes) -> NDArray[Any]:
    data = rows.data
    if data.dtype.kind != "f":
        raise ValueError(f"normalized boxes and points must be floats, got {data.dtype}")
    height, width = sizes[rows.owner].T
    unit = {2: [width, height], 3: [width, height, np.ones_like(width)], 4: [width, height, width, height]}
    units = np.stack(unit[data.shape[-1]], 1).astype(data.dtype)
    return units.reshape(len(units), *[1] * (data.ndim - 2), -1)
