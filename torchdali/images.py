"""Image files that DALI refuses and Pillow opens.

Such a file is decoded here and handed to DALI as a PNM file, which is its pixels behind a short header.  So everything
downstream (windows, GPUs, both engines) goes on as for any file.  What comes out is what DALI gives for the files that
it reads:

    orientation  EXIF orientation is applied
    grey         repeated into R, G and B
    alpha        dropped, and the colours behind it are kept
    palette      looked up; a transparent entry keeps its colour
    CMYK         converted by Pillow without a colour profile
    16 bit       value / 257, rounded
    animation    the first frame
"""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray


def decode(encoded: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Decode an image file with Pillow: uint8 [H, W, 3], RGB.

    Raises:
        OSError, ValueError, SyntaxError: Pillow's, for what it can't read.
        PIL.Image.DecompressionBombError: the header promises over 179 million pixels.
    """
    from PIL import Image, ImageOps

    with Image.open(io.BytesIO(encoded)) as opened:
        image = ImageOps.exif_transpose(opened)
        if image.mode.startswith("I"):
            deep = np.clip(np.asarray(image).astype(np.int64), 0, 65535)
            return np.repeat(((deep * 2 + 257) // 514).astype(np.uint8)[..., None], 3, axis=2)
        if image.mode in ("RGBA", "RGBX", "LA"):
            bands = image.split()[: 3 if image.mode.startswith("RGB") else 1]
            image = Image.merge("RGB", bands if len(bands) == 3 else bands * 3)
        return np.array(image.convert("RGB"))


def transcode(encoded: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The same image as a PNM file (P6), uint8 [n]; errors as `decode`."""
    pixels = decode(encoded)
    height, width, _ = pixels.shape
    return np.concatenate([np.frombuffer(b"P6\n%d %d\n255\n" % (width, height), np.uint8), pixels.ravel()])
