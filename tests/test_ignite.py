"""Ignite, a matrix of real trainings on one process and on two; and tqdm."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from tqdm import tqdm

from .trainer_jobs import Found, run_on
from .trainer_jobs.common import expected_batches, make_loader, matrix, part_lengths, steps

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def jobs(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Found:
    return run_on((1, 2), "ignite_job", folder, tmp_path_factory.mktemp, ["ignite.engine", "ignite.handlers"])


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[int, list[Any]]:
    """The loader's own batches, by processes and rank."""
    return {processes: [expected_batches(folder, rank, processes) for rank in range(processes)] for processes in (1, 2)}


@pytest.mark.parametrize("epochs", ["by itself", "by set_epoch"])
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("cell", ["fresh", *matrix(1)])
def test_the_stream_and_the_weights(jobs: Found, expected: Any, cell: str, processes: int, epochs: str) -> None:
    for rank, found in enumerate(jobs[processes]):
        assert found[epochs][cell]["batches"] == expected[processes][rank]
        assert found[epochs][cell]["weights"] == jobs[processes][0]["by itself"]["fresh"]["weights"]


@pytest.mark.parametrize("processes", [1, 2])
def test_each_part_took_its_batches(jobs: Found, processes: int) -> None:
    for found in jobs[processes]:
        for cell in matrix(processes):
            assert all(way[cell]["parts"] == part_lengths(processes, cell) for way in found.values())


@pytest.mark.parametrize("processes", [1, 2])
def test_an_epoch_of_ignite_is_one_of_the_loader(jobs: Found, processes: int) -> None:
    for found in jobs[processes]:
        assert found["by itself"]["fresh"]["epoch length"] == steps(processes)


def test_a_bar_knows_its_end(folder: Path) -> None:
    with make_loader(folder) as loader:
        with tqdm(loader, file=io.StringIO()) as bar:
            assert bar.total == 11 and len(list(bar)) == 11 and bar.n == 11
        for number, _ in enumerate(loader, 1):
            if number == 3:
                break
        state = loader.state_dict()
    with make_loader(folder) as loader:
        loader.load_state_dict(state)
        with tqdm(loader, initial=3, file=io.StringIO()) as bar:
            assert bar.total == 11 and len(list(bar)) == 8 and bar.n == 11
