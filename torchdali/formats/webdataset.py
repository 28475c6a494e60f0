"""Samples in tars, as WebDataset packs them: finds which files of a tar make up a sample.

An index lists the parts of samples, one sample after the other:

    offset, size   [M] int64, the place of each part's data
    ending         [M] int32, the number of its ending among `endings`
    first          [S + 1] int64, each sample's first part
    keys, endings  strings, with key_ends and ending_ends, see `texts.Texts`
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..storage import Storage
from .cache import Index, cached_index
from .tar import scan
from .texts import Texts, to_bytes, to_text

_META = re.compile(rb"__[^/]*__($|/)")


def split_name(name: bytes) -> tuple[bytes, bytes] | None:
    """Split a name into the key of the sample that the file belongs to, and its ending; None: it is left out."""
    slash = name.rfind(b"/")
    dot = name.find(b".", slash + 1)
    if dot <= slash + 1 or (name.startswith(b"__") and _META.match(name)):
        return None
    return name[:dot], name[dot + 1 :]


def alternatives(ext: Sequence[str]) -> list[list[str]]:
    """Give the endings of each part of a sample, in lower case, from strings such as "jpg;png".

    Raises:
        ValueError: no endings.
    """
    several = [ext] if isinstance(ext, str) else ext
    wanted = [[one.lower().removeprefix(".") for one in part.split(";") if one] for part in several]
    if not wanted or not all(wanted):
        raise ValueError(f"ext must name the endings of a sample's parts, such as ['jpg;png', 'cls'], got {ext!r}")
    return wanted


def tar_index(tar: Storage, index_dir: str | Path | None = None) -> Index:
    """Give the index of a tar, from the cache or from its headers.

    Raises:
        ValueError: as `tar.scan` and `grouped`.
    """
    return cached_index(tar, "tar1", partial(_from_headers, tar), index_dir)


def _from_headers(tar: Storage) -> Index:
    names, offsets, sizes = scan(tar, lambda name: split_name(name) is not None)
    parts = [split_name(name) for name in names]
    kept = [row for row, part in enumerate(parts) if part is not None]
    keys, endings = ([part[i] for part in parts if part is not None] for i in (0, 1))
    return grouped(tar, keys, endings, np.array(offsets, np.int64)[kept], np.array(sizes, np.int64)[kept])


def grouped(
    tar: Storage, keys: list[bytes], endings: list[bytes], offsets: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Index:
    """Make an index of parts, which are given in their order in the file.

    Args:
        tar: the file.
        keys, endings: each part's key and ending.
        offsets, sizes: [M] int64, the place of each part's data.

    Raises:
        ValueError: parts of a sample that do not lie together, or that have the same ending.
    """
    begins = [row for row, key in enumerate(keys) if not row or keys[row - 1] != key]
    met: dict[bytes, int] = {}
    for row in begins:
        if met.setdefault(keys[row], row) != row:
            raise ValueError(
                f"the sample {to_text(keys[row])!r} comes twice in {tar.path}, at offsets {offsets[met[keys[row]]]} "
                f"and {offsets[row]}: the files of a sample must lie together"
            )
    numbers: dict[str, int] = {}
    number_of = {raw: numbers.setdefault(to_text(raw).lower(), len(numbers)) for raw in dict.fromkeys(endings)}
    ending = np.array([number_of[raw] for raw in endings], np.int32)
    first = np.array([*begins, len(keys)], np.int64)
    pairs = np.repeat(np.arange(len(begins)), np.diff(first)) * len(numbers) + ending
    unique, rows = np.unique(pairs, return_index=True)
    if len(unique) < len(pairs):
        row = int(np.setdiff1d(np.arange(len(pairs)), rows)[0])
        raise ValueError(
            f"the sample {to_text(keys[row])!r} has two parts with the ending {to_text(endings[row])!r}, the second at "
            f"offset {offsets[row]} of {tar.path}"
        )
    of_keys, of_endings = Texts.of(met), Texts.of(to_bytes(text) for text in numbers)
    return {
        "offset": offsets, "size": sizes, "ending": ending, "first": first, "keys": of_keys.blob,
        "key_ends": of_keys.ends, "endings": of_endings.blob, "ending_ends": of_endings.ends,
    }  # fmt: skip


def select(index: Index, wanted: list[list[str]]) -> NDArray[np.int64]:
    """Find the wanted parts: int64 [parts, S], the row of each part of each sample, -1 where the sample lacks it."""
    endings = Texts(index["endings"], index["ending_ends"])
    number_of = {endings[number]: number for number in range(len(endings))}
    samples = np.diff(index["first"])
    sample = np.repeat(np.arange(len(samples)), samples)
    rows = np.full((len(wanted), len(samples)), -1, np.int64)
    for part, alternatives in enumerate(wanted):
        for one in reversed(alternatives):  # in reverse, so that the first alternative wins
            (found,) = np.nonzero(index["ending"] == number_of.get(one, -1))
            rows[part, sample[found]] = found
    return rows


def lacks(tar: Storage, index: Index, rows: NDArray[np.int64], wanted: list[list[str]], skip: str) -> ValueError:
    """Make the error for the first sample that lacks a part; `skip` is the argument that leaves such samples out."""
    sample, part = (int(first[0]) for first in np.nonzero(rows.T < 0))
    first, last = index["first"][sample : sample + 2]
    keys, endings = Texts(index["keys"], index["key_ends"]), Texts(index["endings"], index["ending_ends"])
    has = sorted(endings[number] for number in index["ending"][first:last])
    return ValueError(
        f"a part with the ending {';'.join(wanted[part])} was expected in the sample {keys[sample]!r} at offset "
        f"{index['offset'][first]} of {tar.path}, got {has}: write {skip} to leave such samples out"
    )


def wds_index(file: Storage, tar: Storage) -> Index:
    """Read an index that DALI's `wds2idx` has made.

    Raises:
        ValueError: it is malformed, of another version, or points beyond the tar's end.
    """
    head, *lines = file.read_all().tobytes().rstrip(b"\n").split(b"\n")
    version = head.split()
    if len(version) != 2 or version[0] != b"v1.2" or not version[1].isdigit() or len(version[1]) > 18:
        raise ValueError(f"an index of version v1.2 was expected, got {head[:40]!r} in {file.path}: run wds2idx again")
    if int(version[1]) != len(lines):
        raise ValueError(f"{file.path} is cut off: {int(version[1])} samples expected, got {len(lines)}")
    keys, endings, places = [], [], []
    for number, line in enumerate(lines):
        parts = _wds_parts(line)
        if not parts or not all(name for *_, name in parts):
            raise ValueError(
                f"'ending offset size name' were expected in line {number + 2} of {file.path}, got {line!r}"
            )
        for ending, offset, size, name in parts:
            name = _WDS_ESCAPE.sub(lambda code: bytes([int(code[1], 8)]), name)
            keys.append(name[: len(name) - len(ending) - 1])
            endings.append(ending)
            places.append((int(offset), int(size)))
            if sum(places[-1]) > tar.size or places[-1][0] < 512:
                raise ValueError(
                    f"line {number + 2} of {file.path} points beyond the end of {tar.path}: run wds2idx again"
                )
    table = np.array(places, np.int64).reshape(-1, 2)
    return grouped(tar, keys, endings, table[:, 0], table[:, 1])


def _wds_parts(line: bytes) -> list[tuple[bytes, bytes, bytes, bytes]]:
    """Split a line into (ending, offset, size, name), in one pass over it: names may hold blanks."""
    parts, head = [], _WDS_HEAD.match(line)
    while head is not None:
        following = _WDS_NEXT.search(line, head.end() + 1)  # a name has at least one character
        stop = len(line) if following is None else following.start() - 1
        parts.append((head[1], head[2], head[3], line[head.end() : stop]))
        head = following
    return parts


_WDS_HEAD = re.compile(rb"(\S+) (\d{1,18}) (\d{1,18}) ")
_WDS_NEXT = re.compile(rb"(?<= )(\S+) (\d{1,18}) (\d{1,18}) ")
_WDS_ESCAPE = re.compile(rb"\\([0-7]{3})")  # tar's listing has other bytes than ASCII like this
