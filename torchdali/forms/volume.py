"""The form of volumes: crops and flips in numpy, on the host; the two dimensions of images are a volume's last two."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..moves import Crop, Crop3d, Flip, Move, fill_of
from .mask import Index, move_axis, take_axis


def move_volume(volume: NDArray[Any], moves: Sequence[Move], i: int, fill: Any = 0) -> NDArray[Any]:
    """Move one sample's volume [D, H, W] or [C, D, H, W] of any dtype; the result may be a view of it.

    Crops and flips of images act on heights and widths; `Crop3d` and a `Flip` of axis -1 on depths too.

    Args:
        volume: values, or ids.
        moves: of the batch, with one row per sample.
        i: the sample's row.
        fill: of what comes in from outside, where a move's own `fill` doesn't name volumes.

    Raises:
        ValueError: a move is neither a crop nor a flip.
    """
    axes: list[Index] = [np.arange(n) for n in volume.shape[-3:]]
    for k, move in enumerate(moves):
        code = -1 - k
        if isinstance(move, Flip):
            place = {-1: 0, 0: 1, 1: 2}[move.axis]
            if move.on[i]:
                axes[place] = axes[place][::-1]
        elif isinstance(move, Crop):
            axes[1:] = [move_axis(index, move, axis, i, code) for axis, index in enumerate(axes[1:])]
        elif isinstance(move, Crop3d):
            window = Crop(move.start, move.shape)
            axes = [move_axis(index, window, axis, i, code) for axis, index in enumerate(axes)]
        else:
            raise ValueError(
                f"volumes can be cropped and flipped, but not moved by {type(move).__name__}: write kinds.Array() for "
                "a field that shall stay as it is"
            )
    moved = volume
    for index, axis in zip(axes, (-3, -2, -1), strict=True):
        moved = take_axis(moved, index, axis)
    last = min(int(index.min(initial=0)) for index in axes)
    if last < 0 and np.may_share_memory(moved, volume):
        moved = moved.copy()
    for code in range(-1, last - 1, -1):  # a later move covers an earlier one
        value = fill_of(getattr(moves[-1 - code], "fill", None), "volume", fill)
        for index, axis in zip(axes, (-3, -2, -1), strict=True):
            np.moveaxis(moved, axis, 0)[index == code] = value
    return moved
