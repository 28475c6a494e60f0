"""Walks over a PNG file's chunks, with their checks up to the data.

Animations, EXIF in texts and unknown chunks go to Pillow.
"""

from __future__ import annotations

import re
import struct
import zlib

from .exif import orientation_in
from .header import PILLOW, Header

_CHUNK = struct.Struct(">I4s").unpack_from
_PNG_START = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
_PNG_HEAD = struct.Struct(">IIBBBBB").unpack_from
# In 16-bit colours, one level may differ.
_PNG_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8,), 3: (1, 2, 4, 8), 4: (8,), 6: (8,)}
_PNG_PLAIN = frozenset(b"PLTE tRNS gAMA cHRM sRGB iCCP sBIT bKGD pHYs hIST sPLT tIME oFFs".split())
_PNG_TEXTS = frozenset([b"tEXt", b"zTXt", b"iTXt"])
# Pillow's keys for what it knows about an image; a text chunk may overwrite them.
_PNG_KEYS = re.compile(rb"(?i)raw profile type|xml:com\.adobe\.xmp|exif|xmp|transparency|icc_profile")


def read_png(view: memoryview) -> Header:
    """Read the header of a file that begins like a PNG file."""
    if bytes(view[:16]) != _PNG_START:
        return PILLOW
    width, height, bits, colour, compression, filtering, interlace = _PNG_HEAD(view, 16)
    clean = bits in _PNG_DEPTHS.get(colour, ()) and not compression and not filtering and interlace < 2
    deep = bits == 16
    orientation, seen, at = 0, False, 8
    while True:
        length, name = _CHUNK(view, at)
        end = at + 12 + length
        if name == b"IDAT":
            seen = True
        elif name == b"IEND":
            break
        else:
            clean = clean and (
                name in _PNG_PLAIN or (name == b"IHDR" and at == 8) or name == b"eXIf" or name in _PNG_TEXTS
            )
            if not clean or end > len(view):
                return Header(False, height, width, deep)
            if name in _PNG_TEXTS:
                key = bytes(view[at + 8 : min(at + 88, end - 4)]).partition(b"\0")[0]
                # Pillow refuses text chunks of more than 1 MiB, also after decompression.
                clean = _PNG_KEYS.search(key) is None and length < (1 << 20 if name == b"tEXt" else 1000)
            elif name == b"eXIf":
                clean = not orientation and (orientation := orientation_in(view[at + 8 : end - 4])) > 0
            elif name == b"PLTE":
                clean = length % 3 == 0
            if not seen:
                (check,) = struct.unpack_from(">I", view, end - 4)
                clean = clean and zlib.crc32(view[at + 4 : end - 4]) == check
        at = end
    exact = clean and seen and height > 0 and width > 0
    return Header(exact, *((width, height) if orientation > 4 else (height, width)), deep, orientation or 1)
