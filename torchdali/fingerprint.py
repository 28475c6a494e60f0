"""Short fingerprints of data: of values, and of files by their names."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch


def digest(*values: Any) -> str:
    """Give a short fingerprint of plain values, the same in every process: anything else counts by its type alone."""
    hasher = hashlib.blake2b(digest_size=8)

    def add(data: bytes) -> None:
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)

    def feed(value: Any) -> None:
        add(type(value).__qualname__.encode())
        if isinstance(value, str):
            add(value.encode("utf-8", "surrogatepass"))  # paths may hold any bytes
        elif isinstance(value, (bytes, bytearray, memoryview)):
            add(bytes(value))
        elif isinstance(value, (np.ndarray, np.generic, torch.Tensor)):
            host = value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else value
            array = np.ascontiguousarray(host)
            add(f"{array.dtype} {np.shape(value)}".encode())
            if array.dtype.hasobject:
                feed(array.tolist())
            else:
                add(array.tobytes())
        elif isinstance(value, (int, float, complex)):
            add(repr(value).encode())
        elif isinstance(value, Mapping):
            feed(list(value.items()))
        elif isinstance(value, (list, tuple)):
            add(str(len(value)).encode())
            for item in value:
                feed(item)

    feed(values)
    return hasher.hexdigest()


def below_common_folder(paths: Sequence[str]) -> list[str]:
    """Give the paths without the folder that all of them are in, so that it may move."""
    # The beginning that the first and the last name share, all share.
    first, last = min(paths), max(paths)
    shared = next((i for i, (a, b) in enumerate(zip(first, last)) if a != b), len(first))
    start = first.rfind("/", 0, shared) + 1
    return [path[start:] for path in paths]


def files_digest(paths: Sequence[str], *more: Any) -> str:
    """Give the digest of files by their names below their common folder, in order, and of other values."""
    return digest("\0".join(below_common_folder(paths)), *more)


def portable(options: Mapping[str, Any]) -> dict[str, Any]:
    """Give options, sorted by name, in which paths count without their common folder, which may move."""

    def strip(value: Any) -> Any:
        if isinstance(value, str) and os.sep in value:
            return os.path.basename(value.rstrip(os.sep))
        if isinstance(value, list) and value and all(isinstance(item, str) and os.sep in item for item in value):
            shared = os.path.commonpath([os.path.dirname(item) for item in value])
            return [os.path.relpath(item, shared) for item in value]
        return value

    return {name: strip(value) for name, value in sorted(options.items())}
