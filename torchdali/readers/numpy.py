"""DALI's reader of arrays in .npy files."""

from __future__ import annotations

from collections.abc import Sequence

from ..fingerprint import files_digest
from ..formats.npy import npy_header
from .base import Output
from .checks import check_files, listed_files
from .known import KnownReader

CHECKED = 1000  # headers that are checked


class Numpy(KnownReader):
    """DALI's reader of .npy files: `file_root` (and `file_filter`), `files` or `file_list`.

    Field: array, of the files' dtype and shape; ragged arrays leave the loader padded.  `roi_start`, `roi_end` and the
    like read parts of the arrays.

    Checked when it is made: every file exists and is not empty; up to 1,000 files have a dtype that DALI can read, and
    all of these have the same dtype and number of dimensions.
    """

    ndd_name = "Numpy"
    full_shuffle = True
    twin = "torchdali.NumpyDataset"

    def describe(self, fields: Sequence[str]) -> list[Output]:
        return [Output("array", "array")]

    def check(self) -> None:
        files = listed_files(self.name, self.options, "*.npy")
        self.total_bytes = check_files(self.name, files)
        if "files" not in self.options:
            self.contents = {"files": files_digest(files), "file_root": None, "file_list": None}
        seen: tuple[str, int] | None = None
        for path in files[:: -(-len(files) // CHECKED)]:
            try:
                dtype, ndim = npy_header(path)
            except ValueError as error:
                raise ValueError(f"Numpy: {error}") from error
            if dtype.kind not in "biuf" or dtype.byteorder == ">" or dtype.itemsize > 8:
                raise ValueError(f"Numpy: {path} holds {dtype.str}, and DALI reads little-endian numbers only")
            seen = seen or (dtype.str, ndim)
            if seen != (dtype.str, ndim):
                raise ValueError(
                    f"Numpy: all files must have one dtype and number of dimensions, "
                    f"got {seen[0]} with {seen[1]} in {files[0]}, and {dtype.str} with {ndim} in {path}"
                )
