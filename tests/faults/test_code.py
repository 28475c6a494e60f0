"""Code that fails, interrupts at any moment, and loaders that come and go."""

from __future__ import annotations

import gc
import json
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import torchdali as td
from torchdali import transforms as T
from torchdali.testing import sample_digests

from ..conftest import our_threads
from ..launcher import start_code
from ..patience import PATIENCE, wait_until
from .trial import Trial, compare

TRANSFORM = T.Compose([T.RandomResizedCrop(8), T.RandomHorizontalFlip()])
ENGINES = [("eager", 2), ("pipeline", 2), ("eager", 0), ("debug", 2)]
Make = Callable[..., td.DataLoader]


@pytest.fixture
def make(folder: Path) -> Make:
    def make(**changes: Any) -> td.DataLoader:
        arguments = dict(batch_size=4, shuffle=True, seed=5, device="cpu", transform=TRANSFORM) | changes
        return td.DataLoader(td.ImageFolder(folder, fields=("image", "index")), **arguments)

    return make


def rows(batch: Any) -> list[tuple[int, str]]:
    return list(zip(batch[1].tolist(), sample_digests(batch), strict=True))


# Transforms that fail


class Failing:
    """A function that fails in some of its calls, with an error of some type."""

    def __init__(self, error: type[Exception], calls: Callable[[int], bool]) -> None:
        self.error, self.calls, self.count = error, calls, 0

    def __call__(self, sample: Any, rand: Any) -> Any:
        self.count += 1
        if self.calls(self.count):
            raise self.error("injected")
        return sample


@pytest.mark.parametrize("error", [RuntimeError, MemoryError, OSError])
@pytest.mark.filterwarnings("ignore:a batch failed, though each of its samples passes alone:RuntimeWarning")
def test_a_transform_that_raises_once_costs_nothing(error: type[Exception], make: Make, trial: Trial) -> None:
    """Whatever the step: its batch is made again."""
    wrapped = T.Compose([T.Decode(), T.Resize((8, 8)), Failing(error, lambda call: False)])
    clean = [row for batch in make(transform=wrapped) for row in rows(batch)]
    steps, problems = trial.times([1, 4], list(range(1, 7)) * 4), dict.fromkeys(("wrong", "lost", "repeated"), 0)
    for number, step in enumerate(steps):
        failing = Failing(error, lambda call, step=step: call == step)
        found = [
            row
            for batch in make(
                transform=T.Compose([T.Decode(), T.Resize((8, 8)), failing]), prefetch_factor=2 * (number % 2)
            )
            for row in rows(batch)
        ]
        problems["wrong"] += found != clean
        for name, count in compare([i for i, _ in clean], [i for i, _ in found]).items():
            problems[name] += count
    trial.note(f"a function raises {error.__name__} once", len(steps), problems)


@pytest.mark.parametrize("error", [RuntimeError, MemoryError])
def test_a_transform_that_always_raises_is_an_error_for_each_batch(
    error: type[Exception], make: Make, trial: Trial
) -> None:
    loader = make(transform=T.Compose([T.Decode(), T.Resize((8, 8)), Failing(error, lambda call: True)]))
    iterator, errors = iter(loader), 0
    for _ in range(len(loader)):
        with pytest.raises(error, match="injected"):
            next(iterator)
        errors += 1
    with pytest.raises(StopIteration):
        next(iterator)
    assert errors == 6 and loader.bad_samples == []
    trial.note(f"a function always raises {error.__name__}", errors)


class Short(td.ImageFolder):
    """A sample of it needs more memory than there is."""

    shortage, at = MemoryError(), -1

    def read_columns(self, indices: Any, names: Any) -> Any:
        if self.at in np.asarray(indices):
            raise self.shortage
        return super().read_columns(indices, names)


@pytest.mark.parametrize("shortage", [MemoryError("one"), RuntimeError("std::bad_alloc"), OSError(12, "no memory")])
@pytest.mark.parametrize("policy", ["raise", "skip", "substitute"])
def test_a_shortage_of_memory_blames_no_sample(shortage: Any, policy: str, folder: Path, trial: Trial) -> None:
    """Whatever the policy: the error names memory, the loader stands before the batch, the pass goes on after it."""
    data = Short(folder, fields=("image", "index"))
    loader = td.DataLoader(data, 4, shuffle=True, device="cpu", transform=TRANSFORM, on_bad_sample=policy)
    order = [int(i) for step in loader.steps() for i in step.rows.indices]
    data.shortage, data.at = shortage, order[5]
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(td.OutOfMemoryError, match=r"memory ran out .*No sample is blamed") as caught:
        next(iterator)
    assert caught.value.__cause__ is shortage and loader.bad_samples == []
    assert loader.state_dict()["samples_seen"] == 4
    got = [i for batch in iterator for i in batch[1].tolist()]
    trial.note("memory is short while a batch is read", 1, compare(order[8:], got))


