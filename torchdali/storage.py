"""Reads bytes at any offset of local and remote files.

Local files are read by `pread`, never through a memory map: a file that is truncated meanwhile is an error, and does
not end the process.  Remote files ("s3://...", "https://...") are read by fsspec, which is imported at the first one.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import stat
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .errors import OpenFilesError

T = TypeVar("T")
Bytes = NDArray[np.uint8]

CHUNK = 8 << 20  # bytes; a request to an object store takes as long as reading about this many
THREADS = 16  # read at the same time, where reading waits for a disk or a network
OPEN_FILES = 128  # are kept open at most; the usual limit of a process is 1024
LARGEST_SPAN = 8 << 20  # bytes that are read at once at most, since each part keeps the whole span alive

_REMOTE = re.compile(r"(?!file://)([A-Za-z][\w+.-]*::)*[A-Za-z][\w+.-]*://")


def is_remote(path: str | Path) -> bool:
    """Tell whether a path is a URL "scheme://...", or a chain of URLs; "file://" is local."""
    return _REMOTE.match(os.fspath(path)) is not None


def open_storage(path: str | Path, **storage_options: Any) -> Storage:
    """Make the `Storage` of a file; nothing is opened yet.

    Args:
        path: a local path or a URL that fsspec knows.
        storage_options: fsspec's, for remote files.
    """
    text = os.fspath(path)
    if is_remote(text):
        return RemoteStorage(text, storage_options)
    return LocalStorage(os.path.expanduser(text.removeprefix("file://")))


class Storage:
    """A file that several threads may read, also in a forked process, or in one that unpickled it.

    Attributes:
        path: where it is.
    """

    gap = 0  # bytes between two parts; reading that many is cheaper than a second request
    path: str

    @property
    def size(self) -> int:
        """The file's size in bytes.

        Raises:
            FileNotFoundError: there is no file.
        """
        return self._known()[0]

    @property
    def version(self) -> str:
        """A short string that changes when the file does; errors as `size`."""
        return self._known()[1]

    @property
    def exists(self) -> bool:
        """Tell whether the file exists now."""
        raise NotImplementedError

    def read(self, offset: int, size: int) -> Bytes:
        """Read `size` bytes from an offset into an array that can be written, uint8 [size].

        Raises:
            FileNotFoundError: there is no file.
            ValueError: the file ends before, or has changed since its size was asked for.
        """
        raise NotImplementedError

    def read_many(self, ranges: Sequence[tuple[int, int]]) -> list[Bytes]:
        """Read several parts, (offset, size) each, in their order; neighbours are read as one."""
        return read_many([(self, offset, size) for offset, size in ranges])

    def read_all(self) -> Bytes:
        """Read the whole file."""
        return self.read(0, self.size)

    def _known(self) -> tuple[int, str]:
        raise NotImplementedError

    def _short(self, offset: int, size: int, got: int) -> ValueError:
        return ValueError(f"{self.path} is cut off: {size} bytes expected at offset {offset}, got {got}")


class LocalStorage(Storage):
    """A local file; it is opened at the first read."""

    gap = 4096

    def __init__(self, path: str) -> None:
        self.path = path
        self._info: tuple[int, str] | None = None
        self._file: _OpenFile | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_file": None}

    @property
    def exists(self) -> bool:
        return os.path.isfile(self.path)

    def read(self, offset: int, size: int) -> Bytes:
        # Hold a reference: another thread may close the file meanwhile.
        file = self._file or self._open()
        data = np.empty(size, np.uint8)
        got = 0
        while got < size:
            part = os.preadv(file.descriptor, [data.data[got:]], offset + got)
            if not part:
                raise self._short(offset, size, got)
            got += part
        return data

    def _known(self) -> tuple[int, str]:
        if self._info is None:
            self._info = _local_info(self.path, os.stat(self.path))
        return self._info

    def _open(self) -> _OpenFile:
        file = _OpenFile(self.path)
        now = _local_info(self.path, os.fstat(file.descriptor))
        if self._info is not None and self._info != now:
            raise ValueError(f"{self.path} has changed since it was first looked at: make the dataset again")
        self._info, self._file = now, file
        # No lock, since a fork could copy a locked one: each step is atomic, and at worst a file is opened twice.
        _opened.append(weakref.ref(self))
        most = min(OPEN_FILES, max(4, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))  # others need some too
        while len(_opened) > most:
            _close_oldest()
        return file


class _OpenFile:
    """A descriptor that is closed when its last reader has gone."""

    def __init__(self, path: str) -> None:
        self.descriptor = opened(lambda: os.open(path, os.O_RDONLY))
        weakref.finalize(self, os.close, self.descriptor).atexit = False


_opened: deque[weakref.ref[LocalStorage]] = deque()


def opened(open_file: Callable[[], T]) -> T:
    """Open a file; where the process may open no more, after closing those that have been open longest.

    Raises:
        OpenFilesError: it may open no more, and none of ours is open.
        OSError: another reason.
    """
    while True:
        try:
            return open_file()
        except OSError as error:
            if error.errno not in OUT_OF_FILES:
                raise
            if not _close_oldest():
                raise OpenFilesError(too_many_files()) from error


OUT_OF_FILES = (errno.EMFILE, errno.ENFILE)


def too_many_files() -> str:
    """Say that there are too many open files, and what to write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = "unlimited" if hard == resource.RLIM_INFINITY else hard
    return (
        f"this process may have {soft} files open (`ulimit -n`), and has: write `ulimit -n {most}` before it starts, "
        "or close what the program keeps open"
    )


def _close_oldest() -> bool:
    """Close the storage that was opened first, as soon as no thread reads it; whether there was one."""
    try:
        oldest = _opened.popleft()()
    except IndexError:
        return False
    if oldest is not None:
        oldest._file = None
    return True


