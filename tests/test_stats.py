"""`loader.stats()`: where the time goes, and the sentence that says what to change."""

from __future__ import annotations

import itertools
import json
import pickle
import shutil
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import torchdali as td
from torchdali import transforms as T
from torchdali.clock import STAGES
from torchdali.testing import garble_file, make_image_folder

ODD = Path(__file__).parent / "data" / "odd-images"
LONG = 0.02  # seconds; what sleeps so long for each batch is the limit, on any machine


class Slow(torch.utils.data.Dataset[Any]):
    """A dataset of Python code that takes its time."""

    def __init__(self, seconds: float = LONG) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return np.full(3, index, np.float32), index


class SlowDisk(td.InMemoryDataset):
    def read_columns(self, indices: Any, names: Any) -> Any:
        time.sleep(LONG)
        return super().read_columns(indices, names)


def numbers(n: int = 24) -> td.InMemoryDataset:
    return td.InMemoryDataset(x=np.arange(3 * n, dtype=np.float32).reshape(n, 3))


def run(dataset: Any, step: float = 0.0, **options: Any) -> td.DataLoader:
    """Iterate over a loader, with a training step that takes some seconds."""
    loader = td.DataLoader(dataset, device="cpu", **{"batch_size": 2, **options})
    for _ in loader:
        time.sleep(step)
    return loader


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_image_folder(tmp_path_factory.mktemp("photos"), classes=2, per_class=8)


CROP = T.Compose([T.RandomResizedCrop(16), T.Normalize((0.5,) * 3, (0.5,) * 3)])


@pytest.mark.parametrize("engine", ["pipeline", "eager"])
def test_every_stage_has_its_time_and_the_loop_has_all_of_its_own(photos, engine):
    loader = run(td.ImageFolder(photos), transform=CROP, engine=engine)
    stats = loader.stats()
    assert (stats.batches, stats.samples, stats.passes) == (8, 16, 1) and stats.samples_per_second > 0
    work = {"order", "storage", "header", "parameters", "decode", "transform", "collate"}
    assert stats.stages.keys() >= work | {"wait", "form", "step", "room"}
    assert all(0 <= stage.share <= 1 and stage.per_batch >= 0 for stage in stats.stages.values())
    assert sum(stats.stages[name].share for name in ("wait", "form", "step")) == pytest.approx(1)
    assert 0 < stats.start < stats.seconds and stats.bytes == sum(p.stat().st_size for p in photos.rglob("*.jpg"))
    assert {name: level.size for name, level in stats.queues.items()} == {"read": 1, "decode": 1, "transform": 2}
    assert all(0 <= level.mean <= level.size for level in stats.queues.values())
    assert 0 < stats.memory.process <= stats.memory.peak and stats.memory.workers == 0
    assert json.loads(json.dumps(stats.as_dict())) == stats.as_dict()
    assert stats.engine == engine and f"{stats.batches} batches" in str(stats) and str(stats).endswith(stats.advice)
    assert loader._passes.recorder._clocks == []  # of threads that have ended


def test_in_the_callers_thread_all_stages_are_its_own(photos):
    stats = run(td.ImageFolder(photos), transform=CROP, prefetch_factor=0).stats()
    assert sum(stage.share for stage in stats.stages.values()) == pytest.approx(1, abs=0.05)
    assert stats.queues == {} and "decode" in stats.stages and "prefetch_factor=2" in stats.advice


def test_it_answers_at_any_time():
    loader = td.DataLoader(numbers(), batch_size=2, device="cpu")
    before = loader.stats()
    assert before.batches == 0 and "no batch was made yet" in str(before)
    iterator = iter(loader)
    next(iterator)
    assert "only first batches" in loader.stats().advice
    next(iterator)
    middle = loader.stats(reset=True)
    assert middle.batches == 2 and middle.stages
    next(iterator)
    assert loader.stats().batches == 1
    del iterator  # as `break` does: what follows is no training step
    ended = loader.stats().seconds
    time.sleep(LONG)
    assert loader.stats().seconds == ended
    assert pickle.loads(pickle.dumps(loader)).stats().batches == 0


def test_the_sentence_says_what_is_the_limit():
    def advice(dataset: Any, **options: Any) -> str:
        return run(dataset, **options).stats().advice

    def slowly(sample: Any) -> Any:
        time.sleep(LONG)
        return sample

    assert advice(numbers(), step=LONG).startswith("the training step is the limit: the loader waits")
    assert advice(SlowDisk(x=np.zeros((24, 3), np.float32))).startswith("storage is the limit")
    python = advice(Slow())
    assert python.startswith("Python code is the limit") and "num_workers=" in python
    assert advice(numbers(), transform=T.PerSample(slowly)).startswith("the transform is the limit")
    assert advice(numbers(), batch_transform=slowly).startswith("the caller's thread is the limit")


