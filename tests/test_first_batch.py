"""The first batch of a pass has the cores to itself, and waits for no module that it does not need."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import torchdali as td
from torchdali import transforms as T
from torchdali.engine.eager import Eager
from torchdali.engine.host import HostStage
from torchdali.engine.traced import Inlet
from torchdali.prefetch import Prefetcher

from .conftest import our_threads
from .patience import PATIENCE, wait_until

AUGMENT = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip()])


def make(folder, **options):
    return td.DataLoader(td.ImageFolder(folder), 4, shuffle=True, device="cpu", transform=AUGMENT, **options)


@pytest.fixture
def begun():
    """The items that a source has begun to make."""
    return []


@pytest.fixture
def gentle(begun):
    def source():
        for item in range(5):
            begun.append(item)
            yield item

    return Prefetcher(source, 1, "torchdali-gentle", gently=True)


def test_a_gentle_prefetcher_begins_the_second_item_when_it_is_asked_for(gentle, begun):
    gentle.start()
    assert gentle.get(PATIENCE) == 0 and not wait_until(lambda: len(begun) > 1, 0.3)
    assert list(gentle) == [1, 2, 3, 4] and gentle.join(PATIENCE)


def test_a_gentle_prefetcher_works_ahead_after_the_second_item(gentle, begun):
    gentle.start()
    assert [gentle.get(PATIENCE) for _ in range(2)] == [0, 1]
    assert wait_until(lambda: begun == [0, 1, 2, 3])  # one is in the queue, and one is finished
    gentle.stop()
    assert gentle.join(PATIENCE)


@pytest.mark.parametrize("taken", [0, 1])
def test_a_gentle_prefetcher_that_waits_is_stopped(gentle, begun, taken):
    gentle.start()
    for _ in range(taken):
        gentle.get(PATIENCE)
    assert wait_until(lambda: begun == [0])
    gentle.stop()
    assert gentle.join(PATIENCE) and begun == [0]


@pytest.mark.parametrize("engine", ["pipeline", "eager"])
def test_the_second_batch_is_not_decoded_while_the_first_is_transformed(folder, monkeypatch, engine):
    decoded, transformed, go_on = [], [], threading.Event()
    stage, owner = HostStage.__call__, Inlet if engine == "pipeline" else Eager
    decode = owner.__call__

    def given(self):
        inputs = decode(self)  # raises where there are none
        decoded.append(1)
        return inputs

    def decodes(self, work):
        decode(self, work)
        decoded.append(1)

    def waits(self, work):
        transformed.append(1)
        assert go_on.wait(PATIENCE)
        stage(self, work)

    monkeypatch.setattr(owner, "__call__", given if owner is Inlet else decodes)
    monkeypatch.setattr(HostStage, "__call__", waits)
    loader = make(folder, engine=engine)
    batches = iter(loader)
    first = ThreadPoolExecutor(1).submit(next, batches)
    assert wait_until(lambda: transformed) and not wait_until(lambda: len(decoded) > 1, 0.3)
    go_on.set()
    first.result(PATIENCE)
    assert wait_until(lambda: len(decoded) > 2)
    loader.close()
    assert not our_threads()


@pytest.mark.processes
def test_a_pipeline_imports_no_dynamic_mode(folder):
    """Its import takes a third of a second."""
    script = (
        "import sys, torchdali as td; from torchdali import transforms as T\n"
        f"loader = td.DataLoader(td.ImageFolder({str(folder)!r}), 4, device='cpu', transform=T.RandomResizedCrop(16))\n"
        "print(sum(len(labels) for _ in range(2) for _, labels in loader), 'nvidia.dali' in sys.modules)\n"
        "print(*[name for name in sys.modules if name.startswith('nvidia.dali.experimental')])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{2 * len(td.ImageFolder(folder))} True", ""]
