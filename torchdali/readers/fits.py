"""Astronomical images."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch

from .base import Output
from .checks import check_files, listed_files
from .video import OnGPU

BLOCK = 2880  # bytes
CHECKED = 1000  # files that are looked at
DEFAULT = [2]  # the first HDU behind the primary one


class Fits(OnGPU):
    """DALI's experimental reader of FITS files, which needs an NVIDIA GPU: write device="cuda" at the DataLoader.

    Fields: hdu2, or one for each of `hdu_indices` (they count from 1, the primary one), an array of the element type
    that `dtypes` names (uint8 by default).  `file_root` (and `file_filter`, "*.fits"), `files` or `file_list`.

    Checked when it is made: every file is there and not empty, and up to 1,000 of them are whole and have each HDU.
    """

    ndd_name = "experimental.Fits"

    def describe(self, fields: Sequence[str]) -> list[Output]:
        numbers = self.options.get("hdu_indices", DEFAULT)
        if not isinstance(numbers, list) or not numbers or any(type(n) is not int or n < 1 for n in numbers):
            raise ValueError(f"hdu_indices must be a list of integers from 1, got {numbers!r}")
        dtypes = self.options.get("dtypes", numbers)
        if len(dtypes) != len(numbers):
            raise ValueError(f"dtypes must be one for each HDU, got {len(dtypes)} for {len(numbers)}")
        return [Output(f"hdu{number}", "array") for number in numbers]

    def check(self) -> None:
        files = listed_files(self.name, self.options, "*.fits")
        check_files(self.name, files)
        last = max(self.options.get("hdu_indices", DEFAULT))
        for path in files[:: -(-len(files) // CHECKED)]:
            if (found := count_hdus(path)) < last:
                raise ValueError(f"Fits: {path} has {found} HDUs, and hdu_indices asks for number {last}")

    def make(self, shard: int, shards: int, generator: int, age: int, rows: int, device: torch.device) -> Any:
        if device.type == "cpu":  # DALI has a form for it, which fails without CUDA
            raise ValueError("DALI's Fits reads where there is a GPU only: write device='cuda' at the DataLoader")
        return super().make(shard, shards, generator, age, rows, device)


def count_hdus(path: str) -> int:
    """Headers and their data, by the FITS standard 4.0, sections 3 and 4.

    Raises:
        ValueError: no FITS file, or one that is cut off.
    """
    end, start, found = os.path.getsize(path), 0, 0
    with open(path, "rb") as file:
        while start < end:
            file.seek(start)
            try:
                size = _hdu_size(file.read(BLOCK), file)
            except (KeyError, ValueError) as error:
                raise ValueError(f"{path}, byte {start}: a FITS header with a size was expected: {error}") from None
            if size is None:
                if not found:
                    raise ValueError(f"{path}, byte 0: a FITS header was expected")
                break  # special records, which the standard allows behind the last HDU
            if start + size > end:
                raise ValueError(f"{path}, byte {start}: an HDU of {size} bytes was expected, got {end - start}")
            start, found = start + size, found + 1
    return found


def _hdu_size(block: bytes, file: Any) -> int | None:
    """Bytes of an HDU, whose first block this is, with those that fill up blocks; None where it is none."""
    if block[:9] != b"SIMPLE  =" and block[:9] != b"XTENSION=":
        return None
    values: dict[str, str] = {}
    blocks = 0
    while len(block) == BLOCK:
        blocks += 1
        for at in range(0, BLOCK, 80):
            card = block[at : at + 80].decode("latin-1")
            if card[:8] == "END     ":
                shape = [int(values[f"NAXIS{axis}"]) for axis in range(1, int(values.get("NAXIS", 0)) + 1)]
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
