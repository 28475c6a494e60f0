"""Odd and damaged image files in containers: DALI's readers and our datasets give the right pixels or name the file."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from torchdali.commands.isolated import run_isolated

from .readers import CONTAINERS, Round, make_read
from .trial import COLUMNS, Trial


@pytest.mark.processes
@pytest.mark.slow
def test_odd_files_in_containers(tmp_path: Path, trial: Trial) -> None:
    hows = [("", 0), ("cut", 1), ("flipped", 2)]
    rounds = [
        Round(container, how, seed, engine, trial.times(30, 1))
        for number, container in enumerate(CONTAINERS)
        for k, (how, seed) in enumerate(hows)
        for j, engine in enumerate(("eager", "pipeline"))
        if trial.long or (number + k + j) % 6 == 0
    ]
    counts: Counter[str] = Counter()
    details = []
    for outcome in run_isolated(partial(make_read, str(tmp_path)), rounds, trial.times(1, os.cpu_count() or 1), 120):
        found = outcome.value or {{"stuck": "hangs", "crashed": "crashes"}[outcome.fault]: 1}
        counts += Counter(found)
        if set(found) & set(COLUMNS):
            details.append((rounds[outcome.number], found, outcome.reason))
    assert counts["equal"] > 0 and counts["refused"] > 0
    many = sum(counts.values()) - counts["repeated"]
    trial.note("odd files in seven containers", many, {name: counts[name] for name in COLUMNS}, details[:5])
