"""Arrays in .npy files."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence

import numpy as np

from .base import Output
from .checks import check_files
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
        files = list(self._files())
        check_files(self.name, files)
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

    def _files(self) -> Iterator[str]:
        root = self.options.get("file_root", "")
        if "files" in self.options:
            yield from (os.path.join(root, name) for name in self.options["files"])
        elif "file_list" in self.options:
            with open(self.options["file_list"], encoding="utf-8", errors="surrogateescape") as file:
                yield from (os.path.join(root, line.strip()) for line in file if line.strip())
        elif root:
            if not os.path.isdir(root):
                raise FileNotFoundError(f"Numpy: file_root must be a folder that exists, got {root}")
            pattern = self.options.get("file_filter", "*.npy")
            for folder, _, names in os.walk(root):
                yield from (os.path.join(folder, name) for name in sorted(fnmatch.filter(names, pattern)))
        else:
            raise ValueError("Numpy needs file_root=, files= or file_list=")


def _header(path: str) -> tuple[np.dtype, int]:
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except ValueError as error:
        raise ValueError(f"Numpy: {path} is no .npy file that DALI can read: {error}") from error
    return array.dtype, array.ndim
