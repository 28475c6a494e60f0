"""Hugging Face's Trainer: a matrix of real trainings on one process and on two, resumed by its own checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .trainer_jobs import Found, run_on
from .trainer_jobs.common import EPOCHS, expected_batches, in_order, matrix, part_lengths, steps

pytestmark = pytest.mark.processes

ACCUMULATE = 4


@pytest.fixture(scope="module")
def jobs(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Found:
    return run_on((1, 2), "transformers_job", folder, tmp_path_factory.mktemp, ["accelerate", "transformers.trainer"])


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[int, list[Any]]:
    """The loader's own batches, by processes and rank."""
    return {processes: [expected_batches(folder, rank, processes) for rank in range(processes)] for processes in (1, 2)}


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("cell", ["fresh", *matrix(1), "evaluated"])
def test_the_stream_and_the_weights(jobs: Found, expected: Any, cell: str, processes: int) -> None:
    for rank, found in enumerate(jobs[processes]):
        assert found[cell]["batches"] == expected[processes][rank]
        assert found[cell]["weights"] == jobs[processes][0]["fresh"]["weights"]
    assert jobs[processes][0]["fresh"]["optimizer steps"] == steps(processes) * EPOCHS


@pytest.mark.parametrize("processes", [1, 2])
def test_each_part_took_its_batches(jobs: Found, processes: int) -> None:
    for cell in matrix(processes):
        assert all(found[cell]["parts"] == part_lengths(processes, cell) for found in jobs[processes])


@pytest.mark.parametrize("processes", [1, 2])
def test_resumed_between_windows_that_do_not_divide_the_epoch(jobs: Found, expected: Any, processes: int) -> None:
    windows = -(-steps(processes) // ACCUMULATE)
    for rank, found in enumerate(jobs[processes]):
        whole = found["accumulated"]
        assert whole["batches"] == expected[processes][rank] and whole["weights"] != found["fresh"]["weights"]
        for stop in (1, windows, windows + 1):
            assert found[f"accumulated, {stop}"] == whole
        assert whole["optimizer steps"] == windows * EPOCHS and whole["epoch"] == EPOCHS


def test_two_processes_train_with_the_samples_of_one(jobs: Found) -> None:
    one, two = (in_order([rank["fresh"]["batches"] for rank in jobs[processes]]) for processes in (1, 2))
    assert one == two and [len(set(epoch)) for epoch in one] == [22, 22]


@pytest.mark.parametrize("processes", [1, 2])
def test_evaluation_is_exact(jobs: Found, processes: int) -> None:
    batches = 8 if processes == 1 else 4
    for found in jobs[processes]:
        assert found["evaluation"]["eval_once"] and found["evaluation"]["eval_rows"] == 24
        assert found["evaluation"]["eval_right"] == jobs[1][0]["evaluation"]["eval_right"]
        assert found["evaluation, by batch"] == [False] * (batches - 1) + [True]
