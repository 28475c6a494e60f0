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
import csv
import dataclasses
import functools
import io
import os
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import IO, Any, NamedTuple

from ..formats.report import FAULTS, Entry, read_report
from ..pillow import MAX_PIXELS
from ..progress import progress_bar
from .collection import Sample, collect
from .command import add_index_dir, add_jobs, positive, wrong_input
from .examine import make_examine
from .isolated import run_isolated
from .parts import samples_of
from .recipe import add_recipe, check_arguments, is_config, loader_of_arguments
from .terminal import note, one_line, say, say_json, table

SUMMARY = "decode a whole collection and report bad files"
SHOWN = 20  # samples of each finding that are printed


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
            _write_csv(arguments.csv, findings)
    if arguments.json:
        say_json(_as_json(entries, findings))
    else:
        _tell(entries, findings, arguments)
    return 1 if any(finding.entry.status in FAULTS for finding in findings) else 0


def _samples(arguments: argparse.Namespace) -> list[Sample]:
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
            for outcome in run_isolated(make, todo, arguments.jobs, arguments.timeout):
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


# Findings


class Finding(NamedTuple):
    """A sample with something to say about it.

    Attributes:
        entry: its entry.
        kinds: its status, unless that is "good"; "pillow", "duplicate", "slow".
        same_as: the path of the first sample with this content.
    """

    entry: Entry
    kinds: tuple[str, ...]
    same_as: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Give the plain values."""
        return {**self.entry.as_dict(), "findings": list(self.kinds), "same_as": self.same_as}


KINDS = (*FAULTS, "pillow", "duplicate", "slow")
MEANING = {
    "crashed": "ended a decoder's process",
    "stuck": "took longer than --timeout",
    "refused": "are no images, or can't be read",
    "bad": "do not decode wholly",
    "oversized": "promise more than --max-pixels",
    "pillow": "are decoded by Pillow",
    "duplicate": "have the content of another one",
    "slow": "take many times the median to decode",
}


def find(entries: Sequence[Entry], slow: float) -> list[Finding]:
    """Find what is to be said about samples; those that take more than `slow` times the median are slow."""
    middle = median(entries)
    first: dict[str, str] = {}
    findings = []
    for entry in entries:
        kinds = [entry.status] if entry.status in FAULTS else []
        if entry.status == "good" and entry.decoder == "pillow":
            kinds.append("pillow")
        same_as = first.setdefault(entry.digest, entry.path) if entry.digest else entry.path
        if same_as != entry.path:
            kinds.append("duplicate")
        if entry.decoder and entry.seconds > slow * middle:
            kinds.append("slow")
        if kinds:
            findings.append(Finding(entry, tuple(kinds), same_as if same_as != entry.path else ""))
    return findings


def median(entries: Sequence[Entry]) -> float:
    """Give the median of the CPU time that decoding took, in seconds."""
    return statistics.median([entry.seconds for entry in entries if entry.decoder] or [0.0])


def _count(entries: Sequence[Entry], findings: Sequence[Finding]) -> dict[str, int]:
    counted = Counter(kind for finding in findings for kind in finding.kinds)
    good = sum(entry.status == "good" for entry in entries)
    return {"samples": len(entries), "good": good, **{kind: counted[kind] for kind in KINDS}}


def _as_json(entries: Sequence[Entry], findings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "command": "check",
        "summary": _count(entries, findings),
        "median_seconds": median(entries),
        "findings": [finding.as_dict() for finding in findings],
    }


def _write_csv(path: str, findings: Sequence[Finding]) -> None:
    columns = [field.name for field in dataclasses.fields(Entry)]
    text = io.StringIO()
    writer = csv.DictWriter(text, [*columns, "findings", "same_as"])
    writer.writeheader()
    for finding in findings:
        values = finding.as_dict()
        writer.writerow(values | {name: " ".join(values[name]) for name in ("findings", "refused_by")})
    with open(path, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text.getvalue())


def _tell(entries: Sequence[Entry], findings: Sequence[Finding], arguments: argparse.Namespace) -> None:
    counts = _count(entries, findings)
    for kind in KINDS:
        own = [finding for finding in findings if kind in finding.kinds]
        if not own:
            continue
        say(f"{kind}: {len(own)} {MEANING[kind]}")
        for finding in own[:SHOWN]:
            say(one_line(f"  {finding.entry.path}{_detail(kind, finding)}"))
        if len(own) > SHOWN:
            say(f"  and {len(own) - SHOWN} more: --json or --csv FILE give all")
        say("")
    say(table([(name, count) for name, count in counts.items()]))
    say(f"\nmedian decode time: {median(entries) * 1000:.2f} ms")
    if arguments.report is not None and any(counts[kind] for kind in FAULTS):
        say(f"A dataset leaves them out by exclude={arguments.report!r}.")


def _detail(kind: str, finding: Finding) -> str:
    entry = finding.entry
    if kind == "duplicate":
        return f": as {finding.same_as}"
    if kind == "slow":
        return f": {entry.seconds * 1000:.1f} ms, {entry.width} x {entry.height}"
    return f": {entry.reason}" if entry.reason else ""


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
