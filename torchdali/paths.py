"""Turns paths and patterns, local and remote, into lists of files."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any

from .storage import filesystem_of, is_remote


def expand(paths: str | Path | Sequence[str | Path], **storage_options: Any) -> list[str]:
    """List the files that paths and patterns name, in their order.

    "shard-{000..127}.tar" and "{train,test}.tar" are written out as shells do it; matches of "*", "?", "[...]" and "**"
    come sorted.  A local file whose name looks like a pattern is taken as it is.

    Args:
        paths: one path, or several.
        storage_options: fsspec's, for remote patterns.

    Raises:
        TypeError: anything but paths.
        ValueError: no paths, a folder, or nested braces.
        FileNotFoundError: a pattern matches nothing.
    """
    if not isinstance(paths, (str, Path, Iterable)):
        raise TypeError(f"paths must be one path or several, got {paths!r}")
    several = [paths] if isinstance(paths, (str, Path)) else list(paths)
    if not several:
        raise ValueError("paths must name at least one file, got none")
    for path in several:
        if not isinstance(path, (str, Path)):
            raise TypeError(f"paths must be strings or pathlib's paths, got {path!r}")
    return list(chain.from_iterable(_expand(os.fspath(path), storage_options) for path in several))


def _expand(path: str, options: dict[str, Any]) -> list[str]:
    remote = is_remote(path)
    if not remote:
        path = os.path.expanduser(path.removeprefix("file://"))
        if os.path.isdir(path):
            raise ValueError(f"paths must name files, got the folder {path}: write a pattern such as {path}/*")
        if os.path.exists(path):
            return [path]
    found = []
    for one in expand_braces(path):
        # A "?" in a web address begins its query.
        if not re.search(r"[*]" if one.startswith("http") else r"[*?[]", one):
            found.append(one)
            continue
        if remote:
            filesystem, name = filesystem_of(one, options)
            matches = sorted(filesystem.unstrip_protocol(match) for match in filesystem.glob(name))
        else:
            matches = sorted(match for match in glob.glob(one, recursive=True) if os.path.isfile(match))
        if not matches:
            raise FileNotFoundError(f"no file matches {one}")
        found += matches
    return found


_BRACES = re.compile(r"(?<!\$)\{([^{}]*)\}")
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d+))?")


def expand_braces(text: str) -> list[str]:
    """Write out "a{0..2}{x,y}", the last braces counting fastest; braces without a range or a comma stay.

    Raises:
        ValueError: nested braces.
    """
    if re.search(r"\{[^{}]*\{", text):
        raise ValueError(f"nested braces can't be written out, got {text!r}: write a list of paths")
    parts: list[list[str]] = []
    end = 0
    for match in _BRACES.finditer(text):
        parts += [[text[end : match.start()]], _alternatives(match)]
        end = match.end()
    parts.append([text[end:]])
    return ["".join(choice) for choice in product(*parts)]


def _alternatives(match: re.Match[str]) -> list[str]:
    inner = match[1]
    if bounds := _RANGE.fullmatch(inner):
        first, last = bounds[1], bounds[2]
        padded = any(re.match(r"-?0\d", bound) for bound in (first, last))
        width = max(len(first), len(last)) if padded else 0
        return [f"{number:0{width}d}" for number in _steps(int(first), int(last), bounds[3])]
    if bounds := _LETTERS.fullmatch(inner):
        return [chr(letter) for letter in _steps(ord(bounds[1]), ord(bounds[2]), bounds[3])]
    return inner.split(",") if "," in inner else [match[0]]


def _steps(first: int, last: int, step: str | None) -> range:
    stride = abs(int(step or 1)) or 1
    return range(first, last + 1, stride) if first <= last else range(first, last - 1, -stride)
