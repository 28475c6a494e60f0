"""The pool of worker processes: order, transport, faults and ends, with real processes under every start method."""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torchdali.errors import LoaderTimeoutError, TorchDaliError
from torchdali.seeding import preserved, seed_sample
from torchdali.workers import (
    Answer,
    SharedMemoryError,
    Task,
    WorkerDiedError,
    WorkerPool,
    WorkerTimeoutError,
    process,
)
from torchdali.workers.status import IDLE

from . import workers_helpers as helpers
from .patience import PATIENCE, wait_until
from .workers_helpers import METHODS, HeavyJob, Job, OneWayError, TwoArgumentsError, wait_gone

TIMEOUT = 2.0  # seconds for a sample, where that is tried
LONG = 900.0  # what is not waited for takes so long; the watchdog would end the test before

pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]  # a watchdog: nothing here may hang

DEATHS = {
    "exit": (7, "exited with code 7"),
    "sys.exit": (8, "exited with code 8"),
    "segfault": (-signal.SIGSEGV, "was killed by SIGSEGV"),
    "kill": (-signal.SIGKILL, "was killed by SIGKILL (out of memory?)"),
    "write": (-signal.SIGKILL, "was killed by SIGKILL (out of memory?)"),
    "close": (None, "ended or closed its connection"),
}
FATAL = (*DEATHS, "idle", "timeout", "close pool")
MODES = ("kill", "interrupt", "raise", "exit")  # of a script's end


