"""Signals to a whole job, and exceptions of signal handlers: the training script decides what they mean."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from torch.utils.data import IterableDataset

import torchdali as td
from torchdali import transforms as T
from torchdali.errors import displaced

from .patience import PATIENCE, wait_until
from .signals_job import SIGNALS, make_loader
from .workers_helpers import METHODS, wait_gone

pytestmark = pytest.mark.timeout(300)


def of_group(group: int) -> set[int]:
    """The processes of a process group that run."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            status, _, its_group = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and status != "Z":
            found.add(int(pid))
    return found


@pytest.mark.processes
@pytest.mark.parametrize("method", METHODS)
def test_a_warned_job_saves_its_checkpoint_and_goes_on(method, tmp_path):
    """As a cluster's scheduler warns it; its workers and the fork server live as long as it does."""
    command = [sys.executable, "-W", "error", str(Path(__file__).with_name("signals_job.py")), method, tmp_path / "out"]
    with subprocess.Popen(
        command, stdin=-1, stdout=-1, stderr=-1, text=True, start_new_session=True, cwd=Path(__file__).parents[1]
    ) as job:
        try:
            assert job.stdin is not None and job.stdout is not None
            assert job.stdout.readline() == "ready\n", job.communicate()
            assert wait_until(lambda: len(of_group(job.pid)) >= (3 if method == "fork" else 4))
            for number in SIGNALS:
                os.killpg(job.pid, number)
            workers = [int(pid) for pid in job.stdout.readline().split()]
            assert len(workers) == 2, job.communicate()
            alive = of_group(job.pid)
            assert alive > {job.pid, *workers} and len(alive) >= 4
            _, errors = job.communicate(timeout=PATIENCE)
            assert job.returncode == 0 and errors == "", errors
        finally:
            job.kill()
    assert not wait_gone(sorted(alive))
    state, after = json.loads((tmp_path / "out").read_text())
    loader = make_loader(0)
    loader.load_state_dict(state)
    rest = [batch.tolist() for batch in loader]
    rest = [*rest, *(batch.tolist() for batch in loader)]
    assert after == rest[:2]


# Exceptions of signal handlers


class WarnedError(TimeoutError):
    """Raised by a handler; the class is one that waits raise too."""


class Handler:
    """Handlers in all forms."""

    def method(self, number, frame):
        raise WarnedError(number)

    def __call__(self, number, frame):
        raise WarnedError(number)


def handle(extra, number, frame):
    raise WarnedError(number)


def plain(number, frame):
    raise WarnedError(number)


FORMS = {"function": plain, "partial": partial(handle, None), "method": Handler().method, "object": Handler()}


@pytest.fixture(params=FORMS)
def handled(request):
    """SIGUSR1 has a handler that raises WarnedError."""
    before = signal.signal(signal.SIGUSR1, FORMS[request.param])
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def warned():
    """SIGUSR1 has a handler that raises WarnedError."""
    before = signal.signal(signal.SIGUSR1, plain)
    yield
    signal.signal(signal.SIGUSR1, before)


class Interrupted:
    """Numbers; the process gets SIGUSR1 while sample 5 is made, the first time."""

    def __init__(self, way: str = "raise") -> None:
        self.sent, self.way = False, way

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 5 and not self.sent:
            self.sent = True
            try:
                signal.raise_signal(signal.SIGUSR1)
            except TimeoutError as error:
                if self.way == "wrap":
                    raise ValueError("this file is broken") from error
                raise
        return index


class Stream(Interrupted, IterableDataset):
    def __init__(self) -> None:
        super().__init__()
        self.at = 0

    def __iter__(self):
        while self.at < 8:
            self.at += 1
            yield self[self.at - 1]

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


def read_on(loader: td.DataLoader) -> list[list[int]]:
    """The rest of the epoch, after a signal's exception that has come by itself."""
    with pytest.raises(WarnedError) as caught:
        for _ in loader:
            state = loader.state_dict()
    assert not getattr(caught.value, "__notes__", ())
    assert loader.state_dict() == state and not state["finished"]
    loader.load_state_dict(state)
    return [batch.tolist() for batch in loader]


@pytest.mark.parametrize("policy", ["raise", "substitute"])
def test_a_handlers_exception_is_no_bad_sample(handled, policy):
    loader = td.DataLoader(Interrupted(), 2, device="cpu", on_bad_sample=policy)
    assert read_on(loader) == [[4, 5], [6, 7]] and loader.bad_samples == []


@pytest.mark.parametrize("options", [{"engine": "debug"}, {"prefetch_factor": 0}, {}])
def test_nor_where_user_code_has_wrapped_it(warned, options):
    loader = td.DataLoader(Interrupted("wrap"), 2, device="cpu", on_bad_sample="substitute", **options)
    assert read_on(loader) == [[4, 5], [6, 7]] and loader.bad_samples == []


def test_nor_in_an_iterable(warned):
    loader = td.DataLoader(Stream(), 2, device="cpu")
    assert read_on(loader) == [[4, 5], [6, 7]]


