"""Decoding on the host: the documented rules, the same pixels as DALI's, and errors for what is no image."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps

import torchdali as td
from torchdali import _dali, pillow
from torchdali.formats.headers import readable

FOLDER = Path(__file__).parent / "data" / "odd-images"

# What Pillow sees: (height, width) upright, and the mode; and whether DALI is given the file.  False: DALI 2.4.0
# refuses it; None: it would give the right pixels, but for the levels below, and Pillow decodes it.
ODD: dict[str, tuple[tuple[int, int], str, bool | None]] = {
    "16bit.cropped.tif": ((64, 64), "I;16", None),
    "broken_exif_dpi.jpg": ((100, 100), "RGB", None),
    "bw_gradient.png": ((10, 256), "L", True),
    "hopper.bmp": ((128, 128), "RGB", True),
    "hopper.gif": ((128, 128), "P", False),
    "hopper.jpg": ((128, 128), "RGB", True),
    "hopper.png": ((128, 128), "RGB", True),
    "hopper.tif": ((128, 128), "RGB", True),
    "hopper.webp": ((128, 128), "RGB", True),
    "hopper_16bit_qtables.jpg": ((128, 128), "RGB", True),
    "hopper_gray.jpg": ((128, 128), "L", True),
    "hopper_gray_4bpp.tif": ((128, 128), "L", False),
    "hopper_orientation_2.jpg": ((128, 128), "RGB", True),
    "hopper_orientation_5.jpg": ((128, 128), "RGB", True),
    "hopper_orientation_6.jpg": ((128, 128), "RGB", True),
    "hopper_orientation_8.jpg": ((128, 128), "RGB", True),
    "icc-after-SOF.jpg": ((10, 10), "L", True),
    "invalid-exif.jpg": ((200, 200), "RGB", None),
    "jpeg_ff00_header.jpg": ((225, 300), "RGB", False),
    "junk_jpeg_header.jpg": ((768, 1024), "RGB", False),
    "photoshop-200dpi-broken.jpg": ((200, 200), "RGB", False),
    "pil_sample_cmyk.jpg": ((100, 100), "CMYK", None),
    "rgb16.bmp": ((64, 127), "RGB", False),
    "truncated_app14.jpg": ((100, 100), "RGB", False),
}
REFUSED = {
    "balloon_eciRGBv2_aware.jp2": "broken data stream",
    "decompression_bomb.gif": "MAX_IMAGE_PIXELS, holds too: .* exceeds limit of 178956970 pixels",
    "truncated_image.png": "image file is truncated",
    "truncated_jpeg.jpg": "image file is truncated",
    "ultrahdr.jpg": "image file is truncated",
}
LEVELS = {"pil_sample_cmyk.jpg": 1}  # DALI and Pillow round the product of two bytes in two ways


def read(name: str) -> np.ndarray:
    return np.fromfile(FOLDER / name, np.uint8)


def as_file(image: Image.Image, kind: str, **options: Any) -> np.ndarray:
    file = io.BytesIO()
    image.save(file, kind, **options)
    return np.frombuffer(file.getvalue(), np.uint8)


def dali(encoded: np.ndarray, *window: Any) -> np.ndarray:
    """DALI's pixels, of a window where one is given."""
    ndd = _dali.dynamic()
    batch = ndd.as_batch([encoded])
    with ndd.EvalMode.sync_cpu:
        if window:
            start, shape = (ndd.as_batch(np.array([value], np.int32)) for value in window)
            out = ndd.decoders.image_slice(batch, start, shape, axes=[0, 1], device="cpu")
        else:
            out = ndd.decoders.image(batch, device="cpu")
        return _dali.Output(out).arrays()[0].copy()


def dali_sizes(encoded: list[np.ndarray]) -> list[tuple[int, int]]:
    """(height, width) as DALI reads them from the headers, after EXIF orientation."""
    ndd = _dali.dynamic()
    with ndd.EvalMode.sync_cpu:
        shapes = _dali.Output(ndd.peek_image_shape(ndd.as_batch(encoded))).arrays()
    return [(height, width) for height, width, _ in np.array(shapes).tolist()]


def difference(one: np.ndarray, two: np.ndarray) -> int:
    assert one.shape == two.shape and one.dtype == two.dtype == np.uint8
    return int(np.abs(one.astype(np.int64) - two).max())


