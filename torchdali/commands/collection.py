"""A collection of files on the command line: folders of images, lists of files, tars and files of records."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from ..checks import nearest_path
from ..errors import let_through
from ..formats.files import walk
from ..formats.parts import IMAGES, ending
from ..formats.recordio import RECORDIO
from ..formats.records import RecordFiles, RecordFormat
from ..formats.report import absolute
from ..formats.texts import Texts
from ..formats.tfrecord import TFRECORD
from ..formats.webdataset import select, tar_index
from ..paths import expand
from ..storage import is_remote, open_storage
from .command import UsageError, wrong_input

EXPECTED = (
    "a folder of images, an image, a list of files (.txt, .lst), tars (.tar), TFRecords (tfrecord in their names) or "
    "RecordIO (.rec)"
)
_LISTS = frozenset(["txt", "lst", "list"])
_TARS = re.compile(r"\.(tar(\.\w+)?|tgz|tbz2?|txz)$", re.IGNORECASE)


class Part(NamedTuple):
    """The place of an image file, or of a record with image files: `size` bytes from `offset`; -1: the whole file."""

    file: str
    offset: int = 0
    size: int = -1


@dataclass(frozen=True)
class Sample:
    """One sample of a collection.

    Attributes:
        path: as reports name it, see `formats.report.Entry`.
        version: the version of its file; "" where that is missing.
        kind: of its parts: "image", "tfrecord" or "recordio".
        parts: where its image files are.
        fault: why it can't be read, as far as that is known before it is read.
    """

    path: str
    version: str
    kind: str = "image"
    parts: tuple[Part, ...] = ()
    fault: str = ""


def kind_of(path: str) -> str:
    """Tell by a path's name what it is: "folder", "tar", "tfrecord", "recordio", "list", "image", or "" ."""
    name = os.path.basename(path).lower()
    if not is_remote(path) and os.path.isdir(path):
        return "folder"
    if _TARS.search(name):
        return "tar"
    if ending(name) == "rec":
        return "recordio"
    if ending(name) in IMAGES:
        return "image"
    if "tfrecord" in name and ending(name) != "idx":
        return "tfrecord"
    return "list" if ending(name) in _LISTS else ""


def named(paths: Sequence[str]) -> list[tuple[str, str]]:
    """Give the path and the kind of each thing that paths and patterns name.

    Raises:
        UsageError: one is missing, or of no known kind.
    """
    found = []
    for path in paths:
        path = os.path.expanduser(path)
        with wrong_input():
            several = [path] if not is_remote(path) and os.path.isdir(path) else expand(path)
        for one in several:
            if not is_remote(one) and not os.path.exists(one):
                raise UsageError(f"{one} does not exist{nearest_path(one)}")
            kind = kind_of(one)
            if not kind:
                raise UsageError(f"{EXPECTED} were expected, got {one}")
            found.append((one, kind))
    return found


def collect(paths: Sequence[str], index_dir: str | None = None) -> list[Sample]:
    """Find all samples with images that paths name, in their order; those twice named come once.

    Raises:
        UsageError: a path is missing or of no known kind, or there are no samples at all.
    """
    samples: dict[str, Sample] = {}
    for path, kind in named(paths):
        with wrong_input():
            found = list(_FIND[kind](path, index_dir))
        if not found:
            raise UsageError(f"{EXPECTED} were expected, got {path}, which has no images")
        samples |= {sample.path: sample for sample in found}
    return list(samples.values())


def read_list(path: str) -> tuple[list[str], list[int] | None]:
    """Read a list of files, one per line, perhaps with an integer as label after it; names are relative to the list.

    Returns:
        The files, and their labels if each has one.

    Raises:
        ValueError: some lines have labels and others don't, or none of the files exists.
    """
    folder = os.path.dirname(path)
    files: list[str] = []
    labels: list[int] = []
    for line in Path(path).read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        whole = os.path.join(folder, line)
        labelled = re.fullmatch(r"(.*\S)\s+(-?\d{1,10})", line)
        if labelled and not os.path.exists(whole):
            whole = os.path.join(folder, labelled[1])
            labels.append(int(labelled[2]))
        files.append(whole)
    if not any(is_remote(file) or os.path.exists(file) for file in files):
        first = f", such as {files[0]}" if files else ""
        raise ValueError(f"one file per line was expected in {path}, and none of its {len(files)} files exists{first}")
    if labels and len(labels) != len(files):
        raise ValueError(f"a label for each file or for none was expected in {path}, got {len(labels)} labels")
    return files, labels or None


def sample_of_image(path: str) -> Sample:
    """Make the sample of an image file."""
    try:
        return Sample(absolute(path), open_storage(path).version, parts=(Part(path),))
    except OSError as error:
        return _faulty(path, error)


def _of_folder(root: str, index_dir: str | None) -> Iterator[Sample]:
    for folder, folders, files in walk(root):
        folders.sort()
        for name in sorted(files):
            kind = kind_of(os.path.join(folder, name))
            if kind not in ("", "list", "folder"):
                yield from _FIND[kind](os.path.join(folder, name), index_dir)


def _of_list(path: str, _: str | None) -> Iterator[Sample]:
    for file in read_list(path)[0]:
        yield sample_of_image(file)


def _of_image(path: str, _: str | None) -> Iterator[Sample]:
    yield sample_of_image(path)


def _of_tar(path: str, index_dir: str | None) -> Iterator[Sample]:
    tar, name = open_storage(path), absolute(path)
    try:
        index = tar_index(tar, index_dir)
    except (OSError, ValueError) as error:
        yield _faulty(path, error)
        return
    texts = Texts(index["endings"], index["ending_ends"])
    endings = [one for one in map(texts.__getitem__, range(len(texts))) if ending(one) in IMAGES]
    rows = select(index, [[one] for one in endings])
    keys = Texts(index["keys"], index["key_ends"])
    for number, own in enumerate(rows.T):
        parts = [Part(path, int(index["offset"][row]), int(index["size"][row])) for row in own if row >= 0]
        if parts:
            yield Sample(f"{name}#{keys[number]}", tar.version, parts=tuple(parts))


def _of_records(format: RecordFormat, kind: str) -> Callable[[str, str | None], Iterator[Sample]]:
    def find(path: str, index_dir: str | None) -> Iterator[Sample]:
        try:
            records = RecordFiles(format, path, index_dir=index_dir)
        except (OSError, ValueError) as error:
            yield _faulty(path, error)
            return
        version, bounds = open_storage(path).version, records.bounds_of(0)
        for number, (begin, end) in enumerate(pairwise(bounds)):
            yield Sample(f"{absolute(path)}#{number}", version, kind, (Part(path, begin, end - begin),))

    return find


def _faulty(path: str, error: Exception) -> Sample:
    """Make the sample that stands for a file that can't be read."""
    let_through(error)
    reason = f"{error.strerror}: {error.filename}" if isinstance(error, OSError) and error.strerror else str(error)
    try:
        version = open_storage(path).version
    except OSError:
        version = ""
    return Sample(absolute(path), version, fault=" ".join(reason.split()))


_FIND: dict[str, Callable[[str, str | None], Iterator[Sample]]] = {
    "folder": _of_folder,
    "list": _of_list,
    "image": _of_image,
    "tar": _of_tar,
    "tfrecord": _of_records(TFRECORD, "tfrecord"),
    "recordio": _of_records(RECORDIO, "recordio"),
}
