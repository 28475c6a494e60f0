"""Walks over a JPEG file's segments up to the first scan: frame, EXIF, XMP, and what could confuse a parser."""

from __future__ import annotations

import struct

from .exif import orientation_in
from .header import PILLOW, Header

_TWO_SHORTS = struct.Struct(">HH").unpack_from
_FRAME = struct.Struct(">BHHB").unpack_from

# Tables, restart intervals, comments, and application segments that neither decoder looks into.
_PASSED = frozenset([0xFFDB, 0xFFC4, 0xFFDD, 0xFFFE, *range(0xFFE3, 0xFFED), 0xFFEF])
_FRAMES = frozenset([0xFFC0, 0xFFC1, 0xFFC2])  # baseline, extended and progressive, with Huffman codes
_XMP = b"http://ns.adobe.com/xap/1.0/\0"


def read_jpeg(view: memoryview) -> Header:
    """Read the header of a file that begins like a JPEG file."""
    if view[1] != 0xD8:
        return PILLOW
    height = width = 0
    orientation, in_xmp, clean = 0, False, True
    at = 2
    while True:
        marker, length = _TWO_SHORTS(view, at)
        if marker in _PASSED:
            pass
        elif marker in _FRAMES:
            bits, rows, columns, components = _FRAME(view, at + 4)
            clean = clean and bits == 8 and components in (1, 3) and not height and length == 8 + 3 * components
            height, width = rows, columns
        elif marker == 0xFFDA:
            break
        elif marker == 0xFFE0:
            clean = clean and (length >= 16 or bytes(view[at + 4 : at + 8]) != b"JFIF")
        elif marker == 0xFFE1:
            start = bytes(view[at + 4 : at + 33])
            if start[:6] == b"Exif\0\0":
                found = orientation_in(view[at + 10 : at + 2 + length])
                clean = clean and found >= 0 and not orientation
                orientation = found or 9  # files with a second block go to Pillow too
            elif start == _XMP:
                in_xmp = in_xmp or b"tiff:Orientation" in bytes(view[at + 4 : at + 2 + length])
            clean = clean and length >= 8  # DALI reads past the end of a shorter one
        elif marker == 0xFFE2:
            kind = bytes(view[at + 4 : at + 8])
            clean = clean and kind != b"MPF\0" and (length >= 16 or kind != b"ICC_")
        elif marker == 0xFFED:
            # Pillow fails where the segment ends after such a word.
            clean = clean and bytes(view[at + length - 4 : at + length]) != b"8BIM"
        elif marker == 0xFFEE:
            clean = clean and length >= 14
        else:
            return Header(False, height, width)
        if length < 2:
            return Header(False, height, width)
        at += 2 + length
    exact = clean and height > 0 and width > 0 and not (in_xmp and orientation in (0, 9))
    turned = orientation if orientation in range(1, 9) else 1
    return Header(exact, *((width, height) if turned > 4 else (height, width)), orientation=turned)
