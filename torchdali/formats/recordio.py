"""MXNet's RecordIO files, and the image records in them.

The format: dmlc-core's recordio.h, and mxnet.recordio.IRHeader for the content of an image's record.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..storage import Bytes, Storage
from .records import RecordFiles, RecordFormat, scan

MAGIC = 0xCED7230A
_PART = struct.Struct("<II")  # magic, cflag << 29 | length
_IMAGE = struct.Struct("<IfQQ")  # number of labels that follow, label, id, second id
LONGEST = (1 << 29) - 1  # bytes of a part
WHOLE, FIRST, MIDDLE, LAST = range(4)  # cflag: a record is cut into parts wherever the magic number occurs in it


def _scan(storage: Storage) -> NDArray[np.int64]:
    flags: list[int] = []

    def walk(window: bytes, base: int) -> list[int]:
        at, ends = 0, []
        while at <= len(window) - _PART.size:
            magic, word = _PART.unpack_from(window, at)
            if magic != MAGIC:
                raise ValueError(f"{storage.path} is not RecordIO at offset {base + at}: {_not_magic(magic)}")
            flags.append(word >> 29)
            end = at + _PART.size + (word & LONGEST)
            at = end + -end % 4
            if base + at > storage.size >= base + end:  # some writers do not pad the last one
                at = storage.size - base
            ends.append(base + at)
        return ends

    bounds = scan(storage, _PART.size, walk)
    kinds = np.array(flags, np.int64)
    goes_on = np.isin(kinds, (FIRST, MIDDLE))
    wrong = (np.isin(kinds, (MIDDLE, LAST)) != np.concatenate([[False], goes_on])[:-1]) | (kinds > LAST)
    if wrong.any():
        part = int(wrong.argmax())
        raise ValueError(
            f"{storage.path} is damaged at offset {bounds[part]}: a part of kind {kinds[part]} can't follow there"
        )
    if goes_on[-1:].any():
        raise ValueError(f"{storage.path} is cut off: the record of several parts at its end has no last one")
    return np.append(bounds[:-1][np.isin(kinds, (WHOLE, FIRST))], bounds[-1])


def _read_index(words: list[bytes], size: int) -> NDArray[np.int64]:
    """Read the bounds from an index of `im2rec`."""
    if len(words) % 2 or not words:
        raise ValueError(f"lines of a number and an offset were expected, got {len(words)} words")
    offsets = np.sort(np.array(words[1::2], np.int64))
    odd = np.append(offsets[0] != 0, np.diff(offsets) < _PART.size) | (offsets % 4 != 0) | (offsets > size - 8)
    if odd.any():
        raise ValueError(f"offsets from 0, multiples of 4 and below {size} were expected, got {offsets[odd.argmax()]}")
    return np.append(offsets, size)


RECORDIO = RecordFormat("recordio1", _scan, _read_index)


def read_images(files: RecordFiles, numbers: Sequence[int]) -> list[Image]:
    """Read image records.

    Raises:
        ValueError: a record is damaged, or holds no image; with its place.
    """
    images = []
    for record in files.read(numbers):
        try:
            images.append(Image.of(whole(record.data)))
        except ValueError as error:
            raise ValueError(f"{record.place}: {error}") from None
    return images


class Image(NamedTuple):
    """The content of an image's record.

    Attributes:
        data: uint8 [n], the image file.
        labels: float32 [k].
        id: the image's number.
        several: the record was written with a list of labels, not with a single label.
    """

    data: Bytes
    labels: NDArray[np.float32]
    id: int
    several: bool

    @classmethod
    def of(cls, content: Bytes) -> Image:
        """Parse a record without its headers; raise ValueError if it holds no image."""
        if len(content) < _IMAGE.size:
            raise ValueError(f"an image's header of {_IMAGE.size} bytes was expected, got {len(content)} bytes")
        count, label, number, _ = _IMAGE.unpack_from(content.data)
        end = _IMAGE.size + 4 * count
        if end > len(content):
            raise ValueError(f"{count} labels were expected in an image's record, got {len(content)} bytes")
        labels = np.frombuffer(content[_IMAGE.size : end].tobytes(), "<f4") if count else np.array([label], "<f4")
        return cls(content[end:], labels.astype(np.float32), number, count > 0)


def whole(data: Bytes) -> Bytes:
    """Give a record's content: its parts put together, without headers and padding.

    Raises:
        ValueError: it is damaged, or is not exactly one record.
    """
    parts: list[Bytes] = []
    at, flag = 0, FIRST
    while flag in (FIRST, MIDDLE):
        if len(data) - at < _PART.size:
            raise ValueError(f"a header of {_PART.size} bytes was expected at byte {at}, got {len(data) - at}")
        magic, word = _PART.unpack_from(data.data, at)
        if magic != MAGIC:
            raise ValueError(f"no record begins at byte {at}: {_not_magic(magic)}")
        before, flag = (flag if at else None), word >> 29
        if flag > LAST or (flag in (MIDDLE, LAST)) != (before is not None):
            raise ValueError(f"a part of kind {flag} can't be at byte {at} of a record")
        begin, size = at + _PART.size, word & LONGEST
        if begin + size > len(data):
            raise ValueError(f"{size} bytes were expected at byte {begin}, got {len(data) - begin}")
        if before is not None:
            parts.append(np.frombuffer(MAGIC.to_bytes(4, "little"), np.uint8))  # the writer cuts it out
        parts.append(data[begin : begin + size])
        at = begin + size + -size % 4
    if at < len(data):
        raise ValueError(f"a record of {at} bytes was expected, got {len(data)}: the index lacks what follows it")
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _not_magic(found: int) -> str:
    return f"the number {MAGIC:#x} was expected, got {found:#x}"
