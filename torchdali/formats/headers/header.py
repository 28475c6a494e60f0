"""The header of an image file, in short."""

from __future__ import annotations

from typing import NamedTuple


class Header(NamedTuple):
    """The header of an image file.

    Attributes:
        exact: DALI gives the same pixels as Pillow.
        height, width: the size of the image after EXIF orientation; 0 where only the decoder knows it.
        deep: it has more than 8 bits per value.
        orientation: of an exact file, by EXIF; 1 is upright.
    """

    exact: bool
    height: int = 0
    width: int = 0
    deep: bool = False
    orientation: int = 1


PILLOW = Header(False)
"""The header of an unknown file: Pillow decodes it, and finds its size."""
