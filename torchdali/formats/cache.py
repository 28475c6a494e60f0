"""The cache of indexes: the places of the parts of large files, found once and kept in a folder.

Several processes may use one folder at once: an index is written under another name and then renamed, so that others
see a whole file or none.  A folder that can't be written costs time and a warning, nothing else.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..fingerprint import digest
from ..storage import Storage, is_remote, open_storage

Index = dict[str, NDArray[Any]]


def cache_folder(index_dir: str | Path | None = None) -> Path:
    """Give the folder of indexes: `index_dir`, else `torchdali/index` in `$XDG_CACHE_HOME` or `~/.cache`."""
    if index_dir is not None:
        return Path(index_dir).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "torchdali" / "index"


def cached_index(storage: Storage, kind: str, build: Callable[[], Index], index_dir: str | Path | None = None) -> Index:
    """Give a file's index: from the cache, if it was made for this version of the file, else built and kept there.

    Args:
        storage: the file.
        kind: the kind of index and its version, such as "tar1".
        build: makes the index; its arrays hold no objects.
        index_dir: the cache's folder; None: the default of `cache_folder`.
    """
    folder = cache_folder(index_dir)
    where = storage.path if is_remote(storage.path) else os.path.abspath(storage.path)
    file = folder / f"{kind}-{digest(where)}.npz"
    found = _load(file, storage.version)
    if found is not None:
        return found
    built = build()
    assert not any(array.dtype.hasobject for array in built.values()), "it would be pickled"
    arrays: dict[str, Any] = {_VERSION: np.array(storage.version), _DIGEST: np.array(digest(built)), **built}
    try:
        _write(file, lambda output: np.savez(output, **arrays))
    except OSError as error:
        warnings.warn(
            f"indexes can't be kept in {folder}, and are made anew each time: {error.strerror}. "
            "Write index_dir= to keep them elsewhere",
            RuntimeWarning,
            stacklevel=3,
        )
    return built


def index_file(path: str, kind: str, make: Callable[[], str], *more: Any, index_dir: str | Path | None = None) -> str:
    """Give the path of a file's index in a form that DALI reads; write the index if it does not exist yet.

    Where the cache can't be written, the index goes to a temporary folder, which this process removes at its end.

    Args:
        path: the local file that is indexed.
        kind: the name of the form.
        make: makes the index, as text.
        more: everything else that the index depends on, besides the file.
        index_dir: the cache's folder; None: the default of `cache_folder`.

    Raises:
        OSError: no temporary folder can be written either.
    """
    folder = cache_folder(index_dir)
    name = f"{kind}-{digest(os.path.abspath(path), open_storage(path).version, *more)}.idx"
    file = folder / name
    if _holds(file):
        return os.fspath(file)
    instead = _temporary.get(folder)
    if instead is not None and _holds(instead / name):
        return os.fspath(instead / name)
    content = make().encode("utf-8", "surrogateescape")
    try:
        _keep(file, content)
    except OSError as error:
        if instead is None or not instead.is_dir():
            instead = _temporary[folder] = _temporary_folder(os.getpid())
            warnings.warn(
                f"indexes can't be kept in {folder}, and are made anew in each process: {error.strerror}. "
                "Write index_dir= to keep them elsewhere",
                RuntimeWarning,
                stacklevel=3,
            )
        file = instead / name
        _keep(file, content)
    return os.fspath(file)


_temporary: dict[Path, Path] = {}  # by the folder that can't be written


@functools.cache
def _temporary_folder(process: int) -> Path:
    """Make a folder for indexes that is removed when this process, whose id is `process`, ends."""
    folder = tempfile.mkdtemp(prefix="torchdali-index-")

    def remove() -> None:
        if os.getpid() == process:  # a forked process ends without it
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return Path(folder)


def _write(file: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a file under another name and then rename it.

    Raises:
        OSError: its folder can't be made or written.
    """
    partial = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=file.stem, suffix=".part", delete=False) as output:
            partial = output.name
            write(output)
        os.chmod(partial, 0o644)  # other users may share the folder
        os.replace(partial, file)
    except BaseException:
        if partial is not None and os.path.exists(partial):
            os.unlink(partial)
        raise


_VERSION, _DIGEST = "version", "digest"


def _load(file: Path, version: str) -> Index | None:
    """Read an index; None where there is none, or only a damaged one or one of another version of the file."""
    try:
        with open(file, "rb") as opened, np.load(opened, allow_pickle=False) as stored:
            if str(stored[_VERSION]) != version or _DIGEST not in stored.files:
                return None
            index = {name: stored[name] for name in stored.files if name not in (_VERSION, _DIGEST)}
            if str(stored[_DIGEST]) != digest(index):
                raise ValueError("its digest is another one")
            return index
    except (FileNotFoundError, NotADirectoryError):
        return None
    except Exception as error:  # numpy and zipfile raise anything for a damaged file
        _warn_damaged(file, error)
        return None


def _holds(file: Path) -> bool:
    """Tell whether a text index exists and is whole; a file beside it holds its digest."""
    try:
        kept = _digest_file(file).read_text()
        if kept == digest(file.read_bytes()):
            return True
        raise ValueError("its digest is another one")
    except (FileNotFoundError, NotADirectoryError):
        return False  # there is none, or one without a digest, from an older version
    except (OSError, ValueError) as error:
        _warn_damaged(file, error)
        return False


def _digest_file(file: Path) -> Path:
    return file.with_suffix(".digest")


def _keep(file: Path, content: bytes) -> None:
    """Write a text index and its digest.

    Raises:
        OSError: their folder can't be made or written.
    """
    _write(file, lambda output: output.write(content))
    _write(_digest_file(file), lambda output: output.write(digest(content).encode()))


def _warn_damaged(file: Path, error: Exception) -> None:
    warnings.warn(f"the index {file} is damaged and is made again: {error}", RuntimeWarning, stacklevel=4)
