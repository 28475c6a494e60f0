"""Reads the headers of image files: the image's size, and whether DALI decodes it to the same pixels as Pillow.

DALI gets only the kinds of files whose pixels were found equal, by tests that build files of every kind; Pillow decodes
the others.  A list of kinds that DALI can't read would let unknown ones through, and DALI 2.4.0 does worse than wrong
pixels for odd files: a damaged EXIF block can end the process.

This module decodes nothing.  It walks over these parts of each format:

    JPEG    the segments up to the first scan: frame, EXIF, XMP, and what could confuse a parser
    PNG     all chunks, with their checks up to the data; animations, EXIF in texts and unknown chunks go to Pillow
    WebP    all chunks; animations, EXIF and XMP go to Pillow
    PNM     P5 and P6 up to 255, without comments
    BMP     24 and 32 bits, and 8 with a whole palette, none of them packed or with masks
    TIFF    8 bits of grey, RGB, or upright RGB and alpha, in strips, not compressed
    others  Pillow decodes them: also GIF and JPEG 2000, on which DALI 2.4.0 can crash
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..pillow import MAX_PIXELS, as_pnm, check_pixels, decode, orientation_of, size_of, warn_of_depth

Bytes = NDArray[np.uint8]


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


class Readable(NamedTuple):
    """An image file that DALI decodes to the right pixels, and its height and width."""

    data: Bytes
    size: tuple[int, int]


def make_readable(
    data: Bytes, max_pixels: int | None = MAX_PIXELS, exif: bool | None = None, annotated: bool = False
) -> Readable:
    """Give an image as a file that DALI reads: the file itself, or a file with the pixels that Pillow gives.

    Args:
        data: the file, uint8 [n].
        max_pixels: the largest number of pixels that its header may promise; None: any number.
        exif: turn it upright by its EXIF orientation; None: yes, unless `annotated`.
        annotated: something beside it counts rows and columns: a file that isn't upright is refused if `exif` is None.

    Raises:
        ValueError: the header promises more than `max_pixels`, or the file isn't upright and it isn't said what holds.
        OSError, ValueError, SyntaxError: Pillow's errors for files that it can't read.
    """
    header = check_header(data, max_pixels)
    check_orientation(data, exif, annotated, header)
    if header.exact and (exif is not False or header.orientation == 1):
        return Readable(data, (header.height, header.width))
    pixels = decode(data, max_pixels, upright=exif is not False)
    return Readable(as_pnm(pixels), (pixels.shape[0], pixels.shape[1]))


def own_size(data: Bytes) -> tuple[int, int, int]:
    """Read height and width as they lie in a file, before it is turned upright, and the EXIF orientation, 1 to 8.

    Raises:
        OSError: it is no image file.
    """
    header = read_header(data)
    if not header.exact:
        return size_of(data)
    upright = header.height, header.width
    return (*(upright[::-1] if header.orientation > 4 else upright), header.orientation)


def check_orientation(data: Bytes, exif: bool | None, annotated: bool, header: Header | None = None) -> None:
    """Refuse a file that isn't upright by EXIF where annotations lie beside it, and it isn't said what they count.

    Args:
        data, exif, annotated: as for `make_readable`.
        header: the file's, if it was read.

    Raises:
        ValueError: it says what to write.
    """
    if not annotated or exif is not None:
        return
    header = header or read_header(data)
    if (header.orientation if header.exact else orientation_of(data)) != 1:
        raise ValueError(
            "the file has an EXIF orientation, and what lies beside it counts rows and columns: write "
            "kinds={'image': kinds.Image(exif=False)} where that means the file's own ones, as in COCO and in Pillow, "
            "or exif=True where it means those of the upright image"
        )


def look(data: Bytes) -> NDArray[np.uint8]:
    """Decode a file with Pillow, within Pillow's limit, to uint8 [H, W, 3]; errors as `make_readable`."""
    from PIL import Image

    check_header(data, Image.MAX_IMAGE_PIXELS)
    return decode(data, Image.MAX_IMAGE_PIXELS)


def check_header(data: Bytes, max_pixels: int | None) -> Header:
    """Read a file's header, and warn if values will lose bits.

    Raises:
        ValueError: it promises more pixels than `max_pixels`.
    """
    header = read_header(data)
    check_pixels(header.height, header.width, max_pixels)
    if header.deep:
        warn_of_depth()
    return header


