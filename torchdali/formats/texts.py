"""Strings in files: names of any bytes, and many strings in one array."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray


def to_text(raw: bytes) -> str:
    """Decode a name; bytes that are not UTF-8 are escaped as Python does for paths."""
    return raw.decode("utf-8", "surrogateescape")


def to_bytes(text: str) -> bytes:
    """Encode a name; the inverse of `to_text`."""
    return text.encode("utf-8", "surrogateescape")


class Texts:
    """Many short strings in one array of bytes, by index: a list would take ten times the memory.

    Attributes:
        blob: uint8 [n], all strings, one after the other.
        ends: int64 [count], where each one ends.
    """

    def __init__(self, blob: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self.blob, self.ends = blob, ends

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> Texts:
        """Put encoded strings together."""
        parts = list(texts)
        ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        return cls(np.frombuffer(b"".join(parts), np.uint8), ends)

    @classmethod
    def joined(cls, parts: Sequence[Texts]) -> Texts:
        """Join the strings of several, in their order."""
        before = np.cumsum([0, *(len(part.blob) for part in parts[:-1])])
        ends = [part.ends + start for part, start in zip(parts, before, strict=True)]
        return cls(np.concatenate([part.blob for part in parts]), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> str:
        """Decode the string of an index, which is not negative."""
        begin = int(self.ends[index - 1]) if index else 0
        return to_text(self.blob[begin : int(self.ends[index])].tobytes())

    def take(self, indices: Iterable[int]) -> Texts:
        """Choose some of the strings."""
        begins = self.ends - np.diff(self.ends, prepend=0)
        return Texts.of(self.blob[begins[i] : self.ends[i]].tobytes() for i in indices)
