"""Digests of samples, by which a replay is verified."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch

from ..fingerprint import digest

_EDGE = 64  # values at each end of an array, and bytes, that count


_WHOLE = frozenset([int, float, str, bool, type(None)])


def digest_of(samples: Iterable[Any]) -> str:
    """Digest samples by their numbers, their texts, and the ends of their arrays and bytes: in microseconds each.

    Of other values only the type counts: they may be equal and have other representations.
    """
    return digest(*map(_ends, samples))


def _ends(value: Any) -> Any:
    """Cut a value's arrays and bytes down to what counts of them."""
    if type(value) in _WHOLE:
        return value
    if isinstance(value, torch.Tensor):
        flat = value.detach().reshape(-1)
        ends = torch.cat([flat[:_EDGE], flat[-_EDGE:]]).cpu()
        return list(value.shape), str(value.dtype), ends.view(torch.uint8) if not ends.is_complex() else ends
    if isinstance(value, (np.ndarray, np.generic)) and not value.dtype.hasobject:
        array = np.asarray(value).reshape(-1)
        return list(np.shape(value)), array[:_EDGE], array[-_EDGE:]
    if isinstance(value, (bytes, bytearray)):
        return len(value), value[:_EDGE], value[-_EDGE:]
    if isinstance(value, Mapping):
        return [(_ends(key), _ends(part)) for key, part in value.items()]
    if isinstance(value, (tuple, list)):
        return [part if type(part) in _WHOLE else _ends(part) for part in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [_ends(getattr(value, field.name)) for field in dataclasses.fields(value)]
    # An image of Pillow may not be loaded yet.
    return (value.size, value.mode) if hasattr(value, "mode") and hasattr(value, "size") else value
