"""A process's rank and device: from explicit numbers, a mesh, a process group, the environment, or alone."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchdali as td
from torchdali import distributed
from torchdali.distributed import Shard, check_device, check_shard, default_num_threads, resolve_device, resolve_shard

from .launcher import finish, start

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "DALI_NUM_THREADS")
no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def setenv(monkeypatch: pytest.MonkeyPatch, **variables: Any) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, str(value))


# Rank and world size in one process


def test_alone() -> None:
    assert resolve_shard(None, None) == Shard(0, 1)


def test_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    setenv(monkeypatch, RANK=2, WORLD_SIZE=4)
    assert resolve_shard(None, None) == Shard(2, 4)
    # Nothing is remembered: launchers set it late.
    setenv(monkeypatch, RANK=0, WORLD_SIZE=1)
    assert resolve_shard(None, None) == Shard(0, 1)


def test_explicit_beats_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    setenv(monkeypatch, RANK=2, WORLD_SIZE=4)
    assert resolve_shard(check_shard(0, 3), None) == Shard(0, 3)


def test_a_world_without_a_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning's own launcher sets WORLD_SIZE and LOCAL_RANK, and RANK never."""
    setenv(monkeypatch, WORLD_SIZE=2, LOCAL_RANK=1)
    with pytest.raises(RuntimeError, match="WORLD_SIZE=2 but there is no RANK and no process group: pass rank= and"):
        resolve_shard(None, None)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"WORLD_SIZE": "two", "RANK": 0}, "variable WORLD_SIZE must be an integer of at least 1, got 'two'"),
        ({"WORLD_SIZE": 0, "RANK": 0}, "variable WORLD_SIZE must be an integer of at least 1, got '0'"),
        ({"WORLD_SIZE": "", "RANK": 0}, "variable WORLD_SIZE must be an integer of at least 1, got ''"),
        ({"WORLD_SIZE": 2, "RANK": -1}, "variable RANK must be an integer of at least 0, got '-1'"),
        ({"WORLD_SIZE": 2, "RANK": "1.0"}, "variable RANK must be an integer of at least 0, got '1.0'"),
        ({"WORLD_SIZE": 2, "RANK": 2}, "variables RANK=2 and WORLD_SIZE=2 do not fit together"),
    ],
)
def test_impossible_environments(monkeypatch: pytest.MonkeyPatch, variables: dict[str, Any], message: str) -> None:
    setenv(monkeypatch, **variables)
    with pytest.raises(ValueError, match=message):
        resolve_shard(None, None)


def test_check_shard() -> None:
    assert check_shard(None, None) is None
    assert check_shard(0, 1) == Shard(0, 1) and check_shard(1023, 1024) == Shard(1023, 1024)