def _local_info(path: str, status: os.stat_result) -> tuple[int, str]:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(f"a file was expected, got the folder {path}")
    return status.st_size, f"{status.st_size} {status.st_mtime_ns}"


class RemoteStorage(Storage):
    """A file of any of fsspec's filesystems."""

    gap = 64 << 10

    def __init__(self, path: str, options: dict[str, Any]) -> None:
        self.path, self.options = path, options
        self._info: tuple[int, str] | None = None
        self._connected: tuple[int, Any, str] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connected": None}

    @property
    def exists(self) -> bool:
        filesystem, name = self.connect()
        return bool(filesystem.isfile(name))

    def connect(self) -> tuple[Any, str]:
        """Give the filesystem, and the file's name in it; fsspec's connections do not outlive a fork."""
        if self._connected is None or self._connected[0] != os.getpid():
            self._connected = (os.getpid(), *filesystem_of(self.path, self.options))
        return self._connected[1:]

    def read(self, offset: int, size: int) -> Bytes:
        return read_many([(self, offset, size)])[0]

    def read_all(self) -> Bytes:
        filesystem, name = self.connect()
        return _writable(filesystem.cat_file(name))

    def _known(self) -> tuple[int, str]:
        if self._info is None:
            filesystem, name = self.connect()
            info = filesystem.info(name)
            if info.get("type") == "directory":
                raise IsADirectoryError(f"a file was expected, got the folder {self.path}")
            if info.get("size") is None:
                raise ValueError(f"{self.path} has no known size: its server must tell Content-Length")
            marks = [str(info[mark]) for mark in _MARKS if info.get(mark)]
            self._info = int(info["size"]), " ".join([str(info["size"]), *marks])
        return self._info


# The names that filesystems have for a value that changes with the file.
_MARKS = (
    "ETag", "etag", "md5", "md5Hash", "Content-MD5", "Digest", "VersionId", "generation", "mtime", "updated",
    "LastModified", "Last-Modified", "last_modified", "created",
)  # fmt: skip


def filesystem_of(path: str, options: dict[str, Any]) -> tuple[Any, str]:
    """Give fsspec's filesystem for a URL, and the name in it.

    Raises:
        ImportError: fsspec, or what it needs for this scheme, is not installed.
    """
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(f"{path} is a remote file: pip install torchdali[remote]") from error
    try:
        filesystem, name = fsspec.core.url_to_fs(path, **options)
    except ImportError as error:
        raise ImportError(f"{path}: {error}, or pip install torchdali[remote]") from error
    if filesystem.async_impl:
        # fsspec makes one per thread; with one for all threads, parts of all files are requested at the same time.
        key = os.getpid(), type(filesystem), repr((filesystem.storage_args, filesystem.storage_options))
        filesystem = _filesystems.setdefault(key, filesystem)
    return filesystem, name


_filesystems: dict[Any, Any] = {}


def read_many(ranges: Sequence[tuple[Storage, int, int]]) -> list[Bytes]:
    """Read parts of several files, (storage, offset, size) each, in their order; errors as `Storage.read`.

    Neighbours are read as one.  All remote parts are requested at the same time.
    """
    spans: list[tuple[Storage, int, int]] = []  # storage, begin, end
    place = [(0, 0)] * len(ranges)  # of each range: its span, and where in it
    for i in sorted(range(len(ranges)), key=lambda i: (id(ranges[i][0]), ranges[i][1])):
        storage, offset, size = ranges[i]
        if spans and spans[-1][0] is storage:
            _, begin, end = spans[-1]
            joined = max(end, offset + size)
            if offset <= end + storage.gap and joined - begin <= LARGEST_SPAN:
                spans[-1] = storage, begin, joined
                place[i] = len(spans) - 1, offset - begin
                continue
        place[i] = len(spans), 0
        spans.append((storage, offset, offset + size))
    whole = _read_spans(spans)
    return [whole[span][at : at + size] for (span, at), (_, _, size) in zip(place, ranges, strict=True)]


def _read_spans(spans: Sequence[tuple[Storage, int, int]]) -> list[Bytes]:
    whole: list[Bytes] = [np.empty(0, np.uint8)] * len(spans)
    remote: dict[int, list[tuple[int, RemoteStorage, str]]] = {}
    filesystems: dict[int, Any] = {}
    for i, (storage, begin, end) in enumerate(spans):
        if not isinstance(storage, RemoteStorage):
            whole[i] = storage.read(begin, end - begin)
        elif end > begin:
            filesystem, name = storage.connect()
            filesystems[id(filesystem)] = filesystem
            remote.setdefault(id(filesystem), []).append((i, storage, name))
    for key, parts in remote.items():
        begins, ends = [spans[i][1] for i, _, _ in parts], [spans[i][2] for i, _, _ in parts]
        names = [name for _, _, name in parts]
        for (i, storage, _), data in zip(
            parts, filesystems[key].cat_ranges(names, begins, ends, on_error="return"), strict=True
        ):
            _, begin, end = spans[i]
            if isinstance(data, Exception):
                # Servers answer with errors of their own where a range begins after a file's end.
                if not isinstance(data, FileNotFoundError) and end > storage.size:
                    raise storage._short(begin, end - begin, max(0, storage.size - begin)) from data
                raise data
            if len(data) > end - begin:
                raise ValueError(f"{storage.path} can't be read: its server gives no parts of files")
            if len(data) < end - begin:
                raise storage._short(begin, end - begin, len(data))
            whole[i] = _writable(data)
    return whole


def _writable(data: bytes) -> Bytes:
    return np.frombuffer(bytearray(data), np.uint8)  # torch warns of tensors on read-only memory
