"""Reads the first directory of TIFF files.

DALI gets 8 bits of grey, RGB, or upright RGB and alpha, in strips, not compressed.
"""

from __future__ import annotations

import struct

from .exif import EXIF_HEADS, VALUE_SIZES
from .header import PILLOW, Header

_WORDS = {3: "H", 4: "I"}
# The values that each tag may have, all SHORT; and those of sizes and places, SHORT or LONG.
_ALLOWED = {
    258: {8},  # BitsPerSample
    259: {1},  # Compression: none; for others, DALI gives pixels even where the data are damaged
    262: {1, 2},  # PhotometricInterpretation: grey with black as zero, or RGB
    266: {1},  # FillOrder
    274: set(range(1, 9)),  # Orientation
    277: {1, 3, 4},  # SamplesPerPixel
    284: {1},  # PlanarConfiguration: the values of a pixel together
    317: {1},  # Predictor: none
    338: {2},  # ExtraSamples: alpha, not multiplied into the colours
    339: {1},  # SampleFormat: unsigned
}
_PLACES = frozenset([256, 257, 273, 278, 279])
# Tags that do not change pixels: kind of page, strings, size on paper, colour profiles, Photoshop's and GeoTIFF's.
_BESIDE = frozenset([254, 269, 270, 271, 272, 282, 283, 285, 296, 297, 305, 306, 315, 316, 33432, 34675])
_BESIDE |= {318, 319, 33723, 34377, 33550, 33922, 34264, 34735, 34736, 34737, 42112, 42113}


def read_tiff(view: memoryview) -> Header:
    """Read the header of a file that begins like a TIFF file."""
    head = EXIF_HEADS.get(bytes(view[:4]))
    if head is None:
        return PILLOW
    order = "<" if view[0] == 0x49 else ">"
    (first,) = head[0].unpack_from(view, 4)
    (entries,) = head[1].unpack_from(view, first)
    tags: dict[int, tuple[int, ...]] = {}
    clean, total = True, 0
    for at in range(first + 2, first + 2 + 12 * entries, 12):
        tag, kind, count, value = head[2].unpack_from(view, at)
        size = count * VALUE_SIZES[kind] if 0 < kind < 13 else 0
        total += size
        if tag in tags or not size or total > len(view) or (size > 4 and value + size > len(view)):
            clean = False
        elif tag in _PLACES or tag in _ALLOWED:
            if kind == 3 or (kind == 4 and tag in _PLACES):
                tags[tag] = struct.unpack_from(f"{order}{count}{_WORDS[kind]}", view, at + 8 if size <= 4 else value)
                clean = clean and (tag in _PLACES or set(tags[tag]) <= _ALLOWED[tag])
            else:
                clean = False
        else:
            clean = clean and tag in _BESIDE
    (width, *_), (height, *_) = tags.get(256, (0,)), tags.get(257, (0,))
    exact = clean and width > 0 and height > 0 and _is_plain(tags, height, width, len(view))
    return Header(exact, width, height) if tags.get(274, (1,))[0] > 4 else Header(exact, height, width)


def _is_plain(tags: dict[int, tuple[int, ...]], height: int, width: int, size: int) -> bool:
    """Tell whether the tags of a TIFF directory agree, and all its strips exist."""
    places, lengths = tags.get(273, ()), tags.get(279, ())
    (samples, *_), (rows, *_) = tags.get(277, (1,)), tags.get(278, (height,))
    rows = min(rows, height)
    return (
        tags.get(262) == ((1,) if samples == 1 else (2,))
        and tags.get(258) == (8,) * samples
        # DALI multiplies alpha into the colours where it turns the image.
        and tags.get(338) == ((2,) if samples == 4 else None)
        and (samples < 4 or tags.get(274, (1,)) == (1,))
        and all(len(tags.get(tag, (1,))) == 1 for tag in (256, 257, 259, 266, 274, 277, 278, 284, 317))
        and rows > 0
        and len(places) == len(lengths) == -(-height // rows)
        and all(place + length <= size for place, length in zip(places, lengths, strict=True))
        and sum(lengths) == height * width * samples
        and all(length == rows * width * samples for length in lengths[:-1])
    )
