"""Doubts about the kinds of fields, which are errors where a transform depends on them."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import KindError
from ..kinds import Doubt


def check_doubts(doubts: Mapping[str, Doubt], values: bool, moves: bool, filters: bool) -> None:
    """Raise where a transform depends on a field whose kind is in doubt.

    Args:
        doubts: by field.
        values: transforms act on pictures.
        moves: transforms move pictures, and what lies in them.
        filters: transforms drop objects.

    Raises:
        KindError: it says what to write.
    """
    depends = {"values": values, "moves": moves, "filters": filters}
    for name, doubt in doubts.items():
        if not depends[doubt.matters]:
            continue
        if doubt.say:
            raise KindError(
                f"{name!r}: {doubt.why}  {doubt.say}, or kinds={{{name!r}: 'object'}} for what stays as it is"
            )
        if doubt.matters == "filters":
            raise KindError(
                f"{name!r}: {doubt.why}  Say it: kinds={{{name!r}: kinds.Array(group='...')}} with the group of the "
                f"boxes, or kinds={{{name!r}: 'array'}} for a field that stays whole"
            )
        raise KindError(
            f"{name!r}: {doubt.why}  Say it: kinds={{{name!r}: ...}} with 'mask', 'image', kinds.Boxes('xyxy') or "
            "another of torchdali.kinds, or with 'array' for what stays as it is"
        )
