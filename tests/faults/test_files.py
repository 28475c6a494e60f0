"""Files that change, storage that does not answer, disks and tables that are full."""

from __future__ import annotations

import io
import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torchdali as td
from torchdali import transforms as T
from torchdali import watchdog
from torchdali.testing import garble_file, make_image_folder, sample_digests, truncate_file

from ..launcher import start_code
from ..patience import PATIENCE, wait_until
from .trial import Trial, compare

TRANSFORM = T.RandomResizedCrop(8)
CHANGES: dict[str, Callable[[Path], object]] = {
    "removed": lambda path: path.unlink(),
    "emptied": lambda path: path.write_bytes(b""),
    "truncated": truncate_file,
    "garbled": garble_file,
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "not readable": lambda path: (path.unlink(), path.symlink_to(path)),  # a loop: root may read all else
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_files_that_change_in_mid_epoch(engine: str, tmp_path: Path, trial: Trial) -> None:
    """The changed ones are left out, each with its reason; all others come once, as they were."""
    rng = random.Random(engine)
    many, tried = trial.times(7, 70), 0
    problems = dict.fromkeys(("wrong", "lost", "repeated", "crashes"), 0)
    details = []
    for number in range(many):
        folder = make_image_folder(tmp_path / str(number), classes=2, per_class=11, seed=number)
        data = td.ImageFolder(folder, fields=("image", "index"))
        options = dict(shuffle=True, seed=number, device="cpu", transform=TRANSFORM, engine=engine, timeout=30)

        clean = {}
        for batch in td.DataLoader(data, 4, **options):
            clean |= dict(zip(batch[1].tolist(), sample_digests(batch), strict=True))
        loader = td.DataLoader(data, 4, on_bad_sample="skip", **options)
        batches = iter(loader)
        found = dict(zip((first := next(batches))[1].tolist(), sample_digests(first), strict=True))
        order = [int(i) for step in loader.steps() for i in step.rows.indices]
        # Nothing of these was read ahead; and a batch of which nothing was left would take a substitute.
        changed = [*rng.sample(order[16:20], 2), order[20]]
        how = list(CHANGES)[number % len(CHANGES)]
        for index in changed:
            CHANGES[how](Path(data.samples[index][0]))
        tried += len(changed)
        got = list(found)
        for batch in batches:
            got += batch[1].tolist()
            found |= dict(zip(batch[1].tolist(), sample_digests(batch), strict=True))
        bad = {one.index for one in loader.bad_samples}
        # A cut may lie behind the window of a crop, whose pixels are as they were then.
        for name, count in compare([i for i in order if i not in changed], got).items():
            problems[name] += count
        problems["crashes"] += bad - set(changed) != set()
        problems["wrong"] += sum(found[i] != clean[i] for i in found)
        problems["wrong"] += len(set(changed) - bad - set(found))
        if any(problems.values()) and not details:
            details.append((how, changed, bad, problems.copy()))
    trial.note(f"files change in mid-epoch, {engine}", tried, problems, details)


def test_files_that_are_replaced_in_mid_epoch(tmp_path: Path, trial: Trial) -> None:
    """Each sample is the old file or the new one, as a whole; never a mixture."""
    old, new = (make_image_folder(tmp_path / name, 2, 8, seed) for seed, name in enumerate(("old", "new")))

    def stream(folder: Path) -> dict[int, str]:
        found: dict[int, str] = {}
        loader = td.DataLoader(td.ImageFolder(folder, fields=("image", "index")), 1, device="cpu", transform=TRANSFORM)
        for batch in loader:
            found |= dict(zip(batch[1].tolist(), sample_digests(batch), strict=True))
        return found

    possible = [stream(old), stream(new)]
    files = [Path(path) for path, _ in td.ImageFolder(old).samples]
    data = [
        [path.read_bytes() for (path,) in zip(map(Path, (p for p, _ in td.ImageFolder(f).samples)))] for f in (old, new)
    ]
    stop = threading.Event()

    def replace() -> None:
        rng = random.Random(0)
        while not stop.is_set():
            number = rng.randrange(len(files))
            part = files[number].with_suffix(".part")
            part.write_bytes(data[rng.randrange(2)][number])
            os.replace(part, files[number])

    thread = threading.Thread(target=replace)
    thread.start()
    many, wrong = 0, 0
    try:
        for _ in range(trial.times(3, 60)):
            for number, digest in stream(old).items():
                many += 1
                wrong += digest not in (possible[0][number], possible[1][number])
    finally:
        stop.set()
        thread.join(PATIENCE)
    trial.note("files are replaced while they are read", many, {"wrong": wrong})


# A read that never returns


class Silent(td.ImageFolder):
    """A file of it does not answer, as on a mount whose server is gone."""

    gate = threading.Event()

    def read_columns(self, indices: Any, names: Any) -> Any:
        if 9 in np.asarray(indices):
            self.gate.wait(PATIENCE)
        return super().read_columns(indices, names)


def test_a_read_that_never_returns_is_an_error_that_names_its_place(
    folder: Path, capsys: pytest.CaptureFixture[str], trial: Trial
) -> None:
    data = Silent(folder, fields=("image", "index"))
    try:
        loader = td.DataLoader(data, 4, device="cpu", transform=TRANSFORM, timeout=2, engine="eager")
        iterator = iter(loader)
        for _ in range(2):
            state = next(iterator) and loader.state_dict()
        with pytest.raises(
            td.LoaderTimeoutError, match=r"read at epoch 0, sample 8, for .* ended at epoch 0, sample 8"
        ):
            next(iterator)
        assert "in read_columns" in capsys.readouterr().err
        assert loader.state_dict() == state
    finally:
        data.gate.set()
    assert [i for batch in iterator for i in batch[1].tolist()] == list(range(8, 22))  # it was only slow
    trial.note("a read that never returns", 1)


@pytest.mark.processes
@pytest.mark.slow
def test_a_process_ends_beside_what_never_returns(folder: Path, tmp_path: Path, trial: Trial) -> None:
    """A read in a thread that reads alone; one of several that read, as from slow disks; a function of a sample."""
    code = """
        import sys, time
        import numpy as np
        import torchdali as td
        import torchdali.source

        class Silent(td.ImageFolder):
            def read_columns(self, indices, names):
                time.sleep(0.01 * len(indices))
                if {place} in np.asarray(indices):
                    time.sleep(10_000)
                return super().read_columns(indices, names)

        def silent(image):
            time.sleep(10_000)

        import torchdali.engine.run
        torchdali.engine.run.LATE_TIMEOUT = 1.0
        resize, call = td.transforms.Resize((8, 8)), td.transforms.PerSample(silent)
        transform = resize if {place} >= 0 else td.transforms.Compose([resize, call])
        iterator = iter(td.DataLoader(Silent(sys.argv[1]), 4, device="cpu", transform=transform, timeout=3))
        try:
            for _ in iterator:
                pass
        except td.LoaderTimeoutError:
            print("told", flush=True)
        sys.exit(7)
    """
    hangs = 0
    for number, place in enumerate((0, 13, -1)):
        (tmp_path / str(number)).mkdir()
        program = start_code(code.replace("{place}", str(place)), tmp_path / str(number), folder)
        try:
            out, errors = program.communicate(60)
            assert "told" in out and program.returncode == 7, errors
        except Exception as error:
            if type(error).__name__ != "TimeoutExpired":
                raise
            hangs += 1
            program.terminate()
            program.communicate(60)
    trial.note("the exit beside a read, or a function, that never returns", 3, {"hangs": hangs})


class Piped(torch.utils.data.Dataset[float]):
    """A file of it is a pipe that none writes to."""

    def __init__(self, path: Path, at: int) -> None:
        self.path, self.at = path, at

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> float:
        return float(self.path.read_text()) if index == self.at else float(index)


def answered(path: Path, monkeypatch: pytest.MonkeyPatch, wait: Callable[[], Any]) -> tuple[Any, str]:
    """Wait for a pipe, to which a word is written when standard error has a report; the outcome, and the report."""
    told = io.StringIO()
    monkeypatch.setattr(sys, "stderr", told)

    def answer() -> None:
        if wait_until(lambda: "stands here" in told.getvalue(), PATIENCE):
            path.write_text("41")

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        return wait(), told.getvalue()
    finally:
        thread.join(PATIENCE)


def test_a_wait_in_the_callers_thread_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial: Trial) -> None:
    """Nothing can end a read there: it is said once what is waited for, and then it goes on."""
    os.mkfifo(path := tmp_path / "pipe")
    iterator = iter(td.DataLoader(Piped(path, 5), 4, device="cpu", timeout=0.4))
    first = next(iterator)
    second, told = answered(path, monkeypatch, lambda: next(iterator))
    assert [*first.tolist(), *second.tolist()] == [0, 1, 2, 3, 4, 41, 6, 7]
    assert "no batch within 0.4 s; the stages stand at: read at epoch 0, sample 4, for " in told
    assert "The last batch ended at epoch 0, sample 4.  The call goes on" in told
    assert "self.path.read_text()" in told and told.count("stands here") == 1
    assert next(iterator, None) is None
    trial.note("a wait in the caller's thread", 1)


