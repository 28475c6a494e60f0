"""FITS files: headers and data units (HDUs), by the FITS standard 4.0, sections 3 and 4."""

from __future__ import annotations

import os
from typing import Any

MOST_AXES = 999  # the standard's
BLOCK = 2880  # bytes


def count_hdus(path: str) -> int:
    """Count a file's HDUs, and check that each is whole.

    Raises:
        ValueError: it is not a FITS file, or is cut off.
    """
    end, start, found = os.path.getsize(path), 0, 0
    with open(path, "rb") as file:
        while start < end:
            file.seek(start)
            try:
                size = _hdu_size(file.read(BLOCK), file)
            except (KeyError, ValueError, OverflowError) as error:
                raise ValueError(f"{path}, byte {start}: a FITS header with a size was expected: {error}") from None
            if size is None:
                if not found:
                    raise ValueError(f"{path}, byte 0: a FITS header was expected")
                break  # special records: the standard allows them after the last HDU
            if start + size > end:
                raise ValueError(f"{path}, byte {start}: an HDU of {size} bytes was expected, got {end - start}")
            start, found = start + size, found + 1
    return found


def _hdu_size(block: bytes, file: Any) -> int | None:
    """Compute the bytes of an HDU, padding included, from its first block; None: no HDU begins there."""
    if block[:9] != b"SIMPLE  =" and block[:9] != b"XTENSION=":
        return None
    values: dict[str, str] = {}
    blocks = 0
    while len(block) == BLOCK:
        blocks += 1
        for at in range(0, BLOCK, 80):
            card = block[at : at + 80].decode("latin-1")
            if card[:8] == "END     ":
                axes = int(values.get("NAXIS", 0))
                if not 0 <= axes <= MOST_AXES:
                    raise ValueError(f"NAXIS must be in [0, {MOST_AXES}], got {axes}")
                shape = [int(values[f"NAXIS{axis}"]) for axis in range(1, axes + 1)]
                elements = 1 if shape else 0
                for extent in shape:
                    elements *= extent
                each = abs(int(values["BITPIX"])) // 8 * int(values.get("GCOUNT", 1))
                data = each * (elements + int(values.get("PCOUNT", 0)))
                return (blocks + -(-data // BLOCK)) * BLOCK
            if card[8:10] == "= ":
                values[card[:8].rstrip()] = card[10:].partition("/")[0].strip()
        block = file.read(BLOCK)
    return (blocks + 1) * BLOCK  # the header is cut off
