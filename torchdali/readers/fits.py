"""DALI's reader of astronomical images in FITS files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..fingerprint import files_digest
from ..formats.fits import count_hdus
from .base import Output
from .checks import check_files, listed_files
from .on_gpu import OnGPU

CHECKED = 1000  # files that are checked
DEFAULT = [2]  # the first HDU after the primary one


class Fits(OnGPU):
    """DALI's experimental reader of FITS files, which needs an NVIDIA GPU: write device="cuda" at the DataLoader.

    `file_root` (and `file_filter`, "*.fits"), `files` or `file_list` names the files.  Fields: hdu2, or one field for
    each of `hdu_indices` (they count from 1, the primary HDU): an array of the element type that `dtypes` names (uint8
    by default).

    Checked when it is made: every file exists and is not empty, and up to 1,000 of them are whole and have each HDU.
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
        if "files" not in self.options:
            self.contents = {"files": files_digest(files), "file_root": None, "file_list": None}
        last = max(self.options.get("hdu_indices", DEFAULT))
        for path in files[:: -(-len(files) // CHECKED)]:
            if (found := count_hdus(path)) < last:
                raise ValueError(f"Fits: {path} has {found} HDUs, and hdu_indices asks for number {last}")

    def make(self, shard: int, shards: int, generator: int, age: int, rows: int, device: torch.device) -> Any:
        if device.type == "cpu":  # DALI has a CPU form, which fails without CUDA
            raise ValueError("DALI's Fits reads only where there is a GPU: write device='cuda' at the DataLoader")
        return super().make(shard, shards, generator, age, rows, device)
