"""Image files of every header variant, by Pillow and by hand: small, always the same, each under a name.

By hand where Pillow can't write it.  Most are valid; some break a rule that a decoder may or may not hold.
"""

from __future__ import annotations

import functools
import io
import struct
import zlib
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

import numpy as np
from PIL import Image

H, W = 24, 36
RNG = np.random.default_rng(15)
NOISE = RNG.integers(0, 256, (H, W, 4), dtype=np.uint8)
SLOPE = (np.add.outer(np.arange(H) * 7, np.arange(W) * 5) % 256).astype(np.uint8)
SMOOTH = np.dstack([SLOPE, SLOPE[:, ::-1], 255 - SLOPE])
DEEP = RNG.integers(0, 65536, (H, W, 4), dtype=np.uint16)
Files = Iterator[tuple[str, bytes]]

# EXIF and XMP


def ifd(tags: Iterable[tuple[int, int, Any]], order: str = "<", next_ifd: int = 0, at: int = 8) -> bytes:
    """A TIFF directory that begins at offset `at`, and its values: (tag, type, value or values)."""
    codes = {1: "B", 2: "B", 3: "H", 4: "I", 5: "I", 6: "b", 7: "B", 8: "h", 9: "i", 10: "i", 11: "f", 12: "d"}
    entries, behind, tags = b"", b"", list(tags)
    free = at + 2 + 12 * len(tags) + 4
    for tag, kind, value in tags:
        values = list(value) if isinstance(value, (list, tuple, bytes)) else [value]
        raw = struct.pack(f"{order}{len(values)}{codes[kind]}", *values)
        count = len(values) // 2 if kind in (5, 10) else len(values)
        if len(raw) > 4:
            behind += raw + b"\0" * (len(raw) % 2)
            raw = struct.pack(f"{order}I", free + len(behind) - len(raw) - len(raw) % 2)
        entries += struct.pack(f"{order}HHI", tag, kind, count) + raw.ljust(4, b"\0")
    return struct.pack(f"{order}H", len(tags)) + entries + struct.pack(f"{order}I", next_ifd) + behind


def tiff_head(order: str = "<") -> bytes:
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 8)


def exifs() -> Files:
    """EXIF blocks without their signature: orientations as they should be, and as they should not."""
    for value in range(10):
        yield f"orientation {value}", tiff_head() + ifd([(0x112, 3, value)])
    for value in (3, 6):
        yield f"orientation {value}, big-endian", tiff_head(">") + ifd([(0x112, 3, value)], ">")
        for kind, word in ((1, "BYTE"), (4, "LONG"), (8, "SSHORT"), (9, "SLONG"), (11, "FLOAT"), (2, "ASCII")):
            for order in "<>":
                yield f"orientation {value} as {word} {order}", tiff_head(order) + ifd([(0x112, kind, value)], order)
        yield f"orientation {value} two values", tiff_head() + ifd([(0x112, 3, [value, 1])])
        yield f"orientation {value} twice", tiff_head() + ifd([(0x112, 3, value), (0x112, 3, 1)])
    camera = [(0x10F, 2, b"Maker of cameras\0"), (0x110, 2, b"M1\0"), (0x11A, 5, [72, 1]), (0x11B, 5, [72, 1])]
    rest = [(0x128, 3, 2), (0x131, 2, b"Software\0"), (0x132, 2, b"2026:01:01 00:00:00\0"), (0x213, 3, 1)]
    yield "camera", tiff_head() + ifd([*camera, (0x112, 3, 6), *rest])
    yield "camera, sorted", tiff_head(">") + ifd([*camera[:2], (0x112, 3, 8), *camera[2:], *rest], ">")
    yield "camera without orientation", tiff_head() + ifd([*camera, *rest])
    yield "no tags", tiff_head() + ifd([])
    yield "orientation in the second directory", tiff_head() + ifd(camera[2:3], next_ifd=34) + ifd([(0x112, 3, 6)])
    late = tiff_head()[:4] + struct.pack("<I", 20) + b"\0" * 12
    yield "directory further back", late + ifd([(0x112, 3, 6)], at=20)
    yield "text that ends outside", tiff_head() + ifd([(0x112, 3, 6)])[:-4] + b"\0\0\0\0"
    outside = struct.pack("<HHII", 0x10F, 2, 99, 5000)
    yield "maker outside", tiff_head() + struct.pack("<H", 2) + outside + ifd([(0x112, 3, 6)])[2:]
    yield "maker outside, behind", tiff_head() + struct.pack("<H", 2) + ifd([(0x112, 3, 6)])[2:14] + outside + b"\0" * 4
    yield (
        "resolution outside",
        tiff_head() + struct.pack("<H", 2) + struct.pack("<HHII", 0x11A, 5, 1, 5000) + ifd([(0x112, 3, 6)])[2:],
    )
    yield "cut off in an entry", (tiff_head() + ifd([*camera[2:], (0x112, 3, 6)]))[:44]
    yield "more entries than there are", tiff_head() + struct.pack("<H", 9) + ifd([(0x112, 3, 6)])[2:]
    yield "wrong magic", b"II+\0" + struct.pack("<I", 8) + ifd([(0x112, 3, 6)])
    yield "mixed order", b"IM*\0" + struct.pack("<I", 8) + ifd([(0x112, 3, 6)])
    yield "empty", b""
    yield "one byte", b"I"
    yield "zeros", b"\0" * 30


def xmp(orientation: int, element: bool = False) -> bytes:
    said = f"><tiff:Orientation>{orientation}</tiff:Orientation>" if element else f' tiff:Orientation="{orientation}">'
    return b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description' + said.encode() + b"</rdf:Description></x:xmpmeta>"


# JPEG


def saved(image: Image.Image, kind: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">BBH", 255, marker, len(data) + 2) + data


def after_start(jpeg: bytes, *segments: bytes) -> bytes:
    return jpeg[:2] + b"".join(segments) + jpeg[2:]


def after_jfif(jpeg: bytes, *segments: bytes) -> bytes:
    end = 4 + int.from_bytes(jpeg[4:6], "big")
    return jpeg[:end] + b"".join(segments) + jpeg[end:]