def test_nor_while_the_samples_are_described(warned):
    data = Interrupted()
    data.__class__ = type(
        "First", (Interrupted,), {"__getitem__": lambda self, i: Interrupted.__getitem__(self, i + 5)}
    )
    loader = td.DataLoader(data, 2, device="cpu", on_bad_sample="substitute", sampler=range(3))
    with pytest.raises(WarnedError):
        next(iter(loader))
    assert [batch.tolist() for batch in loader] == [[5, 6], [7]]


@pytest.mark.parametrize("engine", ["debug", "eager", "pipeline"])
def test_nor_in_a_function_or_a_dataset_of_ours(warned, folder, engine):
    """All of it in the caller's thread."""
    sent = []

    @T.traceable
    def function(sample, rand, ops):
        if not sent:
            sent.append(True)
            signal.raise_signal(signal.SIGUSR1)
        return sample

    loader = td.DataLoader(
        *(td.ImageFolder(folder), 4),
        **dict(device="cpu", transform=T.Compose([T.Resize((8, 8)), function]), engine=engine),
        **dict(prefetch_factor=0, on_bad_sample="substitute"),
    )
    with pytest.raises(WarnedError):
        next(iter(loader))
    assert loader.bad_samples == [] and len(list(loader)) == len(loader)


def test_a_samples_own_time_limit_is_its_own_fault():
    """Its handler is set only while the sample is made."""

    class Limited(Interrupted):
        def __getitem__(self, index):
            before = signal.signal(signal.SIGUSR1, plain)
            try:
                if index == 5:
                    signal.raise_signal(signal.SIGUSR1)
                return index
            finally:
                signal.signal(signal.SIGUSR1, before)

    loader = td.DataLoader(Limited(), 8, device="cpu", on_bad_sample=lambda bad: 0)
    (batch,) = loader
    assert batch.tolist() == [0, 1, 2, 3, 4, 0, 6, 7]
    (bad,) = loader.bad_samples
    assert (bad.index, bad.stage, bad.reason) == (5, "read", str(int(signal.SIGUSR1)))


@pytest.mark.processes
def test_a_wait_for_threads_goes_on_after_a_handlers_exception(warned, folder):
    """It is a TimeoutError too, and not that of a batch."""
    begun, held = threading.Event(), threading.Event()

    def slow(sample, rand):
        begun.set()
        held.wait(PATIENCE)
        return sample

    loader = td.DataLoader(
        td.ImageFolder(folder), 4, device="cpu", transform=T.Compose([T.Resize((8, 8)), slow]), timeout=PATIENCE
    )
    batches = iter(loader)
    main = threading.get_ident()

    def warn() -> None:
        begun.wait(PATIENCE)
        time.sleep(0.2)  # until it waits
        signal.pthread_kill(main, signal.SIGUSR1)

    warning = threading.Thread(target=warn)
    warning.start()
    try:
        with pytest.raises(WarnedError):
            next(batches)
    finally:
        held.set()
        warning.join()
    assert len(list(batches)) == len(loader)


class Unready:
    """The process gets SIGUSR1 while this is pickled, the first time."""

    def __init__(self) -> None:
        self.sent = False

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index

    def __getstate__(self):
        if not self.sent:
            self.sent = True
            signal.raise_signal(signal.SIGUSR1)
        return self.__dict__


@pytest.mark.processes
def test_a_handlers_exception_while_workers_start(warned):
    with td.DataLoader(Unready(), 2, device="cpu", num_workers=1, multiprocessing_context="fork") as loader:
        with pytest.raises(WarnedError):
            next(iter(loader))
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3]]


def test_an_interrupt_that_a_lock_of_pythons_displaced():
    """A condition whose lock an interrupt took away ends its block with another error; the interrupt is what counts."""
    waiting = threading.Condition()

    def interrupted():
        with waiting:
            waiting.release()
            raise KeyboardInterrupt("here")

    with pytest.raises(RuntimeError) as caught:
        interrupted()
    found = displaced(caught.value)
    assert isinstance(found, KeyboardInterrupt) and found.args == ("here",)
    for error in (RuntimeError("of a user"), ValueError()):
        with pytest.raises(type(error)) as own:
            raise error
        assert displaced(own.value) is None


@pytest.mark.parametrize("moved", [False, True])
def test_an_interrupt_while_a_batch_is_handed_over(moved):
    """The next batch is the one of the place that the loader's state names, whether the loader had moved or not."""
    loader = td.DataLoader(td.InMemoryDataset(x=range(16)), 4, shuffle=True, device="cpu")
    clean = [x.tolist() for (x,) in loader]
    loader.set_epoch(0)
    progress = loader._place.progress
    move, calls = progress.move, []

    def interrupted(number, position):
        calls.append(position)
        if len(calls) == 2:
            if moved:
                move(number, position)
            raise KeyboardInterrupt
        move(number, position)

    progress.move = interrupted
    iterator = iter(loader)
    assert next(iterator)[0].tolist() == clean[0]
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    place = loader.state_dict()["samples_seen"]
    assert place == (8 if moved else 4)
    assert [x.tolist() for (x,) in iterator] == clean[place // 4 :]
