"""The short form of benchmarks/soak.py, and that it would see a leak."""

from __future__ import annotations

import importlib.util
import os
import threading
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from ..launcher import ROOT
from .trial import Trial


@pytest.fixture(scope="module")
def soak() -> ModuleType:
    spec = importlib.util.spec_from_file_location("soak", ROOT / "benchmarks" / "soak.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.POINTS = 6  # each costs a garbage collection
    return module


@pytest.mark.slow
def test_small_batches_leave_nothing(soak: ModuleType, own_folder: Path, trial: Trial) -> None:
    """Epochs of eleven batches; each ends its threads."""
    count = trial.times(110, 4000)
    found = soak.batches(count, own_folder, "auto")
    trial.note("small batches, one after the other", count, {"crashes": len(found["problems"])}, found)


@pytest.mark.slow
def test_a_leak_is_seen(soak: ModuleType) -> None:
    held: list[object] = []
    assert soak.watch("nothing", 6, lambda _: None)["problems"] == []
    # 64 MiB at a time: the allocator takes smaller arrays from what the process already holds.
    (problem,) = soak.watch("memory", 6, lambda _: held.append(np.ones(2**23)))["problems"]
    assert problem.startswith("memory grew by")
    held.clear()
    files: list[int] = []
    (problem,) = soak.watch("files", 6, lambda _: files.append(os.open(os.devnull, os.O_RDONLY)))["problems"]
    assert problem.startswith("descriptors grew from")
    for file in files:
        os.close(file)
    gate = threading.Event()
    threads: list[threading.Thread] = []

    def start(_: int) -> None:
        threads.append(threading.Thread(target=gate.wait))
        threads[-1].start()

    problems = soak.watch("threads", 6, start)["problems"]
    gate.set()
    for thread in threads:
        thread.join()
    assert any(problem.startswith("threads grew from") for problem in problems)