def by_the_rules(encoded: np.ndarray) -> np.ndarray:
    """The documented rules once more, band by band."""
    with Image.open(io.BytesIO(encoded.tobytes())) as opened:
        image = ImageOps.exif_transpose(opened)
    bands = [np.asarray(band) for band in image.split()]
    if image.mode in ("I", "I;16", "I;16B"):
        return np.dstack([np.floor(np.minimum(bands[0].astype(np.float64), 65535) / 257 + 0.5).astype(np.uint8)] * 3)
    if image.mode == "F":
        return np.dstack([np.clip(np.floor(bands[0] * np.float32(255) + np.float32(0.5)), 0, 255).astype(np.uint8)] * 3)
    if image.mode == "1":
        return np.dstack([np.where(bands[0], 255, 0).astype(np.uint8)] * 3)
    if image.mode in ("L", "LA"):
        return np.dstack(bands[:1] * 3)
    if image.mode == "P":
        palette = np.array(image.getpalette("RGB"), np.uint8).reshape(-1, 3)
        return palette[bands[0]]
    if image.mode == "CMYK":
        inks = [255 - band.astype(np.int64) for band in bands]
        return np.dstack([np.rint(ink * inks[3] / 255).astype(np.uint8) for ink in inks[:3]])
    assert image.mode in ("RGB", "RGBA", "RGBX")
    return np.dstack(bands[:3])


# The real files


def test_the_folder_is_known() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*ODD, *REFUSED}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_file(name: str) -> None:
    encoded = read(name)
    size, mode, given = ODD[name]
    with Image.open(FOLDER / name) as opened:
        assert opened.mode == mode
    pixels = pillow.decode(encoded)
    assert pixels.shape == (*size, 3) and pixels.dtype == np.uint8
    assert difference(pixels, by_the_rules(encoded)) <= LEVELS.get(name, 0)
    assert readable(encoded) is bool(given)
    if given:
        assert np.array_equal(pixels, dali(encoded))
    elif given is None:
        assert difference(pixels, dali(encoded)) <= LEVELS.get(name, 0)
    else:
        with pytest.raises(RuntimeError):
            dali(encoded)


