"""Checks of the arguments of transforms, by torchvision's rules."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch

MODES = ("bilinear", "bicubic", "nearest", "nearest-exact")
_PILLOW_MODES = {0: "nearest", 2: "bilinear", 3: "bicubic"}  # torchvision takes Pillow's constants too


def check_channels(image: Any, channels: int, what: str) -> None:
    """Raise unless a batch of DALI has this number of channels: with others, some operators leave their memory.

    A pipeline's node does not tell; but the same code has run eagerly, on a sample of the data, before it is traced.

    Raises:
        ValueError: it has others.
    """
    if hasattr(image, "evaluate"):
        found = {shape[-1] for shape in image.shape}
        if found != {channels}:
            raise ValueError(f"{what} {channels} channels, and the image {found.pop()}")


def is_integer(value: Any, smallest: int) -> bool:
    """Whether a value is an integer of Python or numpy, no bool, and at least `smallest`."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= smallest


def is_number(value: Any) -> bool:
    """Whether a value is a real number of Python or numpy, and no bool."""
    return isinstance(value, Real) and not isinstance(value, bool)


def size_pair(size: Any, name: str = "size") -> tuple[int, int]:
    """Make (height, width) of torchvision's int, or sequence of one or two.

    Raises:
        ValueError: it is something else, or not positive.
    """
    values = tuple(size) if isinstance(size, Sequence) else (size,)
    values = values * 2 if len(values) == 1 else values
    if len(values) != 2 or not all(is_integer(value, 1) for value in values):
        raise ValueError(f"{name} must be a positive int or (height, width), got {size!r}")
    return int(values[0]), int(values[1])


def mode_name(interpolation: Any) -> str:
    """Give the name of torchvision's InterpolationMode or of Pillow's constant; a name stays as it is.

    Raises:
        ValueError: an unknown one.
    """
    name = getattr(interpolation, "value", interpolation)
    name = _PILLOW_MODES.get(name, name) if isinstance(name, int) else name
    if name not in MODES:
        raise ValueError(f"interpolation must be one of {', '.join(MODES)}, got {interpolation!r}")
    return str(name)


def check_antialias(antialias: Any) -> None:
    """Raise unless it is a value that torchvision takes.

    Raises:
        ValueError: it isn't.
    """
    if antialias is not None and not isinstance(antialias, bool):
        raise ValueError(f"antialias must be True, False or None, got {antialias!r}")


def probability(p: Any) -> None:
    """Raise unless p is a probability.

    Raises:
        ValueError: it isn't.
    """
    if not is_number(p) or not 0 <= p <= 1:
        raise ValueError(f"p must be in [0, 1], got {p!r}")


def number_pair(
    value: Any, name: str, limits: tuple[float, float] = (0, np.inf), what: str = "(low, high)"
) -> tuple[float, float]:
    """Make a pair of floats, (low, high) within `limits`.

    Raises:
        ValueError: it is no pair of numbers, is outside `limits`, or has low > high.
    """
    if not isinstance(value, Sequence) or len(value) != 2 or not all(is_number(number) for number in value):
        raise ValueError(f"{name} must be {what}, got {value!r}")
    if not limits[0] <= value[0] <= value[1] <= limits[1]:
        raise ValueError(f"{name} must have {limits[0]:g} <= low <= high <= {limits[1]:g}, got {value!r}")
    return float(value[0]), float(value[1])


def number_range(
    value: Any, name: str, center: float | None = None, limits: tuple[float, float] = (0, np.inf)
) -> tuple[float, float]:
    """Make (low, high) of torchvision's number or pair.

    Args:
        value: a pair, or a number x that stands for [center - x, center + x] within `limits`, or for [x, x].
        name: for messages.
        center: None: numbers stand for themselves.
        limits: the range of low and high.

    Raises:
        ValueError: it is no number or pair, or is outside `limits`.
    """
    if isinstance(value, Sequence) and len(value) == 1:
        value = value[0]
    if not is_number(value):
        return number_pair(value, name, limits, "a number or (low, high)")
    if not 0 <= value <= (np.inf if center is None else limits[1] - center):
        raise ValueError(f"{name} must be in [0, {limits[1] - (center or 0):g}], got {value!r}")
    return (float(value), float(value)) if center is None else (max(center - value, limits[0]), float(center + value))


def channel_numbers(values: Any, name: str) -> tuple[float, ...]:
    """Make one finite number for each channel.

    Raises:
        ValueError: it is something else.
    """
    numbers = values.tolist() if isinstance(values, (torch.Tensor, np.ndarray)) else values
    if not isinstance(numbers, Sequence) or not numbers or not all(is_number(v) and np.isfinite(v) for v in numbers):
        raise ValueError(f"{name} must be one number for each channel, got {values!r}")
    return tuple(float(number) for number in numbers)
