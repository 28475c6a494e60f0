"""Jobs of torchrun on real processes: what ranks say of each other, elastic streams, and trainings that are killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
import types
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch

import torchdali as td
from torchdali.agreement import MAX_VALUES, _differences, _named
from torchdali.testing import make_image_folder, read_stream

from .launcher import ROOT, Program, finish, start
from .patience import wait_until
from .torchrun_jobs import FOLDER, TORCHRUN, torchrun
from .torchrun_jobs.stream import make_loader

pytestmark = pytest.mark.processes

N = 105


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_image_folder(tmp_path_factory.mktemp("images"), classes=3, per_class=N // 3)


CELLS: dict[int, list[tuple[str, str | None, int, int, int | None]]] = {
    # processes: (name, from, batch size, batches an optimizer step, optimizer steps)
    4: [("four", None, 3, 2, 3)],
    2: [("two", "four", 3, 2, None), ("two, other batches", "four", 8, 2, None), ("two, then", "four", 4, 1, 2)],
    3: [("three", "four", 3, 4, None), ("three, then", "two, then", 2, 1, 3)],
    1: [("one", "four", 7, 1, None), ("one, other steps", "four", 3, 5, None)],
    8: [("eight", "four", 3, 1, None), ("eight at last", "three, then", 2, 2, None)],
}
"""Parts of one stream; one job for each number of processes, in this order."""


def cells_of(processes: int) -> str:
    keys = ("name", "state", "batch_size", "accumulate", "stop")
    return json.dumps([dict(zip(keys, cell)) for cell in CELLS[processes]])


@pytest.fixture(scope="module")
def first_job(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a job of four processes: what they found of each other, and the first part of the stream."""
    out = tmp_path_factory.mktemp("jobs")
    finish(start(FOLDER / "agree.py", images, out, cells_of(4), processes=4))
    return out


# Agreement, and peers that take the same data

HINT = (
    "\nevery rank must have the same; samples differ over ranks by themselves. "
    "Ranks that are no data-parallel peers are told apart by mesh= or process_group="
)


def differ(*lines: str) -> str:
    return "\n  ".join(["RankMismatchError: the ranks of this job do not read one stream:", *lines]) + HINT


@pytest.fixture(scope="module")
def four(first_job: Path) -> list[dict[str, Any]]:
    """What each of four processes found."""
    return [json.loads((first_job / f"{rank}.json").read_text()) for rank in range(4)]


def test_ranks_that_agree(four: list[dict[str, Any]]) -> None:
    for found in four:
        for cell in ("equal", "another order of the facts", "again", "same loaders", "own gpus", "shared on purpose"):
            assert found[cell] is None, cell
        assert found["some have one"] is None


@pytest.mark.parametrize(
    ("cell", "lines"),
    [
        ("one fact", ["batch_size: 4 on ranks 0-1, 3; 8 on rank 2"]),
        ("two facts", ["dataset: '105 files abc' on ranks 1-3; '9 files' on rank 0",
                       "seed: 0 on ranks 0-1; 1 on ranks 2-3"]),
        ("all", ["seed: 0 on rank 0; 1 on rank 1; 2 on rank 2; 3 on rank 3"]),
        ("a type", ["seed: 7 on ranks 0, 2-3; '7' on rank 1"]),
        ("missing", ["more: missing on ranks 0-2; 1 on rank 3"]),
        ("another epoch", ["epoch: 0 on ranks 0, 2-3; 3 on rank 1"]),
    ],
)  # fmt: skip
def test_ranks_that_differ_are_named_on_every_rank(four: list[dict[str, Any]], cell: str, lines: list[str]) -> None:
    assert [found[cell] for found in four] == [differ(*lines)] * 4


def test_another_dataset_is_named(four: list[dict[str, Any]]) -> None:
    text = four[0]["another dataset"]
    assert all(found["another dataset"] == text for found in four)
    assert "\n  num_samples: 40 on ranks 0-2; 39 on rank 3" in text
    assert "\n  dataset: '40 in memory" in text and "'39 in memory" in text


