"""TFRecord files: records with checksums.

The format: tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..storage import Bytes, Storage
from .records import RecordFiles, RecordFormat, scan

Checksum = Callable[[bytes], int]

_HEADER = struct.Struct("<QI")  # length, its checksum; the record's checksum follows the data
_AROUND = 16  # bytes of a record besides its data


def _scan(storage: Storage) -> NDArray[np.int64]:
    def walk(window: bytes, base: int) -> list[int]:
        at, lengths, sums, ends = 0, [], [], []
        while at <= len(window) - _HEADER.size:
            length, crc = _HEADER.unpack_from(window, at)
            lengths.append(length)
            sums.append(crc)
            at += length + _AROUND
            ends.append(base + at)
        wrong = length_checksums(lengths) != np.array(sums, np.uint32)
        if wrong.any():
            number = int(wrong.argmax())
            begin = ends[number - 1] if number else base
            raise ValueError(f"{storage.path} is not a TFRecord at offset {begin}: {_not_a_header(window, begin)}")
        return ends

    return scan(storage, _HEADER.size, walk)


def _read_index(words: list[bytes], size: int) -> NDArray[np.int64]:
    """Read the bounds from an index of DALI's `tfrecord2idx`."""
    if len(words) % 2:
        raise ValueError(f"lines of an offset and a size were expected, got {len(words)} words")
    table = np.array(words, np.int64).reshape(-1, 2)
    bounds = np.append(table[:, 0], size)
    wrong = np.append(bounds[0] != 0, bounds[1:] != table.sum(axis=1)) | np.append(table[:, 1] < _AROUND, False)
    if wrong.any():
        raise ValueError(
            f"records one after the other from 0 to {size} were expected, line {int(wrong.argmax()) or 1} is not"
        )
    return bounds


TFRECORD = RecordFormat("tfrecord1", _scan, _read_index)


def read_records(
    files: RecordFiles, numbers: Sequence[int], checksum: Checksum | None = None
) -> list[tuple[str, Bytes]]:
    """Yield the place and the data (uint8 [n]) of records.

    Args:
        files: in this format.
        numbers: the records'.
        checksum: computes the checksum of data, to compare it; None: compare only the lengths' checksums.

    Raises:
        ValueError: a record is damaged, or its index is wrong.
    """
    records = list(files.read(numbers))
    heads = [_HEADER.unpack_from(record.data.data) for record in records]
    sums = length_checksums([length for length, _ in heads])
    found = []
    for (data, place), (length, crc), expected in zip(records, heads, sums.tolist(), strict=True):
        if crc != expected or length != len(data) - _AROUND:
            raise ValueError(
                f"{place} is damaged, or its index is wrong: a length of {len(data) - _AROUND} with its checksum "
                f"was expected, got {length}{'' if crc == expected else ' with another'}"
            )
        content = data[_HEADER.size : -4]
        if checksum is not None and masked(checksum(content.tobytes())) != int(data[-4:].view("<u4")[0]):
            raise ValueError(f"{place} is damaged: its checksum is another")
        found.append((place, content))
    return found


# Checksums: CRC-32C, masked because a file may hold files that contain checksums.

_POLYNOMIAL = 0x82F63B78


def _crc_table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


_TABLE = _crc_table()


def length_checksums(lengths: Sequence[int]) -> NDArray[np.uint32]:
    """Give the masked checksums of records' lengths, uint32 [n]."""
    raw = np.array(lengths, "<u8").view(np.uint8).reshape(-1, 8)
    crc = np.full(len(raw), 0xFFFFFFFF, np.uint32)
    for i in range(8):
        crc = _TABLE[(crc ^ raw[:, i]) & 0xFF] ^ (crc >> 8)
    checksums: NDArray[np.uint32] = masked(~crc)
    return checksums


def masked(crc: Any) -> Any:
    """Mask a checksum, or an array of 32-bit checksums, as in a file."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c() -> Checksum:
    """Find a function that computes CRC-32C.

    Raises:
        ImportError: neither google-crc32c nor crc32c is installed.
    """
    try:
        from google_crc32c import value
    except ImportError:
        try:
            from crc32c import crc32c as value
        except ImportError:
            raise ImportError("check_crc=True needs a package for checksums: pip install google-crc32c") from None
    checksum: Checksum = value
    return checksum


def _not_a_header(window: bytes, begin: int) -> str:
    if begin == 0 and window.startswith(b"\x1f\x8b"):
        return "it is compressed (gzip) and has no random access: decompress it"
    if begin == 0:
        return "the checksum of the first length is another: it has another format, or is compressed"
    return "the checksum of the record's length is another"
