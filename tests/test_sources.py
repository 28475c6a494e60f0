"""Map-style datasets of Python code: bad first samples, errors on their way to the caller, and ends."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torchdali as td
from torchdali import transforms as T
from torchdali.errors import LoaderTimeoutError, SharedMemoryError, WorkerDiedError
from torchdali.testing import assert_resumes_exactly, assert_same_stream

from . import source_datasets as S
from . import workers_helpers as helpers
from .patience import PATIENCE, wait_until
from .source_datasets import N
from .workers_helpers import METHODS, wait_gone

pytestmark = pytest.mark.timeout(300)


def loader(dataset: Any, num_workers: int = 0, **options: Any) -> td.DataLoader:
    options = dict(batch_size=4, seed=3, device="cpu") | options
    if num_workers:
        options.setdefault("multiprocessing_context", "fork")
    return td.DataLoader(dataset, num_workers=num_workers, **options)


def pids_of(one: td.DataLoader) -> list[int]:
    """The processes of a loader's workers."""
    return one.source.pools.pids


class From(S.Plain):
    """Numbers; something happens at some of them."""

    def __init__(self, call: Any, at: Any = (0,), log: str | None = None) -> None:
        super().__init__()
        self.call, self.at, self.log = call, set(at), log

    def __getitem__(self, index: int) -> Any:
        if self.log is not None:
            with open(self.log, "a") as file:
                file.write(f"{index}\n")
        if index in self.at:
            self.call()
        return index, random.random(), np.random.rand(), torch.rand(())


def fail() -> None:
    raise helpers.TwoArgumentsError(5, "no good")


def stop() -> None:
    raise StopIteration


def take_a_while() -> None:
    time.sleep(0.025)


# Bad samples


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_first_sample_may_be_bad(num_workers):
    """It is an error where it comes, and not the end of everything."""
    with loader(From(fail, at=(0, 1)), num_workers, sampler=[5, 6, 7, 8, 0, 2, 3, 4, 9, 10, 11]) as one:
        batches = iter(one)
        assert next(batches)[0].tolist() == [5, 6, 7, 8]
        with pytest.raises(helpers.TwoArgumentsError, match="no good"):
            next(batches)
        assert next(batches)[0].tolist() == [9, 10, 11]
    with loader(From(fail), num_workers, on_bad_sample="substitute") as one:
        assert sum(len(batch[0]) for batch in one) == N
        assert {bad.index for bad in one.bad_samples} == {0}
    with loader(From(fail, at=range(N)), num_workers) as one, pytest.raises(helpers.TwoArgumentsError) as caught:
        list(one)
    assert "sample 0" in " ".join(caught.value.__notes__)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("at", [(0,), (9,), range(N)])
def test_stop_iteration_does_not_end_the_epoch(num_workers, at):
    with loader(From(stop, at=at), num_workers) as one:
        with pytest.raises(RuntimeError, match="must not raise StopIteration") as caught:
            list(one)
    assert f"sample {at[0]}" in " ".join(caught.value.__notes__)


@pytest.mark.processes
def test_substitutes_are_the_same_for_any_workers():
    assert_same_stream(
        *(
            lambda num_workers=num_workers: loader(
                From(fail, at=(3, 4, 9)), num_workers, shuffle=True, on_bad_sample="substitute"
            )
            for num_workers in (0, 1, 3)
        ),
        epochs=2,
    )


@pytest.mark.processes
@pytest.mark.parametrize("method", METHODS)
def test_an_exception_has_its_type_its_traceback_and_its_place(method):
    data = From(fail, at=(9,))
    with loader(data, 1, multiprocessing_context=method) as one, pytest.raises(helpers.TwoArgumentsError) as caught:
        list(one)
    error = caught.value
    assert (error.code, error.text) == (5, "no good")
    notes = "\n".join(error.__notes__)
    assert "In worker 0 (pid " in notes and "sample 9" in notes
    assert f'File "{__file__}", line' in notes and 'raise helpers.TwoArgumentsError(5, "no good")' in notes


# Ends


def segfault() -> None:
    import ctypes
    import faulthandler

    faulthandler.disable()
    ctypes.string_at(0)


@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_segfault_is_an_error_at_once(num_workers, persistent):
    with loader(From(segfault, at=(9,)), num_workers, persistent_workers=persistent) as one:
        batches = iter(one)
        next(batches)
        pids = pids_of(one)
        with pytest.raises(WorkerDiedError, match=r"killed by SIGSEGV .*sample 9") as caught:
            list(batches)
        assert caught.value.index == 9 and caught.value.pid in pids
        with pytest.raises(WorkerDiedError):  # another pass meets it with new workers
            list(one)
    assert not wait_gone(pids)


