"""Masks, outlines and volumes on the host: decoded, reduced to the objects that are left, and moved, one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..batch import Column
from ..forms.mask import move_mask
from ..forms.polygons import draw_polygons, move_polygons
from ..forms.volume import move_volume
from ..kinds import Mask, Polygons, Volume
from ..pillow import decode_mask
from .hostpass import Drawn
from .plan import Plan


def move_masks(plan: Plan, name: str, column: Column, drawn: Drawn, max_pixels: int | None) -> list[NDArray[Any]]:
    """Make the masks of a batch, as they are after the moves that were drawn."""
    return [make_mask(plan, name, value, drawn, i, max_pixels) for i, value in enumerate(column)]


def move_outlines(plan: Plan, name: str, column: Column, drawn: Drawn) -> list[Any]:
    """Give the outlines of a batch as they are after the moves that were drawn: lists per sample, without masks."""
    kind = plan.kinds[name]
    moves, begin = drawn.moves.get(kind.scene, []), drawn.begin.get(kind.scene)
    made: list[Any] = []
    for i, value in enumerate(column):
        if isinstance(value, np.ndarray):  # a function has drawn them
            made.append(make_mask(plan, name, value, drawn, i, None))
            continue
        objects = value if kind.group not in drawn.kept else [value[row] for row in drawn.kept[kind.group][i]]
        made.append(objects if not moves or begin is None else move_polygons(objects, begin[i].tolist(), moves, i))
    return made


def make_mask(plan: Plan, name: str, value: Any, drawn: Drawn, i: int, max_pixels: int | None) -> NDArray[Any]:
    """Make the mask of one sample: [H, W], or [K, H, W] with a row per object; or its volume.

    Args:
        plan: knows the field's kind.
        name: the field.
        value: as it was read: a file, an array, or outlines.
        drawn: where the batch stands.
        i: the sample's row in the batch.
        max_pixels: the largest number of pixels that a file's header may promise.

    Raises:
        ValueError: the mask has another size than its image, or the volume than the first one of its scene.
    """
    kind = plan.kinds[name]
    moves = drawn.moves.get(kind.scene, [])
    begin = drawn.begin.get(kind.scene)
    kept = drawn.kept[kind.group][i] if kind.group in drawn.kept else None
    if isinstance(kind, Polygons) and isinstance(value, np.ndarray):  # a function has drawn them
        return move_mask(value if kept is None else value[kept], moves, i)
    if isinstance(kind, Polygons):
        objects = value if kept is None else [value[row] for row in kept]
        if begin is None:
            raise ValueError(f"{name!r} holds outlines, which need the size of the image beside them")
        return draw_polygons(objects, begin[i].tolist(), moves, i)
    if isinstance(kind, Volume):
        volume = np.asarray(value)
        if begin is not None and volume.shape[-3:] != tuple(begin[i]):
            raise ValueError(
                f"volumes of one scene must have one size, got {name!r} of {list(volume.shape[-3:])} beside one of "
                f"{begin[i].tolist()}: write kinds={{{name!r}: kinds.Volume(scene='other')}} for one of another place"
            )
        return move_volume(volume, moves, i, kind.fill)
    assert isinstance(kind, Mask)
    mask: NDArray[Any] = np.asarray(value)
    if kind.encoded and mask.ndim == 1:
        try:
            mask = decode_mask(mask, max_pixels)
        except (OSError, SyntaxError, ValueError) as error:
            raise ValueError(f"the file of {name!r} can't be decoded: {error}") from error
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