@pytest.fixture(scope="module", params=METHODS)
def method(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def spawned() -> Iterator[Callable[[str], WorkerPool]]:
    """Pools for the faults that a pool does not survive.  Spawning takes seconds, so two more begin with each."""
    pools = {name: WorkerPool(Job(), 1, context="spawn", timeout=TIMEOUT if name == "timeout" else 0) for name in FATAL}

    def begun(name: str) -> WorkerPool:
        for number in range(FATAL.index(name), min(FATAL.index(name) + 3, len(FATAL))):
            if number not in started:
                pools[FATAL[number]].start()
                started.add(number)
        return pools[name]

    started: set[int] = set()
    yield begun
    for pool in pools.values():
        pool.close()


@pytest.fixture(scope="module")
def scripts() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Processes that have pools under all start methods, and end in different ways; the next one begins with each."""
    scripts: dict[str, subprocess.Popen[str]] = {}

    def begun(mode: str) -> subprocess.Popen[str]:
        for name in MODES[MODES.index(mode) :][:2]:
            if name not in scripts:
                scripts[name] = helpers.run_script(name)
        return scripts[mode]

    yield begun
    for script in scripts.values():
        script.kill()
        script.communicate()


@pytest.fixture(scope="module")
def pool(method) -> Iterator[WorkerPool]:
    """One that lives on: two workers, used by many tests."""
    pool = WorkerPool(Job(), 2, context=method, worker_init_fn=helpers.note_init, seed=5)
    pool.start()
    yield pool
    pids = pool.pids
    pool.close()
    assert not wait_gone(pids)


@pytest.fixture
def doomed(method, spawned, request) -> WorkerPool:
    """One for a single fault; with `timeout=TIMEOUT` for that one."""
    how = request.node.callspec.params.get("how", request.node.originalname.removeprefix("test_"))
    timeout = TIMEOUT if how == "timeout" else 0
    return (
        spawned(how.replace("_", " ")) if method == "spawn" else WorkerPool(Job(), 2, context=method, timeout=timeout)
    )


def tasks(*requests: Any) -> Iterator[Task]:
    return iter([Task(number, request) for number, request in enumerate(requests)])


def compute(pool: WorkerPool, *request: Any) -> dict[str, Any]:
    """One task's columns, which need no shared memory."""
    (result,) = pool.run(tasks(request))
    if result.error is not None:
        raise result.error
    return result.columns


# Order and transport


def test_results_come_in_order_with_their_values(pool):
    requests = [("values", start, 1 + start % 5, 1000 + start) for start in range(60)]
    seen = set()
    for number, result in enumerate(pool.run(tasks(*requests))):
        assert result.error is None and result.task.number == number
        _, start, n, size = requests[number]
        assert result.columns["index"].tolist() == list(range(start, start + n))
        for index, array in enumerate(result.columns["array"], start):
            assert array.shape == (size,) and array.dtype == np.uint8 and (array == index % 251).all()
        seen.update(result.columns["pid"])
        result.release()
    assert seen == set(pool.pids)


def test_a_note_travels_beside_the_columns_and_owns_its_memory(pool):
    (answer, *descriptions) = pool.run(
        [Task(0, ("values", 0, 1, 10)), *[Task(i, ("note", i), describe=True) for i in range(1, 30)]]
    )
    assert answer.note == "values" and set(answer.columns) == {"array", "index", "pid"}
    notes = []
    for result in descriptions:
        assert result.columns == {}
        notes.append(result.note)
        result.release()
    for i, note in enumerate(notes, 1):
        assert (
            (note["array"] == i).all() and type(note["tensor"]) is torch.Tensor and note["tensor"].tolist() == [i] * 3
        )
        assert note["lambda"](2) == 2 * i  # what plain pickle refuses is left to the pool's pickler


def test_slow_tasks_do_not_change_the_order(pool):
    requests = [("sleep", i, 0.05 * (i % 3 == 0)) for i in range(9)]
    assert [result.columns["index"] for result in pool.run(tasks(*requests))] == [[i] for i in range(9)]


def test_kinds_of_values(pool):
    columns = compute(pool, "kinds")
    image = np.arange(24, dtype=np.uint8).reshape(2, 4, 3)
    expected = [image, image[:, ::2], image.transpose(2, 0, 1), np.zeros((0, 3), np.uint8)]
    for array, value in zip(columns["ragged"], expected, strict=True):
        assert array.dtype == np.uint8 and array.shape == value.shape and (array == value).all()
    assert columns["whole"].dtype == np.float32 and columns["whole"].tolist() == np.arange(12).reshape(4, 3).tolist()
    tensors = columns["tensor"]
    assert all(isinstance(value, np.ndarray) for value in tensors)
    assert [value.tolist() for value in tensors] == [[0, 1, 2], [[1.0, 1.0], [1.0, 1.0]], [], 7]
    assert (columns["nested"][0]["a"][0] == image).all() and columns["nested"][0]["a"][1] == "x"
    assert columns["nested"][1:] == [None, b"bytes", 1.5]
    assert all(value.dtype == torch.bfloat16 and value.tolist() == [1.0, 1.0] for value in columns["half"])
    assert columns["lambda"][2](4) == 5


def test_arrays_are_aligned_writable_views_of_slots_that_are_used_again():
    pool = WorkerPool(Job(), 2, context="fork")
    addresses: set[int] = set()
    requests = [("values", i, 3, 70_001) for i in range(40)] * 3
    for result in pool.run(tasks(*requests)):
        for array in result.columns["array"]:
            assert array.flags.writeable and array.ctypes.data % 64 == 0
            addresses.add(array.ctypes.data)
        result.release()
        result.release()  # twice is once
    # A worker's are: those under way, one with the consumer, and one that it has not yet heard is free.
    slots = [len(process.slots._memory) for process in pool._processes.all]
    assert max(slots) <= 2 + 2 and len(addresses) == 3 * sum(slots)
    pool.close()


def test_unreleased_results_stay_as_they_are(pool):
    results = list(pool.run(tasks(*[("values", i, 1, 50_000) for i in range(12)])))
    for index, result in enumerate(results):
        assert (result.columns["array"][0] == index).all()
        result.release()


def test_slots_grow(pool):
    for size in (10, 1 << 20, 10, 3 << 20):
        (result,) = pool.run(tasks(("values", 1, 2, size)))
        assert result.columns["array"][1].shape == (size,) and (result.columns["array"][1] == 2).all()
        result.release()


def test_large_requests_and_many_of_them(pool):
    """More than the sockets hold: neither side may wait for the other."""
    large = list(range(20_000))
    many = WorkerPool(Job(), 1, context="fork", prefetch_factor=300)
    try:
        for chosen, count in ((pool, 6), (many, 300)):
            requests = [("random", [number] * (len(large) if count == 6 else 700)) for number in range(count)]
            for number, result in enumerate(chosen.run(tasks(*[("echo", request[1]) for request in requests]))):
                assert result.columns["sum"] == [sum(requests[number][1])]
                result.release()
    finally:
        many.close()


def test_a_task_may_ask_for_its_worker(pool):
    pinned = (Task(i, ("info",), worker=i % 3 % 2) for i in range(12))
    for i, result in enumerate(pool.run(pinned)):
        assert result.worker == result.columns["info"][0][0] == i % 3 % 2


def test_an_error_of_the_tasks_comes_after_the_results_before(pool):
    def failing() -> Iterator[Task]:
        yield from tasks(("values", 0, 1, 1), ("values", 1, 1, 1))
        raise LookupError("the sampler's")

    run, seen = pool.run(failing()), []
    with pytest.raises(LookupError, match="the sampler's"):
        for result in run:
            seen.append(result.columns["index"].tolist())
    assert seen == [[0], [1]]


def test_prefetch_is_bounded_and_goes_on_while_the_consumer_is_busy(pool):
    drawn = 0

    def counted() -> Iterator[Task]:
        nonlocal drawn
        for task in tasks(*[("values", i, 1, 10) for i in range(20)]):
            drawn += 1
            yield task

    for received, _ in enumerate(pool.run(counted()), 1):
        assert drawn == min(20, received + 4)


# Runs that end early


def test_closing_a_run_does_not_wait_and_the_pool_goes_on(pool):
    pids = pool.pids
    run = pool.run(tasks(("values", 0, 1, 10), *[("sleeps", 100_000, 0.02)] * 3))
    next(run)
    run.close()
    columns = compute(pool, "values", 3, 1, 10)
    # A task of half an hour was dropped at its next sample.
    assert columns["index"].tolist() == [3] and pool.pids == pids


def test_a_newer_run_ends_the_one_before(pool):
    old = pool.run(tasks(*[("values", i, 1, 10) for i in range(20)]))
    next(old)
    assert compute(pool, "values", 7, 1, 10)["index"].tolist() == [7]
    with pytest.raises(RuntimeError, match="a newer run of the worker pool has begun"):
        next(old)


def test_an_empty_run(pool):
    assert list(pool.run(iter(()))) == []


# What user code sees


def test_worker_info_init_and_seeds(pool):
    rows = {}
    for result in pool.run(Task(i, ("info",), worker=i) for i in range(2)):
        number, num_workers, is_dataset, threads, init = result.columns["info"][0]
        assert (number, num_workers, is_dataset, threads, init) == (result.worker, 2, True, 1, 100 + result.worker)
        rows[number] = result.columns["seed"][0]
    assert rows[0] != rows[1]
    assert torch.utils.data.get_worker_info() is None  # not here


def test_no_dali_in_a_worker(method, pool):
    if method == "fork":  # which has what its parent has
        return
    assert compute(pool, "modules")["dali"] == []


def test_random_numbers_depend_on_the_sample_alone(pool):
    indices = list(range(20))
    with preserved():
        expected = []
        for index in indices:
            seed_sample(1, 2, index)
            expected.append([random.random(), np.random.rand(), torch.rand(()).item()])
    parts = [result.columns["random"] for result in pool.run(tasks(*[("random", [i]) for i in indices]))]
    assert np.array_equal(np.concatenate(parts), np.array(expected)) and len(np.unique(expected)) == 60


@pytest.mark.parametrize("pickled", [True, False])
def test_put_off_set_up_runs_once_in_each_worker(method, pickled):
    if method == "spawn" and not pickled:
        return  # as under forkserver
    job = HeavyJob() if pickled else Job()
    if not pickled:
        # Inherited under fork: what does not pickle is no matter.  Elsewhere it is an error that says so.
        job.lock = threading.Lock()
    pool = WorkerPool(job, 1, context=method)
    try:
        if pickled:
            columns = [compute(pool, "where"), compute(pool, "where")]
            assert all(c["set up"] == [c["pid"]] == [pool.pids] for c in columns)
        elif method == "fork":
            assert compute(pool, "values", 1, 1, 1)["index"].tolist() == [1]
        else:
            with pytest.raises(
                TypeError, match=r"Job must be picklable .*, and Job\.lock, of the type _thread\.lock, is not"
            ):
                pool.start()
    finally:
        pool.close()


def test_local_classes_and_another_pickler():
    text = "closed over"

    class LocalError(Exception):
        pass

    class Local:
        def describe(self, request: Any, progress: Any) -> Any:
            return text

        def read(self, request: Any, progress: Any) -> Answer:
            if request:
                raise LocalError(text)
            return Answer({"text": [text]})

    pool = WorkerPool(Local(), 1)
    try:
        good, bad, described = pool.run([*tasks(False, True), Task(2, None, describe=True)])
        assert good.columns == {"text": [text]} and good.note is None
        assert described.columns == {} and described.note == text
        assert type(bad.error) is LocalError and str(bad.error) == text  # the very class
    finally:
        pool.close()
    plain = WorkerPool(Local(), 1, pickler=pickle)
    with pytest.raises(TypeError, match="must be picklable"):
        plain.start()
    module = WorkerPool(Job(), 1, pickler=pickle)
    try:
        assert compute(module, "values", 2, 1, 1)["index"].tolist() == [2]
    finally:
        module.close()


def test_contexts_of_multiprocessing_and_the_users_settings():
    before = multiprocessing.get_start_method(allow_none=True)
    for context in (multiprocessing.get_context("forkserver"), multiprocessing.get_context("fork"), None):
        pool = WorkerPool(Job(), 1, context=context)
        assert compute(pool, "values", 2, 1, 1)["index"].tolist() == [2]
        pool.close()
    assert multiprocessing.get_start_method(allow_none=True) == before


# Exceptions


@pytest.mark.parametrize(
    ("which", "kind", "text"),
    [
        ("value", ValueError, "no good"),
        ("key", KeyError, "'missing'"),
        ("two", TwoArgumentsError, "(3, 'three')"),
        ("one way", LookupError, "OneWayError: 3: three"),
        ("locked", RuntimeError, "LockedError: locked"),
        ("stop", RuntimeError, "a dataset must not raise StopIteration, and Job did"),
        ("unicode", UnicodeDecodeError, "bad"),
        ("large", ValueError, "x" * 300_000),
    ],
)
def test_exceptions_come_back_and_the_pool_goes_on(pool, which, kind, text):
    good, bad, after = pool.run(tasks(("values", 1, 1, 10), ("fail", 31, which), ("values", 2, 1, 10)))
    assert good.error is None and after.error is None and after.columns["index"].tolist() == [2]
    assert type(bad.error) is kind and not isinstance(bad.error, OneWayError) and text in str(bad.error)
    assert bad.index == 31 and bad.columns == {}
    note = bad.error.__notes__[-1]
    assert f"In worker {bad.worker} (pid {pool.pids[bad.worker]}), task 1, sample 31:" in note
    assert "workers_helpers.py" in note and "torchdali/workers" not in note
    if which == "two":
        assert (bad.error.code, bad.error.text) == (3, "three")


def test_a_value_that_does_not_pickle_is_named(pool):
    (result,) = pool.run(tasks(("unpicklable",)))
    assert isinstance(result.error, TypeError) and result.index == 3
    assert "row 1 of 'bad', a generator" in str(result.error)


@pytest.mark.parametrize("how", ["fail", "exit", "hang"])
def test_a_worker_that_does_not_start(how):
    init = {"fail": helpers.fail_init, "exit": helpers.exit_init, "hang": helpers.hang_init}[how]
    pool = WorkerPool(Job(), 2, context="fork", worker_init_fn=init, ready_timeout=0.5 if how == "hang" else LONG)
    pool.start()
    pids = pool.pids
    expected = {"fail": TwoArgumentsError, "exit": WorkerDiedError, "hang": WorkerTimeoutError}[how]
    with pytest.raises(expected) as caught:
        compute(pool, "values", 1, 1, 1)
    assert not wait_gone(pids)
    if how == "fail":
        assert caught.value.text == "no set-up" and "fail_init" in caught.value.__notes__[-1]
    else:
        assert str(caught.value).endswith(
            {"exit": "exited with code 9 while it started", "hang": "while it started, and was killed"}[how]
        )
    with pytest.raises(RuntimeError, match="the worker pool is closed"):
        pool.start()


def test_a_preloaded_module_that_fails_ends_no_pool(tmp_path):
    (tmp_path / "breaks_alone.py").write_text("raise RuntimeError('only for its owner')")
    script = (
        "from torchdali.workers import Answer, WorkerPool, Task\n"
        "class Job:\n"
        "    def describe(self, request, progress):\n"
        "        return None\n"
        "    def read(self, request, progress):\n"
        "        return Answer({'sum': [sum(request)]})\n"
        # No `if __name__`: the fork server's workers do not import the script.
        "pool = WorkerPool(Job(), 1, preload=['breaks_alone'])\n"
        "print(*[result.columns['sum'][0] for result in pool.run([Task(0, [1, 2])])])\n"
    )
    (tmp_path / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "script.py")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[1])])},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0 and done.stdout == "3\n" and "only for its owner" in done.stderr


