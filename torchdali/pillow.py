"""Image files that Pillow decodes: those that DALI refuses or may get wrong, and samples that are looked at.

Such a file is decoded here and handed to DALI as a PNM file: its pixels after a short header.  So everything
downstream (windows, GPUs, both engines) goes on as for any file.  What comes out is what DALI gives for the files that
it reads:

    orientation  of EXIF, else of XMP, is applied
    grey         repeated into R, G and B
    alpha        dropped, and the colours under it are kept
    palette      looked up; a transparent entry keeps its colour
    CMYK         converted without a colour profile
    16 bit       grey: value / 257, rounded; colours: their high byte, all that Pillow reads
    float        value * 255, rounded, cut off below 0 and above 255
    animation    the first frame

Masks, and images that are to stay unchanged, never become such a file: `decode_mask` and `decode_unchanged` give their
values as they are.
"""

from __future__ import annotations

import io
import re
import struct
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_PIXELS = 89_478_485  # PIL.Image.MAX_IMAGE_PIXELS: a quarter of a GiB as RGB

_IMAGE_FILES = re.compile(
    rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|BM|II\*\x00|MM\x00\*|RIFF....WEBP|P[1-6]\s|GIF8[79]a"
    rb"|\0\0\0\x0cjP  |\xff\x4f\xff\x51",
    re.DOTALL,
)
_LONGEST_EDGE = 2**20  # that DALI's decoder of PNM files takes: the pixels of what Pillow decodes
_WIDEST_PIXEL = 32  # bytes: four values of 64 bits
_warned_of_depth = False


class OversizedError(ValueError):
    """The header of an image promises more pixels than is allowed."""


def check_pixels(height: int, width: int, max_pixels: int | None) -> None:
    """Raise where a header promises more pixels than `max_pixels` (None: any number), or an edge that DALI refuses.

    Raises:
        OversizedError: it does.
    """
    if max(height, width) > _LONGEST_EDGE:
        raise OversizedError(
            f"an image of at most {_LONGEST_EDGE:,} rows and columns was expected, got a header of width {width} and "
            f"height {height}"
        )
    if max_pixels is not None and height * width > max_pixels:
        raise OversizedError(
            f"an image of at most {max_pixels} pixels was expected, got a header of width {width} and height {height}: "
            "for larger ones set the loader's max_pixels, and PIL.Image.MAX_IMAGE_PIXELS for a dataset's own samples"
        )


def check_file_size(size: int) -> None:
    """Raise where a file is larger than any image within Pillow's limit, before its bytes are read.

    Args:
        size: of the file, in bytes.

    Raises:
        OversizedError: it is.
    """
    # Whoever has set another limit has imported Pillow; to import it takes as long as to read a batch of files.
    limit: int | None = getattr(sys.modules.get("PIL.Image"), "MAX_IMAGE_PIXELS", MAX_PIXELS)
    if limit is not None and size > _WIDEST_PIXEL * limit:
        raise OversizedError(
            f"an image file of at most {_WIDEST_PIXEL * limit:,} bytes was expected ({_WIDEST_PIXEL} for each of "
            f"{limit:,} pixels), got one of {size:,}: for larger ones set PIL.Image.MAX_IMAGE_PIXELS"
        )


def warn_of_depth() -> None:
    """Warn, once in a process, that values of more than 8 bits lose some."""
    global _warned_of_depth
    if not _warned_of_depth:
        _warned_of_depth = True
        warnings.warn(
            "an image file with more than 8 bits a value becomes 8-bit RGB, as all image files do: to keep its values, "
            "give them as arrays, e.g. np.array(PIL.Image.open(path)) in a dataset's __getitem__, or as .npy files",
            UserWarning,
            stacklevel=2,
        )


def decode(encoded: NDArray[np.uint8], max_pixels: int | None = MAX_PIXELS, upright: bool = True) -> NDArray[np.uint8]:
    """Decode an image file with Pillow: uint8 [H, W, 3], RGB.

    Args:
        encoded: the file, uint8 [n].
        max_pixels: how many pixels its header may promise; None: any number that Pillow allows.
        upright: turn it by its EXIF orientation.

    Raises:
        OversizedError: the header promises more than `max_pixels`, or than Pillow allows.
        OSError, ValueError, SyntaxError: Pillow's, for what it can't read.
    """
    from PIL import ImageOps

    with _opened(encoded, max_pixels) as opened:
        bits: Any = getattr(opened, "tag_v2", {}).get(258, (8,))  # a TIFF file's, of each value
        image = ImageOps.exif_transpose(opened) if upright else opened.copy()
    if image.mode.startswith(("I", "F")) or max(bits) > 8:
        warn_of_depth()
    if image.mode.startswith("I") or image.mode == "F":
        largest, scale = (1, np.float32(255)) if image.mode == "F" else (65535, 1 / 257)
        levels = np.clip(np.nan_to_num(np.asarray(image)), 0, largest) * scale
        grey = np.floor(levels + 0.5).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=2)
    image.info.pop("transparency", None)  # Pillow would warn that it is lost
    return np.array(image.convert("RGB"))


