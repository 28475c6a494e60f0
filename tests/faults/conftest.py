"""How often a fault is injected, and what came of it: seconds in the suite, minutes in `scripts/reliability`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from .trial import RESULTS, Trial


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Trial:
    """Says how often to inject the test's fault, and takes what came of it."""
    results = os.environ.get(RESULTS)
    return Trial(request.node.nodeid, results and Path(results))


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """A test that fails before it has said what happened is a crash."""
    results = os.environ.get(RESULTS)
    if results and call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
        with open(results, "a") as file:
            file.write(json.dumps({"test": item.nodeid, "failed": str(call.excinfo.value)[:300]}) + "\n")
