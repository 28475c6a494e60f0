"""Checks of files before DALI reads them, for faults that it would let through or die of."""

from __future__ import annotations

import fnmatch
import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from ..checks import INT32, nearest_path


def check_files(reader: str, paths: Iterable[str]) -> int:
    """Check that files exist and are not empty: either fault ends DALI's reader early, with no way to go on.

    Returns:
        the size of all files in bytes.

    Raises:
        FileNotFoundError, ValueError: files are missing or empty; with the first one and their number.
    """
    missing, empty, n, total = [], [], 0, 0
    for path in paths:
        n += 1
        try:
            size = os.stat(path).st_size
            total += size
            if not size:
                empty.append(path)
        except OSError:
            missing.append(path)
    if not n:
        raise ValueError(f"{reader} has no files")
    if missing:
        first = missing[0]
        raise FileNotFoundError(
            f"{reader}: {len(missing)} of {n} files are missing, the first is {first}{nearest_path(first)}"
        )
    if empty:
        raise ValueError(f"{reader}: {len(empty)} of {n} files are empty, the first is {empty[0]}")
    return total


def listed_files(reader: str, options: Mapping[str, Any], pattern: str) -> list[str]:
    """Give the files that `files`, `file_list` (a path per line), or `file_root` and `file_filter` name.

    Raises:
        FileNotFoundError: the folder or the list doesn't exist.
        ValueError: none of the options is given.
    """
    root = options.get("file_root", "")
    if "files" in options:
        return [os.path.join(root, name) for name in options["files"]]
    if "file_list" in options:
        with open(options["file_list"], encoding="utf-8", errors="surrogateescape") as file:
            return [os.path.join(root, line.strip()) for line in file if line.strip()]
    if not root:
        raise ValueError(f"{reader} needs file_root=, files= or file_list=")
    if not os.path.isdir(root):
        raise FileNotFoundError(f"{reader}: file_root must be a folder that exists, got {root}{nearest_path(root)}")
    wanted = options.get("file_filter", pattern)
    return sorted(
        os.path.join(folder, name) for folder, _, names in os.walk(root) for name in fnmatch.filter(names, wanted)
    )


def check_labels(reader: str, labels: Iterable[int], where: str) -> None:
    """Check that labels fit int32; DALI would change larger ones silently.

    Raises:
        ValueError: a label does not fit; with the first such label.
    """
    for number, label in enumerate(labels):
        if label not in INT32:
            raise ValueError(f"{reader}: label {label} ({where} {number}) does not fit int32, and DALI would change it")


def warn_dropped(reader: str, text: str) -> None:
    """Warn of data that DALI leaves out silently."""
    warnings.warn(f"{reader}: {text}", RuntimeWarning, stacklevel=2)