def orientation_of(encoded: NDArray[np.uint8]) -> int:
    """Read an image file's EXIF orientation with Pillow: 1 to 8, where 1 is upright."""
    with _open(encoded) as opened:
        return int(opened.getexif().get(0x0112, 1) or 1)


def size_of(encoded: NDArray[np.uint8]) -> tuple[int, int, int]:
    """Read height and width as they lie in an image file, and its EXIF orientation, with Pillow.

    TIFF files are upright: Pillow turns them by itself, and so do all readers.

    Raises:
        OSError: it is no image file.
    """
    with _open(encoded) as opened:
        orientation = 1 if opened.format == "TIFF" else int(opened.getexif().get(0x0112, 1) or 1)
        return opened.height, opened.width, orientation if orientation in range(1, 9) else 1


def decode_mask(encoded: NDArray[np.uint8], max_pixels: int | None = MAX_PIXELS) -> NDArray[Any]:
    """Decode an image file of ids with Pillow: [H, W], the values as they are, in the file's own rows and columns.

    A palette's indices are its ids, and alpha is dropped.  EXIF orientation is not applied.

    Returns:
        uint8 of 8 bits and palettes, bool of single bits, int32 of 16 and 32 bits, float32 of floats.

    Raises:
        OversizedError: the header promises more than `max_pixels`, or than Pillow allows.
        ValueError: there are colours.
        OSError, SyntaxError: Pillow's, for what it can't read.
    """
    with _opened(encoded, max_pixels) as image:
        mode = image.mode
        values: NDArray[Any] = _deep_colours(encoded) if _deep(image) else np.array(image)
    if values.ndim > 2:
        if values.shape[2] > 2:
            raise ValueError(
                f"a mask of one id per pixel was expected, got an image of the mode {mode}: for a picture write kinds= "
                'with "image"; ids in colours have to be written as ids once, such as R + 256 * G + 65536 * B in .npy '
                "files"
            )
        values = values[..., 0]
    return np.require(values, np.int32 if values.dtype.itemsize == 2 else None, ["C", "W"])


def decode_unchanged(
    encoded: NDArray[np.uint8], max_pixels: int | None = MAX_PIXELS, upright: bool = True
) -> NDArray[Any]:
    """Decode an image file to its own values: [H, W, C], with grey, alpha and 16 bits as they are.

    Palettes are looked up, and CMYK becomes RGB.

    Args:
        encoded: the file, uint8 [n].
        max_pixels: how many pixels its header may promise; None: any number that Pillow allows.
        upright: apply EXIF orientation.

    Returns:
        uint8, uint16, int32 or float32.

    Raises:
        OversizedError: the header promises more than `max_pixels`, or than Pillow allows.
        ValueError: a file of 16 bits in a form that can't be read.
        OSError, SyntaxError: Pillow's, for what it can't read.
    """
    with _opened(encoded, max_pixels) as image:
        mode, deep = image.mode, _deep(image)
        # Pillow turns TIFF files by itself, as every reader of them does.
        orientation = image.getexif().get(274, 1) if upright and image.format != "TIFF" else 1
        if not deep and mode not in ("L", "LA", "RGB", "RGBA") and not mode.startswith(("I", "F")):
            image = image.convert("RGBA" if mode == "PA" or "transparency" in image.info else "RGB")
        values: NDArray[Any] = (
            _deep_colours(encoded) if deep else np.array(image, np.uint16 if mode.startswith("I;16") else None)
        )
    return np.ascontiguousarray(turn(values.reshape(*values.shape[:2], -1), orientation))


