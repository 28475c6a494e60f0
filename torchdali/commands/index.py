"""Build the cached indexes of tars, TFRecords and RecordIO ahead of a job.

PATH is a file, a pattern, or a folder with such files; or a recipe's config
(configs/NAME/some.yaml), whose dataset makes its indexes, those of videos too,
with options of the recipe such as --data.root=shards.  Each file is read once;
a dataset then finds its index and starts at once.  Indexes that are there and
fit their file's size and time are kept.
"""

from __future__ import annotations

import argparse
import functools
import os
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

from ..errors import let_through
from ..progress import progress_bar
from .command import UsageError, add_index_dir, add_jobs, jobs_of, wrong_input
from .recipe import add_recipe, check_arguments, is_config, loader_of_arguments
from .terminal import note, say, say_json, table

SUMMARY = "build indexes of tars and records ahead of a job"
LONGEST = 24 * 3600.0  # seconds for one file, which may be large and far away
_WORDS = {"tar": "samples", "tfrecord": "records", "recordio": "records", "video": "clips"}


class Indexed(NamedTuple):
    """The outcome of one file.

    Attributes:
        number: of its samples or records.
        seconds: that it took; None: the loader of a config has made it, with others.
        error: why it has no index; "": it has one.
    """

    number: int
    seconds: float | None
    error: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="tars, TFRecords and RecordIO")
    add_index_dir(parser)
    add_jobs(parser)
    add_recipe(parser)


def passes_on(arguments: argparse.Namespace) -> bool:
    """Whether options that are not the command's own belong to a recipe."""
    return any(map(is_config, arguments.paths))


def run(arguments: argparse.Namespace) -> int:
    """Index files; 1: some of them can't be."""
    check_arguments(arguments, arguments.paths, ["index_dir"])
    files = _files([path for path in arguments.paths if not is_config(path)])
    results = [one for path in arguments.paths if is_config(path) for one in _of_config(arguments, path)]
    results += _indexed(files, arguments)
    if arguments.json:
        values = [{"path": path, "kind": kind, **result._asdict()} for path, kind, result in results]
        say_json({"command": "index", "files": values})
    else:
        rows = [
            (path, r.number, _WORDS[kind], "" if r.seconds is None else f"{r.seconds:.2f} s")
            for path, kind, r in results
            if not r.error
        ]
        if rows:
            say(table(rows))
        for path, _, result in results:
            if result.error:
                note(f"torchdali: {path}: {result.error}")
    return 1 if any(result.error for *_, result in results) else 0


def _of_config(arguments: argparse.Namespace, config: str) -> list[tuple[str, str, Indexed]]:
    """Make the loader of a config, and with it the indexes of its dataset."""
    from .parts import files_of

    with closing(loader_of_arguments(arguments, config)) as loader, wrong_input(config):
        return [(path, kind, Indexed(number, None)) for path, (kind, number) in files_of(loader.source).items()]


def _indexed(files: list[tuple[str, str]], arguments: argparse.Namespace) -> list[tuple[str, str, Indexed]]:
    from .isolated import run_isolated

    found: dict[int, Indexed] = {}
    with progress_bar("index", len(files), "files") as bar:
        make = functools.partial(make_index, arguments.index_dir)
        for outcome in run_isolated(make, files, jobs_of(arguments), LONGEST):
            found[outcome.number] = outcome.value if not outcome.fault else Indexed(0, 0.0, outcome.reason)
            bar.update()
    return [(*file, found[number]) for number, file in enumerate(files)]


def make_index(index_dir: str | None) -> Callable[[tuple[str, str]], Indexed]:
    """Make the function that indexes a file, given by path and kind."""
    return functools.partial(_index, index_dir)


def _index(index_dir: str | None, file: tuple[str, str]) -> Indexed:
    from ..formats.recordio import RECORDIO
    from ..formats.records import RecordFiles
    from ..formats.tfrecord import TFRECORD
    from ..formats.webdataset import tar_index
    from ..storage import open_storage

    path, kind = file
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            if kind == "tar":
                count = len(tar_index(open_storage(path), index_dir)["key_ends"])
            else:
                count = len(RecordFiles(TFRECORD if kind == "tfrecord" else RECORDIO, [path], index_dir=index_dir))
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
    from .collection import kind_of, named

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
