"""Decodes the files that DALI does not: pictures that keep their own values, sound and video."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..kinds import Audio, Image, Kind, Video, Volume
from ..pillow import decode, decode_unchanged
from .audio import decode_audio
from .clips import decode_clip


def on_host(kind: Kind) -> bool:
    """Whether a field's files are decoded on the host, before the transform: all but RGB pictures and masks."""
    return (
        kind.encoded
        and (kind.pixels or not kind.spatial)
        and not (isinstance(kind, Image) and kind.mode in (None, "RGB"))
    )


def decode_value(kind: Kind, data: NDArray[np.uint8], max_pixels: int | None) -> NDArray[Any]:
    """Decode one file: pictures to [H, W, C], sound to [channels, samples], video to [F, H, W, 3].

    Raises:
        OSError, RuntimeError, ValueError, SyntaxError: the decoder's errors.
    """
    if isinstance(kind, Audio):
        return decode_audio(data, kind.rate, kind.channels)
    if isinstance(kind, Video):
        return decode_clip(data, kind.frames, kind.stride, max_pixels)
    if isinstance(kind, Image):
        upright = kind.exif is not False
        if kind.mode == "unchanged":
            return decode_unchanged(data, max_pixels, upright)
        from PIL import Image as Picture

        return np.array(Picture.fromarray(decode(data, max_pixels, upright)).convert("L"))[..., None]
    raise AssertionError(kind)  # `check_files` has refused it


def check_files(kinds: Mapping[str, Kind]) -> None:
    """Raise where a field holds files that nothing decodes.

    Raises:
        ValueError: it says what to write.
    """
    for name, kind in kinds.items():
        if isinstance(kind, Volume) and kind.encoded:
            raise ValueError(
                f"{name!r} holds files of the kind volume, which are not decoded: write .npy files, which are arrays"
            )
