"""Arrays in .npy files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .base import Output
from .checks import check_files, listed_files
from .known import KnownReader

CHECKED = 1000  # headers that are looked at


class Numpy(KnownReader):
    """DALI's reader of .npy files: `file_root` (and `file_filter`), `files` or `file_list`.

    Field: array, of the files' dtype and shape; ragged ones leave the loader padded.  `roi_start`, `roi_end` and the
    like read parts of them.

    Checked when it is made: every file is there and not empty, and of up to 1,000 files, that DALI can read their
    dtype and that all have one dtype and number of dimensions.
    """

    ndd_name = "Numpy"
    full_shuffle = True
    twin = "torchdali.NumpyDataset"

    def describe(self, fields: Sequence[str]) -> list[Output]:
        return [Output("array", "array")]

    def check(self) -> None:
        files = listed_files(self.name, self.options, "*.npy")
        self.total_bytes = check_files(self.name, files)
        seen: tuple[str, int] | None = None
        for path in files[:: -(-len(files) // CHECKED)]:
            dtype, ndim = _header(path)
            if dtype.kind not in "biuf" or dtype.byteorder == ">" or dtype.itemsize > 8:
                raise ValueError(f"Numpy: {path} holds {dtype.str}, and DALI reads little-endian numbers only")
            seen = seen or (dtype.str, ndim)
            if seen != (dtype.str, ndim):
                raise ValueError(
                    f"Numpy: all files must have one dtype and number of dimensions, "
                    f"got {seen[0]} with {seen[1]} in {files[0]}, and {dtype.str} with {ndim} in {path}"
                )


def _header(path: str) -> tuple[np.dtype, int]:
    with open(path, "rb") as file:
        if not file.read(6) == np.lib.format.MAGIC_PREFIX:
            raise ValueError(f"Numpy: {path} is no .npy file")
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"Numpy: {path} is no .npy file that DALI can read: {error}") from error
    return array.dtype, array.ndim
