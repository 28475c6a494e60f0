"""Masks and outlines on the host: decoded, reduced to the objects that are left, and moved, sample by sample."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch import Column
from ..forms.mask import move_mask
from ..forms.polygons import draw_polygons
from ..kinds import Mask, Polygons
from ..pillow import decode_mask
from .hostpass import Drawn
from .plan import Plan


def move_masks(plan: Plan, name: str, column: Column, drawn: Drawn, max_pixels: int | None) -> list[NDArray[Any]]:
    """Make the masks of a batch, as they are after the moves that were drawn."""
    return [make_mask(plan, name, value, drawn, i, max_pixels) for i, value in enumerate(column)]


def make_mask(plan: Plan, name: str, value: Any, drawn: Drawn, i: int, max_pixels: int | None) -> NDArray[Any]:
    """Make the mask of one sample: [H, W], or [K, H, W] with a row per object.

    Args:
        plan: knows the field's kind.
        name: the field.
        value: as it was read: a file, an array, or outlines.
        drawn: where the batch stands.
        i: the sample's row in the batch.
        max_pixels: the largest number of pixels that a file's header may promise.

    Raises:
        ValueError: the mask has another size than its image.
    """
    kind = plan.kinds[name]
    moves = drawn.moves.get(kind.scene, [])
    begin = drawn.begin.get(kind.scene)
    kept = drawn.kept[kind.group][i] if kind.group in drawn.kept else None
    if isinstance(kind, Polygons):
        objects = value if kept is None else [value[row] for row in kept]
        if begin is None:
            raise ValueError(f"{name!r} holds outlines, which need the size of the image beside them")
        return draw_polygons(objects, begin[i].tolist(), moves, i)
    assert isinstance(kind, Mask)
    mask: NDArray[Any] = np.asarray(decode_mask(value, max_pixels) if kind.encoded and np.ndim(value) == 1 else value)
    size = None if begin is None else tuple(begin[i].tolist())
    if kind.group and not len(mask):  # no objects: of this image's size
        mask = np.zeros((0, *(size or mask.shape[1:])), mask.dtype)
    if kept is not None:
        mask = mask[kept]
    if size is not None and mask.shape[-2:] != size:
        raise ValueError(
            f"the mask {name!r} must have its image's size, {size[0]} x {size[1]}, got "
            f"{mask.shape[-2]} x {mask.shape[-1]}"
        )
    return move_mask(mask, moves, i, kind.fill)
