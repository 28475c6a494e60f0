"""torch.distributed.checkpoint: saved at once and later, loaded by one process and by two, and by another number."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from .launcher import finish, start
from .trainer_jobs import FOLDER, Found
from .trainer_jobs.common import BATCH_SIZE, expected_batches, matrix, read
from .trainer_jobs.dcp_job import SAVE_AFTER, run_cells, train

pytestmark = pytest.mark.processes


@contextmanager
def group_of_one() -> Iterator[None]:
    """A process group in this process, with one thread so that sums are the same each time."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()
        torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def jobs(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """On one process; on two, which continue its checkpoints; and on one, which continues theirs."""
    one, two = (tmp_path_factory.mktemp(f"dcp{processes}") for processes in (1, 2))
    with group_of_one():
        found = run_cells(folder, one, None)
    finish(start(FOLDER / "dcp_job.py", folder, two, one, processes=2))
    with group_of_one():
        for name, saved in (("other", "saved"), ("other, async", "async")):
            found[name] = train(one, folder, name, resume=Path(two, saved))
    return {1: [found], 2: [read(two, rank) for rank in range(2)]}


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("cell", ["fresh", *matrix(1)])
def test_the_stream_and_the_weights(jobs: Found, folder: Path, cell: str, processes: int) -> None:
    for rank, found in enumerate(jobs[processes]):
        assert found[cell]["batches"] == expected_batches(folder, rank, processes)
        assert found[cell]["weights"] == jobs[processes][0]["fresh"]["weights"]


@pytest.mark.parametrize("processes", [1, 2])
def test_saved_while_training_goes_on(jobs: Found, folder: Path, processes: int) -> None:
    """The checkpoint holds the moment of the call, and not the batches after it."""
    for rank, found in enumerate(jobs[processes]):
        assert found["async"]["batches"] == expected_batches(folder, rank, processes)[SAVE_AFTER:]
        assert found["async"]["weights"] == jobs[processes][0]["fresh"]["weights"]
        assert found["async"]["first"]["samples_seen"] == SAVE_AFTER * BATCH_SIZE * processes


@pytest.mark.parametrize("cell", ["other", "other, async"])
@pytest.mark.parametrize("processes", [1, 2])
def test_another_number_of_processes(jobs: Found, folder: Path, processes: int, cell: str) -> None:
    """The very next samples in the global order, and the rest of the training: none lost, none twice."""
    seen = SAVE_AFTER * BATCH_SIZE * (3 - processes)
    order = in_global_order([expected_batches(folder, 0, 1)])
    found = [rank[cell] for rank in jobs[processes]]
    assert in_global_order([rank["batches"] for rank in found]) == order[seen:]
    assert all(rank["first"]["samples_seen"] == seen for rank in found)
    assert len({rank["weights"] for rank in found}) == 1


def in_global_order(batches_of_ranks: list[list[Any]]) -> list[Any]:
    return [sample for batches in zip(*batches_of_ranks, strict=True) for sample in chain(*(one for _, one in batches))]


@pytest.mark.parametrize("processes", [1, 2])
def test_the_state_is_the_same_on_all_ranks(jobs: Found, processes: int) -> None:
    """One copy of each value is saved, of any rank."""
    for cell in ("async", "other"):
        assert all(found[cell]["last"] == jobs[processes][0][cell]["last"] for found in jobs[processes])
        assert all(found[cell]["first"] == jobs[processes][0][cell]["first"] for found in jobs[processes])