def read_header(data: Bytes) -> Header:
    """Read the header of a file, uint8 [n], which need not be an image file."""
    view = data.data if data.flags.c_contiguous else memoryview(data.tobytes())
    try:
        if view[0] == 0xFF:
            return _jpeg(view)
        if view[0] == 0x89:
            return _png(view)
        if view[0] == 0x52:
            return _webp(view)
        if view[0] == 0x50:
            return _pnm(view)
        if view[0] == 0x42:
            return _bmp(view)
        if view[0] in b"IM":
            return _tiff(view)
        if bytes(view[:4]) == b"GIF8":
            return Header(False, *reversed(struct.unpack_from("<HH", view, 6)))
    except (struct.error, IndexError):
        pass  # it is cut off, and its decoder will say so
    return _PILLOW


def readable(data: Bytes) -> bool:
    """Tell from its header whether DALI decodes a file to the right pixels."""
    return read_header(data).exact


_PILLOW = Header(False)
_TWO_SHORTS = struct.Struct(">HH").unpack_from
_FRAME = struct.Struct(">BHHB").unpack_from
_CHUNK = struct.Struct(">I4s").unpack_from
_RIFF_CHUNK = struct.Struct("<4sI").unpack_from

# JPEG

# Tables, restart intervals, comments, and application segments that neither decoder looks into.
_PASSED = frozenset([0xFFDB, 0xFFC4, 0xFFDD, 0xFFFE, *range(0xFFE3, 0xFFED), 0xFFEF])
_FRAMES = frozenset([0xFFC0, 0xFFC1, 0xFFC2])  # baseline, extended and progressive, with Huffman codes
_XMP = b"http://ns.adobe.com/xap/1.0/\0"


def _jpeg(view: memoryview) -> Header:
    if view[1] != 0xD8:
        return _PILLOW
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
                found = _orientation(view[at + 10 : at + 2 + length])
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


# EXIF

_EXIF_HEADS = {b"II*\0": (struct.Struct("<I"), struct.Struct("<H"), struct.Struct("<HHII")),
               b"MM\0*": (struct.Struct(">I"), struct.Struct(">H"), struct.Struct(">HHII"))}  # fmt: skip
_VALUE_SIZES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8)
# Tags that DALI reads, whatever their type: strings, and this many fractions.
_TEXTS = frozenset([0x10E, 0x10F, 0x110, 0x131, 0x132, 0x8298])
_FRACTIONS = {0x11A: 1, 0x11B: 1, 0x13E: 2, 0x13F: 6, 0x211: 3, 0x214: 6}


def _orientation(block: memoryview) -> int:
    """Read the orientation in an EXIF block: 1 to 8; 0 where it has none, -1 where readers may differ."""
    head = _EXIF_HEADS.get(bytes(block[:4]))
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
        needed = count * _VALUE_SIZES[kind]
        if needed > 4:
            total += needed
            if value + needed > size or total > size:
                return -1
    return orientation


# PNG

_PNG_START = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
_PNG_HEAD = struct.Struct(">IIBBBBB").unpack_from
# In 16-bit colours, one level may differ.
_PNG_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8,), 3: (1, 2, 4, 8), 4: (8,), 6: (8,)}
_PNG_PLAIN = frozenset(b"PLTE tRNS gAMA cHRM sRGB iCCP sBIT bKGD pHYs hIST sPLT tIME oFFs".split())
_PNG_TEXTS = frozenset([b"tEXt", b"zTXt", b"iTXt"])
# Pillow's keys for what it knows about an image; a text chunk may overwrite them.
_PNG_KEYS = re.compile(rb"(?i)raw profile type|xml:com\.adobe\.xmp|exif|xmp|transparency|icc_profile")


def _png(view: memoryview) -> Header:
    if bytes(view[:16]) != _PNG_START:
        return _PILLOW
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
                clean = not orientation and (orientation := _orientation(view[at + 8 : end - 4])) > 0
            elif name == b"PLTE":
                clean = length % 3 == 0
            if not seen:
                (check,) = struct.unpack_from(">I", view, end - 4)
                clean = clean and zlib.crc32(view[at + 4 : end - 4]) == check
        at = end
    exact = clean and seen and height > 0 and width > 0
    return Header(exact, *((width, height) if orientation > 4 else (height, width)), deep, orientation or 1)


# WebP

_WEBP_PARTS = frozenset([b"ICCP", b"ALPH", b"VP8 ", b"VP8L"])


def _webp(view: memoryview) -> Header:
    if bytes(view[:4]) != b"RIFF" or bytes(view[8:12]) != b"WEBP":
        return _PILLOW
    whole = int.from_bytes(view[4:8], "little") == len(view) - 8
    kind, length = _RIFF_CHUNK(view, 12)
    if kind != b"VP8X":
        height, width = _webp_picture(kind, view, 20)
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
            clean = end == len(view) and _webp_picture(name, view, at + 8) == (height, width)
        at = end
    return Header(clean and pictures == 1, height, width)


