"""pytest with a pretended GPU: every test is judged by the hazards that it causes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from .as_dali import install_dali
from .as_torch import install_torch
from .machine import MACHINE, Machine


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "hazards_expected: the test itself says which hazards there are")
    # Here and not earlier: pytest's own start is over, and DALI is not imported yet.
    install_torch()
    install_dali()


@pytest.fixture(scope="session")
def ten(tmp_path_factory) -> Path:
    """10 JPEGs of different sizes in two classes: three batches of 4; do not change it."""
    from torchdali.testing import make_image_folder  # not before torch is as it shall be

    return make_image_folder(tmp_path_factory.mktemp("ten"), classes=2, per_class=5)


@pytest.fixture(autouse=True)
def no_hazards(request: pytest.FixtureRequest) -> Iterator[Machine]:
    """Fail a test that causes a hazard."""
    gc.collect()  # what earlier tests left is not this one's
    gc.freeze()  # what is left now stays; it would cost each collection a tenth of a second and more
    MACHINE.reset()
    yield MACHINE
    if "hazards_expected" not in request.keywords:
        assert not MACHINE.hazards, "\n".join(MACHINE.hazards[:8])
