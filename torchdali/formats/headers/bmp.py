"""Reads the header of BMP files: 24 and 32 bits, and 8 with a whole palette, none of them packed or with masks."""

from __future__ import annotations

import struct

from .header import PILLOW, Header

_BMP_HEAD = struct.Struct("<IiiHHIIiiI").unpack_from


def read_bmp(view: memoryview) -> Header:
    """Read the header of a file that begins like a BMP file."""
    if view[1] != 0x4D:
        return PILLOW
    (begin,) = struct.unpack_from("<I", view, 10)
    size, width, height, planes, bits, compression, _, _, _, colours = _BMP_HEAD(view, 14)
    if size < 40:
        return PILLOW
    stride, height = (width * bits + 31) // 32 * 4, abs(height)
    table = 1024 if bits == 8 else 0
    exact = size in (40, 108, 124) and bits in (8, 24, 32) and planes == 1 and compression == 0
    exact = exact and colours in ((0, 256) if table else (0,)) and begin == 14 + size + table
    return Header(exact and width > 0 and height > 0 and len(view) >= begin + stride * height, height, width)
