"""Reads the headers of image files: the image's size, and whether DALI decodes it to the same pixels as Pillow.

DALI gets only the kinds of files whose pixels were found equal, by tests that build files of every kind; Pillow decodes
the others.  A list of kinds that DALI can't read would let unknown ones through, and DALI 2.4.0 does worse than wrong
pixels for odd files: a damaged EXIF block can end the process.

Nothing is decoded here.  These parts of each format are walked over, each in a module of its own:

    JPEG    the segments up to the first scan: frame, EXIF, XMP, and what could confuse a parser
    PNG     all chunks, with their checks up to the data; animations, EXIF in texts and unknown chunks go to Pillow
    WebP    all chunks; animations, EXIF and XMP go to Pillow
    PNM     P5 and P6 up to 255, without comments
    BMP     24 and 32 bits, and 8 with a whole palette, none of them packed or with masks
    TIFF    8 bits of grey, RGB, or upright RGB and alpha, in strips, not compressed
    others  Pillow decodes them: also GIF and JPEG 2000, on which DALI 2.4.0 can crash
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from .bmp import read_bmp
from .header import PILLOW, Header
from .jpeg import read_jpeg
from .png import read_png
from .pnm import read_pnm
from .tiff import read_tiff
from .webp import read_webp

Bytes = NDArray[np.uint8]


def read_header(data: Bytes) -> Header:
    """Read the header of a file, uint8 [n], which need not be an image file."""
    view = data.data if data.flags.c_contiguous else memoryview(data.tobytes())
    try:
        if view[0] == 0xFF:
            return read_jpeg(view)
        if view[0] == 0x89:
            return read_png(view)
        if view[0] == 0x52:
            return read_webp(view)
        if view[0] == 0x50:
            return read_pnm(view)
        if view[0] == 0x42:
            return read_bmp(view)
        if view[0] in b"IM":
            return read_tiff(view)
        if bytes(view[:4]) == b"GIF8":
            return Header(False, *reversed(struct.unpack_from("<HH", view, 6)))
    except (struct.error, IndexError):
        pass  # it is cut off, and its decoder will say so
    return PILLOW


def readable(data: Bytes) -> bool:
    """Tell from its header whether DALI decodes a file to the right pixels."""
    return read_header(data).exact
