"""Decodes the files that DALI does not: pictures that keep their own values, and sound."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..formats.audio import decode_audio
from ..kinds import Audio, Image, Kind
from ..pillow import decode, decode_unchanged


def on_host(kind: Kind) -> bool:
    """Whether a field's files are decoded on the host, before the transform: all but RGB pictures, and masks."""
    return kind.encoded and (kind.pixels or not kind.spatial) and not (isinstance(kind, Image) and kind.mode == "RGB")


def decode_value(kind: Kind, data: NDArray[np.uint8], max_pixels: int | None) -> NDArray[Any]:
    """Decode one file: pictures to [H, W, C], sound to [channels, samples].

    Raises:
        OSError, RuntimeError, ValueError, SyntaxError: the decoder's errors.
    """
    if isinstance(kind, Audio):
        return decode_audio(data, kind.rate, kind.channels)
    if isinstance(kind, Image):
        upright = kind.exif is not False
        if kind.mode == "unchanged":
            return decode_unchanged(data, max_pixels, upright)
        rgb = decode(data, max_pixels, upright)
        return rgb[..., :1] if kind.mode == "RGB" else grey(rgb)
    raise NotImplementedError(f"files of the kind {kind} can't be decoded yet")


def grey(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Make grey of RGB as Pillow does: [H, W, 1]."""
    weights = np.array([19595, 38470, 7471], np.uint32)
    return ((rgb.astype(np.uint32) @ weights + 0x8000) >> 16).astype(np.uint8)[..., None]