# Deaths


@pytest.mark.parametrize("how", DEATHS)
def test_a_worker_that_dies_is_an_error_with_its_sample(method, doomed, how, monkeypatch):
    if how == "close":  # its process stays
        monkeypatch.setattr(process, "ENDING", 0.5)
    list(doomed.run(tasks(("values", 0, 1, 10))))  # it has started
    pids = doomed.pids
    with pytest.raises(WorkerDiedError) as caught:
        list(doomed.run(tasks(("values", 0, 1, 10), ("die", 41, how), *[("sleep", i, LONG) for i in range(9)])))
    error = caught.value
    code, text = DEATHS[how]
    stage = "handed over" if how == "write" else "computed"
    assert (error.exitcode, error.task, error.index, error.stage) == (code, 1, 41, stage)
    assert str(error) == f"worker {error.worker} (pid {error.pid}) {text} while it {stage} sample 41 of task 1"
    assert error.pid == pids[error.worker] and isinstance(error, (TorchDaliError, RuntimeError))
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert not wait_gone(pids)
    with pytest.raises(RuntimeError, match="the worker pool is closed: make a new one"):
        next(doomed.run(tasks(("values", 0, 1, 10))))


@pytest.mark.parametrize("how", ["idle"])
def test_an_idle_worker_that_is_killed(doomed, how):
    list(doomed.run(Task(i, ("values", 0, 1, 10), worker=i) for i in range(doomed.num_workers)))
    pids = doomed.pids
    # The last one has sent its result, and may not have gone on.
    assert wait_until(lambda: doomed._processes.table.status(len(pids) - 1).stage == IDLE)
    os.kill(pids[-1], signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match=r"was killed by SIGKILL \(out of memory\?\) while it was idle") as caught:
        for result in doomed.run(tasks(*[("sleep", i, 0.02) for i in range(50)])):
            result.release()
    # It may have been given a task that it never began.
    assert caught.value.worker == len(pids) - 1 and caught.value.index is None
    assert not wait_gone(pids)


