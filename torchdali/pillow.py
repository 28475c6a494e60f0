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
"""

from __future__ import annotations

import io
import re
import struct
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_PIXELS = 89_478_485  # PIL.Image.MAX_IMAGE_PIXELS: a quarter of a GiB as RGB

_IMAGE_FILES = re.compile(
    rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|BM|II\*\x00|MM\x00\*|RIFF....WEBP|P[1-6]\s|GIF8[79]a"
    rb"|\0\0\0\x0cjP  |\xff\x4f\xff\x51",
    re.DOTALL,
)
_warned_of_depth = False


class OversizedError(ValueError):
    """The header of an image promises more pixels than is allowed."""


def check_pixels(height: int, width: int, max_pixels: int | None) -> None:
    """Raise where a header promises more pixels than `max_pixels`; None: any number is fine.

    Raises:
        OversizedError: it does.
    """
    if max_pixels is not None and height * width > max_pixels:
        raise OversizedError(
            f"an image of at most {max_pixels} pixels was expected, got a header of width {width} and height {height}: "
            "for larger ones set the loader's max_pixels, and PIL.Image.MAX_IMAGE_PIXELS for a dataset's own samples"
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


def decode(encoded: NDArray[np.uint8], max_pixels: int | None = MAX_PIXELS) -> NDArray[np.uint8]:
    """Decode an image file with Pillow: uint8 [H, W, 3], RGB.

    Args:
        encoded: the file, uint8 [n].
        max_pixels: how many pixels its header may promise; None: any number that Pillow allows.

    Raises:
        OversizedError: the header promises more than `max_pixels`, or than Pillow allows.
        OSError, ValueError, SyntaxError: Pillow's, for what it can't read.
    """
    from PIL import Image, ImageOps

    try:
        with _open(encoded) as opened:
            check_pixels(opened.height, opened.width, max_pixels)
            bits: Any = getattr(opened, "tag_v2", {}).get(258, (8,))  # a TIFF file's, of each value
            image = ImageOps.exif_transpose(opened)
    except Image.DecompressionBombError as error:
        raise OversizedError(f"Pillow's own limit, PIL.Image.MAX_IMAGE_PIXELS, holds too: {error}") from None
    if image.mode.startswith(("I", "F")) or max(bits) > 8:
        warn_of_depth()
    if image.mode.startswith("I") or image.mode == "F":
        largest, scale = (1, np.float32(255)) if image.mode == "F" else (65535, 1 / 257)
        levels = np.clip(np.nan_to_num(np.asarray(image)), 0, largest) * scale
        grey = np.floor(levels + 0.5).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=2)
    image.info.pop("transparency", None)  # Pillow would warn that it is lost
    return np.array(image.convert("RGB"))


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


def transcode(encoded: NDArray[np.uint8], max_pixels: int | None = MAX_PIXELS) -> NDArray[np.uint8]:
    """The same image as a PNM file (P6), uint8 [n]; errors as `decode`."""
    return as_pnm(decode(encoded, max_pixels))


def is_image_file(data: NDArray[np.uint8]) -> bool:
    """Whether bytes begin like an image file of a format that the loader decodes."""
    return _IMAGE_FILES.match(data[:16].tobytes()) is not None
