"""Reads the header of PNM files: P5 and P6 up to 255, without comments, go to DALI."""

from __future__ import annotations

import re

from .header import PILLOW, Header

_PNM = re.compile(rb"P([56])\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,5})\s")


def read_pnm(view: memoryview) -> Header:
    """Read the header of a file that begins like a PNM file."""
    found = _PNM.match(view)
    if found is None:
        return PILLOW
    kind, width, height, largest = map(int, found.groups())
    enough = len(view) - found.end() >= height * width * (3 if kind == 6 else 1)
    return Header(largest == 255 and height > 0 and width > 0 and enough, height, width, largest > 255)