def test_without_pidfds(monkeypatch):
    """As with an old kernel, or in a sandbox that knows no pidfd_open."""

    def refuse(pid: int) -> int:
        raise PermissionError

    monkeypatch.setattr(os, "pidfd_open", refuse)
    for _ in range(2):
        pool = WorkerPool(Job(), 2, context="fork")
        list(pool.run(tasks(("values", 0, 1, 10))))
        pids = pool.pids
        with pytest.raises(WorkerDiedError, match="exited with code 7 while it computed sample 4 of task 0"):
            list(pool.run(tasks(("die", 4, "exit"), *[("sleep", i, LONG) for i in range(9)])))
        assert not wait_gone(pids)


@pytest.mark.parametrize("how", ["timeout"])
def test_a_sample_past_the_timeout(doomed, how):
    # More than that a task, but less a sample.
    assert compute(doomed, "sleeps", 6, 0.2 * TIMEOUT)["index"] == [*range(6)]
    pids = doomed.pids
    begin = time.monotonic()
    with ThreadPoolExecutor(1) as thread, pytest.raises(WorkerTimeoutError) as caught:
        thread.submit(lambda: list(doomed.run(tasks(("values", 0, 1, 1), ("sleep", 52, LONG))))).result()
    assert time.monotonic() - begin >= TIMEOUT
    error = caught.value
    assert (error.task, error.index, error.timeout) == (1, 52, TIMEOUT) and isinstance(error, LoaderTimeoutError)
    assert str(error).endswith("took over 2 s while it computed sample 52 of task 1, and was killed")
    assert not wait_gone(pids)


