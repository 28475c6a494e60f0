"""Shared by all tests: real image folders, and the rule that nothing is left behind."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import pytest

from torchdali.testing import make_image_folder

from .launcher import finish, start

# A shell's background jobs ignore Ctrl-C, and so would the scripts that are interrupted here.
signal.signal(signal.SIGINT, signal.default_int_handler)


def our_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("torchdali")]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    """Every loader's threads end with it."""
    yield
    import gc
    import time

    if our_threads():
        gc.collect()
    deadline = time.monotonic() + 5
    while our_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not our_threads()


@pytest.fixture(scope="session")
def folder(tmp_path_factory) -> Path:
    """22 JPEGs of different sizes in two classes; do not change it."""
    return make_image_folder(tmp_path_factory.mktemp("folder"), classes=2, per_class=11)


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recipes' data: 1,437 and 360 PNGs of handwritten digits in two splits; do not change them."""
    out = tmp_path_factory.mktemp("digits")
    finish(start("scripts/make_digits.py", "--out", out))
    assert len(list(out.glob("train/*/*.png"))) == 1437 and len(list(out.glob("val/*/*.png"))) == 360
    return out


@pytest.fixture
def own_folder(tmp_path) -> Path:
    """The same, to be changed."""
    return make_image_folder(tmp_path / "folder", classes=2, per_class=11)