@pytest.mark.processes
def test_a_worker_that_was_killed_while_it_was_idle():
    one = loader(S.Plain(), 1, transform=T.Resize((4, 4)), persistent_workers=True)
    list(one)
    (pid,) = pids_of(one)
    os.kill(pid, signal.SIGKILL)
    assert not wait_gone([pid])
    with pytest.raises(WorkerDiedError, match="killed by SIGKILL"):
        list(one)
    assert len(list(one)) == len(one)  # the next pass has another
    one.close()


@pytest.mark.processes
def test_a_sample_past_its_time_ends_its_worker():
    with loader(From(helpers.forever, at=(9,)), 2, timeout=2) as one:
        batches = iter(one)
        next(batches)
        pids = pids_of(one)
        begin = time.monotonic()
        with pytest.raises(LoaderTimeoutError, match=r"took over 2 s while it computed sample 9"):
            list(batches)
        assert time.monotonic() - begin > 1  # it may have been waited for since before the first batch came
        assert not wait_gone(pids)


@pytest.mark.processes
@pytest.mark.parametrize("method", ["fork", "forkserver"])
@pytest.mark.parametrize("way", ["close", "break", "exception", "forgotten"])
def test_no_worker_is_left(method, way):
    """And the end of a pass waits for none: after the second batch, each of their samples would take for ever."""
    one = loader(From(helpers.forever, at=range(4, N)), 2, multiprocessing_context=method, batch_size=2)
    batches = iter(one)
    next(batches)
    pids = pids_of(one)
    assert len(pids) == 2 and all(os.path.exists(f"/proc/{pid}") for pid in pids)
    if way == "close":
        one.close()
    elif way == "break":
        for _ in batches:
            break
    elif way == "exception":
        with pytest.raises(ArithmeticError):
            for _ in batches:
                raise ArithmeticError
    else:
        del one
    del batches
    gc.collect()
    assert not wait_gone(pids)  # batches were begun whose samples never end


SCRIPT = """
import sys, time
sys.path.insert(0, {root!r})
import torchdali as td
from tests import source_datasets as S

loaders = [
    td.DataLoader(S.Slow(), 2, num_workers=1, device="cpu", multiprocessing_context=method)
    for method in ("fork", "forkserver", "spawn")
]
for one in loaders:
    one.start_workers()
passes = [iter(one) for one in loaders]
for one in passes:
    next(one)
pids = [pid for one in loaders for pid in one.source.pools.pids]
print(*pids, flush=True)
if {mode!r} == "exit":
    sys.exit()
for _ in passes[0]:
    time.sleep(60)
"""


MODES = ("kill", "interrupt", "exit")