@pytest.mark.parametrize("how", ["close pool"])
def test_close_from_another_thread_while_a_run_waits(doomed, how):
    run = doomed.run(tasks(("values", 0, 1, 1), *[("sleep", i, LONG) for i in range(1, 4)]))
    next(run)
    pids = doomed.pids
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(lambda: [next(run) for _ in range(3)])
        time.sleep(0.1)
        doomed.close()
        assert not wait_gone(pids)
        with pytest.raises(RuntimeError, match="the worker pool is closed"):
            waiting.result(PATIENCE)
    doomed.close()  # twice is once


def test_killing_random_workers_never_hangs():
    """50 workers killed at random moments, in large writes too, while a thread consumes."""
    chance = random.Random(4)
    stages = set()
    for turn in range(50):
        pool = WorkerPool(Job(), 2, context="forkserver" if turn % 2 else "fork")
        list(pool.run(tasks(("values", 0, 1, 10), ("values", 0, 1, 10))))
        pids = pool.pids
        caught: list[BaseException] = []

        def consume(pool: WorkerPool = pool, caught: list = caught) -> None:
            try:
                for result in pool.run(Task(i, ("values", i, 4, 700_000)) for i in range(10**6)):
                    result.release()
            except WorkerDiedError as error:
                caught.append(error)

        thread = threading.Thread(target=consume)
        thread.start()
        time.sleep(chance.uniform(0, 0.03))
        os.kill(chance.choice(pids), signal.SIGKILL)
        thread.join(PATIENCE)
        assert not thread.is_alive() and len(caught) == 1 and not wait_gone(pids)
        stages.add(caught[0].stage)
    assert {"computed", "handed over"} & stages


