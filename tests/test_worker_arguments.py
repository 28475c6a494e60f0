"""What may go to workers: what may go to processes as an argument, and large tensors without copies."""

from __future__ import annotations

import multiprocessing
import pickle
import queue
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._utils import ExceptionWrapper

import torchdali as td
from torchdali import errors

from . import strange_codec
from .patience import PATIENCE

pytestmark = pytest.mark.processes
STARTED = ("forkserver", "spawn")
SIZE = 64 << 20


def memory_of_its_own() -> int:
    """Bytes of this process that no other one shares, and no file backs."""
    with open("/proc/self/status") as file:
        (line,) = [line for line in file if line.startswith("RssAnon")]
    return int(line.split()[1]) << 10


class Shares:
    """Values that processes share."""

    def __init__(self, context: Any) -> None:
        self.value, self.raw, self.lock = context.Value("i", 0), context.Array("d", 3), context.Lock()
        self.queue, self.simple, self.pipe = context.Queue(), context.SimpleQueue(), context.Pipe()

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        with self.lock, self.value:
            self.value.value += 1
            self.raw[0] += index
        self.queue.put(index)
        self.simple.put(index)
        return index


@pytest.mark.parametrize("method", ["fork", *STARTED])
def test_values_locks_and_queues_are_shared(method):
    data = Shares(multiprocessing.get_context(method))
    with td.DataLoader(
        data, 2, device="cpu", num_workers=2, multiprocessing_context=method, persistent_workers=True
    ) as loader:
        for _ in range(2):
            assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
        made = [data.queue.get(timeout=PATIENCE) for _ in range(16)]
        assert set(made) == set(range(8)) and len(made) == 16
        assert {data.simple.get() for _ in range(16)} == set(range(8))
        described = data.value.value - 16  # the first sample was looked at, to describe it
        assert data.raw[0] == 56 and described >= 0
        while True:  # the queue's own thread ends with what it holds
            try:
                data.queue.get(timeout=0.1)
            except queue.Empty:
                break
        data.queue.close()


def test_a_lock_of_another_context_says_what_to_write():
    data = Shares(multiprocessing.get_context("fork"))
    with (
        td.DataLoader(data, 2, device="cpu", num_workers=1) as loader,
        pytest.raises(
            TypeError, match=r"Shares .*get_context\('forkserver'\), or write multiprocessing_context='fork'"
        ),
    ):
        next(iter(loader))


