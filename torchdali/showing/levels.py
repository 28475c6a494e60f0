"""Brings pixels back to the range that a screen shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..transforms import Normalize

Numbers = tuple[float, ...]


def normalizers(steps: Sequence[Any]) -> list[tuple[Numbers, Numbers]]:
    """Find (mean, std) of each normalisation in a transform, in their order.

    It may be torchdali's, or one of torchvision or Albumentations inside of a `PerSample`.
    """
    return [
        (_numbers(one.mean), _numbers(one.std))
        for step in steps
        for one in _inside(step)
        if type(one).__name__ == "Normalize" and hasattr(one, "mean") and hasattr(one, "std")
    ]


def _inside(step: Any) -> Iterator[Any]:
    """Give a step, or the steps inside of it."""
    if isinstance(step, Normalize):
        yield step
        return
    inner = getattr(step, "function", None) or getattr(step, "func", None)
    parts = getattr(step, "transforms", None)
    if parts is not None and not isinstance(parts, (str, bytes)):
        for part in parts:
            yield from _inside(part)
    elif inner is not None and inner is not step:
        yield from _inside(inner)
    else:
        yield step


def _numbers(value: Any) -> Numbers:
    return tuple(float(number) for number in np.ravel(np.asarray(value)))


def undo(pixels: NDArray[Any], normal: Sequence[tuple[Numbers, Numbers]]) -> NDArray[Any]:
    """Undo normalisations, the last one first.

    Args:
        pixels: [..., C].
        normal: (mean, std) of each.
    """
    for mean, std in reversed(normal):
        if len(mean) not in (1, pixels.shape[-1]):
            continue  # of another field
        pixels = pixels * np.asarray(std, np.float32) + np.asarray(mean, np.float32)
    return pixels


def limits(pictures: Sequence[NDArray[Any]], normalized: bool) -> tuple[float, float]:
    """Find the values that black and white stand for.

    Args:
        pictures: all that are shown of a field, of any dtype.
        normalized: they were normalised, and that was undone.
    """
    if not pictures or not sum(picture.size for picture in pictures):
        return 0.0, 1.0
    if pictures[0].dtype == np.uint8:
        return 0.0, 255.0
    if pictures[0].dtype == np.bool_:
        return 0.0, 1.0
    finite = [values for picture in pictures if (values := picture[np.isfinite(picture)]).size]
    # Erased parts of normalised pictures hold noise of any range.
    ends = (1.0, 99.0) if normalized else (0.0, 100.0)
    low = min((float(np.percentile(values, ends[0])) for values in finite), default=0.0)
    high = max((float(np.percentile(values, ends[1])) for values in finite), default=1.0)
    floating = pictures[0].dtype.kind == "f"
    if floating and (normalized or low >= -0.01) and high <= 1.5:
        return 0.0, 1.0
    if low >= -0.5 and 1.5 < high <= 255.5:
        return 0.0, 255.0
    return low, high if high > low else low + 1


def to_screen(pixels: NDArray[Any], low: float, high: float) -> NDArray[np.float32]:
    """Map values to [0, 1], and channels to three: [..., H, W, 3] of [..., H, W, C].

    Grey is repeated, a fourth channel is left out, and of two or more than four channels the first is shown.
    """
    pixels = pixels[..., :3] if pixels.shape[-1] in (3, 4) else np.repeat(pixels[..., :1], 3, -1)
    scaled = (pixels.astype(np.float32) - low) / (high - low)
    screen: NDArray[np.float32] = np.nan_to_num(scaled.clip(0, 1))
    return screen