# Memory


@pytest.mark.parametrize("limit", [helpers.limit_files, helpers.limit_memory])
def test_too_little_memory_is_an_error_with_sizes(method, limit):
    """By the kernel's own limit on the size of files, and by a machine that seems to have little."""
    if method == "spawn" and limit is helpers.limit_memory:
        return  # once is enough there: it takes seconds
    pool = WorkerPool(Job(), 1, context=method, worker_init_fn=limit)
    try:
        small, large, after = pool.run(tasks(("fill", 1, 1000), ("fill", 2, 20 << 20), ("fill", 3, 1000)))
        assert small.error is None and after.error is None
        error = large.error
        assert isinstance(error, SharedMemoryError) and isinstance(error, MemoryError) and large.index == 2
        assert error.needed > 20 << 20 and error.available == (8 << 20 if limit is helpers.limit_files else 1 << 20)
        assert "needs 25.1 MiB of shared memory, and " in str(error) and "smaller prefetch_factor" in str(error)
    finally:
        pool.close()


def test_memory_and_descriptors_are_given_back():
    def maps() -> int:
        with open("/proc/self/maps") as file:
            return sum("torchdali" in line for line in file)

    def once() -> None:
        pool = WorkerPool(Job(), 2, context="fork")
        for result in pool.run(tasks(*[("values", i, 2, 300_000) for i in range(9)])):
            result.release()
        del result
        pool.close()

    once()
    gc.collect()
    before, descriptors = maps(), len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        once()
    gc.collect()
    assert maps() == before and len(os.listdir("/proc/self/fd")) == descriptors


