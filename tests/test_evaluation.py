"""Evaluation on one, two and three processes: each sample once, equal steps, and the accuracy of one process."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from .trainer_jobs import Found, run_on
from .trainer_jobs.evaluation_job import BATCH_SIZES, SAMPLES

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def jobs(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Found:
    return run_on((1, 2, 3), "evaluation_job", folder, tmp_path_factory.mktemp)


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_each_sample_comes_once_in_equal_steps(jobs: Found, processes: int) -> None:
    cells = list(zip(*(found["streams"] for found in jobs[processes]), strict=True))
    assert len(cells) == len(SAMPLES) * len(BATCH_SIZES) * 4
    for ranks in cells:
        numbers = list(chain(*chain(*(rank["numbers"] for rank in ranks))))
        assert sorted(numbers) == list(range(ranks[0]["samples"])), ranks
        assert {len(rank["numbers"]) for rank in ranks} == {ranks[0]["length"]}, ranks
        assert all(min(rank["sizes"]) >= 1 for rank in ranks), ranks
        if ranks[0]["pad_last"]:
            assert all(set(rank["sizes"]) == {rank["batch_size"]} for rank in ranks), ranks
        else:
            # No row is repeated, and no rank has two more than another.
            assert all(list(map(len, rank["numbers"])) == rank["sizes"] for rank in ranks)
            for sizes in zip(*(rank["sizes"] for rank in ranks), strict=True):
                assert max(sizes) - min(sizes) <= 1, ranks


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_the_order_is_that_of_one_process(jobs: Found, processes: int) -> None:
    for ranks, one in zip(zip(*(found["streams"] for found in jobs[processes])), jobs[1][0]["streams"], strict=True):
        steps = zip(*(rank["numbers"] for rank in ranks), strict=True)
        assert list(chain(*chain(*steps))) == list(chain(*one["numbers"])), ranks


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_the_accuracy_is_that_of_one_process(jobs: Found, processes: int) -> None:
    expected = jobs[1][0]["accuracy"][0]["summed"]
    assert 0 < expected < 22
    for found in jobs[processes]:
        for cell in found["accuracy"]:
            assert (cell["summed"], cell["of"], cell["gathered"]) == (expected, 22, expected)
            assert sorted(cell["once"]) == list(range(22))
