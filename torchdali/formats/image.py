"""Image files on their way to DALI: as they are where it decodes them to the right pixels, else as Pillow's pixels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..pillow import MAX_PIXELS, as_pnm, check_pixels, decode, orientation_of, size_of, warn_of_depth
from .headers import Bytes, read_header
from .headers.header import Header


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
