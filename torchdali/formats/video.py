"""Lists of video files, and the sizes in their containers' headers (Matroska, WebM, AVI, MP4 and MOV)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from .files import check_no_mark


class Entry(NamedTuple):
    """A video file, or a part of it.

    Attributes:
        where: its place in a list, for messages.
        path: the file.
        label: its label.
        line: its line of `file_list`.
    """

    where: str
    path: str
    label: int
    line: str = ""

    @property
    def part(self) -> str:
        """The start and end in its line, as they are written."""
        return " ".join(self.line.split()[2:])


def read_list(path: str) -> Iterator[Entry]:
    """Read the lines of a `file_list`.

    Raises:
        ValueError: a line that DALI would misread.
    """
    check_no_mark(path)
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        for number, line in enumerate(file, 1):
            parts = line.split()
            if not parts:
                continue
            is_label = len(parts) > 1 and parts[1].isdecimal() and len(parts[1]) < 19
            if not 2 <= len(parts) <= 4 or not is_label or not all(map(_is_number, parts[2:])):
                raise ValueError(
                    f'{path}, line {number}: expected "path label [start [end]]", of a path without blanks, an integer '
                    f"from 0 and numbers, got {line.strip()!r:.200}"
                )
            yield Entry(f"{parts[0]} (line {number})", parts[0], int(parts[1]), " ".join(parts))


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def check_whole(path: str, file: BinaryIO, end: int) -> None:
    """Check that a file is as long as its container says; decoders would read what is left of a shorter one.

    Args:
        path: the file's, for messages.
        file: the file, at its beginning.
        end: its size in bytes.

    Raises:
        ValueError: it is shorter, with the offset of the part that is cut off.
    """
    head = file.read(12)
    matroska = head[:4] == b"\x1a\x45\xdf\xa3"
    if not (matroska or (head[:4] == b"RIFF" and head[8:] == b"AVI ") or head[4:8] in _ATOMS):
        return
    read = _element if matroska else _chunk if head[:4] == b"RIFF" else _atom
    start = 0
    while start < end:
        file.seek(start)
        size = read(file.read(16))
        if size is None:  # to the end, or unknown
            return
        if start + size > end:
            raise ValueError(f"{path}, byte {start}: {size} bytes were expected, got {end - start}: cut off")
        start += size


_ATOMS = frozenset(b"ftyp moov mdat wide free skip pnot moof mfra sidx styp uuid meta udta emsg prft".split())


def _element(head: bytes) -> int | None:
    """Read the size in bytes of a Matroska element; the first set bits tell the lengths of its id and its size."""
    if len(head) < 16 or not head[0]:
        return None
    start = 9 - head[0].bit_length()
    length = 9 - head[start].bit_length()
    if length > 8 or start > 4:
        return None
    unknown = (1 << 7 * length) - 1
    size = int.from_bytes(head[start : start + length], "big") & unknown
    return None if size == unknown else start + length + size


def _chunk(head: bytes) -> int | None:
    """Read the size in bytes of a RIFF chunk."""
    size = int.from_bytes(head[4:8], "little")
    return None if head[:4] != b"RIFF" or size in (0, 0xFFFFFFFF) else 8 + size + size % 2


def _atom(head: bytes) -> int | None:
    """Read the size in bytes of an atom of MP4 and MOV."""
    size = int.from_bytes(head[:4], "big")
    size = int.from_bytes(head[8:16], "big") if size == 1 else size
    return size if size >= 8 and head[4:8] in _ATOMS else None