@pytest.fixture(scope="module")
def scripts():
    """The next one begins with each."""
    scripts = {}

    def begun(mode):
        for name in MODES[MODES.index(mode) :][:2]:
            if name not in scripts:
                scripts[name] = subprocess.Popen(
                    [sys.executable, "-c", SCRIPT.format(root=str(Path(__file__).parents[1]), mode=name)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                )
        return scripts[mode]

    yield begun
    for script in scripts.values():
        script.kill()
        script.communicate()


@pytest.mark.processes
@pytest.mark.parametrize("mode", MODES)
def test_no_worker_outlives_the_script(mode, scripts):
    """Loaders with workers of all three kinds, in a process that ends with batches in flight."""
    script = scripts(mode)
    try:
        assert script.stdout is not None
        pids = [int(pid) for pid in script.stdout.readline().split()]
        assert len(pids) == 3, script.communicate()
        if mode == "kill":
            os.kill(script.pid, signal.SIGKILL)
        elif mode == "interrupt":
            os.killpg(script.pid, signal.SIGINT)
        else:
            script.wait(PATIENCE)
        assert not wait_gone(pids)
        _, errors = script.communicate(timeout=PATIENCE)
        assert ("KeyboardInterrupt" in errors) == (mode == "interrupt") and "worker" not in errors, errors
    finally:
        script.kill()
        script.communicate()


# Words of torch


@pytest.mark.processes
def test_prefetch_factor_bounds_what_is_made_ahead(tmp_path):
    log = tmp_path / "log"
    with loader(From(fail, at=(), log=str(log)), 2, prefetch_factor=1, batch_size=2) as one:
        batches = iter(one)
        next(batches)
        time.sleep(0.5)
        few = len(log.read_text().split())
        del batches
    log.write_text("")
    with loader(From(fail, at=(), log=str(log)), 2, prefetch_factor=4, batch_size=2) as one:
        batches = iter(one)
        next(batches)
        assert wait_until(lambda: len(log.read_text().split()) > few)
        many = len(log.read_text().split())
        del batches
    assert few < many <= N + 1


@pytest.mark.processes
def test_two_passes_over_workers_that_stay():
    with loader(From(fail, at=()), 2, persistent_workers=True) as one:
        first, second = iter(one), iter(one)
        a = [next(first), next(second), next(first), next(second)]
        assert torch.equal(a[0][0], a[1][0]) and not torch.equal(a[0][1], a[1][1])  # another epoch
        assert len(list(first)) == len(list(second)) == len(one) - 2
        third = iter(one)
        next(third)
        assert len(list(one)) == len(one)  # an open pass keeps its workers
        assert len(list(third)) == len(one) - 1


@pytest.mark.processes
def test_workers_of_an_open_pass_can_be_left_open(tmp_path):
    """Workers that stay do not finish the work of a pass that was left."""
    log = tmp_path / "log"
    data = From(take_a_while, at=range(5000), log=str(log))
    data.n = 5000
    with loader(data, 2, persistent_workers=True, batch_size=2, prefetch_factor=1250) as one:
        next(iter(one))
        next(iter(one))
        assert len(log.read_text().split()) < 4000  # all of the first pass was begun, and takes a minute


@pytest.mark.processes
def test_pinned_memory_is_a_word_here_too():
    with loader(From(fail, at=()), 1, pin_memory=True) as one:
        batch = next(iter(one))
    assert batch[0].tolist() == [0, 1, 2, 3] and batch[0].is_pinned() == torch.cuda.is_available()


def broken_init(number: int) -> None:
    raise helpers.TwoArgumentsError(number, "cannot begin")


@pytest.mark.processes
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_an_error_of_worker_init_fn(method):
    one = loader(S.Plain(), 2, worker_init_fn=broken_init, multiprocessing_context=method)
    with one, pytest.raises(helpers.TwoArgumentsError, match="cannot begin"):
        list(one)


@pytest.mark.processes
def test_too_little_memory_is_an_error_with_sizes():
    class Large(S.Plain):
        def __getitem__(self, index: int) -> Any:
            return np.zeros(3 << 20, np.uint8)

    with loader(Large(), 1, worker_init_fn=helpers.limit_memory) as one:
        with pytest.raises(SharedMemoryError, match=r"MiB of shared memory, and 1\.0 MiB are available") as caught:
            list(one)
    assert caught.value.needed > 12 << 20 and caught.value.available == 1 << 20


@pytest.mark.processes
def test_dali_in_a_forked_worker_is_an_error():
    """DALI's operators would hang there."""

    class Decodes(S.Plain):
        def __getitem__(self, index: int) -> Any:
            import nvidia.dali.experimental.dynamic as ndd

            return np.asarray(
                ndd.decoders.image(np.frombuffer(S.picture(index), np.uint8), device="cpu").evaluate()
            ).sum()

    with loader(S.Forms("tuple"), transform=T.Resize((4, 4))) as one:  # DALI is at work in this process
        list(one)
    with loader(Decodes(), 1) as one, pytest.raises(RuntimeError, match="fork"):
        list(one)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_callers_generators_are_untouched_by_an_error(num_workers):
    def states() -> tuple[Any, ...]:
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    with loader(From(fail, at=(9,)), num_workers, shuffle=True) as one:
        before = states()
        batches = iter(one)
        with pytest.raises(helpers.TwoArgumentsError):
            for _ in batches:
                assert states() == before
        one.state_dict()
        assert states() == before


@pytest.mark.processes
def test_resumes_with_bad_samples_and_a_short_end():
    def make(num_workers: int) -> td.DataLoader:
        return loader(
            From(fail, at=(0, 7)), num_workers, batch_size=5, shuffle=True, drop_last=True, on_bad_sample="substitute"
        )

    assert_resumes_exactly(lambda: make(3), lambda: make(0), steps=True)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"num_workers": -1}, ValueError, "num_workers must be at least 0"),
        ({"num_workers": 1.5}, TypeError, "num_workers must be an integer"),
        (
            {"num_workers": 1, "multiprocessing_context": "threads"},
            ValueError,
            "multiprocessing_context must be one of",
        ),
        ({"num_workers": 1, "pickler": "dill"}, TypeError, "pickler must be a module with dumps and loads"),
        ({"num_workers": 1, "worker_init_fn": 3}, TypeError, "worker_init_fn must be callable"),
    ],
)
def test_wrong_words(options, kind, text):
    with pytest.raises(kind, match=text):
        list(loader(S.Plain(), **options))


def test_what_is_no_dataset(monkeypatch):
    monkeypatch.setattr("torchdali.source._warned", set())
    with pytest.raises(TypeError, match="dataset must have samples by index, or be an IterableDataset, got int"):
        loader(3)
    with pytest.warns(UserWarning, match=r"needs no worker processes.* write num_threads=2"):
        loader(td.InMemoryDataset(image=[S.picture(0)], label=[0]), 2)
    with pytest.raises(TypeError, match="fields must be a list of names, got 'image'"):
        td.PythonDataset(S.Plain(), fields="image")
    with pytest.raises(TypeError, match="a map-style dataset has __getitem__ and __len__, got int"):
        td.PythonDataset(3)