@pytest.mark.processes
@pytest.mark.slow
def test_a_limit_of_memory_blames_no_sample(folder: Path, tmp_path: Path, trial: Trial) -> None:
    """Each batch is whole, or its error names memory or threads."""
    code = """
        import json, resource, sys, warnings
        from pathlib import Path
        import torch
        import torchdali as td
        from torchdali.errors import of_memory

        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        data = td.ImageFolder(sys.argv[1], fields=("image", "index"))
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        found = {"whole": 0, "named": 0, "bad": 0, "others": []}
        for number in range({many}):
            for engine in ("eager", "pipeline"):
                options = dict(device="cpu", engine=engine, num_threads=1, on_bad_sample="skip", timeout=60)
                for _ in td.DataLoader(data, 16, transform=td.transforms.Resize((8, 8)), **options):
                    pass
                own = int(Path("/proc/self/statm").read_text().split()[0]) * 4096
                resource.setrlimit(resource.RLIMIT_AS, (own + (20 + number * 23 % 160 << 20), hard))
                loader = td.DataLoader(data, 16, transform=td.transforms.Resize((900, 900)), **options)
                try:
                    found["whole"] += next(iter(loader))[1].tolist() == list(range(16))
                except Exception as error:
                    if of_memory(error):
                        found["named"] += 1
                    else:
                        found["others"].append(repr(error)[:200])
                finally:
                    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
                found["bad"] += len(loader.bad_samples)
                loader.close()
        print(json.dumps(found))
    """
    program = start_code(code.replace("{many}", str(trial.times(2, 20))), tmp_path, folder)
    out, errors = program.communicate(300)
    assert program.returncode == 0, errors
    found = json.loads(out.splitlines()[-1])
    many = found["whole"] + found["named"]
    trial.note("a limit of memory", many, {"lost": found["bad"], "crashes": len(found["others"])}, found)


# Ctrl-C


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a finalizer Python drops it
@pytest.mark.parametrize("engine, prefetch", ENGINES)
def test_ctrl_c_at_any_moment(engine: str, prefetch: int, make: Make, trial: Trial) -> None:
    """The pass goes on, or a new one does from its state; each batch is the one of its place."""
    clean = {}
    loader = make(engine=engine, prefetch_factor=prefetch)
    for step in range(len(loader)):
        clean[4 * step] = None
    for place, batch in zip(list(clean), loader, strict=True):
        clean[place] = rows(batch)
    rng = random.Random(engine)
    many, wrong, lost, interrupts = trial.times(8, 100), 0, 0, 0
    details: list[Any] = []
    inside = [False]

    def interrupt(*_: object) -> None:
        if inside[0]:
            inside[0] = False
            raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_REAL, 0.001)  # not in the test's own code

    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(many):
            found: dict[int, Any] = {}
            loader = make(engine=engine, prefetch_factor=prefetch)
            iterator = iter(loader)
            came = 0
            signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0005, 0.03))
            while True:
                place = loader.state_dict()["samples_seen"]
                try:
                    inside[0] = True
                    batch = next(iterator)
                    inside[0] = False
                    found[place] = rows(batch)
                except (StopIteration, KeyboardInterrupt) as end:
                    inside[0] = False
                    if isinstance(end, StopIteration):
                        break
                    came += 1
                except RuntimeError as error:  # it came inside a stage of this thread
                    inside[0] = False
                    assert "this pass was ended" in str(error)
                    state = loader.state_dict()
                    loader = make(engine=engine, prefetch_factor=prefetch)
                    loader.load_state_dict(state)
                    iterator = iter(loader)
            inside[0] = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            interrupts += came
            differing = [place for place in found if found[place] != clean.get(place)]
            wrong += len(differing)
            details += [(came, place, found[place], clean.get(place)) for place in differing[:1]]
            lost += len(set(clean) - set(found)) > came  # one that was on its way to the caller
            del iterator
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
    trial.note(
        f"Ctrl-C at any moment, {engine}, prefetch {prefetch}", many, {"wrong": wrong, "lost": lost}, details[:2]
    )


# Loaders that come and go


def test_loaders_made_anew_leave_nothing(make: Make, trial: Trial) -> None:
    """Dropped at their start, in their middle, after their end, and in another thread; with a collection each time."""
    process, many, hangs = psutil.Process(), trial.times(24, 200), 0
    threads = fds = 0
    before = gc.get_threshold()
    gc.set_threshold(50, 2, 2)
    try:
        for number in range(many):
            engine, prefetch = ENGINES[number % len(ENGINES)]
            iterator = iter(make(engine=engine, prefetch_factor=prefetch))
            for _ in range(number % 8):
                next(iterator, None)
            if number % 3 == 0:
                held = [iterator]
                thread = threading.Thread(target=held.clear)
                del iterator
                thread.start()
                thread.join(PATIENCE)
                hangs += thread.is_alive()
            else:
                del iterator
            hangs += not wait_until(lambda: not our_threads(), 60)
            if number == 11:
                threads, fds = process.num_threads(), process.num_fds()
        left = process.num_threads() > threads + 1 or process.num_fds() > fds + 1
    finally:
        gc.set_threshold(*before)
    trial.note("loaders are made anew", many, {"hangs": hangs, "crashes": left}, (threads, process.num_threads()))


def test_two_loaders_in_two_threads(make: Make, trial: Trial) -> None:
    clean = [row for batch in make() for row in rows(batch)]
    many = trial.times(2, 40)
    wrong: list[int] = []

    def read(number: int) -> None:
        engine, prefetch = ENGINES[number % 3]  # "debug" is for one thread
        for _ in range(many):
            found = [row for batch in make(engine=engine, prefetch_factor=prefetch) for row in rows(batch)]
            wrong.append(found != clean)

    threads = [threading.Thread(target=read, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    hangs = sum(thread.is_alive() for thread in threads)
    trial.note("two loaders in two threads", len(wrong), {"wrong": sum(wrong), "hangs": hangs})
