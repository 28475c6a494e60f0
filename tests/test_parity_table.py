"""The parity table has a row for every transform that is exported, or says why there is none."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

from torchdali import transforms as T

FOLDER = Path(__file__).parent.parent / "benchmarks"


def test_every_export_has_a_row_or_a_reason(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    parity = runpy.run_path(str(FOLDER / "parity.py"))
    import parity_moves
    import parity_sounds

    rows = [*parity["cases"](), *parity_moves.CASES, *(case[0] for case in parity_sounds.cases())]
    rows += [name for name, _ in parity_sounds.drawn()]
    named = {re.match(r"\w+", row)[0] for row in rows}
    elsewhere = {name for names in parity["ELSEWHERE"].values() for name in names}
    assert not named & elsewhere
    assert named - {"resampling"} | elsewhere == set(T.__all__)
    table = (FOLDER / "parity.md").read_text()
    assert all(f"| {row} |" in table for row in rows), "run benchmarks/parity.py again"
    for module in ("parity_moves", "parity_sounds"):
        sys.modules.pop(module)
