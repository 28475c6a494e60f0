"""Ranks that do not come together: one evaluates while the others train, one is late, one leaves."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from .launcher import finish, start
from .torchrun_jobs import FOLDER

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each of two processes found."""
    out = tmp_path_factory.mktemp("alone")
    finish(start(FOLDER / "alone.py", out, processes=2))
    return [json.loads(Path(out, f"{rank}.json").read_text()) for rank in range(2)]


REST = (
    "and rank 0 did: all ranks of a loader's group begin each pass together, to compare where they stand.  "
    "For a loader that one rank reads alone, to evaluate, say, write rank=0, world_size=1"
)


def test_a_rank_that_comes_alone_says_so_at_the_groups_timeout(two: list[dict[str, Any]]) -> None:
    assert two[0]["alone"] == (
        "LoaderTimeoutError: rank 1 did not come to this pass of the loader within 4 s, the timeout of their process "
        f"group, {REST}"
    )
    assert 4 <= two[0]["seconds"] and "alone" not in two[1]
    assert two[0]["explicit"] == ""  # as the message says


def test_a_rank_that_waits_long_says_for_whom(two: list[dict[str, Any]]) -> None:
    (said,) = two[0]["said"]
    begin, _, end = said.partition(REST)
    assert re.fullmatch(r"rank 1 did not come to this pass of the loader within \d s, ", begin)
    assert end == "; rank 0 waits on, for at most 60 s, the timeout of their process group"
    assert [found["late"] for found in two] == ["", ""]


def test_an_evaluation_that_meets_a_training_differs_on_both_ranks(two: list[dict[str, Any]]) -> None:
    for found in two:
        assert "\n  seed: 1 on rank 0; 0 on rank 1" in found["apart"]


def test_a_wait_that_was_left_is_no_pass(two: list[dict[str, Any]]) -> None:
    assert two[0]["left"] == "WarnedError: "
    assert [found["after it was left"] for found in two] == ["", ""]


def test_the_store_does_not_grow(two: list[dict[str, Any]]) -> None:
    assert [found["keys"] for found in two] == [0, 0]
