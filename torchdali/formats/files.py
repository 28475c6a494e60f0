"""Reads files and finds folders on local disks."""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..checks import nearest_path
from ..pillow import check_file_size
from ..storage import is_remote, opened


def read_file(path: str, image: bool = False) -> NDArray[np.uint8]:
    """Read a file's bytes, uint8 [n], into memory that can be written: DALI copies any other, one by one.

    Args:
        path: the file's.
        image: it is an image file, and one that is larger than any image may be is not read.

    Raises:
        OSError: it can't be opened.
        ValueError: it is empty, too large, or no file.
    """
    file = opened(lambda: os.open(path, os.O_RDONLY | os.O_NONBLOCK))  # a pipe would wait for its writer
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
            raise ValueError(f"it is a pipe, a socket or a device, and no file: {path}")
        if image:
            check_file_size(status.st_size)
        data = np.empty(status.st_size, np.uint8)
        size = 0
        while size < len(data) and (part := os.readv(file, [data.data[size:]])):
            size += part
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None  # readv doesn't name it
    finally:
        os.close(file)
    if not size:
        raise ValueError("the file is empty")
    return data[:size]


def walk(root: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk over a folder as `os.walk` does, through links too, but not through those that lead back up.

    Yields:
        A folder, the names of folders in it, which the caller may change, and those of other files.
    """
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not _leads_up(os.path.join(folder, name))]
        yield folder, folders, names


def _leads_up(folder: str) -> bool:
    """Whether a folder is a link to one of those above it."""
    if not os.path.islink(folder):
        return False
    target, above = os.stat(folder), os.path.dirname(os.path.abspath(folder))
    while not os.path.samestat(target, os.stat(above)):
        if above == os.path.dirname(above):
            return False
        above = os.path.dirname(above)
    return True


def as_root(root: str | Path) -> str:
    """Give a folder that exists as a string.

    Raises:
        FileNotFoundError: it doesn't exist.
        NotADirectoryError: it is a file.
        ValueError: it is on a remote machine.
    """
    folder = os.path.expanduser(os.fspath(root))
    if is_remote(folder):
        raise ValueError(f"root must be a local folder, got {folder}: for remote files, write TarDataset of tars there")
    if not os.path.exists(folder):
        raise FileNotFoundError(f"root does not exist: {folder}{nearest_path(folder)}")
    if not os.path.isdir(folder):
        raise NotADirectoryError(f"root must be a folder, got the file {folder}")
    return folder


def check_no_mark(path: str) -> None:
    """Check that a list of files does not begin with a byte order mark, which DALI would take for a part of a path.

    Raises:
        ValueError: it does.
    """
    with open(path, "rb") as file:
        if file.read(3) == codecs.BOM_UTF8:
            raise ValueError(f"{path} begins with a byte order mark: save it as UTF-8 without one")