@pytest.mark.parametrize("name", ODD)
def test_dali_reads_what_was_transcoded_exactly(name: str) -> None:
    encoded = read(name)
    pixels, transcoded = pillow.decode(encoded), pillow.transcode(encoded)
    assert transcoded.dtype == np.uint8 and transcoded.ndim == 1 and readable(transcoded)
    assert np.array_equal(dali(transcoded), pixels)
    height, width, _ = pixels.shape
    assert dali_sizes([transcoded]) == [(height, width)]
    for top, left, bottom, right in [(0, 0, 1, 1), (height // 3, width // 4, height // 2, width), (3, 5, 10, 9)]:
        window = dali(transcoded, (top, left), (bottom - top, right - left))
        assert np.array_equal(window, pixels[top:bottom, left:right])


@pytest.mark.parametrize("name", REFUSED)
def test_what_nobody_reads_raises(name: str) -> None:
    encoded = read(name)
    for call in (pillow.decode, pillow.transcode):
        with pytest.raises((OSError, ValueError, SyntaxError, Image.DecompressionBombError), match=REFUSED[name]):
            call(encoded)
    if name.endswith((".jp2", ".gif")):
        assert not readable(encoded)  # DALI is not even asked: on the first it kills the process


@pytest.mark.parametrize("data", [b"", b"\0" * 100, b"no image at all", b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"])
def test_no_image(data: bytes) -> None:
    with pytest.raises(OSError) as error:
        pillow.decode(np.frombuffer(data, np.uint8))
    assert "0x" not in str(error.value)  # the same sentence each time


# Each rule, on files of our own

RNG = np.random.default_rng(0)
NOISE = RNG.integers(0, 256, (40, 52, 4)).astype(np.uint8)
SLOPE = (np.add.outer(np.arange(40) * 3, np.arange(52) * 2) % 256).astype(np.uint8)
SMOOTH = np.dstack([SLOPE, SLOPE[:, ::-1], 255 - SLOPE])
DEEP = RNG.integers(0, 65536, (40, 52, 4)).astype(np.uint16)
RGB, RGBA, GREY = (Image.fromarray(array) for array in (NOISE[..., :3], NOISE, NOISE[..., 0]))
PALETTE = RGB.quantize(16)
COLOURS = np.array(PALETTE.getpalette("RGB"), np.uint8).reshape(-1, 3)[np.asarray(PALETTE)]
WHITE = np.uint8(255)


def deep_png(array: np.ndarray, colour_type: int) -> np.ndarray:
    """16 bits a value, which Pillow writes for grey only."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", array.shape[1], array.shape[0], 16, colour_type, 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in array)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")]
    return np.frombuffer(b"\x89PNG\r\n\x1a\n" + b"".join(parts), np.uint8)


def repeated(grey: np.ndarray) -> np.ndarray:
    return np.dstack([grey] * 3)


def deep_levels(values: np.ndarray) -> np.ndarray:
    return repeated(np.rint(np.minimum(values, 65535) / 257).astype(np.uint8))


def high_bytes(values: np.ndarray) -> np.ndarray:
    return (values >> 8).astype(np.uint8)


RAMP = np.linspace(-0.5, 1.5, 40 * 52, dtype=np.float32).reshape(40, 52)
RAMP[3:8, :51] = ((np.arange(255) + 0.5) / 255).reshape(5, 51)  # halfway between two levels
FLOATS = repeated(np.clip(np.floor(RAMP * np.float32(255) + np.float32(0.5)), 0, 255).astype(np.uint8))
GREY_ALPHA = Image.fromarray(NOISE[..., :2], "LA")
CMYK = as_file(Image.fromarray(SMOOTH).convert("CMYK"), "JPEG", quality=95)
CMYK_TIFF = as_file(RGBA.convert("CMYK"), "TIFF")
PROGRESSIVE = as_file(Image.fromarray(SMOOTH), "JPEG", progressive=True)
WIDE = DEEP[..., 0].astype(np.int32) * 2

# (name, file, expected pixels, levels that DALI's may be off; None where it refuses the file or misreads it)
RULES: list[tuple[str, np.ndarray, np.ndarray, int | None]] = [
    ("grey png", as_file(GREY, "PNG"), repeated(NOISE[..., 0]), 0),
    ("grey tiff", as_file(GREY, "TIFF"), repeated(NOISE[..., 0]), 0),
    ("grey bmp", as_file(GREY, "BMP"), repeated(NOISE[..., 0]), 0),
    ("grey png, one level transparent", as_file(GREY, "PNG", transparency=3), repeated(NOISE[..., 0]), 0),
    (
        "black and white png",
        as_file(Image.fromarray(NOISE[..., 0] > 99), "PNG"),
        repeated((NOISE[..., 0] > 99) * WHITE),
        0,
    ),
    ("rgb png, one colour transparent", as_file(RGB, "PNG", transparency=(1, 2, 3)), NOISE[..., :3], 0),
    ("alpha png", as_file(RGBA, "PNG"), NOISE[..., :3], 0),
    ("alpha tiff", as_file(RGBA, "TIFF"), NOISE[..., :3], 0),
    ("alpha bmp", as_file(RGBA, "BMP"), NOISE[..., :3], 0),
    ("alpha webp", as_file(RGBA, "WEBP", lossless=True, exact=True), NOISE[..., :3], 0),
    ("grey and alpha png", as_file(GREY_ALPHA, "PNG"), repeated(NOISE[..., 0]), 0),
    ("grey and alpha tiff", as_file(GREY_ALPHA, "TIFF"), repeated(NOISE[..., 0]), None),  # two bytes taken for three
    ("palette png", as_file(PALETTE, "PNG"), COLOURS, 0),
    ("palette bmp", as_file(PALETTE, "BMP"), COLOURS, 0),
    ("palette tiff", as_file(PALETTE, "TIFF"), COLOURS, 1),
    ("palette gif", as_file(PALETTE, "GIF"), COLOURS, None),
    ("palette png, one entry transparent", as_file(PALETTE, "PNG", transparency=3), COLOURS, 0),
    ("palette png, alpha of each entry", as_file(PALETTE, "PNG", transparency=bytes(range(0, 160, 10))), COLOURS, 0),
    ("palette gif, one entry transparent", as_file(PALETTE, "GIF", transparency=3), COLOURS, None),
    ("cmyk jpeg", CMYK, by_the_rules(CMYK), 1),
    ("cmyk tiff", CMYK_TIFF, by_the_rules(CMYK_TIFF), 1),
    ("16 bit grey png", deep_png(DEEP[..., :1], 0), deep_levels(DEEP[..., 0]), 0),
    ("16 bit grey tiff", as_file(Image.fromarray(DEEP[..., 0]), "TIFF"), deep_levels(DEEP[..., 0]), 0),
    ("32 bit grey tiff", as_file(Image.fromarray(WIDE), "TIFF"), deep_levels(WIDE), None),
    ("16 bit rgb png", deep_png(DEEP[..., :3], 2), high_bytes(DEEP[..., :3]), 1),
    ("16 bit alpha png", deep_png(DEEP, 6), high_bytes(DEEP[..., :3]), 1),
    ("16 bit grey and alpha png", deep_png(DEEP[..., :2], 4), repeated(high_bytes(DEEP[..., 0])), 1),
    ("float tiff", as_file(Image.fromarray(RAMP), "TIFF"), FLOATS, 0),
    ("animation", as_file(PALETTE, "GIF", save_all=True, append_images=[PALETTE.rotate(90)]), COLOURS, None),
    ("pages", as_file(RGB, "TIFF", save_all=True, append_images=[RGB.rotate(90)]), NOISE[..., :3], 0),
    ("progressive jpeg", PROGRESSIVE, by_the_rules(PROGRESSIVE), 0),
]


@pytest.mark.parametrize(("encoded", "expected", "levels"), [pytest.param(*rest, id=name) for name, *rest in RULES])
def test_a_rule(encoded: np.ndarray, expected: np.ndarray, levels: int | None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Pillow's, of palettes with transparency, too
        pixels = pillow.decode(encoded)
    # The test's own CMYK may round the other way; everything else is exact.
    assert difference(pixels, expected) <= int(encoded is CMYK or encoded is CMYK_TIFF)
    assert np.array_equal(dali(pillow.transcode(encoded)), pixels)
    if levels is not None:
        assert difference(dali(encoded), pixels) <= levels


def test_float_pixels_that_are_no_number() -> None:
    values = np.array([[np.nan, np.inf, -np.inf, 1e38, 0.5]], np.float32)
    pixels = pillow.decode(as_file(Image.fromarray(values), "TIFF"))
    assert pixels[0, :, 0].tolist() == [0, 255, 0, 255, 128]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_exif_orientations(kind: str) -> None:
    plain = Image.fromarray(SMOOTH)
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        encoded = as_file(plain, kind, exif=exif)
        with Image.open(io.BytesIO(as_file(plain, kind).tobytes())) as opened:
            stored = np.array(opened)
        turned = {
            1: stored, 2: stored[:, ::-1], 3: stored[::-1, ::-1], 4: stored[::-1], 5: stored.transpose(1, 0, 2),
            6: stored[::-1].transpose(1, 0, 2), 7: stored[::-1, ::-1].transpose(1, 0, 2),
            8: stored[:, ::-1].transpose(1, 0, 2),
        }[orientation]  # fmt: skip
        pixels = pillow.decode(encoded)
        assert np.array_equal(pixels, turned), orientation
        assert np.array_equal(dali(encoded), pixels), orientation
        # Already upright behind the transcoding, and not turned a second time.
        assert np.array_equal(dali(pillow.transcode(encoded)), pixels), orientation


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 70), st.integers(1, 70), st.integers(0, 2**32 - 1))
def test_any_size_survives_transcoding(height: int, width: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    pixels.flat[:3] = np.frombuffer(b"\n \t", np.uint8)[: pixels.size]  # may be taken for a part of the header
    assert np.array_equal(dali(pillow.transcode(as_file(Image.fromarray(pixels), "PNG"))), pixels)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["hopper.jpg", "hopper.gif", "16bit.cropped.tif", "hopper.webp", "rgb16.bmp"]), st.data())
def test_a_damaged_file_raises_or_is_an_image(name: str, data: st.DataObject) -> None:
    encoded = read(name)
    for _ in range(data.draw(st.integers(1, 8))):
        encoded[data.draw(st.integers(0, min(len(encoded), 600) - 1))] = data.draw(st.integers(0, 255))
    encoded = encoded[: data.draw(st.integers(1, len(encoded)))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, of what it skips
        try:
            pixels = pillow.decode(encoded)
        except Exception as error:
            assert not isinstance(error, (AttributeError, NameError, UnboundLocalError))
        else:
            assert pixels.dtype == np.uint8 and pixels.ndim == 3 and pixels.shape[2] == 3


def test_the_file_is_left_alone() -> None:
    encoded = read("hopper.gif")
    before = encoded.copy()
    encoded.flags.writeable = False
    pixels = pillow.decode(encoded)
    assert np.array_equal(encoded, before) and pixels.flags.writeable and pixels.flags.c_contiguous


@pytest.mark.parametrize("order", ["<", ">"])
def test_grey_and_alpha_in_a_tiff_never_reaches_dali(order):
    """DALI 2.4.0 takes its two numbers a pixel for three, without a word."""
    pixels = np.random.default_rng(0).integers(0, 256, (12, 17, 2), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels, "LA").save(buffer, "TIFF")
    encoded = np.frombuffer(buffer.getvalue(), np.uint8)
    if order == ">":  # the same file the other way round, by hand
        tag = struct.pack(">HHIHxx", 277, 3, 1, 2)
        encoded = np.frombuffer(b"MM\x00*" + struct.pack(">IH", 8, 1) + tag, np.uint8)
    assert not readable(encoded)
    if order == "<":
        assert np.array_equal(pillow.decode(encoded), np.repeat(pixels[..., :1], 3, axis=2))
        dataset = td.InMemoryDataset(image=[buffer.getvalue()])
        ((image,),) = td.DataLoader(dataset, device="cpu")
        assert torch.equal(image.data[0], dataset[0][0])