def turn(values: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Turn [H, W, ...] upright by an EXIF orientation, 1 to 8; others leave it as it is."""
    if orientation in (5, 6, 7, 8):
        values = values.swapaxes(0, 1)
    if orientation in (3, 4, 7, 8):
        values = values[::-1]
    return values[:, ::-1] if orientation in (2, 3, 6, 7) else values


def _deep_colours(encoded: NDArray[np.uint8]) -> NDArray[np.uint16]:
    """Read 16-bit colours, [H, W, C]: Pillow takes the high bytes, and the low ones where the byte order is swapped."""
    with _open(encoded) as image:
        modes = [tile[3] if isinstance(tile[3], str) else tile[3][0] for tile in image.tile]
        if modes == ["LA;16B"]:
            image._mode = "RGBA"  # four bytes are two values
            _load_as(image, ["RGBA"])
            return np.array(image).view(">u2").astype(np.uint16)
        planes = getattr(image, "tag_v2", {}).get(284, 1)  # 2: a plane for each colour, in TIFF
        if not set(modes) <= set(_SWAPPED) or planes != 1:
            raise ValueError(
                f"an image of 16 bits in this form can't be read ({image.format}, {modes[0]}, planes {planes}): "
                "write it as PNG, or as .npy"
            )
        high = np.array(image).astype(np.uint16)
    with _open(encoded) as image:
        _load_as(image, [_SWAPPED[mode] for mode in modes])
        values: NDArray[np.uint16] = high << 8 | np.asarray(image)
    return values


_SWAPPED = {
    f"{bands};16{order}": f"{bands};16{other}"
    for bands in ("RGB", "RGBA", "RGBX")
    for order, other in ("BL", "LB", "NB" if sys.byteorder == "little" else "NL")
}
"""Pillow's raw modes of 16-bit colours, and those that take the other byte of each value."""


def _load_as(image: Any, modes: Sequence[str]) -> None:
    """Load an image whose bytes stand for other raw modes than its header says."""
    for number, (tile, mode) in enumerate(zip(image.tile, modes, strict=True)):
        arguments = mode if isinstance(tile[3], str) else (mode, *tile[3][1:])
        named = hasattr(tile, "_replace")  # from Pillow 11 on
        image.tile[number] = tile._replace(args=arguments) if named else (*tile[:3], arguments)
    image.load()


@contextmanager
def _opened(encoded: NDArray[np.uint8], max_pixels: int | None) -> Iterator[Any]:
    """Open an image file whose header promises at most `max_pixels`; the errors of both limits are one."""
    from PIL import Image

    try:
        with _open(encoded) as image:
            check_pixels(image.height, image.width, max_pixels)
            yield image
    except Image.DecompressionBombError as error:
        raise OversizedError(f"Pillow's own limit, PIL.Image.MAX_IMAGE_PIXELS, holds too: {error}") from None


def _deep(image: Any) -> bool:
    """Whether an image that is not loaded yet has colours, or alpha, of 16 bits: Pillow gives 8 of them."""
    if image.mode.startswith(("I", "F")):
        return False
    if image.format == "TIFF":
        return bool(max(image.tag_v2.get(258, (8,))) > 8)
    (*_, last), *_ = image.tile or [(None,)]  # Pillow's raw mode; of PPM, with the largest value
    return last[1] > 255 if image.format == "PPM" and isinstance(last, tuple) else ";16" in str(last)


def _open(encoded: NDArray[np.uint8]) -> Any:
    """`PIL.Image.open` without its check of the size, which names neither width nor height, and warns."""
    from PIL import Image, UnidentifiedImageError

    start = encoded[:16].tobytes()
    for load_plugins in (Image.preinit, Image.init):  # the usual formats, then all
        load_plugins()
        for name in Image.ID:
            factory, accept = Image.OPEN[name]
            try:
                accepted = accept is None or accept(start)
                if accepted and not isinstance(accepted, str):  # a text says what is not installed
                    return factory(io.BytesIO(encoded.data), "")
            except (SyntaxError, IndexError, TypeError, struct.error):
                continue
    raise UnidentifiedImageError("Pillow knows no image format that begins like this")


def as_pnm(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Pixels [H, W, 3] as a PNM file (P6), uint8 [n]."""
    height, width, _ = pixels.shape
    return np.concatenate([np.frombuffer(b"P6\n%d %d\n255\n" % (width, height), np.uint8), pixels.ravel()])


def transcode(
    encoded: NDArray[np.uint8], max_pixels: int | None = MAX_PIXELS, upright: bool = True
) -> NDArray[np.uint8]:
    """The same image as a PNM file (P6), uint8 [n]; arguments and errors as those of `decode`."""
    return as_pnm(decode(encoded, max_pixels, upright))


def is_image_file(data: NDArray[np.uint8]) -> bool:
    """Whether bytes begin like an image file of a format that the loader decodes."""
    return _IMAGE_FILES.match(data[:16].tobytes()) is not None
