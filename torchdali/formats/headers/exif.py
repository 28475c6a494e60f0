"""Reads the orientation in an EXIF block, and tells whether all readers find the same one."""

from __future__ import annotations

import struct

EXIF_HEADS = {b"II*\0": (struct.Struct("<I"), struct.Struct("<H"), struct.Struct("<HHII")),
               b"MM\0*": (struct.Struct(">I"), struct.Struct(">H"), struct.Struct(">HHII"))}  # fmt: skip
VALUE_SIZES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8)
# Tags that DALI reads, whatever their type: strings, and this many fractions.
_TEXTS = frozenset([0x10E, 0x10F, 0x110, 0x131, 0x132, 0x8298])
_FRACTIONS = {0x11A: 1, 0x11B: 1, 0x13E: 2, 0x13F: 6, 0x211: 3, 0x214: 6}


def orientation_in(block: memoryview) -> int:
    """Read the orientation in an EXIF block: 1 to 8; 0 where it has none, -1 where readers may differ."""
    head = EXIF_HEADS.get(bytes(block[:4]))
    if head is None:
        return -1
    (first,), size = head[0].unpack_from(block, 4), len(block)
    (entries,) = head[1].unpack_from(block, first)
    end = first + 2 + 12 * entries
    if end + 4 > size or first < 8:
        return -1
    orientation = total = 0
    for tag, kind, count, value in head[2].iter_unpack(block[first + 2 : end]):
        if tag == 0x112:
            value = value if block[0] == 0x49 else value >> 16
            if orientation or kind != 3 or count != 1 or not 0 < value < 9:
                return -1
            orientation = value
            continue
        if not 0 < kind < 13 or (tag in _TEXTS and kind != 2):
            return -1
        if tag in _FRACTIONS and (kind != 5 or count != _FRACTIONS[tag]):
            return -1
        needed = count * VALUE_SIZES[kind]
        if needed > 4:
            total += needed
            if value + needed > size or total > size:
                return -1
    return orientation
