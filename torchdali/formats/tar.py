"""Tars: finds the files in them by their headers.

The formats: POSIX.1-2008 (ustar and pax), and "Basic Tar Format" in GNU tar's manual.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..storage import CHUNK, Storage, is_remote
from .texts import to_bytes, to_text

BLOCK = 512  # bytes; headers and data begin at multiples of it
WINDOW = 1 << 20  # bytes of a local file that are read at a time
LARGEST_EXTENSION = 1 << 20  # bytes of a name, or of pax records
_FILES, _LINKS, _NO_DATA, _EXTENSIONS = b"0\x007", b"12", b"123456", b"LKxXg"
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}


class _File(NamedTuple):
    """A file or a link in the window that is being read.

    Attributes:
        header: the offset of its header in the window.
        name: its name from an extended header, else None.
        link: it is a link.
    """

    header: int
    name: bytes | None
    link: bool


def scan(tar: Storage, needed: Callable[[bytes], bool]) -> tuple[list[bytes], list[int], list[int]]:
    """Give the names of all regular files of a tar, and their data's offsets and sizes.

    Args:
        tar: the file.
        needed: tells by its name whether a file must be read: a link of that name is an error.

    Raises:
        ValueError: it is damaged, cut off or compressed, or has links or sparse files; with path and offset.
    """
    names: list[bytes] = []
    offsets: list[int] = []
    sizes: list[int] = []
    told: dict[bytes, bytes] = {}  # what extended headers say about the next file
    always: dict[bytes, bytes] = {}  # and about all files that follow
    position, total, ended = 0, tar.size, False
    while not ended:
        begin, largest = position, CHUNK if is_remote(tar.path) else WINDOW
        window = tar.read(begin, max(0, min(largest, total - begin))).tobytes()
        if begin == 0 and (packed := [name for start, name in _PACKED.items() if window.startswith(start)]):
            raise ValueError(f"{tar.path} is compressed ({packed[0]}) and has no random access: decompress it")
        if len(window) < BLOCK:
            raise ValueError(f"{tar.path} is cut off at offset {position}: a tar ends with two blocks of zeros")
        headers: list[int] = []
        files: list[_File] = []
        try:
            while (at := position - begin) <= len(window) - BLOCK:
                if not window[at] and window.count(0, at, at + BLOCK) == BLOCK:
                    ended = True
                    break
                headers.append(at)
                kind, data = window[at + 156], position + BLOCK
                size = _number(window[at + 124 : at + 136])
                if kind in _EXTENSIONS:
                    if size > LARGEST_EXTENSION:
                        raise ValueError(f"a name or pax records of at most 1 MiB were expected, got {size} bytes")
                    more = window[at + BLOCK : at + BLOCK + size]
                    if len(more) < size:
                        more = tar.read(data, size).tobytes()
                    if kind in b"L":
                        told.setdefault(b"path", more.partition(b"\0")[0])
                    elif kind in b"g":
                        always |= _pax(more)
                    elif kind in b"xX":
                        told = _pax(more) | told
                else:
                    if told or always:
                        told = always | told
                        size = int(told.get(b"size", size))
                    if kind in b"S" or any(key.startswith(b"GNU.sparse.") for key in told):
                        raise ValueError("sparse files can't be read: pack it again without --sparse")
                    if kind == 0 and _name(window, at).endswith(b"/"):
                        kind = ord("5")  # a folder, as it was written before there were types
                    if kind in _FILES:
                        offsets.append(data)
                        sizes.append(size)
                    if kind in _FILES or kind in _LINKS:
                        files.append(_File(at, told.get(b"path"), kind in _LINKS))
                    if kind in _NO_DATA:
                        size = 0
                    told = {}
                if not 0 <= size <= total - data:
                    raise ValueError(f"{size} bytes of data were expected, got {total - data}: the tar is cut off")
                position = data + -(-size // BLOCK) * BLOCK
            if ended and told:
                raise ValueError("a file was expected after its extended header, got the tar's end")
            found = _names(window, files, needed)
        except ValueError as error:
            # If a checksum is wrong, here or before, it explains any other fault.
            _check(tar, window, begin, headers)
            raise ValueError(f"in {tar.path} at offset {position}: {error}") from None
        _check(tar, window, begin, headers)
        names += found
    if tar.read(position, min(total - position, CHUNK)).any():
        raise ValueError(f"{tar.path} goes on after its end at offset {position}: joined tars must be packed again")
    return names, offsets, sizes


def _number(field: bytes) -> int:
    """Parse a header's number: octal digits, or GNU tar's big-endian bytes after a set bit."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.partition(b"\0")[0].strip()
    if digits.isdigit() or not digits:
        return int(digits or b"0", 8)
    raise ValueError(f"an octal number was expected, got {field!r}")


