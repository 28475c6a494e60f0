"""The migration guide, docs/coming-from.md: the rows of its tables, and the tests that stand for them."""

from __future__ import annotations

import re
from collections.abc import Callable

from .launcher import ROOT

GUIDE = (ROOT / "docs" / "coming-from.md").read_text()
SECTIONS = dict(re.findall(r"^## From (.+?)\n(.*?)(?=^## |\Z)", GUIDE, re.MULTILINE | re.DOTALL))
"""The text of each section, by what one comes from."""

Test = Callable[..., None]


class Rows:
    """Marks the tests of the rows of some sections: `@row(left cell)`."""

    def __init__(self, *sections: str) -> None:
        self.sections = sections
        self.tested: dict[str, Test] = {}

    def __call__(self, left: str) -> Callable[[Test], Test]:
        def mark(test: Test) -> Test:
            assert left not in self.tested, left
            self.tested[left] = test
            return test

        return mark

    def check(self) -> None:
        """Assert that each row has a test, and each test a row."""
        rows = [
            line.split(" | ")[0].removeprefix("| ")
            for section in self.sections
            for line in SECTIONS[section].splitlines()
            if line.startswith("| ") and not re.match(r"\| \w+ \| torchdali \|", line)
        ]
        assert len(set(rows)) == len(rows)
        assert set(rows) == set(self.tested)
