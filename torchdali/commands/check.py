"""Decode a whole collection, and report what a training would stumble over.

PATH is a folder of images, a list of files, or tars, TFRecords and RecordIO;
or a recipe's config (configs/NAME/some.yaml), whose dataset is checked, with
options of the recipe such as --data.root=photos.  Each sample is decoded
whole, by DALI and by Pillow, in processes that may die.

  bad        not whole: a decoder refuses it, such as a truncated JPEG
  refused    no image at all, or it can't be read
  oversized  its header promises more than --max-pixels; it is not decoded
  crashed    a decoder ended its process;  stuck: it did not end in time

These end the command with exit code 1, and exclude=REPORT leaves them out of
a dataset.  Named too: what Pillow decodes in DALI's place, duplicates (equal
content), and slow samples.
"""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import IO, TYPE_CHECKING

from ..formats.report import FAULTS, Entry, read_report
from ..pillow import MAX_PIXELS
from ..progress import progress_bar
from .command import add_index_dir, add_jobs, jobs_of, positive, wrong_input
from .findings import as_json, find, tell, write_csv
from .recipe import add_recipe, check_arguments, is_config, loader_of_arguments
from .terminal import note, say_json

if TYPE_CHECKING:
    from .collection import Sample

SUMMARY = "decode a whole collection and report bad files"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="what to check")
    add_jobs(parser)
    parser.add_argument("--report", metavar="FILE", help="append each outcome to FILE, and skip what stands there")
    parser.add_argument("--csv", metavar="FILE", help="write the findings to FILE")
    parser.add_argument(
        "--slow", type=_factor, default=10.0, metavar="N", help="slow from N times the median on (default: 10)"
    )
    pixels = f"the loader's limit, or none (default: {MAX_PIXELS})"
    parser.add_argument("--max-pixels", type=_pixels, default=MAX_PIXELS, metavar="N", help=pixels)
    parser.add_argument("--timeout", type=_factor, default=60.0, metavar="S", help="seconds per sample (default: 60)")
    add_recipe(parser)
    add_index_dir(parser)


def passes_on(arguments: argparse.Namespace) -> bool:
    """Whether options that are not the command's own belong to a recipe."""
    return any(map(is_config, arguments.paths))


def run(arguments: argparse.Namespace) -> int:
    """Check a collection; 1: it has samples that a loader can't use."""
    samples = _samples(arguments)
    for option in ("report", "csv"):
        if getattr(arguments, option) is not None:
            with wrong_input(f"--{option}"), open(getattr(arguments, option), "a"):
                pass
    entries = _checked(samples, arguments)
    findings = find(entries, arguments.slow)
    if arguments.csv is not None:
        with wrong_input("--csv"):
            write_csv(arguments.csv, findings)
    if arguments.json:
        say_json(as_json(entries, findings))
    else:
        tell(entries, findings, arguments.report)
    return 1 if any(finding.entry.status in FAULTS for finding in findings) else 0


def _samples(arguments: argparse.Namespace) -> list[Sample]:
    from .collection import collect
    from .parts import samples_of

    check_arguments(arguments, arguments.paths, ["index_dir"])
    found: dict[str, Sample] = {}
    for path in arguments.paths:
        if is_config(path):
            with closing(loader_of_arguments(arguments, path)) as loader:
                own = samples_of(loader.source)
        else:
            own = collect([path], arguments.index_dir)
        found |= {sample.path: sample for sample in own}
    return list(found.values())


def _checked(samples: Sequence[Sample], arguments: argparse.Namespace) -> list[Entry]:
    """Examine the samples that do not stand in the report, append them to it, and give all entries in their order."""
    from .examine import make_examine
    from .isolated import run_isolated

    known: dict[str, Entry] = {}
    if arguments.report is not None:
        with wrong_input("--report"):
            known = read_report(arguments.report)
    limit = arguments.max_pixels
    entries = {}
    for sample in samples:
        entry = known.get(sample.path)
        if entry is not None and (entry.version, entry.max_pixels) == (sample.version, limit):
            entries[sample.path] = entry
    if entries:
        note(f"{len(entries)} of {len(samples)} samples stand in {arguments.report}")
    todo = [sample for sample in samples if sample.path not in entries]
    with _appending(arguments.report) as file:

        def keep(entry: Entry) -> None:
            entries[entry.path] = entry
            if file is not None:
                file.write(entry.as_line())

        for sample in todo:
            if sample.fault:
                keep(Entry(sample.path, sample.version, "refused", reason=sample.fault, max_pixels=limit))
        todo = [sample for sample in todo if not sample.fault]
        with progress_bar("check", len(todo), "samples") as bar:
            make = functools.partial(make_examine, limit)
            for outcome in run_isolated(make, todo, jobs_of(arguments), arguments.timeout):
                sample = todo[outcome.number]
                fault = {"status": outcome.fault, "reason": outcome.reason, "max_pixels": limit}
                keep(outcome.value if not outcome.fault else Entry(sample.path, sample.version, **fault))
                bar.update()
    return [entries[sample.path] for sample in samples]


@contextmanager
def _appending(path: str | None) -> Iterator[IO[str] | None]:
    """Open a report to append lines, each written at once, after the end of its last line."""
    if path is None:
        yield None
        return
    with open(path, "rb+") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - (1 << 20)))
        tail = file.read()
        if tail and not tail.endswith(b"\n"):
            file.truncate(end - len(tail) + tail.rfind(b"\n") + 1)  # the command was killed while it wrote
    with open(path, "a", buffering=1) as lines:
        yield lines


def _factor(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not number > 0:
        raise argparse.ArgumentTypeError(f"a number above 0 was expected, got {text!r}")
    return number


def _pixels(text: str) -> int | None:
    return None if text == "none" else positive(text)