_PAX_KEYS = re.compile(rb" (path|size|GNU\.sparse\.[^=]+)=")


def _pax(records: bytes) -> dict[bytes, bytes]:
    """Parse what pax records say about path, size and sparse files."""
    said: dict[bytes, bytes] = {}
    at = 0
    if not _PAX_KEYS.search(records):
        return said  # the usual case: records with nothing but a time with fractions
    while records[at : at + 1] not in (b"", b"\0"):
        digits, space, _ = records[at : at + 20].partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        key, equals, value = records[at + len(digits) + 1 : at + length - 1].partition(b"=")
        if not space or not equals or records[at + length - 1 : at + length] != b"\n":
            raise ValueError(f"a pax record 'length key=value' was expected, got {records[at : at + 40]!r}")
        if key in (b"path", b"size") or key.startswith(b"GNU.sparse."):
            said[key] = value
        at += length
    return said


def _name(window: bytes, at: int) -> bytes:
    """Parse the name in a header."""
    name = window[at : at + 100].partition(b"\0")[0]
    if window[at + 345] and window[at + 257 : at + 263] == b"ustar\0":  # GNU tar has other things there
        return window[at + 345 : at + 500].partition(b"\0")[0] + b"/" + name
    return name


def _names(window: bytes, files: list[_File], needed: Callable[[bytes], bool]) -> list[bytes]:
    """Give the names of a window's files, without the links."""
    names = []
    for header, told, link in files:
        name = _name(window, header) if told is None else told
        if not link:
            names.append(name)
        elif needed(name):
            raise ValueError(
                f"a file was expected, got the link {to_text(name)!r}: pack it again with tar's "
                "--dereference --hard-dereference"
            )
    return names


def _check(tar: Storage, window: bytes, begin: int, headers: list[int]) -> None:
    """Check the checksums of headers, all at once: ten times faster.  Raise ValueError for the first wrong one."""
    if not headers:
        return
    blocks = np.frombuffer(window, np.uint8)[np.add.outer(headers, np.arange(BLOCK))]
    fields = blocks[:, 148:156].copy()
    blocks[:, 148:156] = ord(" ")
    sums = blocks.sum(axis=1, dtype=np.int64)
    digits = fields[:, :6].astype(np.int64) - ord("0")
    usual = ((digits >= 0) & (digits < 8)).all(axis=1) & np.isin(fields[:, 6], (0, ord(" ")))
    usual &= digits @ (8 ** np.arange(5, -1, -1)) == sums
    for row in np.flatnonzero(~usual):
        try:
            right = _number(fields[row].tobytes()) in (sums[row], blocks[row].view(np.int8).sum(dtype=np.int64))
        except ValueError:
            right = False
        if not right:
            where = f"at offset {begin + headers[row]} of {tar.path}"
            raise ValueError(f"a tar header was expected {where}, got bytes with a wrong checksum")


def check_header(tar: Storage, offset: int, header: bytes, key: str, endings: list[str], size: int) -> None:
    """Check that the header before a part's data belongs to that part.

    Raises:
        ValueError: it belongs to another part, or is no header.
    """
    _check(tar, header, offset, [0])
    names = {to_bytes(f"{key}.{ending}").lower() for ending in endings}
    # After an extended header, the name in the header is cut off to fit, and in some tars is ASCII only.
    names |= {name[:100] for name in names} | {_NOT_ASCII.sub(b"?", name)[:100] for name in names}
    if header[156] not in _FILES or _number(header[124:136]) != size or _name(header, 0).lower() not in names:
        why = "wds2idx takes long names for files" if header[156] in _EXTENSIONS else "the index is not this tar's"
        what = f"{key}.{';'.join(endings)} with {size} bytes"
        raise ValueError(f"the header of {what} was expected at offset {offset}, got another: {why}")


_NOT_ASCII = re.compile(rb"[\xc0-\xff][\x80-\xbf]*")  # one character
