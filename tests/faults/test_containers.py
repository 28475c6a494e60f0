"""Containers that are damaged in their structure: right samples or an error that names the file, at once."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest

from torchdali.commands.isolated import run_isolated

from .containers import KINDS, Damage, make_read, write_all
from .trial import COLUMNS, Trial


@pytest.mark.processes
@pytest.mark.slow
def test_damaged_containers(tmp_path: Path, trial: Trial) -> None:
    write_all(tmp_path)
    damages = [Damage(kind, seed) for seed in range(trial.times(5, 300)) for kind in KINDS]
    problems, details = dict.fromkeys(COLUMNS, 0), []
    jobs = trial.times(1, os.cpu_count() or 1)
    counts = {"right": 0, "refused": 0}
    for outcome in run_isolated(partial(make_read, tmp_path), damages, jobs, 60):
        found = outcome.value or {"stuck": "hangs", "crashed": "crashes"}[outcome.fault]
        word = found.split()[0]
        if word in problems:
            problems[word] += 1
            details.append((damages[outcome.number], found, outcome.reason))
        else:
            counts[word] += 1
    assert counts["refused"] > len(damages) / 4 and counts["right"] > len(damages) / 10
    trial.note(f"damaged containers of {len(KINDS)} kinds", len(damages), problems, details[:5])