def without(jpeg: bytes, *markers: int) -> bytes:
    """A JPEG without its segments of these markers."""
    out, at = jpeg[:2], 2
    while jpeg[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
        out += b"" if jpeg[at + 1] in markers else jpeg[at:end]
        at = end
    return out + jpeg[at:]


def frame_at(jpeg: bytes) -> int:
    """Where the marker of the frame stands."""
    at = 2
    while not (0xC0 <= jpeg[at + 1] <= 0xCF and jpeg[at + 1] not in (0xC4, 0xC8, 0xCC)):
        at += 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
    return at


def patched(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def blocks(
    sampling: list[tuple[int, int]],
    height: int = 29,
    width: int = 43,
    kind: int = 0xC0,
    precision: int = 8,
    ids: list[int] | None = None,
    head: bytes = b"",
    restart: int = 0,
    scans: bool = False,
) -> bytes:
    """A Huffman JPEG of blocks of one level each, with any sampling factors; `scans`: one for each component."""
    rng = np.random.default_rng(len(sampling))
    ids = ids or list(range(1, len(sampling) + 1))
    most_h, most_v = max(h for h, _ in sampling), max(v for _, v in sampling)
    across, down = -(-width // (8 * most_h)), -(-height // (8 * most_v))
    spec = b"".join(struct.pack("BBB", i, h << 4 | v, 0) for i, (h, v) in zip(ids, sampling, strict=True))
    out = b"\xff\xd8" + head + segment(0xDB, b"\0" + b"\x01" * 64)
    out += segment(kind, struct.pack(">BHHB", precision, height, width, len(sampling)) + spec)
    # DC: the codes 0..11 of four bits for categories; AC: one code, end of block.
    out += segment(0xC4, b"\0" + bytes([0, 0, 0, 12, *[0] * 12]) + bytes(range(12)))
    out += segment(0xC4, b"\x10" + bytes([0, 1, *[0] * 14]) + b"\0")
    if restart:
        out += segment(0xDD, struct.pack(">H", restart))
    for part in [[i] for i in range(len(sampling))] if scans else [list(range(len(sampling)))]:
        out += segment(0xDA, bytes([len(part), *(b for i in part for b in (ids[i], 0)), 0, 63, 0]))
        single = len(part) == 1
        bits, level, data, marks = "", dict.fromkeys(part, 0), b"", 0
        h, v = sampling[part[0]]
        own_across, own_down = (
            (width * h + most_h * 8 - 1) // (most_h * 8),
            (height * v + most_v * 8 - 1) // (most_v * 8),
        )
        units = own_across * own_down if single else across * down
        for unit in range(units):
            if restart and unit and unit % restart == 0:
                data, bits, level = data + _packed(bits) + bytes([255, 0xD0 + marks % 8]), "", dict.fromkeys(part, 0)
                marks += 1
            for i in part:
                for _ in range(1 if single else sampling[i][0] * sampling[i][1]):
                    new = int(rng.integers(-900, 900))
                    step = new - level[i]
                    level[i] = new
                    size = abs(step).bit_length()
                    bits += f"{size:04b}" + (f"{step if step > 0 else step + (1 << size) - 1:0{size}b}" if size else "")
                    bits += "00"
        out += data + _packed(bits)
    return out + b"\xff\xd9"


def _packed(bits: str) -> bytes:
    bits += "1" * (-len(bits) % 8)
    return int(bits or "0", 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")


JFIF = segment(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0")


def adobe(transform: int) -> bytes:
    return segment(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([transform]))


def jpegs() -> Files:
    rgb, grey = Image.fromarray(SMOOTH), Image.fromarray(SLOPE)
    noise = Image.fromarray(NOISE[..., :3])
    for subsampling, quality, progressive in product((0, 1, 2), (30, 90), (False, True)):
        options = {"subsampling": subsampling, "quality": quality, "progressive": progressive}
        yield f"jpeg {options}", saved(rgb, "JPEG", **options)
        yield f"jpeg noise {options}", saved(noise, "JPEG", **options)
    for size in ((1, 1), (1, 9), (7, 5), (8, 8), (9, 8), (16, 16), (17, 15), (33, 31), (2, 100)):
        for subsampling in (0, 2):
            yield f"jpeg {size} {subsampling}", saved(rgb.resize(size), "JPEG", subsampling=subsampling)
        yield f"jpeg grey {size}", saved(grey.resize(size), "JPEG")
    yield "jpeg grey progressive", saved(grey, "JPEG", progressive=True)
    yield "jpeg optimized", saved(rgb, "JPEG", optimize=True)
    yield "jpeg restarts", saved(rgb, "JPEG", restart_marker_blocks=2)
    yield "jpeg rgb stored", saved(rgb, "JPEG", keep_rgb=True)
    yield "jpeg icc", saved(rgb, "JPEG", icc_profile=b"icc " * 40000)
    yield "jpeg comment", saved(rgb, "JPEG", comment=b"a comment")
    yield "jpeg dpi", saved(rgb, "JPEG", dpi=(300, 300))
    yield "jpeg mpo", saved(rgb, "MPO", save_all=True, append_images=[noise])
    plain = saved(rgb, "JPEG")
    yield "jpeg without jfif", without(plain, 0xE0)
    yield "jpeg grey without jfif", without(saved(grey, "JPEG"), 0xE0)
    for transform in (0, 1, 2, 3):
        yield f"jpeg adobe {transform}", after_start(without(plain, 0xE0), adobe(transform))
        yield f"jpeg jfif and adobe {transform}", after_jfif(plain, adobe(transform))
        yield f"jpeg grey adobe {transform}", after_jfif(saved(grey, "JPEG"), adobe(transform))
    yield "jpeg short adobe", after_start(without(plain, 0xE0), segment(0xEE, b"Adobe\0\x64\0\0"))
    yield "jpeg long adobe", after_start(without(plain, 0xE0), segment(0xEE, b"Adobe\0\x64\0\0\0\0\0more"))
    ink = saved(rgb.convert("CMYK"), "JPEG", quality=95)
    yield "jpeg cmyk", ink
    yield "jpeg cmyk without adobe", without(ink, 0xEE)
    at = ink.index(b"Adobe")
    for transform in (0, 1, 2):
        yield f"jpeg four, adobe {transform}", patched(ink, at + 11, bytes([transform]))
    for ids in ([0, 1, 2], [1, 2, 3], [82, 71, 66], [114, 103, 98], [1, 34, 35], [9, 9, 9], [2, 1, 3]):
        yield f"jpeg components {ids}", blocks([(1, 1)] * 3, ids=ids)
        yield f"jpeg jfif, components {ids}", blocks([(1, 1)] * 3, ids=ids, head=JFIF)
    factors = [(1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4), (4, 2), (2, 4), (4, 4), (3, 1), (1, 3), (3, 3), (3, 2)]
    for luma in factors:
        if luma[0] * luma[1] <= 8:
            yield f"jpeg luma {luma}", blocks([luma, (1, 1), (1, 1)], head=JFIF)
            yield f"jpeg luma {luma}, scans", blocks([luma, (1, 1), (1, 1)], head=JFIF, scans=True)
        yield f"jpeg grey luma {luma}", blocks([luma], head=JFIF)
    for chroma in ([(2, 1), (1, 2)], [(2, 2), (1, 1)], [(1, 1), (2, 2)], [(2, 1), (2, 1)], [(1, 2), (1, 2)]):
        yield f"jpeg luma 2x2, chroma {chroma}", blocks([(2, 2), *chroma], head=JFIF)
        yield f"jpeg luma 1x1, chroma {chroma}", blocks([(1, 1), *chroma], head=JFIF)
    yield "jpeg all 2x2", blocks([(2, 2)] * 3, head=JFIF)
    yield "jpeg all 2x1", blocks([(2, 1)] * 3, head=JFIF)
    yield "jpeg 3 and 2 across", blocks([(3, 1), (2, 1), (1, 1)], head=JFIF)
    for height, width in ((1, 1), (3, 50), (16, 16), (17, 17)):
        for luma in ((2, 1), (1, 2), (2, 2), (4, 1)):
            yield f"jpeg luma {luma} {height}x{width}", blocks([luma, (1, 1), (1, 1)], height, width, head=JFIF)
    yield "jpeg two components", blocks([(1, 1)] * 2)
    yield "jpeg four components", blocks([(1, 1)] * 4)
    yield "jpeg five components", blocks([(1, 1)] * 5)
    yield "jpeg block restarts", blocks([(2, 2), (1, 1), (1, 1)], restart=1, head=JFIF)
    yield "jpeg extended", blocks([(2, 2), (1, 1), (1, 1)], kind=0xC1, head=JFIF)
    for kind in (0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF):
        yield f"jpeg frame {kind:x}", blocks([(1, 1)] * 3, kind=kind, head=JFIF)
        yield f"jpeg grey frame {kind:x}", blocks([(1, 1)], kind=kind, head=JFIF)
    for precision in (7, 9, 12, 16):
        yield f"jpeg {precision} bits", blocks([(1, 1)] * 3, kind=0xC1, precision=precision, head=JFIF)
    for name, block in exifs():
        yield f"jpeg exif {name}", after_start(plain, segment(0xE1, b"Exif\0\0" + block))
    turned = segment(0xE1, b"Exif\0\0" + tiff_head() + ifd([(0x112, 3, 6)]))
    other = segment(0xE1, b"Exif\0\0" + tiff_head() + ifd([(0x112, 3, 3)]))
    blank = segment(0xE1, b"Exif\0\0" + tiff_head() + ifd([(0x128, 3, 2)]))
    packet = b"http://ns.adobe.com/xap/1.0/\0"
    yield "jpeg exif twice", after_start(plain, turned, other)
    yield "jpeg exif twice, first without", after_start(plain, blank, turned)
    yield "jpeg exif signed twice", after_start(plain, segment(0xE1, b"Exif\0\0Exif\0\0" + turned[10:]))
    yield "jpeg exif signed \\0\\xff", after_start(plain, segment(0xE1, b"Exif\0\xff" + turned[10:]))
    yield "jpeg exif behind jfif", after_jfif(plain, turned)
    yield "jpeg exif behind the frame", patched_in(plain, 0xDA, turned)
    yield "jpeg exif in app2", after_start(plain, segment(0xE2, turned[4:]))
    for element in (False, True):
        yield f"jpeg xmp {element}", after_jfif(plain, segment(0xE1, packet + xmp(6, element)))
        yield f"jpeg xmp {element} and exif", after_jfif(plain, segment(0xE1, packet + xmp(6, element)), other)
        yield f"jpeg xmp {element} and blank exif", after_jfif(plain, blank, segment(0xE1, packet + xmp(6, element)))
    yield "jpeg xmp 1", after_jfif(plain, segment(0xE1, packet + xmp(1)))
    yield "jpeg xmp without", after_jfif(plain, segment(0xE1, packet + b"<x:xmpmeta/>"))
    yield (
        "jpeg xmp longer",
        after_jfif(plain, segment(0xE1, b"http://ns.adobe.com/xmp/extension/\0" + b"0" * 40 + xmp(6))),
    )
    yield "jpeg short app1", after_jfif(plain, segment(0xE1, b"Ex"))
    yield "jpeg empty app1", after_jfif(plain, segment(0xE1, b""))
    # Broken ones
    yield "jpeg fill bytes", after_start(plain, b"\xff\xff\xff")
    yield "jpeg junk between segments", after_start(plain, b"junk")
    yield "jpeg junk behind", plain + b"junk" * 50
    yield "jpeg without end", plain[:-2]
    yield "jpeg another behind", plain + saved(noise, "JPEG")
    yield "jpeg marker 01", after_start(plain, b"\xff\x01")
    yield "jpeg marker d0", after_start(plain, b"\xff\xd0")
    yield "jpeg start twice", after_start(plain, b"\xff\xd8")
    yield "jpeg segment of length 0", after_start(plain, b"\xff\xe5\0\0")
    yield "jpeg segment of length 1", after_start(plain, b"\xff\xe5\0\1")
    yield "jpeg huge segment", after_start(plain, b"\xff\xe5\xff\xff")
    for half in (0.3, 0.6, 0.8, 0.95):
        yield f"jpeg cut at {half}", plain[: int(len(plain) * half)]
        long = saved(noise.resize((90, 80)), "JPEG", quality=95)
        yield f"jpeg longer cut at {half}", long[: int(len(long) * half)]
        waves = saved(noise.resize((90, 80)), "JPEG", quality=95, progressive=True)
        yield f"jpeg progressive cut at {half}", waves[: int(len(waves) * half)]
    at = frame_at(plain)
    yield "jpeg height 0", patched(plain, at + 5, b"\0\0")
    yield "jpeg width 0", patched(plain, at + 7, b"\0\0")
    yield "jpeg taller than its data", patched(plain, at + 5, b"\0\x30")
    yield "jpeg lower than its data", patched(plain, at + 5, b"\0\x10")
    yield "jpeg wider than its data", patched(plain, at + 7, b"\0\x40")
    yield "jpeg frame twice", plain[:at] + plain[at : at + 19] + plain[at:]
    yield "jpeg factor 0", patched(plain, at + 11, b"\0")
    yield "jpeg factor 5", patched(plain, at + 11, b"\x51")
    yield "jpeg without tables", without(plain, 0xC4)
    yield "jpeg without quantization", without(plain, 0xDB)
    yield "jpeg arithmetic conditioning", after_jfif(plain, segment(0xCC, b"\0\x10"))
    yield "jpeg later height", patched(plain, at + 5, b"\0\0")[:-2] + segment(0xDC, struct.pack(">H", H)) + plain[-2:]
    rng = np.random.default_rng(5)
    start = plain.index(b"\xff\xda") + 14
    for k in range(12):
        place = int(rng.integers(start, len(plain) - 2))
        yield f"jpeg damaged {k}", patched(plain, place, bytes([plain[place] ^ 1 << int(rng.integers(8))]))


def patched_in(jpeg: bytes, before: int, what: bytes) -> bytes:
    """A JPEG with a segment before the first of a marker."""
    at = 2
    while jpeg[at + 1] != before:
        at += 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
    return jpeg[:at] + what + jpeg[at:]


# PNG


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


PNG_START, PNG_END = b"\x89PNG\r\n\x1a\n", chunk(b"IEND", b"")


def png(
    colour: int, bits: int, before: Iterable[bytes] = (), behind: Iterable[bytes] = (), split: int = 0, **head: int
) -> bytes:
    """Noise as a PNG of a colour type and depth, with chunks before and behind the data."""
    values = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(colour, 1)
    row_bytes = -(-W * values * bits // 8)
    rng = np.random.default_rng(colour * 100 + bits)
    raw = b"".join(b"\0" + rng.integers(0, 256, row_bytes, dtype=np.uint8).tobytes() for _ in range(H))
    data = zlib.compress(raw)
    ihdr = struct.pack(
        ">IIBBBBB", head.get("width", W), head.get("height", H), bits, colour, 0, 0, head.get("interlace", 0)
    )
    parts = [data[i : i + split] for i in range(0, len(data), split)] if split else [data]
    return b"".join([PNG_START, chunk(b"IHDR", ihdr), *before, *(chunk(b"IDAT", p) for p in parts), *behind, PNG_END])


def profile(name: str, block: bytes) -> bytes:
    """EXIF or XMP as ImageMagick puts it into a text chunk."""
    text = f"\n{name}\n{len(block):8}\n" + "\n".join(block.hex()[i : i + 72] for i in range(0, len(block) * 2, 72))
    return b"Raw profile type " + name.encode() + b"\0" + text.encode() + b"\n"


def pngs() -> Files:
    rgb = Image.fromarray(NOISE[..., :3])
    palette = rgb.quantize(16)
    colours = chunk(b"PLTE", NOISE[0, :16, :3].tobytes())
    full = chunk(b"PLTE", np.random.default_rng(3).integers(0, 256, 768, dtype=np.uint8).tobytes())
    for colour, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 4: (8, 16), 6: (8, 16)}.items():
        for bits in depths:
            yield f"png type {colour}, {bits} bits", png(colour, bits)
            yield (
                f"png type {colour}, {bits} bits, gamma",
                png(colour, bits, [chunk(b"gAMA", struct.pack(">I", 99999))]),
            )
            yield (
                f"png type {colour}, {bits} bits, sBIT",
                png(colour, bits, [chunk(b"sBIT", b"\1" * {0: 1, 2: 3, 4: 2, 6: 4}[colour])]),
            )
            if colour in (0, 2):
                transparent = chunk(b"tRNS", b"\0\1" * (1 if colour == 0 else 3))
                yield f"png type {colour}, {bits} bits, transparent", png(colour, bits, [transparent])
    for bits, table in ((1, 2), (2, 4), (4, 16), (8, 256)):
        entries = chunk(b"PLTE", full[8 : 8 + 3 * table])
        yield f"png palette, {bits} bits", png(3, bits, [entries])
        yield f"png palette, {bits} bits, alpha", png(3, bits, [entries, chunk(b"tRNS", bytes(range(0, table, 2)))])
        yield f"png palette, {bits} bits, one transparent", png(3, bits, [entries, chunk(b"tRNS", b"\xff\0")])
    yield "png palette too short", png(3, 8, [colours])
    yield "png palette none", png(3, 8)
    yield "png palette of no whole colours", png(3, 4, [chunk(b"PLTE", full[8:55])])
    yield "png palette too long", png(3, 2, [full])
    yield "png palette twice", png(3, 4, [colours, chunk(b"PLTE", full[8:56])])
    yield "png alpha longer than palette", png(3, 4, [colours, chunk(b"tRNS", bytes(range(30)))])
    yield "png rgb with palette", png(2, 8, [colours])
    for colour, bits in ((0, 3), (0, 32), (2, 4), (3, 16), (4, 4), (1, 8), (5, 8), (7, 8)):
        yield f"png type {colour} in {bits} bits", png(colour, bits, [full])
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        image = Image.fromarray(DEEP[..., 0]) if mode == "I;16" else Image.fromarray(NOISE).convert(mode)
        yield f"png of Pillow {mode}", saved(image, "PNG")
    for colour, bits in ((0, 1), (0, 8), (0, 16), (2, 8), (2, 16), (3, 4), (4, 8), (6, 8), (6, 16)):
        yield f"png interlaced {colour}, {bits} bits", interlaced(colour, bits, full)
    for split in (1, 100, 1000):
        yield f"png split {split}", png(2, 8, split=split)
    for size in ((1, 1), (1, 9), (9, 1), (8, 8), (130, 3)):
        yield f"png {size}", saved(rgb.resize(size), "PNG")
        yield f"png palette {size}", saved(palette.resize(size), "PNG")
    yield "png icc", saved(rgb, "PNG", icc_profile=b"icc " * 400)
    yield "png srgb", png(2, 8, [chunk(b"sRGB", b"\0")])
    yield "png white point", png(2, 8, [chunk(b"cHRM", struct.pack(">8I", *[31270, 32900] * 4))])
    yield "png background", png(6, 8, [chunk(b"bKGD", b"\0\1" * 3)])
    yield "png background grey", png(4, 8, [chunk(b"bKGD", b"\0\1")])
    yield "png density", png(2, 8, [chunk(b"pHYs", struct.pack(">IIB", 300, 300, 1))])
    yield "png density not square", png(2, 8, [chunk(b"pHYs", struct.pack(">IIB", 300, 100, 0))])
    yield "png offset", png(2, 8, [chunk(b"oFFs", struct.pack(">iiB", 3, 3, 0))])
    yield "png histogram", png(3, 4, [colours, chunk(b"hIST", b"\0\1" * 16)])
    yield "png time", png(2, 8, [chunk(b"tIME", b"\x07\xea\1\1\0\0\0")])
    yield "png cICP", png(2, 8, [chunk(b"cICP", b"\x09\x10\0\1")])
    yield "png mastering", png(2, 16, [chunk(b"mDCv", b"\0" * 24), chunk(b"cLLi", b"\0" * 8)])
    yield "png private chunk", png(2, 8, [chunk(b"prVt", b"data")])
    yield "png critical private chunk", png(2, 8, [chunk(b"PRVT", b"data")])
    yield "png private chunk behind", png(2, 8, behind=[chunk(b"prVt", b"data")])
    yield "png apple", png(2, 8).replace(PNG_START, PNG_START + chunk(b"CgBI", b"\x50\0\x20\6"))
    yield "png suggested palette", png(2, 8, [chunk(b"sPLT", b"name\0\x08" + b"\1\2\3\4\0\1")])
    for name, block in exifs():
        yield f"png exif {name}", png(2, 8, [chunk(b"eXIf", block)])
    turned, other = tiff_head() + ifd([(0x112, 3, 6)]), tiff_head() + ifd([(0x112, 3, 3)])
    yield "png exif behind", png(2, 8, behind=[chunk(b"eXIf", turned)])
    yield "png exif signed", png(2, 8, [chunk(b"eXIf", b"Exif\0\0" + turned)])
    yield "png exif twice", png(2, 8, [chunk(b"eXIf", turned), chunk(b"eXIf", other)])
    for where in ("before", "behind"):
        for name, text in {
            "profile exif": profile("exif", b"Exif\0\0" + turned),
            "profile app1": profile("APP1", b"Exif\0\0" + turned),
            "profile xmp": profile("xmp", xmp(6)),
            "xmp text": b"XML:com.adobe.xmp\0" + xmp(6),
            "text": b"Comment\0Orientation 6",
        }.items():
            packed = text.replace(b"\0", b"\0\0", 1)
            body = packed[: packed.index(b"\0") + 2] + zlib.compress(packed[packed.index(b"\0") + 2 :])
            long = text.replace(b"\0", b"\0\0\0\0\0", 1)
            zipped = long[: long.index(b"\0")] + b"\0\1\0\0\0" + zlib.compress(long[long.index(b"\0") + 5 :])
            for key, data in ((b"tEXt", text), (b"zTXt", body), (b"iTXt", long), (b"iTXt", zipped)):
                yield f"png {name} {key!r} {where} {len(data)}", png(2, 8, **{where: [chunk(key, data)]})
    frame = struct.pack(">IIIIIHHBB", 0, W, H, 0, 0, 1, 10, 0, 0)
    animation = chunk(b"acTL", struct.pack(">II", 1, 0))
    yield "apng of one frame", png(2, 8, [animation, chunk(b"fcTL", frame)])
    other_data = b"".join(b"\0" + b"\x80" * (W * 3) for _ in range(H))
    later = [chunk(b"fcTL", frame), chunk(b"fdAT", struct.pack(">I", 1) + zlib.compress(other_data))]
    yield "apng whose default picture is not a frame", png(2, 8, [animation], later)
    yield "apng of Pillow", saved(rgb, "PNG", save_all=True, append_images=[rgb.rotate(90)])
    yield (
        "apng of Pillow, default picture",
        saved(rgb, "PNG", save_all=True, default_image=True, append_images=[rgb.rotate(180), rgb]),
    )
    yield (
        "apng frame within",
        png(2, 8, [animation, chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 9, 9, 1, 1, 1, 10, 0, 0))]),
    )
    # Broken ones
    good = png(2, 8)
    first = good.index(b"IDAT")
    yield "png wrong check of the header", patched(good, 29, b"\0\0\0\0")
    yield "png wrong check of the data", good[:-16] + b"\0\0\0\0" + good[-12:]
    yield "png wrong check of a text", png(2, 8, [chunk(b"tEXt", b"a\0b")[:-4] + b"\0\0\0\0"])
    yield "png wrong check of the end", good[:-4] + b"\0\0\0\0"
    yield "png without end", good[:-12]
    yield "png junk behind", good + b"junk" * 20
    for part in (0.2, 0.5, 0.9, 0.99):
        yield f"png cut at {part}", good[: int(len(good) * part)]
    for place in (2, 50, 500, 1000):
        damaged = patched(good, first + 4 + place, bytes([good[first + 4 + place] ^ 4]))
        yield f"png damaged at {place}", damaged
        end = first + 4 + int.from_bytes(good[first - 4 : first], "big")
        check = struct.pack(">I", zlib.crc32(damaged[first:end]))
        yield f"png damaged at {place}, check mended", patched(damaged, end, check)
    yield "png width 0", png(2, 8, width=0)
    yield "png taller than its data", png(2, 8, height=H + 9)
    yield "png lower than its data", png(2, 8, height=H - 9)
    yield "png interlace 2", png(2, 8, interlace=2)
    yield "png filter 9", _png_of(b"".join(b"\x09" + b"\x80" * (W * 3) for _ in range(H)))
    yield "png filters", _png_of(b"".join(bytes([y % 5]) + NOISE[y, :, :3].tobytes() for y in range(H)))
    yield "png header twice", good[:33] + good[8:33] + good[33:]
    yield "png header too long", PNG_START + chunk(b"IHDR", good[16:29] + b"\0") + good[33:]
    yield "png chunk before its header", PNG_START + chunk(b"tEXt", b"a\0b") + good[8:]
    yield "png data not together", png(2, 8, split=1000).replace(PNG_END, b"") + chunk(b"tEXt", b"a\0b") + PNG_END
    halves = png(2, 8, split=1000)
    second = halves.index(b"IDAT", halves.index(b"IDAT") + 4) - 4
    yield "png text between data", halves[:second] + chunk(b"tEXt", b"a\0b") + halves[second:]
    yield "png compression 1", patched_header(good, 10, 1)
    yield "png filter method 1", patched_header(good, 11, 1)
    yield "png trailing zlib data", _png_of(b"".join(b"\0" + NOISE[y, :, :3].tobytes() for y in range(H)), b"more")
    yield "png chunk name no letters", png(2, 8, [chunk(b"a1b!", b"")])
    yield "png text chunk endless", png(2, 8, [struct.pack(">I", 2**31 - 1) + b"tEXt" + b"a\0b"])


def patched_header(data: bytes, at: int, value: int) -> bytes:
    head = patched(data[16:29], at, bytes([value]))
    return PNG_START + chunk(b"IHDR", head) + data[33:]


def _png_of(raw: bytes, more: bytes = b"") -> bytes:
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", W, H, 8, 2, 0, 0, 0))
    return PNG_START + head + chunk(b"IDAT", zlib.compress(raw) + more) + PNG_END


def interlaced(colour: int, bits: int, palette: bytes) -> bytes:
    """Noise in Adam7's seven passes."""
    values = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    rng, raw = np.random.default_rng(bits), b""
    for x0, y0, dx, dy in (
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ):
        wide, high = len(range(x0, W, dx)), len(range(y0, H, dy))
        for _ in range(high if wide else 0):
            raw += b"\0" + rng.integers(0, 256, -(-wide * values * bits // 8), dtype=np.uint8).tobytes()
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", W, H, bits, colour, 0, 0, 1))
    table = palette if colour == 3 else b""
    return PNG_START + head + table + chunk(b"IDAT", zlib.compress(raw)) + PNG_END


# WebP


def riff(*chunks: tuple[bytes, bytes]) -> bytes:
    body = b"WEBP" + b"".join(
        name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2) for name, data in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def extended(flags: int, *chunks: tuple[bytes, bytes], width: int = W, height: int = H) -> bytes:
    head = bytes([flags, 0, 0, 0]) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    return riff((b"VP8X", head), *chunks)


def webps() -> Files:
    rgb, rgba = Image.fromarray(SMOOTH), Image.fromarray(NOISE)
    for lossless, quality, method in product((False, True), (20, 90), (0, 6)):
        options = {"lossless": lossless, "quality": quality, "method": method}
        yield f"webp {options}", saved(rgb, "WEBP", **options)
        yield f"webp noise {options}", saved(rgba.convert("RGB"), "WEBP", **options)
        yield f"webp alpha {options}", saved(rgba, "WEBP", **options, exact=True)
        yield f"webp alpha not exact {options}", saved(rgba, "WEBP", **options)
    for size in ((1, 1), (2, 1), (5, 7), (16, 16), (17, 33)):
        yield f"webp {size}", saved(rgb.resize(size), "WEBP")
        yield f"webp lossless {size}", saved(rgb.resize(size), "WEBP", lossless=True)
    yield "webp grey", saved(rgb.convert("L"), "WEBP")
    yield "webp palette", saved(rgb.quantize(16), "WEBP", lossless=True)
    yield "webp icc", saved(rgb, "WEBP", icc_profile=b"icc " * 40)
    yield "webp animation", saved(rgb, "WEBP", save_all=True, append_images=[rgb.rotate(90)])
    yield "webp alpha animation", saved(rgba, "WEBP", save_all=True, append_images=[rgba.rotate(90)])
    for name, data in (("VP8 ", saved(rgb, "WEBP")[20:]), ("VP8L", saved(rgb, "WEBP", lossless=True)[20:])):
        key = name.encode()
        picture = (key, data)
        turned, other = tiff_head() + ifd([(0x112, 3, 6)]), tiff_head() + ifd([(0x112, 3, 3)])
        for kind, block in exifs():
            yield f"webp {name} exif {kind}", extended(8, picture, (b"EXIF", block))
        yield f"webp {name} exif signed", extended(8, picture, (b"EXIF", b"Exif\0\0" + turned))
        yield f"webp {name} exif without flag", extended(0, picture, (b"EXIF", turned))
        yield f"webp {name} exif before", extended(8, (b"EXIF", turned), picture)
        yield f"webp {name} exif twice", extended(8, picture, (b"EXIF", turned), (b"EXIF", other))
        yield f"webp {name} exif flag without chunk", extended(8, picture)
        yield f"webp {name} exif of odd length", extended(8, picture, (b"EXIF", turned + b"\0"))
        yield f"webp {name} odd chunk before exif", extended(8, picture, (b"ABCD", b"abc"), (b"EXIF", turned))
        for element in (False, True):
            yield f"webp {name} xmp {element}", extended(4, picture, (b"XMP ", xmp(6, element)))
        yield f"webp {name} xmp without flag", extended(0, picture, (b"XMP ", xmp(6)))
        yield f"webp {name} xmp and exif", extended(12, picture, (b"EXIF", other), (b"XMP ", xmp(6)))
        yield f"webp {name} xmp of 1", extended(4, picture, (b"XMP ", xmp(1)))
        yield f"webp {name} exif behind plain", riff(picture, (b"EXIF", turned))
        yield f"webp {name} extended", extended(0, picture)
        yield f"webp {name} alpha flag", extended(16, picture)
        yield f"webp {name} unknown chunk", extended(0, picture, (b"ABCD", b"abcd"))
        yield f"webp {name} larger canvas", extended(0, picture, width=W + 8, height=H + 8)
        yield f"webp {name} smaller canvas", extended(0, picture, width=W - 8, height=H - 8)
        yield f"webp {name} picture twice", extended(0, picture, picture)
        yield f"webp {name} without picture", extended(0)
        yield f"webp {name} junk behind", riff(picture) + b"junk" * 9
        yield f"webp {name} wrong length", patched(riff(picture), 4, b"\0\0\0\0")
        yield f"webp {name} length too large", patched(riff(picture), 4, struct.pack("<I", 10**6))
        whole = riff(picture)
        for part in (0.2, 0.5, 0.9):
            yield f"webp {name} cut at {part}", whole[: int(len(whole) * part)]
        frame = (0).to_bytes(3, "little") * 2 + (W - 1).to_bytes(3, "little") + (H - 1).to_bytes(3, "little")
        inside = frame + (100).to_bytes(3, "little") + b"\0" + key + struct.pack("<I", len(data)) + data
        inside += b"\0" * (len(data) % 2)
        yield f"webp {name} animation of one", extended(2, (b"ANIM", b"\xff" * 4 + b"\0\0"), (b"ANMF", inside))
        yield f"webp {name} animation flag only", extended(2, picture)
    alpha = saved(rgba, "WEBP", quality=80)
    assert alpha[12:16] == b"VP8X"
    yield "webp alpha flag off", patched(alpha, 20, b"\0")
    yield "webp lossy height 0", patched(saved(rgb, "WEBP"), 28, b"\0\0")
    yield "webp scaled", patched(saved(rgb, "WEBP"), 26, struct.pack("<H", W | 1 << 14))


# PNM


def pnms() -> Files:
    one, three = NOISE[..., 0].tobytes(), NOISE[..., :3].tobytes()
    for magic, data in ((b"P5", one), (b"P6", three)):
        name = magic.decode().lower()
        yield f"pnm {name}", magic + b"\n%d %d\n255\n" % (W, H) + data
        yield f"pnm {name} one line", magic + b" %d %d 255 " % (W, H) + data
        yield f"pnm {name} tabs", magic + b"\t%d\t%d\r\n255\t" % (W, H) + data
        yield f"pnm {name} crlf", magic + b"\r\n%d %d\r\n255\r\n" % (W, H) + data
        yield f"pnm {name} comment", magic + b"\n# a comment\n%d %d\n255\n" % (W, H) + data
        yield f"pnm {name} comment in a number", magic + b"\n%d %d\n25#x\n5\n" % (W, H) + data
        yield f"pnm {name} comment behind", magic + b"\n%d %d\n255 #x\n" % (W, H) + data
        yield f"pnm {name} zeros in front", magic + b"\n%05d %05d\n0255\n" % (W, H) + data
        yield f"pnm {name} more spaces", magic + b"\n\n  %d   %d \n\n255\n" % (W, H) + data
        yield f"pnm {name} form feed", magic + b"\n%d\x0c%d\x0b255\n" % (W, H) + data
        yield f"pnm {name} too short", magic + b"\n%d %d\n255\n" % (W, H) + data[:-5]
        yield f"pnm {name} junk behind", magic + b"\n%d %d\n255\n" % (W, H) + data + b"junk"
        yield f"pnm {name} two files", (magic + b"\n%d %d\n255\n" % (W, H) + data) * 2
        yield f"pnm {name} negative", magic + b"\n-%d %d\n255\n" % (W, H) + data
        yield f"pnm {name} sign", magic + b"\n+%d %d\n255\n" % (W, H) + data
        yield f"pnm {name} no width", magic + b"\n0 %d\n255\n" % H + data
        yield (
            f"pnm {name} pixels that look like spaces",
            magic + b"\n2 1\n255\n" + b" \n\t\r 9"[: len(data) // W // H * 2],
        )
        for largest in (0, 1, 15, 100, 127, 254, 256, 1023, 4095, 32767, 65535, 65536):
            wide = 2 if largest > 255 else 1
            rng = np.random.default_rng(largest)
            values = rng.integers(0, min(largest, 65535) + 1, len(data)).astype(">u2" if wide == 2 else np.uint8)
            yield f"pnm {name} up to {largest}", magic + b"\n%d %d\n%d\n" % (W, H, largest) + values.tobytes()
    yield "pnm 12 bits", b"P5\n4 1\n4095\n" + np.array([0, 500, 2000, 4095], ">u2").tobytes()
    yield "pnm p1", b"P1\n4 2\n0 1 0 1\n1 1 0 0\n"
    yield "pnm p2", b"P2\n2 2\n255\n0 100\n200 255\n"
    yield "pnm p2 up to 100", b"P2\n2 2\n100\n0 50\n75 100\n"
    yield "pnm p3", b"P3\n2 1\n255\n0 100 200 255 1 2\n"
    yield "pnm p4", b"P4\n12 2\n\xaa\xf0\x55\x0f"
    yield "pnm p7", b"P7\nWIDTH 2\nHEIGHT 1\nDEPTH 3\nMAXVAL 255\nTUPLTYPE RGB\nENDHDR\nabcdef"
    yield "pnm pf", b"Pf\n2 1\n-1.0\n" + np.array([0.0, 0.5], "<f4").tobytes()
    yield "pnm no header", b"P6\n"


# BMP


def bmp(
    bits: int,
    head: int = 40,
    compression: int = 0,
    palette: bytes = b"",
    masks: bytes = b"",
    offset: int | None = None,
    height: int = H,
    colours: int = 0,
    data: bytes | None = None,
    width: int = W,
) -> bytes:
    stride = (width * bits + 31) // 32 * 4
    if data is None:
        rng = np.random.default_rng(bits + head)
        data = rng.integers(0, 256, stride * abs(height), dtype=np.uint8).tobytes()
    if head == 12:
        info = struct.pack("<IHHHH", 12, width, height & 0xFFFF, 1, bits)
    else:
        info = struct.pack("<IiiHHIIiiII", head, width, height, 1, bits, compression, len(data), 0, 0, colours, 0)
        info += masks[: max(0, head - 40)].ljust(head - 40, b"\0")
        masks = masks[max(0, head - 40) :] if head > 40 else masks
    begin = 14 + len(info) + len(masks) + len(palette) if offset is None else offset
    return b"BM" + struct.pack("<IHHI", begin + len(data), 0, 0, begin) + info + masks + palette + data


def bmps() -> Files:
    rng = np.random.default_rng(1)
    for bits, table in ((1, 2), (4, 16), (8, 256)):
        palette = rng.integers(0, 256, 4 * table, dtype=np.uint8).tobytes()
        for head in (40, 52, 56, 64, 108, 124):
            yield f"bmp {bits} bits, head {head}", bmp(bits, head, palette=palette)
        small = rng.integers(0, 256, 3 * table, dtype=np.uint8).tobytes()
        yield f"bmp {bits} bits, head 12", bmp(bits, 12, palette=small)
        yield f"bmp {bits} bits, fewer colours", bmp(bits, palette=palette[: 2 * table], colours=table // 2)
        yield f"bmp {bits} bits, palette overlaps", bmp(bits, palette=palette[: 2 * table])
        yield f"bmp {bits} bits, top down", bmp(bits, palette=palette, height=-H)
    grey = bytes(v for i in range(256) for v in (i, i, i, 0))
    yield "bmp grey", bmp(8, palette=grey)
    for bits in (16, 24, 32):
        for head in (12, 40, 52, 56, 64, 108, 124):
            if head > 12 or bits == 24:
                yield f"bmp {bits} bits, head {head}", bmp(bits, head)
        yield f"bmp {bits} bits, top down", bmp(bits, height=-H)
        yield f"bmp {bits} bits, gap", bmp(bits, offset=54)[:54] + bmp(bits)[54:]
    for name, bits, masks in (
        ("565", 16, (0xF800, 0x7E0, 0x1F, 0)), ("555", 16, (0x7C00, 0x3E0, 0x1F, 0)),
        ("1555", 16, (0x7C00, 0x3E0, 0x1F, 0x8000)), ("4444", 16, (0xF00, 0xF0, 0xF, 0xF000)),
        ("bgrx", 32, (0xFF0000, 0xFF00, 0xFF, 0)), ("bgra", 32, (0xFF0000, 0xFF00, 0xFF, 0xFF000000)),
        ("rgbx", 32, (0xFF, 0xFF00, 0xFF0000, 0)), ("rgba", 32, (0xFF, 0xFF00, 0xFF0000, 0xFF000000)),
        ("abgr", 32, (0xFF000000, 0xFF0000, 0xFF00, 0xFF)), ("2101010", 32, (0x3FF00000, 0xFFC00, 0x3FF, 0)),
    ):  # fmt: skip
        packed = struct.pack("<4I", *masks)
        yield f"bmp {name}, head 40", bmp(bits, 40, 3, masks=packed[:12])
        for head in (52, 56, 108, 124):
            yield f"bmp {name}, head {head}", bmp(bits, head, 3, masks=packed)
        yield f"bmp {name}, alpha masks", bmp(bits, 40, 6, masks=packed)
    runs = b"".join(bytes([W, y]) + b"\0\0" for y in range(H)) + b"\0\1"
    yield "bmp rle8", bmp(8, compression=1, palette=grey, data=runs)
    yield "bmp rle8, ends early", bmp(8, compression=1, palette=grey, data=runs[:40] + b"\0\1")
    yield "bmp rle8, jump", bmp(8, compression=1, palette=grey, data=b"\0\2\4\2" + runs[:40] + b"\0\1")
    yield "bmp rle4", bmp(4, compression=2, palette=grey[:64], data=runs)
    for compression in (4, 5, 7, 11):
        yield f"bmp compression {compression}", bmp(24, compression=compression)
    yield "bmp too short", bmp(24)[:-50]
    yield "bmp junk behind", bmp(24) + b"junk"
    yield "bmp 2 bits", bmp(2, palette=grey[:16])
    for mode in ("1", "L", "P", "RGB", "RGBA"):
        yield f"bmp of Pillow {mode}", saved(Image.fromarray(NOISE).convert(mode), "BMP")
        yield f"dib of Pillow {mode}", saved(Image.fromarray(NOISE).convert(mode), "DIB")


# TIFF


def tiff(
    samples: int,
    bits: int = 8,
    photometric: int = 2,
    planar: int = 1,
    order: str = "<",
    more: Iterable[tuple[int, int, Any]] = (),
    drop: Iterable[int] = (),
    samples_kind: int = 3,
    pixels: bytes | None = None,
    dtype: str = "u",
) -> bytes:
    rng = np.random.default_rng(samples * bits)
    if pixels is None:
        if dtype == "f":
            pixels = rng.random((H, W, samples)).astype(f"{order}f{bits // 8}").tobytes()
        else:
            pixels = rng.integers(0, 256, -(-W * samples * bits // 8) * H, dtype=np.uint8).tobytes()
    parts = samples if planar == 2 else 1
    size = len(pixels) // parts
    tags = {
        256: (3, W), 257: (3, H), 258: (3, [bits] * samples), 259: (3, 1), 262: (3, photometric),
        273: (4, [0] * parts), 277: (samples_kind, samples), 278: (3, H), 279: (4, [size] * parts), 284: (3, planar),
    }  # fmt: skip
    tags |= {tag: (kind, value) for tag, kind, value in more}
    listed = [(tag, *tags[tag]) for tag in sorted(tags) if tag not in set(drop)]
    begin = 8 + len(ifd(listed, order))
    listed = [(t, k, [begin + i * size for i in range(parts)]) if t == 273 else (t, k, v) for t, k, v in listed]
    return tiff_head(order) + ifd(listed, order) + pixels


def tiffs() -> Files:
    for order in "<>":
        for samples, photometric in ((1, 0), (1, 1), (3, 2), (4, 2), (2, 1), (4, 5), (3, 6), (3, 8), (5, 2)):
            extra = [(338, 3, [2] * (samples - (4 if photometric == 5 else 3 if photometric == 2 else 1)))]
            extra = extra if samples in (2, 5) or (samples, photometric) == (4, 2) else []
            for planar, bits in product((1, 2), (8, 16)):
                name = f"tiff {order} {samples} of {photometric}, planar {planar}, {bits} bits"
                yield name, tiff(samples, bits, photometric, planar, order, extra)
        for kind in (1, 4):
            yield f"tiff {order} grey alpha as type {kind}", tiff(2, 8, 1, 1, order, [(338, 3, 2)], samples_kind=kind)
            yield f"tiff {order} rgb as type {kind}", tiff(3, 8, 2, 1, order, samples_kind=kind)
        for value in range(1, 9):
            turned = [(274, 3, value)]
            yield f"tiff {order} orientation {value}", tiff(3, order=order, more=turned)
            yield f"tiff {order} grey, orientation {value}", tiff(1, 8, 1, order=order, more=turned)
            yield f"tiff {order} alpha, orientation {value}", tiff(4, order=order, more=[*turned, (338, 3, 2)])
        yield f"tiff {order} orientation as LONG", tiff(3, order=order, more=[(274, 4, 6)])
    for meaning in (0, 1, 2):
        yield f"tiff alpha of {meaning}", tiff(4, more=[(338, 3, meaning)])
        yield f"tiff 16 bit alpha of {meaning}", tiff(4, 16, more=[(338, 3, meaning)])
    yield "tiff rgb and two", tiff(5, more=[(338, 3, [0, 0])])
    for bits in (1, 2, 4, 12, 32):
        yield f"tiff grey of {bits} bits", tiff(1, bits, 1)
        yield f"tiff inverted of {bits} bits", tiff(1, bits, 0)
    yield "tiff float", tiff(1, 32, 1, more=[(339, 3, 3)], dtype="f")
    yield "tiff double", tiff(1, 64, 1, more=[(339, 3, 3)], dtype="f")
    yield "tiff float rgb", tiff(3, 32, 2, more=[(339, 3, [3] * 3)], dtype="f")
    yield "tiff signed", tiff(1, 16, 1, more=[(339, 3, 2)])
    yield "tiff signed of 8 bits", tiff(1, 8, 1, more=[(339, 3, 2)])
    palette = np.random.default_rng(2).integers(0, 65536, 768).tolist()
    yield "tiff palette", tiff(1, 8, 3, more=[(320, 3, palette)])
    yield "tiff palette of 4 bits", tiff(1, 4, 3, more=[(320, 3, palette[:48])])
    yield "tiff without photometric", tiff(3, drop=[262])
    yield "tiff without samples", tiff(3, drop=[277])
    yield "tiff without strip bytes", tiff(3, drop=[279])
    yield "tiff fill order", tiff(1, 1, 1, more=[(266, 3, 2)])
    yield "tiff predictor without compression", tiff(3, more=[(317, 3, 2)])
    yield "tiff short data", tiff(3)[:-100]
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "I;16", "I", "F"):
        image = Image.fromarray(NOISE)
        if mode in ("I;16", "I", "F"):
            image = Image.fromarray(
                {"I;16": DEEP[..., 0], "I": DEEP[..., 0].astype(np.int32), "F": NOISE[..., 0] / np.float32(255)}[mode]
            )
        elif mode == "LAB":
            image = Image.frombytes("LAB", (W, H), NOISE[..., :3].tobytes())
        else:
            image = image.convert(mode)
        ways = ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"] if mode in ("L", "RGB", "RGBA", "P") else ["raw"]
        ways += ["jpeg"] if mode in ("L", "RGB", "YCbCr") else []
        ways += ["group3", "group4"] if mode == "1" else []
        for way in ways:
            yield f"tiff of Pillow {mode}, {way}", saved(image, "TIFF", compression=way)
    fax = saved(Image.fromarray(NOISE[..., 0] > 99), "TIFF", compression="group4")
    yield "tiff group4 damaged", patched(fax, 30, bytes([fax[30] ^ 255, fax[31] ^ 255]))
    yield (
        "tiff two pages",
        saved(Image.fromarray(SMOOTH), "TIFF", save_all=True, append_images=[Image.fromarray(NOISE[..., :3])]),
    )
    geo = [(33550, 12, [1.0, 1.0, 0.0]), (34735, 3, [1, 1, 0, 0]), (42113, 2, b"0\0"), (270, 2, b"a text\0")]
    yield "tiff of the earth", tiff(3, more=geo)
    yield "tiff cut off with its text", tiff(3, more=geo)[:-3]
    yield "tiff big", saved(Image.fromarray(SMOOTH), "TIFF", big_tiff=True)
    yield "tiff tiles", tiled()


def tiled() -> bytes:
    pixels = np.zeros((32, 48, 3), np.uint8)
    pixels[:H, :W] = NOISE[..., :3]
    tiles = [pixels[y : y + 16, x : x + 16].tobytes() for y in (0, 16) for x in (0, 16, 32)]
    tags: list[tuple[int, int, Any]] = [
        (256, 3, W), (257, 3, H), (258, 3, [8] * 3), (259, 3, 1), (262, 3, 2), (277, 3, 3), (322, 3, 16), (323, 3, 16),
        (324, 4, [0] * 6), (325, 4, [768] * 6),
    ]  # fmt: skip
    begin = 8 + len(ifd(tags))
    tags[8] = (324, 4, [begin + 768 * i for i in range(6)])
    return tiff_head() + ifd(tags) + b"".join(tiles)


def others() -> Files:
    rgb = Image.fromarray(NOISE[..., :3])
    for kind in ("GIF", "JPEG2000", "ICO", "TGA", "PCX", "SGI", "AVIF", "DDS", "ICNS", "IM", "MSP", "XBM", "QOI"):
        try:
            yield f"other {kind}", saved(rgb.convert("1") if kind in ("MSP", "XBM") else rgb, kind)
        except (KeyError, OSError, ValueError):
            continue  # this Pillow does not write it
    yield "other gif, animated", saved(rgb.quantize(8), "GIF", save_all=True, append_images=[rgb.quantize(9)])
    for size in (0, 1, 2, 3, 4, 8, 12, 16, 20, 30):
        for name, start in (
            ("jpeg", b"\xff\xd8\xff\xe0"),
            ("png", png(2, 8)),
            ("webp", riff((b"VP8 ", b""))),
            ("bmp", bmp(24)),
        ):
            yield f"other {name}, {size} bytes", start[:size]
    yield "other text", b"no image at all"


@functools.cache
def variants() -> dict[str, bytes]:
    """All of them by name."""
    found: dict[str, bytes] = {}
    for make in (jpegs, pngs, webps, pnms, bmps, tiffs, others):
        for name, data in make():
            assert name not in found, name
            found[name] = data
    return found