def test_the_time_in_workers_counts(tmp_path):
    loader = td.DataLoader(Slow(), batch_size=2, device="cpu", num_workers=2, persistent_workers=True)
    with loader:
        for _ in loader:
            pass
        stats = loader.stats(trace=tmp_path / "trace.json")
    assert stats.advice.startswith("Python code in workers is the limit") and stats.num_workers == 2
    assert stats.stages["workers"].per_batch >= 2 * LONG and 0 < stats.stages["workers"].share <= 1
    assert stats.memory.workers > 0 and "worker processes" in str(stats)
    names = {event["args"]["name"] for event in events(tmp_path / "trace.json") if event["ph"] == "M"}
    assert {"worker 0", "worker 1", "caller"} <= names


def test_repairs_substitutes_and_pillows_files_are_counted(tmp_path):
    root = make_image_folder(tmp_path, classes=2, per_class=4)
    garble_file(root / "class_0" / "0001.jpg")
    shutil.copy(ODD / "hopper.gif", root / "class_1" / "one.gif")
    dataset = td.ImageFolder(root, extensions=(".jpg", ".gif"))
    stats = run(dataset, transform=CROP, on_bad_sample="substitute").stats()
    assert (stats.repairs, stats.substitutes, stats.skipped, stats.pillow) == (1, 1, 0, 1)
    assert "substitutes: 1" in str(stats)
    stats = run(dataset, transform=CROP, on_bad_sample="skip").stats()
    assert (stats.substitutes, stats.skipped, stats.samples) == (0, 1, 8)


def events(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return found


def test_the_trace_has_all_threads_and_no_thread_is_at_two_places(photos, tmp_path):
    run(td.ImageFolder(photos), step=0.001, transform=CROP).stats(trace=str(tmp_path / "trace.json"))
    rows = defaultdict(list)
    for event in events(tmp_path / "trace.json"):
        if event["ph"] == "X":
            rows[event["tid"]].append(event)
    found = {event["name"] for row in rows.values() for event in row}
    assert len(rows) == 4 and found <= set(STAGES) and {"storage", "decode", "transform", "step", "wait"} <= found
    for row in rows.values():
        for one, other in itertools.pairwise(row):
            assert one["dur"] >= 0 and one["ts"] + one["dur"] <= other["ts"] + 0.01


def test_torchs_profiler_shows_the_stages(photos):
    everywhere = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    for options, config in (({"prefetch_factor": 0}, None), ({}, everywhere)):
        loader = td.DataLoader(td.ImageFolder(photos), batch_size=2, transform=CROP, device="cpu", **options)
        iterator = iter(loader)
        next(iterator)
        with profile(activities=[ProfilerActivity.CPU], experimental_config=config) as profiler:
            for _ in iterator:
                pass
        names = {event.key for event in profiler.key_averages()}
        assert {"torchdali.decode", "torchdali.transform", "torchdali.wait"} <= names
        assert "torchdali.step" not in names


def test_nvtx_ranges_are_closed(photos, monkeypatch):
    """There is no GPU here: the ranges are looked at where torch would hand them on."""
    open_ranges: list[str] = []
    seen = set()

    def push(name: str) -> None:
        open_ranges.append(name)
        seen.add(name)

    monkeypatch.setattr(torch.cuda.nvtx, "range_push", push)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: open_ranges.pop())
    loader = td.DataLoader(td.ImageFolder(photos), batch_size=2, transform=CROP, device="cpu", prefetch_factor=0)
    iterator = iter(loader)
    next(iterator)
    loader._passes.recorder.nvtx = True
    for _ in iterator:
        assert open_ranges == []  # the caller's own ranges are not inside ours
    assert {"torchdali.decode", "torchdali.transform", "torchdali.collate"} <= seen


def test_wrong_arguments(photos):
    loader = td.DataLoader(td.ImageFolder(photos), device="cpu")
    with pytest.raises(TypeError, match="reset must be True or False, got 'yes'"):
        loader.stats(reset="yes")
    with pytest.raises(TypeError, match=r"trace must be the path of a file, such as 'trace\.json', got 3"):
        loader.stats(trace=3)
    with pytest.raises(FileNotFoundError):
        loader.stats(trace=photos / "missing" / "trace.json")
