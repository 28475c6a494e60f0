"""One kind of fault, injected many times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
RESULTS = "TORCHDALI_RELIABILITY"  # the file that scripts/reliability reads; without it, tests are short
COLUMNS = ("wrong", "lost", "repeated", "hangs", "crashes")


class Trial:
    """Counts what came of a fault.

    Args:
        test: the test's name.
        results: takes a line for each kind of fault; None: the short form.
    """

    def __init__(self, test: str, results: Path | str | None) -> None:
        self._test, self._results = test, results

    @property
    def long(self) -> bool:
        return bool(self._results)

    def times(self, short: T, long: T) -> T:
        """Give one of two, by the form that runs."""
        return long if self.long else short

    def note(self, what: str, many: int, problems: dict[str, int] | None = None, detail: object = "") -> None:
        """Take the outcome of a kind of fault, and fail where anything was wrong.

        Args:
            what: the fault.
            many: how often it was injected.
            problems: counts, by `COLUMNS`.
            detail: for the error.
        """
        found = {name: int(count) for name, count in (problems or {}).items() if count}
        assert set(found) <= set(COLUMNS)
        if self._results:
            with open(self._results, "a") as file:
                file.write(json.dumps({"test": self._test, "what": what, "many": many, **found}) + "\n")
        assert many, f"{what}: nothing was tried"
        assert not found, f"{what}: {found} in {many}: {detail}"


def compare(expected: list[int], got: list[int]) -> dict[str, int]:
    """Count the samples that were lost, and those that came more than once."""
    return {"lost": len(set(expected) - set(got)), "repeated": len(got) - len(set(got))}
