"""Walks over a WebP file's chunks; animations, EXIF and XMP go to Pillow."""

from __future__ import annotations

import struct

from .header import PILLOW, Header

_RIFF_CHUNK = struct.Struct("<4sI").unpack_from
_WEBP_PARTS = frozenset([b"ICCP", b"ALPH", b"VP8 ", b"VP8L"])


def read_webp(view: memoryview) -> Header:
    """Read the header of a file that begins like a WebP file."""
    if bytes(view[:4]) != b"RIFF" or bytes(view[8:12]) != b"WEBP":
        return PILLOW
    whole = int.from_bytes(view[4:8], "little") == len(view) - 8
    kind, length = _RIFF_CHUNK(view, 12)
    if kind != b"VP8X":
        height, width = _picture(kind, view, 20)
        exact = whole and height > 0 and width > 0 and 20 + length + length % 2 == len(view)
        return Header(exact, height, width)
    width = int.from_bytes(view[24:27], "little") + 1
    height = int.from_bytes(view[27:30], "little") + 1
    # Only files without animation, EXIF, XMP and unknown flags.
    clean = whole and not view[20] & 0xCF and length == 10
    at, pictures = 30, 0
    while clean and at < len(view):
        name, length = _RIFF_CHUNK(view, at)
        end = at + 8 + length + length % 2
        clean = name in _WEBP_PARTS and end <= len(view)
        if clean and name[:3] == b"VP8":
            pictures += 1
            # The picture must be last: where its data are damaged, DALI reads on in the next chunk.
            clean = end == len(view) and _picture(name, view, at + 8) == (height, width)
        at = end
    return Header(clean and pictures == 1, height, width)


def _picture(kind: bytes, view: memoryview, at: int) -> tuple[int, int]:
    """Read (height, width) from a picture's data; zeros where it is not a picture."""
    if kind == b"VP8 " and bytes(view[at + 3 : at + 6]) == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", view, at + 6)
        return height & 0x3FFF, width & 0x3FFF
    if kind == b"VP8L" and view[at] == 0x2F:
        (features,) = struct.unpack_from("<I", view, at + 1)
        return (features >> 14 & 0x3FFF) + 1, (features & 0x3FFF) + 1
    return 0, 0