def test_the_first_batch_of_a_loader_says_it(four: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(four):
        said = found["loaders"]
        assert said["equal"] is said["explicit"] is said["group"] is None
        assert said["seed"] == differ("seed: 0 on rank 0; 1 on rank 1; 2 on rank 2; 3 on rank 3")
        assert said["batch_size"] == differ("batch_size: 4 on ranks 0-1, 3; 5 on rank 2")
        assert said["drop_last"] == differ("drop_last: False on ranks 1-3; True on rank 0")
        assert "num_samples: 40 on ranks 0-2; 41 on rank 3" in said["dataset"]
        assert said["group, seed"] == differ(f"seed: 0 on rank {rank % 2}; 1 on rank {rank % 2 + 2}")
        assert "process_group must be a torch ProcessGroup that this process is in, got" in said["not in the group"]


def test_long_values_are_told_apart(four: list[dict[str, Any]]) -> None:
    first, second = four[2]["behind a long start"].split("dataset: ")[1].split(HINT)[0].split("; ")
    assert first.endswith(" on ranks 0, 2-3") and second.endswith(" on rank 1")
    assert first.split(" on ")[0] != second.split(" on ")[0] and len(first) < 260


def test_only_the_ranks_of_the_loaders_group_must_agree(four: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(four):
        assert found["tensor-parallel"] is None and found["alone"] is None
        first = rank % 2  # of its data-parallel group, in the job's count
        assert found["data-parallel"] == differ(f"seed: 0 on rank {first}; 1 on rank {first + 2}")


def test_a_pile_up_on_one_gpu_is_refused(four: list[dict[str, Any]]) -> None:
    for found in four:
        assert found["pile-up"].startswith("RankMismatchError: ranks 0-3 share one GPU, GPU-0, though there is one for")
        assert found["two of them"].startswith("RankMismatchError: ranks 2-3 share one GPU, GPU-2, though there is")
        assert "leave device= out" in found["pile-up"] and "torch.cuda.set_device" in found["pile-up"]


def test_a_rank_that_never_comes_is_an_error_within_the_groups_timeout(four: list[dict[str, Any]]) -> None:
    for found in four[:3]:
        assert found["nobody came"].startswith("LoaderTimeoutError: rank 3 did not come to this pass of the loader")
        assert "within 2 s, the timeout of their process group, and ranks 0-2 did" in found["nobody came"]
    assert "nobody came" not in four[3]


def test_many_values_and_many_ranks_stay_short() -> None:
    (line,) = _differences([{"seed": rank} for rank in range(1000)], range(1000))
    assert line == f"seed: 0 on rank 0; 1 on rank 1; 2 on rank 2; 3 on rank 3; and {1000 - MAX_VALUES} other values"
    assert (
        _named(range(1000)) == "ranks 0-999" and _named([7]) == "rank 7" and _named([5, 1, 2, 9]) == "ranks 1-2, 5, 9"
    )


def test_tensor_and_pipeline_parallel_peers_get_equal_batches(four: list[dict[str, Any]], images: Path) -> None:
    with make_loader(images, 10) as loader:
        whole = list(chain(*(step.samples for step in read_stream(loader))))
    streams = [found["streams"] for found in four]
    # Peers, bit for bit; in one mesh they are neighbours, in the other two apart.
    assert streams[0]["dp x tp"] == streams[1]["dp x tp"] and streams[2]["dp x tp"] == streams[3]["dp x tp"]
    assert streams[0]["pp x dp"] == streams[2]["pp x dp"] and streams[1]["pp x dp"] == streams[3]["pp x dp"]
    # The random state that a rank owns too, which differs over data-parallel ranks.
    assert streams[0]["noise"] == streams[1]["noise"] and streams[2]["noise"] == streams[3]["noise"]
    assert not {*chain(*streams[0]["noise"])} & {*chain(*streams[2]["noise"])}
    # And one stream, however it is cut.
    assert merged([streams[0]["dp x tp"], streams[2]["dp x tp"]]) == whole
    assert merged([streams[0]["pp x dp"], streams[1]["pp x dp"]]) == whole
    assert merged([streams[0]["process group"], streams[2]["process group"]]) == whole
    assert merged([found["dp"] for found in streams]) == whole


def merged(ranks: list[list[list[str]]]) -> list[str]:
    """The samples of all ranks' steps in the global order."""
    assert len({len(steps) for steps in ranks}) == 1
    return [digest for step in zip(*ranks) for digest in chain(*step)]


# Elastic streams


@pytest.fixture(scope="module")
def elastic(images: Path, first_job: Path) -> dict[str, list[dict[str, Any]]]:
    """What each rank of each cell wrote."""
    for processes in CELLS:
        if processes != 4:
            finish(start(FOLDER / "stream.py", images, first_job, cells_of(processes), processes=processes))
    return {
        name: [json.loads((first_job / f"{name}.{rank}.json").read_text()) for rank in range(processes)]
        for processes, cells in CELLS.items()
        for name, *_ in cells
    }


@pytest.fixture(scope="module")
def uninterrupted(images: Path) -> list[str]:
    """Two epochs, read by one process."""
    with make_loader(images, 16) as loader:
        samples = [step.samples for step in read_stream(loader, epochs=2)]
    stream = list(chain(*samples))
    assert len(stream) == len(set(stream)) == 2 * N
    return stream


def part(ranks: list[dict[str, Any]]) -> list[str]:
    """A cell's samples in the global order; its ranks had the same steps, and the same state at the end."""
    assert all(rank["state"] == ranks[0]["state"] and rank["length"] == ranks[0]["length"] for rank in ranks)
    assert len({str([[len(step["batches"]), step["epoch"]] for step in rank["steps"]]) for rank in ranks}) == 1
    return merged([[batch for step in rank["steps"] for batch in step["batches"]] for rank in ranks])


def test_four_processes_stopped_in_the_middle_of_an_epoch(
    elastic: dict[str, list[dict[str, Any]]], uninterrupted: list[str]
) -> None:
    seen = 4 * 3 * 2 * 3
    assert part(elastic["four"]) == uninterrupted[:seen] and seen < N
    state = elastic["four"][0]["state"]
    assert (state["epoch"], state["samples_seen"], state["finished"]) == (0, seen, False)


@pytest.mark.parametrize("name", ["two", "two, other batches", "three", "one", "one, other steps", "eight"])
def test_the_rest_on_another_number_of_processes(
    elastic: dict[str, list[dict[str, Any]]], uninterrupted: list[str], name: str
) -> None:
    """None lost, none repeated, in the same global order, with the same augmentations; the epoch behind it too."""
    assert part(elastic["four"]) + part(elastic[name]) == uninterrupted
    ((_, _, batch_size, accumulate, _),) = [cell for cell in chain(*CELLS.values()) if cell[0] == name]
    batches = [step["batches"] for step in elastic[name][0]["steps"]]
    assert len(batches[0]) == min(accumulate, len(batches[0])) and all(len(step) <= accumulate for step in batches)
    assert len(batches[0][0]) == batch_size
    second = [step for step in elastic[name][0]["steps"] if step["epoch"] == 1]
    assert sum(len(step["batches"]) for step in second) == elastic[name][0]["length"]


def test_a_history_of_four_two_three_and_eight_processes(
    elastic: dict[str, list[dict[str, Any]]], uninterrupted: list[str]
) -> None:
    history = [part(elastic[name]) for name in ("four", "two, then", "three, then")]
    stops = [elastic[name][0]["state"]["samples_seen"] for name in ("four", "two, then")]
    assert stops == [72, 88] and elastic["three, then"][0]["state"]["epoch"] == 0
    assert list(chain(*history, part(elastic["eight at last"]))) == uninterrupted


# Trainings that are killed

RESTARTS = 2


def lines_of(path: Path) -> list[dict[str, Any]]:
    """A log's whole lines; of one that was killed the last may be a part."""
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def environment_of(out: Path) -> list[dict[str, str]]:
    """What torchrun, or the launcher, told the ranks of a job's first attempt."""
    return [json.loads((out / f"0.{rank}.environment.json").read_text()) for rank in range(2)]


def kill_one(job: Program, out: Path, attempt: int, rank: int, steps: int, delay: float) -> None:
    """SIGKILL for a rank of an attempt, so many seconds after so many of its steps."""
    log = out / f"{attempt}.{rank}.jsonl"
    assert wait_until(lambda: job.poll() is not None or (log.exists() and log.read_bytes().count(b"\n") >= steps))
    assert job.poll() is None, f"attempt {attempt} did not get to step {steps}"
    time.sleep(delay)
    os.kill(int((out / f"{attempt}.{rank}.pid").read_text()), signal.SIGKILL)


def test_a_training_that_is_killed_twice_ends_with_the_same_weights(images: Path, tmp_path: Path) -> None:
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    alone.mkdir()
    killed.mkdir()
    finish(start(FOLDER / "train.py", images, alone, processes=2))
    seed = time.time_ns()
    chance = random.Random(seed)
    job = torchrun("train", 2, images, killed, restarts=RESTARTS)
    try:
        for attempt in range(RESTARTS):
            kill_one(job, killed, attempt, chance.randrange(2), chance.randint(6, 20), chance.uniform(0, 0.05))
    except BaseException:
        job.terminate()
        job.communicate(timeout=60)
        raise
    finish(job)
    assert environment_of(killed) == environment_of(alone)  # so the launcher's jobs are torchrun's
    for rank in range(2):
        reference = lines_of(alone / f"0.{rank}.jsonl")
        assert len(reference) == 5 * 14  # 105 samples, 2 ranks x 4: 14 steps an epoch
        steps = {line["step"]: line for line in reference}
        starts = []
        for attempt in range(RESTARTS + 1):
            log = lines_of(killed / f"{attempt}.{rank}.jsonl")
            starts.append(log[0]["step"])
            # Steps that were done twice had the same samples both times.
            assert log == [steps[number] for number in range(starts[-1], starts[-1] + len(log))], f"seed {seed}"
        assert log[-1]["step"] == len(reference)
        assert 1 == starts[0] < starts[1] <= starts[2] and all(start % 4 == 1 for start in starts), f"seed {seed}"
    one, other = (torch.load(out / "weights.pt", weights_only=True) for out in (alone, killed))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one), f"seed {seed}"


# The demonstration


def test_elastic_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """All of it but torchrun, which starts the training above with the same options."""
    path = ROOT / "scripts" / "elastic_demo"
    demo = types.ModuleType("elastic_demo")
    demo.__file__ = str(path)
    exec(compile(path.read_text(), path, "exec"), vars(demo))

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        at = command.index(str(path))
        *torchrun, processes = command[:at]
        assert torchrun == TORCHRUN and processes.startswith("--nproc-per-node=")
        program = start(path, *command[at + 1 :], processes=int(processes.partition("=")[2]))
        _, errors = program.communicate()
        return subprocess.CompletedProcess(command, program.returncode, "", errors)

    monkeypatch.setattr(subprocess, "run", run)
    demo.main(tmp_path)
    printed = capsys.readouterr().out
    assert "4 processes" in printed and "2 processes" in printed and "3 processes" in printed
    assert "identical: 105 samples" in printed


def test_the_package_names_the_error() -> None:
    from torchdali.agreement import RankMismatchError

    assert issubclass(RankMismatchError, td.TorchDaliError) and issubclass(RankMismatchError, RuntimeError)
