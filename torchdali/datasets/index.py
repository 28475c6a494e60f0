"""Indexes of large files: where their records are, found once and kept in a cache."""

from __future__ import annotations

import os
import re
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from ..storage import Storage, is_remote
from .base import digest

Index = dict[str, NDArray[Any]]


def cached_index(storage: Storage, kind: str, build: Callable[[], Index], index_dir: str | Path | None = None) -> Index:
    """A file's index: from the cache, if it was made for this very file, else built and put there.

    Several processes may do so at once.  A cache that can't be read or written costs time and a warning, nothing else.

    Args:
        storage: the file.
        kind: what the index is, with the version of its making: "tar1".
        build: makes it; no arrays of objects.
        index_dir: the cache's folder; by default `$XDG_CACHE_HOME/torchdali/index`, or in `~/.cache`.
    """
    folder = Path(index_dir) if index_dir is not None else cache_folder()
    where = storage.path if is_remote(storage.path) else os.path.abspath(storage.path)
    file = folder / f"{kind}-{digest(where)}.npz"
    found = _load(file, storage.version)
    if found is None:
        found = build()
        _save(file, storage.version, found)
    return found


def cache_folder() -> Path:
    """Where indexes are kept: `$XDG_CACHE_HOME/torchdali/index`, or in `~/.cache`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")) / "torchdali" / "index"


def _load(file: Path, version: str) -> Index | None:
    try:
        with open(file, "rb") as opened, np.load(opened, allow_pickle=False) as stored:
            if str(stored[_VERSION]) != version:
                return None
            return {name: stored[name] for name in stored.files if name != _VERSION}
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, EOFError, AttributeError, NotImplementedError, BadZipFile, zlib.error) as e:
        warnings.warn(f"the index {file} is damaged and is made again: {e}", RuntimeWarning, stacklevel=3)
        return None


_VERSION = "version"


def _save(file: Path, version: str, index: Index) -> None:
    assert not any(array.dtype.hasobject for array in index.values()), "it would be pickled"
    partial = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Written aside and renamed, so that other processes see a whole file or none.
        with tempfile.NamedTemporaryFile(dir=file.parent, prefix=file.stem, suffix=".part", delete=False) as output:
            partial = output.name
            np.savez(output, **{_VERSION: np.array(version)}, **index)  # type: ignore[arg-type]
        os.chmod(partial, 0o644)  # other users may share the folder
        os.replace(partial, file)
    except OSError as error:
        if partial is not None and os.path.exists(partial):
            os.unlink(partial)
        warnings.warn(
            f"indexes can't be kept in {file.parent}, and are made anew each time: {error.strerror}. "
            "Write index_dir= to keep them elsewhere",
            RuntimeWarning,
            stacklevel=3,
        )


def as_text(raw: bytes) -> str:
    """Text; bytes that are no UTF-8 are escaped as Python does for paths."""
    return raw.decode("utf-8", "surrogateescape")


class Texts:
    """Many short texts in one array of bytes, by index: a list would take ten times the memory."""

    def __init__(self, blob: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self.blob, self.ends = blob, ends

    @classmethod
    def of(cls, texts: Iterable[bytes]) -> Texts:
        parts = list(texts)
        ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
        return cls(np.frombuffer(b"".join(parts), np.uint8), ends)

    @classmethod
    def joined(cls, parts: Sequence[Texts]) -> Texts:
        """All texts of several, in their order."""
        before = np.cumsum([0, *(len(part.blob) for part in parts[:-1])])
        ends = [part.ends + start for part, start in zip(parts, before, strict=True)]
        return cls(np.concatenate([part.blob for part in parts]), np.concatenate(ends))

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, index: int) -> str:
        """The text of an index that is not negative."""
        begin = int(self.ends[index - 1]) if index else 0
        return as_text(self.blob[begin : int(self.ends[index])].tobytes())

    def take(self, indices: Iterable[int]) -> Texts:
        """Some of the texts."""
        begins = self.ends - np.diff(self.ends, prepend=0)
        return Texts.of(self.blob[begins[i] : self.ends[i]].tobytes() for i in indices)


# Samples of several parts each, one behind the other:
#
#     offset, size   [M] int64, where each part's data are
#     ending         [M] int32, which of the endings it has
#     first          [S + 1] int64, each sample's first part
#     keys, endings  texts, with key_ends and ending_ends


_META = re.compile(rb"__[^/]*__($|/)")


def split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """The key of the sample that a file belongs to, and its ending; None for files that are left out."""
    slash = name.rfind(b"/")
    dot = name.find(b".", slash + 1)
    if dot <= slash + 1 or (name.startswith(b"__") and _META.match(name)):
        return None
    return name[:dot], name[dot + 1 :]


def grouped(
    tar: Storage, keys: list[bytes], endings: list[bytes], offsets: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Index:
    """An index of parts that are given in their order in the file.

    Args:
        tar: the file.
        keys, endings: of each part, its sample and what it is.
        offsets, sizes: [M] where its data are.

    Raises:
        ValueError: parts of a sample that do not lie together, or that have the same ending.
    """
    begins = [row for row, key in enumerate(keys) if not row or keys[row - 1] != key]
    met: dict[bytes, int] = {}
    for row in begins:
        if met.setdefault(keys[row], row) != row:
            raise ValueError(
                f"the sample {as_text(keys[row])!r} comes twice in {tar.path}, at offsets {offsets[met[keys[row]]]} "
                f"and {offsets[row]}: the files of a sample must lie together"
            )
    numbers: dict[str, int] = {}
    number_of = {raw: numbers.setdefault(as_text(raw).lower(), len(numbers)) for raw in dict.fromkeys(endings)}
    ending = np.array([number_of[raw] for raw in endings], np.int32)
    first = np.array([*begins, len(keys)], np.int64)
    pairs = np.repeat(np.arange(len(begins)), np.diff(first)) * len(numbers) + ending
    unique, rows = np.unique(pairs, return_index=True)
    if len(unique) < len(pairs):
        row = int(np.setdiff1d(np.arange(len(pairs)), rows)[0])
        raise ValueError(
            f"the sample {as_text(keys[row])!r} has two parts with the ending {as_text(endings[row])!r}, the second at "
            f"offset {offsets[row]} of {tar.path}"
        )
    of_keys, of_endings = Texts.of(met), Texts.of(text.encode("utf-8", "surrogateescape") for text in numbers)
    return {
        "offset": offsets, "size": sizes, "ending": ending, "first": first, "keys": of_keys.blob,
        "key_ends": of_keys.ends, "endings": of_endings.blob, "ending_ends": of_endings.ends,
    }  # fmt: skip


def select(index: Index, wanted: list[list[str]]) -> NDArray[np.int64]:
    """[parts, S] the row of each wanted part of each sample, -1 where it has none."""
    endings = Texts(index["endings"], index["ending_ends"])
    number_of = {endings[number]: number for number in range(len(endings))}
    samples = np.diff(index["first"])
    sample = np.repeat(np.arange(len(samples)), samples)
    rows = np.full((len(wanted), len(samples)), -1, np.int64)
    for part, alternatives in enumerate(wanted):
        for one in reversed(alternatives):  # the first one has the last word
            (found,) = np.nonzero(index["ending"] == number_of.get(one, -1))
            rows[part, sample[found]] = found
    return rows


def lacks(tar: Storage, index: Index, rows: NDArray[np.int64], wanted: list[list[str]], skip: str) -> ValueError:
    """The error for the first sample of which `select` did not find all parts; `skip` is what leaves them out."""
    sample, part = (int(first[0]) for first in np.nonzero(rows.T < 0))
    first, last = index["first"][sample : sample + 2]
    keys, endings = Texts(index["keys"], index["key_ends"]), Texts(index["endings"], index["ending_ends"])
    has = sorted(endings[number] for number in index["ending"][first:last])
    return ValueError(
        f"a part with the ending {';'.join(wanted[part])} was expected in the sample {keys[sample]!r} at offset "
        f"{index['offset'][first]} of {tar.path}, got {has}: write {skip} to leave such samples out"
    )


def wds_index(file: Storage, tar: Storage) -> Index:
    """The index from a file of DALI's `wds2idx`.

    Raises:
        ValueError: it is malformed, of another version, or points behind the tar's end.
    """
    head, *lines = file.read_all().tobytes().rstrip(b"\n").split(b"\n")
    version = head.split()
    if len(version) != 2 or version[0] != b"v1.2" or not version[1].isdigit():
        raise ValueError(f"an index of version v1.2 was expected, got {head[:40]!r} in {file.path}: run wds2idx again")
    if int(version[1]) != len(lines):
        raise ValueError(f"{file.path} is cut off: {int(version[1])} samples expected, got {len(lines)}")
    keys, endings, places = [], [], []
    for number, line in enumerate(lines):
        parts = [*_WDS_PART.finditer(line)]
        if not parts or parts[-1].end() != len(line):
            raise ValueError(
                f"'ending offset size name' were expected in line {number + 2} of {file.path}, got {line!r}"
            )
        for ending, offset, size, name in (part.groups() for part in parts):
            name = _WDS_ESCAPE.sub(lambda code: bytes([int(code[1], 8)]), name)
            keys.append(name[: len(name) - len(ending) - 1])
            endings.append(ending)
            places.append((int(offset), int(size)))
            if sum(places[-1]) > tar.size or places[-1][0] < 512:
                raise ValueError(
                    f"line {number + 2} of {file.path} points behind the end of {tar.path}: run wds2idx again"
                )
    table = np.array(places, np.int64).reshape(-1, 2)
    return grouped(tar, keys, endings, table[:, 0], table[:, 1])


_WDS_PART = re.compile(rb"(\S+) (\d+) (\d+) (.+?)(?: (?=\S+ \d+ \d+ )|$)")
_WDS_ESCAPE = re.compile(rb"\\([0-7]{3})")  # tar's listing has other bytes than ASCII like this