def test_a_wait_before_the_first_batch_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trial: Trial) -> None:
    """The making of a dataset reads its index, and the beginning of a pass one sample of Python code."""
    os.mkfifo(path := tmp_path / "pipe")
    monkeypatch.setattr(watchdog, "SLOW", 0.4)

    def make() -> Any:
        with pytest.raises(ValueError, match="pipe"):
            td.CocoDataset(tmp_path, path)

    _, told = answered(path, monkeypatch, make)
    assert "the making of CocoDataset has taken 0.4 s so far" in told and "in test_a_wait_before" in told

    data = Piped(path, 0)

    def begin() -> Any:
        iterator = iter(td.DataLoader(data, 4, device="cpu"))
        data.at = 0
        return next(iterator)

    def read_once(index: int, original: Any = data.__getitem__) -> float:
        value = original(index)
        data.at = -1  # the pipe is empty now
        return value

    monkeypatch.setattr(Piped, "__getitem__", lambda self, index: read_once(index))
    batch, told = answered(path, monkeypatch, begin)
    assert "the beginning of a pass has taken 0.4 s so far" in told and batch.tolist() == [0, 1, 2, 3]
    trial.note("a wait before the first batch", 2)


# What is full


def test_a_full_disk_leaves_the_old_checkpoint(folder: Path, tmp_path: Path, trial: Trial) -> None:
    """The state is some numbers, which a failed save does not move: the next one is as good."""
    loader = td.DataLoader(td.ImageFolder(folder, fields=("image", "index")), 4, device="cpu", transform=TRANSFORM)
    path = tmp_path / "checkpoint.pt"
    seen: list[int] = []
    failures = wrong = 0
    for number, batch in enumerate(loader):
        seen += batch[1].tolist()
        if number % 2 == 0:
            torch.save(loader.state_dict(), path)
            saved = len(seen)
        else:
            before = loader.state_dict()
            with pytest.raises((OSError, RuntimeError)), open("/dev/full", "wb") as full:
                torch.save({"loader": loader.state_dict(), "model": torch.zeros(100_000)}, full)
            failures += 1
            wrong += loader.state_dict() != before
            again = td.DataLoader(td.ImageFolder(folder, fields=("index",)), 4, device="cpu")
            again.load_state_dict({**torch.load(path, weights_only=True), "dataset": again.state_dict()["dataset"]})
            wrong += [i for (index,) in again for i in index.tolist()] != list(range(saved, 22))
    assert seen == list(range(22))
    trial.note("the disk is full while a checkpoint is written", failures, {"wrong": wrong})


def test_no_thread_can_be_started(folder: Path, monkeypatch: pytest.MonkeyPatch, trial: Trial) -> None:
    """The error is the system's, at once; the loader stands where it stood."""
    loader = td.DataLoader(td.ImageFolder(folder, fields=("image", "index")), 4, device="cpu", transform=TRANSFORM)
    start, tries = threading.Thread.start, trial.times(3, 9)
    for allowed in range(tries):
        left = [allowed % 3]  # a fourth is started only where the reads are slow

        def limited_start(thread: threading.Thread, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise RuntimeError("can't start new thread")
            start(thread)

        before = loader.state_dict()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", limited_start)
            with pytest.raises((RuntimeError, td.LoaderTimeoutError)):
                next(iter(loader))
        loader.close()
        loader.load_state_dict(before)
        assert loader.state_dict() == before
    seen = [i for batch in loader for i in batch[1].tolist()]
    trial.note("no thread can be started", tries, compare(list(range(22)), seen))
