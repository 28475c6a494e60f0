"""Reports of `torchdali check`: one line of JSON per sample, appended while the command runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..storage import is_remote

FAULTS = ("crashed", "stuck", "refused", "bad", "oversized")
"""The statuses of samples that `exclude=` leaves out; the other one is "good"."""


@dataclass(frozen=True)
class Entry:
    """The outcome of one sample.

    Attributes:
        path: where the sample is, absolute: "/data/a.jpg", "/data/train.tar#key".
        version: the version of its file, see `storage.Storage.version`.
        status: "good"; or "bad", it does not decode wholly; "refused", no decoder takes it for an image, or it can't be
            read; "oversized", its header promises more than `max_pixels`; "crashed", "stuck".
        decoder: who decodes it in a loader, "dali" or "pillow".
        refused_by: the decoders that refuse it.
        reason: the fault, in words.
        height, width: of the (first) image; 0 where they are not known.
        seconds: the CPU time of decoding.
        digest: of the content; "" where it was not read.
        max_pixels: the limit that it was checked with.
    """

    path: str
    version: str
    status: str
    decoder: str = ""
    refused_by: tuple[str, ...] = ()
    reason: str = ""
    height: int = 0
    width: int = 0
    seconds: float = 0.0
    digest: str = ""
    max_pixels: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Give the plain values."""
        return {**asdict(self), "refused_by": list(self.refused_by)}

    def as_line(self) -> str:
        """Give the line of a report, with its end."""
        return json.dumps(self.as_dict()) + "\n"

    @classmethod
    def of(cls, values: Any) -> Entry:
        """Parse the values of a line.

        Raises:
            ValueError: they are not an entry's.
        """
        if not isinstance(values, dict) or not {"path", "version", "status"} <= values.keys() <= _NAMES:
            raise ValueError("a sample's path, version and status were expected")
        if values["status"] not in ("good", *FAULTS) or not isinstance(values["path"], str):
            raise ValueError(f"a status of good, {', '.join(FAULTS)} was expected, got {values['status']!r:.40}")
        return cls(**{**values, "refused_by": tuple(values.get("refused_by", ()))})


_NAMES = {field.name for field in fields(Entry)}


def read_report(path: str | Path) -> dict[str, Entry]:
    """Read a report: the last entry of each sample, by its path.  A last line without its end is left out.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no report.
    """
    return {entry.path: entry for entry in _entries(path)}


def _entries(path: str | Path) -> Iterator[Entry]:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        for number, line in enumerate(file, 1):
            try:
                yield Entry.of(json.loads(line))
            except (ValueError, TypeError, RecursionError) as error:
                if not line.endswith("\n") and number > 1:
                    return  # the command was killed while it wrote
                raise ValueError(
                    f"a report of `torchdali check` was expected, got {os.fspath(path)}, whose line {number} is none: "
                    f"{error}"
                ) from None


def absolute(path: str) -> str:
    """Give a sample's path as it is in reports."""
    return path if is_remote(path) else os.path.abspath(os.path.expanduser(path.removeprefix("file://")))