@pytest.mark.parametrize(
    ("rank", "world_size", "error", "message"),
    [
        (0, None, ValueError, "rank and world_size go together, got rank=0 world_size=None"),
        (None, 2, ValueError, "rank and world_size go together, got rank=None world_size=2"),
        (2, 2, ValueError, r"rank must be in \[0, world_size\), got rank=2 world_size=2"),
        (-1, 2, ValueError, r"rank must be in \[0, world_size\), got rank=-1 world_size=2"),
        (0, 0, ValueError, r"rank must be in \[0, world_size\), got rank=0 world_size=0"),
        ("0", 2, TypeError, "rank and world_size must be integers, got rank='0' world_size=2"),
        (0.0, 2, TypeError, "rank and world_size must be integers"),
        (False, True, TypeError, "rank and world_size must be integers"),
    ],
)
def test_check_shard_refuses(rank: Any, world_size: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        check_shard(rank, world_size)


# Devices


@no_gpu
def test_the_device_without_a_gpu() -> None:
    assert resolve_device(None) == torch.device("cpu")
    for device in ("cuda", "cuda:0", 0, torch.device("cuda", 1)):
        with pytest.raises(ValueError, match=r"device='cuda(:\d)?', but torch sees no GPU here"):
            resolve_device(device)


@pytest.mark.parametrize("device", ["cpu", "cpu:0", torch.device("cpu"), torch.device("cpu", 0)])
def test_the_cpu(device: Any) -> None:
    # As tensors say it, so that `batch.device == loader.device`.
    assert resolve_device(device) == torch.zeros(1).device


@pytest.mark.parametrize("device", ["gpu", "mps", "meta", "cuda:x", "", None, True, 1.5])
def test_devices_that_are_none(device: Any) -> None:
    with pytest.raises(ValueError, match="device must be 'cpu', 'cuda' or 'cuda:INDEX', got"):
        check_device(device)


def test_check_device_asks_no_gpu() -> None:
    assert check_device("cuda:5") == torch.device("cuda", 5)


# Tasks of srun and mpirun


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[list[int]]]:
    """Reads a loader as a task of srun or mpirun does: with some variables."""
    for name in ("SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(distributed, "_warned", set())

    def read(variables: dict[str, Any], **options: Any) -> list[list[int]]:
        setenv(monkeypatch, **variables)
        loader = td.DataLoader(td.InMemoryDataset(number=range(4)), 2, device="cpu", **options)
        return [batch[0].tolist() for batch in loader]

    return read


SRUN = {"SLURM_NTASKS": 4, "SLURM_PROCID": 1, "SLURM_JOB_ID": 7, "SLURM_STEP_ID": 0}


@pytest.mark.parametrize(
    ("variables", "begin", "rank"),
    [
        (SRUN, r"srun started 4 tasks \(SLURM_NTASKS\)", "SLURM_PROCID"),
        ({"SLURM_NTASKS": 4}, "srun started 4 tasks", "SLURM_PROCID"),
        ({"OMPI_COMM_WORLD_SIZE": 2}, "mpirun started 2 tasks", "OMPI_COMM_WORLD_RANK"),
        ({"PMI_SIZE": 8}, "mpirun started 8 tasks", "PMI_RANK"),
    ],
)
def test_a_task_that_reads_the_whole_dataset_says_so_once(batches, variables, begin, rank) -> None:
    with pytest.warns(
        RuntimeWarning, match=rf'{begin}.* write rank=int\(os.environ\["{rank}"\]\), world_size='
    ) as said:
        assert batches(variables) == [[0, 1], [2, 3]]  # the rank is never guessed
    assert len(said) == 1
    assert batches({}) == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("variables", "options"),
    [
        (SRUN, {"rank": 0, "world_size": 1}),
        (SRUN | {"WORLD_SIZE": 1}, {}),
        (SRUN | {"SLURM_NTASKS": 1}, {}),
        ({"OMPI_COMM_WORLD_SIZE": 1, "PMI_SIZE": "x"}, {}),
        # The batch script itself is one process.
        ({"SLURM_NTASKS": 4, "SLURM_PROCID": 0, "SLURM_JOB_ID": 7}, {}),
    ],
)
def test_a_task_that_knows_what_it_reads_is_silent(batches, variables, options) -> None:
    assert batches(variables, **options) == [[0, 1], [2, 3]]


# Threads


def test_default_num_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributed, "cpu_limit", lambda: None)
    cpus = len(os.sched_getaffinity(0))
    assert default_num_threads() == cpus
    setenv(monkeypatch, LOCAL_WORLD_SIZE=2)
    assert default_num_threads() == max(1, cpus // 2)
    setenv(monkeypatch, LOCAL_WORLD_SIZE=10_000)
    assert default_num_threads() == 1
    setenv(monkeypatch, DALI_NUM_THREADS=7)
    assert default_num_threads() == 7


def test_default_num_threads_follows_the_affinity() -> None:
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})
    try:
        assert default_num_threads() == 1
    finally:
        os.sched_setaffinity(0, cpus)


