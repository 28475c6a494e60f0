"""A pickler whose bytes plain pickle can't read, and which takes keywords."""

from __future__ import annotations

import zlib
from typing import Any

import cloudpickle


def dumps(value: Any, level: int = 1, mark: bytes = b"?") -> bytes:
    return mark + zlib.compress(cloudpickle.dumps(value), level)


def loads(data: bytes, mark: bytes = b"?") -> Any:
    assert data[:1] == mark, data[:1]
    return cloudpickle.loads(zlib.decompress(data[1:]))
