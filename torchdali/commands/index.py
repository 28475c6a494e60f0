"""Build the cached indexes of tars, TFRecords and RecordIO ahead of a job.

PATH is a file, a pattern, or a folder with such files.  Each file is read
once; a dataset then finds its index and starts at once.  Indexes that are
there and fit their file's size and time are kept.
"""

from __future__ import annotations

import argparse
import functools
import os
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

from ..errors import let_through
from ..formats.recordio import RECORDIO
from ..formats.records import RecordFiles
from ..formats.tfrecord import TFRECORD
from ..formats.webdataset import tar_index
from ..progress import progress_bar
from ..storage import open_storage
from .collection import kind_of, named
from .command import UsageError, add_index_dir, add_jobs
from .isolated import run_isolated
from .terminal import note, say, say_json, table

SUMMARY = "build indexes of tars and records ahead of a job"
LONGEST = 24 * 3600.0  # seconds for one file, which may be large and far away
_RECORDS = {"tfrecord": TFRECORD, "recordio": RECORDIO}
_WORDS = {"tar": "samples", "tfrecord": "records", "recordio": "records"}


class Indexed(NamedTuple):
    """The outcome of one file: the number of its samples or records, and the seconds; or an error."""

    number: int
    seconds: float
    error: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="tars, TFRecords and RecordIO")
    add_index_dir(parser)
    add_jobs(parser)


def run(arguments: argparse.Namespace) -> int:
    """Index files; 1: some of them can't be."""
    files = _files(arguments.paths)
    found: dict[int, Indexed] = {}
    with progress_bar("index", len(files), "files") as bar:
        make = functools.partial(make_index, arguments.index_dir)
        for outcome in run_isolated(make, files, arguments.jobs, LONGEST):
            found[outcome.number] = outcome.value if not outcome.fault else Indexed(0, 0.0, outcome.reason)
            bar.update()
    results = [(*file, found[number]) for number, file in enumerate(files)]
    if arguments.json:
        values = [{"path": path, "kind": kind, **result._asdict()} for path, kind, result in results]
        say_json({"command": "index", "files": values})
    else:
        rows = [(path, r.number, _WORDS[kind], f"{r.seconds:.2f} s") for path, kind, r in results if not r.error]
        if rows:
            say(table(rows))
        for path, _, result in results:
            if result.error:
                note(f"torchdali: {path}: {result.error}")
    return 1 if any(result.error for *_, result in results) else 0


def make_index(index_dir: str | None) -> Callable[[tuple[str, str]], Indexed]:
    """Make the function that indexes a file, given by path and kind."""
    return functools.partial(_index, index_dir)


def _index(index_dir: str | None, file: tuple[str, str]) -> Indexed:
    path, kind = file
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            if kind == "tar":
                count = len(tar_index(open_storage(path), index_dir)["key_ends"])
            else:
                count = len(RecordFiles(_RECORDS[kind], [path], index_dir=index_dir))
        except (OSError, ValueError) as error:
            let_through(error)
            return Indexed(0, time.perf_counter() - start, " ".join(str(error).split()))
    lost = [str(one.message) for one in said if "can't be kept" in str(one.message)]
    return Indexed(count, round(time.perf_counter() - start, 3), lost[0] if lost else "")


def _files(paths: list[str]) -> list[tuple[str, str]]:
    """List the files to index, with their kinds.

    Raises:
        UsageError: a path is missing, or is nothing that has an index.
    """
    files: dict[str, str] = {}
    for path, kind in named(paths):
        if kind == "folder":
            inside = [
                os.path.join(folder, name) for folder, _, names in sorted(os.walk(path)) for name in sorted(names)
            ]
            own = {file: kind_of(file) for file in inside if kind_of(file) in _WORDS}
        else:
            own = {path: kind} if kind in _WORDS else {}
        if not own:
            raise UsageError(
                f"tars (.tar), TFRecords (tfrecord in their names) or RecordIO (.rec) expected, got {path}"
            )
        files |= own
    return list(files.items())