@pytest.mark.parametrize("name", ["DALI_NUM_THREADS", "LOCAL_WORLD_SIZE"])
@pytest.mark.parametrize("value", ["0", "-2", "many", "1.5"])
def test_default_num_threads_refuses(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    setenv(monkeypatch, **{name: value})
    with pytest.raises(ValueError, match=f"variable {name} must be an integer of at least 1, got '{value}'"):
        default_num_threads()


# Two real processes

PROGRAM = """
import json, os, sys
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
import torchdali as td
from torchdali.distributed import Shard, default_num_threads, resolve_shard

def error(call):
    try:
        call()
    except Exception as e:
        return f"{type(e).__name__}: {e}"

def stream(**where):
    with td.DataLoader(td.InMemoryDataset(number=range(21)), 4, shuffle=True, device="cpu", seed=1, **where) as loader:
        found = {"len": len(loader), "batches": [numbers.tolist() for numbers, in loader]}
        return {**found, "state": loader.state_dict()}

unbound = td.DataLoader(td.InMemoryDataset(number=range(21)), 4, device="cpu")  # before there is a group
found = {"environment": resolve_shard(None, None), "threads": default_num_threads()}

dist.init_process_group("gloo")
rank = int(os.environ["RANK"])
os.environ["RANK"], os.environ["WORLD_SIZE"] = "5", "9"  # the group counts, not this
found["group"] = resolve_shard(None, None)
found["late"] = len(unbound)
grid, other = (init_device_mesh("cpu", shape, mesh_dim_names=("dp", "tp")) for shape in ((2, 1), (1, 2)))
found["submesh"] = resolve_shard(None, grid["dp"])
found["of one"] = resolve_shard(None, other["dp"])
found["explicit"] = resolve_shard(Shard(1, 3), grid["dp"])
found["two dimensions"] = error(lambda: resolve_shard(None, grid))
found["outside"] = error(lambda: resolve_shard(None, DeviceMesh("cpu", [0])))
found["streams"] = [stream(), stream(mesh=grid["dp"]), stream(mesh=other["dp"])]
with open(f"{sys.argv[1]}/{rank}.json", "w") as file:
    json.dump(found, file)
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """The rank and device that each of two processes found."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "program.py").write_text(PROGRAM)
    finish(start(folder / "program.py", folder, processes=2))
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.processes
def test_two_processes_know_their_ranks(two: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(two):
        assert found["environment"] == found["group"] == found["submesh"] == [rank, 2]
        assert found["of one"] == [0, 1]  # tensor-parallel peers take the same data
        assert found["explicit"] == [1, 3]
        assert found["threads"] == max(1, len(os.sched_getaffinity(0)) // 2)
        # A loader made before the group finds it.
        assert found["late"] == 3


@pytest.mark.processes
def test_meshes_that_are_no_data_parallel_group(two: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(two):
        assert found["two dimensions"] == (
            'ValueError: mesh must be the 1-d data-parallel mesh, such as mesh["dp"], got 2 dimensions'
        )
        if rank == 0:
            assert found["outside"] is None
        else:
            assert found["outside"].startswith("ValueError: this process is not in the mesh it was given: DeviceMesh(")


def numbers(*batches: list[int]) -> list[int]:
    return list(itertools.chain(*batches))


@pytest.mark.processes
def test_two_processes_share_an_epoch(two: list[dict[str, Any]]) -> None:
    alone = two[0]["streams"][2]  # by a mesh of one, in which both take all
    assert alone == two[1]["streams"][2] and sorted(numbers(*alone["batches"])) == list(range(21))
    for by in (0, 1):  # the group, the mesh
        one, other = (found["streams"][by] for found in two)
        assert one["len"] == other["len"] == len(one["batches"]) == len(other["batches"]) == 3
        # The same stream, cut in another way.
        steps = [numbers(*step) for step in zip(one["batches"], other["batches"])]
        assert numbers(*steps) == numbers(*alone["batches"])
        assert one["state"] == other["state"] == alone["state"]