def _webp_picture(kind: bytes, view: memoryview, at: int) -> tuple[int, int]:
    """Read (height, width) from a picture's data; zeros where it is not a picture."""
    if kind == b"VP8 " and bytes(view[at + 3 : at + 6]) == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", view, at + 6)
        return height & 0x3FFF, width & 0x3FFF
    if kind == b"VP8L" and view[at] == 0x2F:
        (features,) = struct.unpack_from("<I", view, at + 1)
        return (features >> 14 & 0x3FFF) + 1, (features & 0x3FFF) + 1
    return 0, 0


# PNM

_PNM = re.compile(rb"P([56])\s+(\d{1,9})\s+(\d{1,9})\s+(\d{1,5})\s")


def _pnm(view: memoryview) -> Header:
    found = _PNM.match(view)
    if found is None:
        return _PILLOW
    kind, width, height, largest = map(int, found.groups())
    enough = len(view) - found.end() >= height * width * (3 if kind == 6 else 1)
    return Header(largest == 255 and height > 0 and width > 0 and enough, height, width, largest > 255)


# BMP

_BMP_HEAD = struct.Struct("<IiiHHIIiiI").unpack_from


def _bmp(view: memoryview) -> Header:
    if view[1] != 0x4D:
        return _PILLOW
    (begin,) = struct.unpack_from("<I", view, 10)
    size, width, height, planes, bits, compression, _, _, _, colours = _BMP_HEAD(view, 14)
    if size < 40:
        return _PILLOW
    stride, height = (width * bits + 31) // 32 * 4, abs(height)
    table = 1024 if bits == 8 else 0
    exact = size in (40, 108, 124) and bits in (8, 24, 32) and planes == 1 and compression == 0
    exact = exact and colours in ((0, 256) if table else (0,)) and begin == 14 + size + table
    return Header(exact and width > 0 and height > 0 and len(view) >= begin + stride * height, height, width)


# TIFF

_TIFF_WORDS = {3: "H", 4: "I"}
# The values that each tag may have, all SHORT; and those of sizes and places, SHORT or LONG.
_TIFF_ALLOWED = {
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
_TIFF_PLACES = frozenset([256, 257, 273, 278, 279])
# Tags that do not change pixels: kind of page, strings, size on paper, colour profiles, Photoshop's and GeoTIFF's.
_TIFF_BESIDE = frozenset([254, 269, 270, 271, 272, 282, 283, 285, 296, 297, 305, 306, 315, 316, 33432, 34675])
_TIFF_BESIDE |= {318, 319, 33723, 34377, 33550, 33922, 34264, 34735, 34736, 34737, 42112, 42113}


def _tiff(view: memoryview) -> Header:
    head = _EXIF_HEADS.get(bytes(view[:4]))
    if head is None:
        return _PILLOW
    order = "<" if view[0] == 0x49 else ">"
    (first,) = head[0].unpack_from(view, 4)
    (entries,) = head[1].unpack_from(view, first)
    tags: dict[int, tuple[int, ...]] = {}
    clean, total = True, 0
    for at in range(first + 2, first + 2 + 12 * entries, 12):
        tag, kind, count, value = head[2].unpack_from(view, at)
        size = count * _VALUE_SIZES[kind] if 0 < kind < 13 else 0
        total += size
        if tag in tags or not size or total > len(view) or (size > 4 and value + size > len(view)):
            clean = False
        elif tag in _TIFF_PLACES or tag in _TIFF_ALLOWED:
            if kind == 3 or (kind == 4 and tag in _TIFF_PLACES):
                tags[tag] = struct.unpack_from(
                    f"{order}{count}{_TIFF_WORDS[kind]}", view, at + 8 if size <= 4 else value
                )
                clean = clean and (tag in _TIFF_PLACES or set(tags[tag]) <= _TIFF_ALLOWED[tag])
            else:
                clean = False
        else:
            clean = clean and tag in _TIFF_BESIDE
    (width, *_), (height, *_) = tags.get(256, (0,)), tags.get(257, (0,))
    exact = clean and width > 0 and height > 0 and _tiff_is_plain(tags, height, width, len(view))
    return Header(exact, width, height) if tags.get(274, (1,))[0] > 4 else Header(exact, height, width)


def _tiff_is_plain(tags: dict[int, tuple[int, ...]], height: int, width: int, size: int) -> bool:
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
