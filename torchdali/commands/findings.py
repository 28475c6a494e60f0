"""The findings of `check`: what is to be said about samples, as text, JSON and CSV."""

from __future__ import annotations

import csv
import dataclasses
import io
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..formats.report import FAULTS, Entry
from .terminal import one_line, say, table

SHOWN = 20  # samples of each finding that are printed


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


def as_json(entries: Sequence[Entry], findings: Sequence[Finding]) -> dict[str, Any]:
    """Give the findings with their numbers, as plain values."""
    return {
        "command": "check",
        "summary": _count(entries, findings),
        "median_seconds": median(entries),
        "findings": [finding.as_dict() for finding in findings],
    }


def write_csv(path: str, findings: Sequence[Finding]) -> None:
    """Write one line per finding."""
    columns = [field.name for field in dataclasses.fields(Entry)]
    text = io.StringIO()
    writer = csv.DictWriter(text, [*columns, "findings", "same_as"])
    writer.writeheader()
    for finding in findings:
        values = finding.as_dict()
        writer.writerow(values | {name: " ".join(values[name]) for name in ("findings", "refused_by")})
    with open(path, "w", newline="", encoding="utf-8", errors="surrogateescape") as file:
        file.write(text.getvalue())


def tell(entries: Sequence[Entry], findings: Sequence[Finding], report: str | None) -> None:
    """Print the findings, some of each, their numbers, and how a dataset leaves out what stands in the report."""
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
    if report is not None and any(counts[kind] for kind in FAULTS):
        say(f"A dataset leaves them out by exclude={report!r}.")


def _detail(kind: str, finding: Finding) -> str:
    entry = finding.entry
    if kind == "duplicate":
        return f": as {finding.same_as}"
    if kind == "slow":
        return f": {entry.seconds * 1000:.1f} ms, {entry.width} x {entry.height}"
    return f": {entry.reason}" if entry.reason else ""