class Large:
    """Tensors; a sample tells what its process sees of them, and writes to one."""

    def __init__(self) -> None:
        self.large = torch.zeros(SIZE // 4, dtype=torch.int32)
        self.view = self.large[::2].unsqueeze(0)
        self.parameter = torch.nn.Parameter(torch.ones(1 << 18))
        self.small = [torch.full((2,), i) for i in range(600)]  # more than a process gets descriptors for

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.large[index] = index + 1
        return {
            "memory": memory_of_its_own(),
            "shared": self.large.is_shared() and self.view.data_ptr() == self.large.data_ptr(),
            "view": self.view[0, :4].clone(),
            "parameter": self.parameter.sum().item() * self.parameter.requires_grad,
            "small": sum(int(tensor[0]) for tensor in self.small),
        }


class Small(Large):
    def __init__(self) -> None:
        super().__init__()
        self.large, self.small = torch.zeros(8, dtype=torch.int32), []
        self.view = self.large[::2].unsqueeze(0)


@pytest.mark.parametrize("method", STARTED)
def test_large_tensors_lie_in_shared_memory(method):
    least = {}
    for data in (Small(), Large()):
        with td.DataLoader(
            data, 4, device="cpu", num_workers=1, multiprocessing_context=method, output="dict"
        ) as loader:
            (batch,) = loader
        least[type(data)] = max(batch["memory"].tolist())
        assert batch["parameter"].tolist() == [1 << 18] * 4
    assert batch["shared"].all() and batch["small"].tolist() == [600 * 599 // 2] * 4
    assert batch["view"][3].tolist() == [1, 3, 0, 0]
    assert data.large[:5].tolist() == [1, 2, 3, 4, 0]  # as torch's spawned workers write to it
    assert least[Large] - least[Small] < SIZE // 2


class Arrays:
    """Arrays, some of them views and in files; a sample tells what its process sees, and writes to one."""

    def __init__(self, folder: Path | None, number: int) -> None:
        self.large = np.arange(number, dtype=np.int32).reshape(-1, 4)
        self.alias, self.fortran, self.strided = self.large, self.large.T, self.large[::2, ::-1]
        self.fixed = self.large.copy()
        self.fixed.flags.writeable = False
        self.records = np.zeros(number // 4, [("a", "<i4"), ("b", "S8")])
        self.records["a"] = self.large[:, 0]
        self.mapped = self.gone = self.copied = self.large
        self.part = self.large[1:, ::-2]
        if folder is not None:
            self.large.tofile(folder / "kept")
            self.large.tofile(folder / "gone")
            self.mapped = np.memmap(folder / "kept", np.int32, "r", 16).reshape(-1, 4)
            self.part = np.asarray(self.mapped[1:, ::-2])
            self.copied = np.memmap(folder / "kept", np.int32, "c")
            self.copied[:4] = -1
            self.gone = np.memmap(folder / "gone", np.int32, "r+").reshape(-1, 4)
            (folder / "gone").unlink()

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> dict[str, Any]:
        row, own = 2 * index, np.arange(8 * index, 8 * index + 4)
        files = [type(one).__name__ for one in (self.mapped, self.part, self.gone, self.copied)]
        backed = isinstance(self.mapped, np.memmap) and self.mapped.base is not None and self.gone[0, 1] == 1
        assert self.fortran.T[row].tolist() == self.fixed[row].tolist() == own.tolist()
        assert self.strided[index].tolist() == own[::-1].tolist() and self.records["a"][row] == own[0]
        assert self.part[0].tolist() == self.mapped[1, ::-2].tolist()
        before = self.large[0, 3].item()
        self.large[0, 3] += 1
        assert self.alias is self.large and not self.fixed.flags.writeable
        return {
            "memory": memory_of_its_own(),
            "before": before,
            "files": " ".join(files),
            "copied": self.copied.ravel()[0].item(),
            "backed": bool(backed),
        }


def test_large_arrays_lie_in_shared_memory(tmp_path):
    memory, number = {}, SIZE // 4
    for data in (Arrays(None, 64), Arrays(tmp_path, number)):
        with td.DataLoader(data, 2, device="cpu", num_workers=2, output="dict") as loader:
            first, second = loader
        memory[len(data.large)] = max(first["memory"].max(), second["memory"].max()).item()
        assert data.large[0, 3] == 3 and (data.mapped[0, :2] == (4, 5)).all() == (len(data.large) > 16)
        # Each worker has written to pages of its own; the first has also described the samples.
        assert second["before"].diff().tolist() == [1] and second["before"][0] < 3 + 5 + 2
    assert first["files"] == ["memmap ndarray memmap memmap"] * 2 and first["copied"].tolist() == [-1, -1]
    assert first["backed"].all()
    # A file that is gone and one that is mapped for writing privately are shared memory too.
    assert memory[number // 4] - memory[16] < SIZE // 2


def test_a_pickler_is_used_on_both_sides():
    data = Small()
    for pickler in (strange_codec, (strange_codec, {"level": 9, "mark": b"!"}, {"mark": b"!"})):
        with td.DataLoader(data, 4, device="cpu", num_workers=1, pickler=pickler, output="dict") as loader:
            (batch,) = loader
        assert batch["view"].shape == (4, 4)


@pytest.mark.parametrize(
    "pickler", [3, (strange_codec, {}), (strange_codec, 3, {}), ("dill", {}, {}), (strange_codec, {}, {}, {})]
)
def test_what_is_no_pickler(pickler):
    with pytest.raises(
        TypeError, match=r"pickler must be a module with dumps and loads, or \(module, keywords of dumps"
    ):
        td.DataLoader(Small(), 4, device="cpu", num_workers=1, pickler=pickler)


class Seeds:
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[bool, str]:
        info = torch.utils.data.get_worker_info()
        return info.seed == torch.initial_seed(), str(info.seed)  # an integer of 64 bits without a sign is no tensor


def check_seed(number: int) -> None:
    info = torch.utils.data.get_worker_info()
    assert info.seed == torch.initial_seed() and isinstance(info.seed, int)


def test_a_workers_seed_is_that_of_torch():
    with td.DataLoader(Seeds(), 3, device="cpu", num_workers=2, worker_init_fn=check_seed) as loader:
        batches = list(loader)
    equal = torch.cat([batch[0] for batch in batches])
    assert equal.all() and len({seed for batch in batches for seed in batch[1]}) == 6


ERRORS = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.TorchDaliError)
]


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_can_be_made_from_its_text(kind):
    """As torch's own loader does, and what carries errors between processes."""
    error = kind("In worker 3: it broke")
    assert str(error) == "In worker 3: it broke"
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind and str(back) == str(error) and vars(back) == vars(error)
    with pytest.raises(kind, match="In worker 3: it broke"):
        ExceptionWrapper((kind, error, None), "in worker 3").reraise()
