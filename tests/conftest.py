"""Shared by all tests: what --fast leaves out, real image folders, and the rule that nothing is left over."""

from __future__ import annotations

import gc
import multiprocessing.util
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchdali.testing import make_image_folder
from torchdali.workers import launch

from .launcher import finish, start
from .patience import wait_until

# A shell's background jobs ignore Ctrl-C, and so would the scripts that are interrupted here.
signal.signal(signal.SIGINT, signal.default_int_handler)

# One fork server serves all workers of a test process.  It would import what the first pool needs and no more, and each
# of some thousand workers after it the rest, in a fifth of a second.
launch._PRELOAD += ["torchdali.python", "tests.source_datasets", "tests.workers_helpers", "PIL.JpegImagePlugin"]

LONGEST = (
    # A minute and more by themselves
    *("test_pretended_gpu", "test_python_sources", "test_workers", "test_ray", "test_readers", "test_lightning"),
    *("test_docs", "test_iterable", "test_package", "test_torchrun", "test_sources", "test_sample_source"),
    # Half a minute
    *("test_several_machines", "test_transforms", "test_recipes", "test_trainer_recipes", "test_golden"),
    *("test_stream", "test_from_torchvision", "test_lifecycle", "test_migration", "test_parity", "test_transformers"),
    *("test_accelerate", "test_dcp", "test_evaluation", "test_ignite", "test_datasets_of_others"),
    *("test_commands", "test_torch_contract", "test_image_headers", "test_packaging", "test_signals"),
)
"""The files that take longest, the longest first; the order of the short ones is no matter."""

# --fast


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="leave out tests that start processes, and slow ones")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        parameters = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
        if any(given.get("num_workers") for given in (parameters, *parameters.values()) if isinstance(given, dict)):
            item.add_marker(pytest.mark.processes)
    # Those first that take longest, so that two test processes end together (scripts/test).
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))
    if config.getoption("--fast"):
        left_out = [item for item in items if any(item.iter_markers("processes")) or any(item.iter_markers("slow"))]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file that --fast leaves out as a whole, by its pytestmark's first mark, costs no import of a trainer either."""
    if config.getoption("--fast") and collection_path.suffix == ".py":
        whole = re.search(r"^pytestmark = \[?\s*pytest\.mark\.(processes|slow)\b", collection_path.read_text(), re.M)
        return True if whole else None
    return None


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--fast"):
        config.pluginmanager.register(NoProcesses())


class NoProcesses:
    """Makes --fast true: a test fails that starts a process, and has no mark that says so."""

    EVENTS = frozenset(("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"))

    def __init__(self) -> None:
        self.started: list[str] = []
        self.in_a_test = False
        sys.addaudithook(lambda event, _: self.note(event) if event in self.EVENTS else None)
        # What multiprocessing spawns by, which tells no audit hook.
        spawn = multiprocessing.util.spawnv_passfds

        def noted(*arguments: Any) -> int:
            self.note("multiprocessing")
            return spawn(*arguments)

        multiprocessing.util.spawnv_passfds = noted

    def note(self, event: str) -> None:
        if self.in_a_test:
            self.started.append(event)
            raise RuntimeError(f"--fast starts no processes, and here is one, by {event}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.in_a_test = True
        try:
            return (yield)
        finally:
            self.in_a_test = False

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        try:
            return (yield)
        finally:
            started, self.started = self.started, []
            if started:
                pytest.fail(f"it starts a process, by {started[0]}: mark it with pytest.mark.processes", pytrace=False)


# Nothing is left over


def pytest_collection_finish() -> None:
    """Let the collector pass over what imports made: it costs each collection, and each fork, half a second."""
    gc.collect()
    gc.freeze()


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("torchdali")]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """Every loader's threads end with it."""
    yield
    if hasattr(sys, "last_value"):
        return  # it has failed, and its traceback holds what it made
    if our_threads():
        gc.collect()
    assert wait_until(lambda: not our_threads()), our_threads()


# Files


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """22 JPEGs of different sizes in two classes; do not change it."""
    return make_image_folder(tmp_path_factory.mktemp("folder"), classes=2, per_class=11)


@pytest.fixture(scope="session")
def digits(tmp_path_factory) -> Path:
    """The recipes' data: 1,437 and 360 PNGs of handwritten digits in two splits; do not change them."""
    out = tmp_path_factory.mktemp("digits")
    finish(start("scripts/make_digits.py", "--out", out))
    assert len(list(out.glob("train/*/*.png"))) == 1437 and len(list(out.glob("val/*/*.png"))) == 360
    return out


@pytest.fixture
def own_folder(tmp_path) -> Path:
    """The same, to be changed."""
    return make_image_folder(tmp_path / "folder", classes=2, per_class=11)


@pytest.fixture(autouse=True)
def accelerate_forgets() -> Iterator[None]:
    """Put accelerate's state away after a test: it is the process's, and later passes would be told to it."""
    yield
    found = sys.modules.get("accelerate.state")
    for name in ("AcceleratorState", "GradientState", "PartialState") if found else ():
        getattr(found, name)._reset_state()
