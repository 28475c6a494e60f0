"""Image files that DALI refuses and Pillow opens.

Such a file is decoded here and handed to DALI as a PNM file, which is its pixels behind a short header.  So everything
downstream (windows, GPUs, both engines) goes on as for any file.  What comes out is what DALI gives for the files that
it reads:

    orientation  EXIF orientation is applied
    grey         repeated into R, G and B
    alpha        dropped, and the colours behind it are kept
    palette      looked up; a transparent entry keeps its colour
    CMYK         converted without a colour profile; one level of rounding may differ
    16 bit       grey: value / 257, rounded; colours: their high byte, all that Pillow reads, so one level may differ
    float        value * 255, rounded, cut off below 0 and above 255
    animation    the first frame
"""

from __future__ import annotations

import io
import re
import struct

import numpy as np
from numpy.typing import NDArray

# Everything else goes to Pillow at once: GIF, which DALI refuses, and JPEG 2000, on which DALI 2.4.0 can crash.
_KNOWN_TO_DALI = re.compile(rb"\xff\xd8\xff|\x89PNG\r\n\x1a\n|BM|II\*\x00|MM\x00\*|RIFF....WEBP|P[56]\s", re.DOTALL)
_IMAGE_FILES = re.compile(_KNOWN_TO_DALI.pattern + rb"|GIF8[79]a|\0\0\0\x0cjP  |\xff\x4f\xff\x51|P[1-4]\s", re.DOTALL)


def readable(encoded: NDArray[np.uint8]) -> bool:
    """Whether DALI may be given this file, by its first bytes.  It may still refuse it."""
    start = encoded[:16].tobytes()
    if _KNOWN_TO_DALI.match(start) is None:
        return False
    return start[:2] not in (b"II", b"MM") or _tiff_samples(encoded) != 2


def _tiff_samples(encoded: NDArray[np.uint8]) -> int:
    """Numbers a pixel in a TIFF file's first image; of grey and alpha, DALI 2.4.0 silently takes two for three."""
    data = encoded.data
    order = "<" if data[0] == ord("I") else ">"
    try:
        (at,) = struct.unpack_from(order + "I", data, 4)
        (entries,) = struct.unpack_from(order + "H", data, at)
        for entry in range(at + 2, at + 2 + 12 * entries, 12):
            tag, value = struct.unpack_from(order + "H6xH", data, entry)
            if tag == 277:  # SamplesPerPixel
                return int(value)
    except struct.error:
        pass  # a damaged file: the decoder says so
    return 1


def decode(encoded: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Decode an image file with Pillow: uint8 [H, W, 3], RGB.

    Raises:
        OSError, ValueError, SyntaxError: Pillow's, for what it can't read.
        PIL.Image.DecompressionBombError: the header promises over 179 million pixels.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        opened = Image.open(io.BytesIO(encoded.data))
    except UnidentifiedImageError:
        # Pillow's own sentence holds an address.
        raise UnidentifiedImageError("Pillow knows no image format that begins like this") from None
    with opened:
        image = ImageOps.exif_transpose(opened)
    if image.mode.startswith("I") or image.mode == "F":
        largest, scale = (1, np.float32(255)) if image.mode == "F" else (65535, 1 / 257)
        levels = np.clip(np.nan_to_num(np.asarray(image)), 0, largest) * scale
        grey = np.floor(levels + 0.5).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=2)
    image.info.pop("transparency", None)  # Pillow would warn that it is lost
    return np.array(image.convert("RGB"))


def transcode(encoded: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The same image as a PNM file (P6), uint8 [n]; errors as `decode`."""
    pixels = decode(encoded)
    height, width, _ = pixels.shape
    return np.concatenate([np.frombuffer(b"P6\n%d %d\n255\n" % (width, height), np.uint8), pixels.ravel()])


def is_image_file(data: NDArray[np.uint8]) -> bool:
    """Whether bytes begin like an image file of a format that the loader decodes."""
    return _IMAGE_FILES.match(data[:16].tobytes()) is not None
