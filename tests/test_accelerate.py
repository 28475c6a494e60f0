"""Accelerate: a matrix of real trainings on one process and on two; saved, loaded, skipped, accumulated, gathered."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from torchdali.trainers.accelerate import tell_end, tell_pass

from .trainer_jobs import Found, run_on
from .trainer_jobs.common import expected_batches, in_order, matrix, part_lengths, steps

pytestmark = pytest.mark.processes

ACCUMULATE = 4
CELLS = ["fresh", *matrix(1), "registered", "accumulated", "accumulated, resumed"]


@pytest.fixture(scope="module")
def jobs(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Found:
    return run_on((1, 2), "accelerate_job", folder, tmp_path_factory.mktemp, ["accelerate"])


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[int, list[Any]]:
    """The loader's own batches, by processes and rank."""
    return {processes: [expected_batches(folder, rank, processes) for rank in range(processes)] for processes in (1, 2)}


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
def test_the_stream_and_the_weights(jobs: Found, expected: Any, cell: str, processes: int) -> None:
    uninterrupted = "accumulated" if "accumulated" in cell else "fresh"
    for rank, found in enumerate(jobs[processes]):
        assert found[cell]["batches"] == expected[processes][rank]
        assert found[cell]["weights"] == jobs[processes][0][uninterrupted]["weights"]


@pytest.mark.parametrize("processes", [1, 2])
def test_each_part_took_its_batches(jobs: Found, processes: int) -> None:
    for cell in matrix(processes):
        assert all(found[cell]["parts"] == part_lengths(processes, cell) for found in jobs[processes])


def test_two_processes_train_with_the_samples_of_one(jobs: Found) -> None:
    one, two = (in_order([rank["fresh"]["batches"] for rank in jobs[processes]]) for processes in (1, 2))
    assert one == two and [len(set(epoch)) for epoch in one] == [22, 22]


@pytest.mark.parametrize("processes", [1, 2])
def test_the_last_window_of_an_epoch_is_a_step(jobs: Found, processes: int) -> None:
    epoch = [number % ACCUMULATE == 0 or number == steps(processes) for number in range(1, steps(processes) + 1)]
    for found in jobs[processes]:
        assert found["accumulated"]["synced"] == found["accumulated, resumed"]["synced"] == epoch * 2
        assert found["accumulated"]["weights"] != found["fresh"]["weights"]


@pytest.mark.parametrize("processes", [1, 2])
def test_skipping_is_exact_and_ends_as_a_whole_epoch_does(jobs: Found, expected: Any, processes: int) -> None:
    count = steps(processes)
    for skip in (ACCUMULATE, count - 1):
        first = [number % ACCUMULATE == 0 or number == count - skip for number in range(1, count - skip + 1)]
        second = [number % ACCUMULATE == 0 or number == count for number in range(1, count + 1)]
        for rank, found in enumerate(jobs[processes]):
            assert found[f"skip {skip}"]["batches"] == expected[processes][rank][skip:]
            assert found[f"skip {skip}"]["synced"] == first + second


@pytest.mark.parametrize("processes", [1, 2])
def test_a_pass_inside_another_tells_its_own_end(jobs: Found, processes: int) -> None:
    count, inner = steps(processes), 3 if processes == 1 else 2
    # The first batch; the whole inner pass; then the outer ones, inner passes broken off and dropped at their end
    # among them; and behind the outer pass there is none.
    expected = [False, [False] * (inner - 1) + [True], *[False] * (count - 2), True, False]
    assert all(found["nested"]["seen"] == expected for found in jobs[processes])


@pytest.mark.parametrize("processes", [1, 2])
def test_an_open_validation_does_not_hide_the_end_of_the_window(jobs: Found, processes: int) -> None:
    epoch = [number % ACCUMULATE == 0 or number == steps(processes) for number in range(1, steps(processes) + 1)]
    assert all(found["open"] == epoch for found in jobs[processes])


@pytest.mark.parametrize("processes", [1, 2])
def test_of_two_passes_side_by_side_the_one_that_handed_over_last_counts(jobs: Found, processes: int) -> None:
    count, inner = steps(processes), 3 if processes == 1 else 2
    # The second pass is at its end after its last batch; when it has gone, the first one counts.
    expected = [
        [number == count, number == inner or (number > inner and number == count)] for number in range(1, count + 1)
    ]
    assert all(found["side by side"] == expected for found in jobs[processes])


@pytest.mark.parametrize("processes", [1, 2])
def test_what_cannot_be_gathered_is_said_once(jobs: Found, processes: int) -> None:
    for found in jobs[processes]:
        said = found["said"]
        assert said["even"] == []
        if processes == 1:
            assert said["uneven"] == []
        else:
            (text,) = said["uneven"]
            assert text.startswith("a batch of 3 rows is shared by 2 ranks") and "pad_last=True" in text
        (text,) = said["unmarked"]
        assert "has no field `valid`: name it in the dataset's fields" in text


@pytest.mark.parametrize("processes", [1, 2])
def test_what_is_gathered_is_each_sample_once(jobs: Found, processes: int) -> None:
    for found in jobs[processes]:
        for cell in found["gathered"].values():
            assert sorted(cell["indices"]) == list(range(22))
            assert cell["right"] == jobs[1][0]["gathered"]["1"]["right"]
    assert len({cell["right"] for cell in jobs[processes][0]["gathered"].values()}) == 1


def test_nobody_is_told_where_accelerate_is_not_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "accelerate.state", raising=False)
    assert tell_pass() is None
    tell_end(None)