# The end of the pool's process


@pytest.mark.parametrize("mode", MODES)
def test_no_worker_outlives_the_script(mode, scripts):
    """Pools under all three start methods, in one process that ends in the middle of its tasks."""
    script = scripts(mode)
    assert script.stdout is not None
    pids = [int(pid) for pid in script.stdout.readline().split()]
    assert len(pids) == 5
    if mode == "kill":
        os.kill(script.pid, signal.SIGKILL)
        assert not wait_gone(pids)
    elif mode == "interrupt":
        os.killpg(script.pid, signal.SIGINT)
        assert not wait_gone(pids)
    _, errors = script.communicate(timeout=PATIENCE)
    assert not wait_gone(pids, 0)
    expected = {"kill": "", "interrupt": "KeyboardInterrupt", "raise": "ArithmeticError: of the user", "exit": ""}[mode]
    assert expected in errors and errors.count("Traceback") == bool(expected), errors


def test_a_forgotten_pool_ends():
    pool = WorkerPool(Job(), 2, context="fork")
    run = pool.run(tasks(*[("sleep", i, 60.0 * (i > 0)) for i in range(4)]))
    next(run)
    pids = pool.pids
    del run, pool
    gc.collect()
    assert not wait_gone(pids)


def test_a_forked_pool_is_refused_and_left_alone():
    pool = WorkerPool(Job(), 1, context="fork")
    run = pool.run(tasks(*[("values", i, 1, 10) for i in range(9)]))
    next(run)
    child = os.fork()
    if not child:
        code = 1
        try:
            for use in (pool.start, lambda: next(run), lambda: list(pool.run(tasks(("values", 0, 1, 1))))):
                try:
                    use()
                except RuntimeError as error:
                    assert "belongs to process" in str(error)
                else:
                    raise AssertionError
            pool.close()
            pool._finalizer()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(run)) == 8
    pool.close()


# Arguments and seeds


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        ({"num_workers": 0}, ValueError, "num_workers must be at least 1, got 0"),
        ({"num_workers": 1.5}, TypeError, "num_workers must be an integer, got 1.5"),
        ({"prefetch_factor": 0}, ValueError, "prefetch_factor must be at least 1, got 0"),
        ({"context": "threads"}, ValueError, "multiprocessing_context must be one of .*, got 'threads'"),
        ({"timeout": -1}, ValueError, "timeout must be at least 0 seconds"),
        ({"worker_init_fn": 3}, TypeError, "worker_init_fn must be callable, got int"),
        ({"job": 3}, TypeError, "job must have the methods describe and read, got int"),
        ({"pickler": "dill"}, TypeError, "pickler must be a module with dumps and loads, or .*, got 'dill'"),
    ],
)
def test_wrong_arguments(arguments, kind, text):
    with pytest.raises(kind, match=text):
        WorkerPool(**{"job": Job(), "num_workers": 1, **arguments})


def test_seeds_are_of_all_three_numbers_and_the_callers_generators_are_kept():
    def draw(*numbers: int) -> tuple[float, ...]:
        seed_sample(*numbers)
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    torch.manual_seed(3)
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    with pytest.raises(LookupError), preserved():
        assert draw(1, 2, 3) == draw(1, 2, 3)
        seeds = [(1, 2, 3), (1, 3, 2), (2, 1, 3), (2**64 - 1, 2**63, 2**48), (-1, 0, 0), (0, 0, 0)]
        assert len({draw(*numbers)[lane] for numbers in seeds for lane in range(3)}) == 18
        raise LookupError
    assert states == (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
