"""The shared library of the kernels in C."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
from pathlib import Path

from .build import BUILT, FLAGS, FOLDER, SOURCES, compile_library

LAST = "torchdali_blurs"
"""A function that libraries of older sources lack."""


@functools.cache
def library() -> ctypes.CDLL | None:
    """Load the kernels: those that the package was built with, or else compile them into the user's cache, once.

    None: `TORCHDALI_NATIVE=0`, or they can't be had here; torch's kernels give the same bits.
    """
    if os.environ.get("TORCHDALI_NATIVE") == "0":
        return None
    path = FOLDER / BUILT
    if not path.exists():
        if not all(source.exists() for source in SOURCES):
            return None
        path = _cached()
        if not path.exists() and not _compiled(path):
            return None
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError:
        return None
    return loaded if hasattr(loaded, LAST) else None


def _cached() -> Path:
    """Where the library of these sources lies in the user's cache."""
    text = b"".join(source.read_bytes() for source in SOURCES) + " ".join((*FLAGS, os.uname().machine)).encode()
    folder = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(folder, "torchdali", f"kernels-{hashlib.sha256(text).hexdigest()[:16]}.so")


def _compiled(path: Path) -> bool:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return compile_library(path)
