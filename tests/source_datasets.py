"""Datasets of Python code that workers can import."""

from __future__ import annotations

import io
import os
import random
import time
from collections import OrderedDict, UserDict, UserList, defaultdict, deque
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch.utils.data import IterableDataset, get_worker_info

N = 23


def picture(index: int, ending: str = "JPEG") -> bytes:
    rng = np.random.default_rng(index)
    small = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    out = io.BytesIO()
    small.resize((20 + index % 3, 24), Image.Resampling.BICUBIC).save(out, ending)
    return out.getvalue()


class Pair(NamedTuple):
    data: Any
    label: int


@dataclass
class Record:
    data: Any
    inner: dict[str, Any]


class Own(dict[str, Any]):
    """A dict with an attribute."""

    name: Any = ""


class OwnList(UserList[Any]):
    pass


class Strict(dict[str, Any]):
    """A dict that takes numbers and tensors alone."""

    def __setitem__(self, key: str, value: Any) -> None:
        if isinstance(value, str):
            raise ValueError("no number")
        super().__setitem__(key, value)


def containers(i: int) -> dict[str, Any]:
    """Containers of many types."""
    own, default = Own(x=i, y=torch.ones(2) * i), defaultdict(list, x=i)
    own.name = str(i)
    return {
        "own": own,
        "user": UserDict(x=i),
        "ordered": OrderedDict(b=i, a=-i),
        "default": default,
        "fixed": MappingProxyType({"x": i}),
        "list": OwnList([i, i + 1]),
        "deque": deque([i, 2 * i]),
        "range": range(i, i + 3),
    }


def strict_containers(i: int) -> dict[str, Any]:
    """Those that can't hold names, or hold much more than their parts."""
    heavy = Own(x=i)
    heavy.name = bytes(1 << 20)
    return {"strict": Strict(x=i), "heavy": heavy}


class Plain:
    """Every kind of value, and random ones."""

    def __init__(self, n: int = N) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "image": picture(index),
            "index_": index,
            "python": random.random(),
            "numpy": np.random.rand(),
            "torch": torch.rand(2),
            "text": f"sample {index}",
            "ragged": np.arange(index % 4 + 1, dtype=np.int32),
            "fixed": np.full((2, 3), index, np.float32),
        }


class Forms(Plain):
    """A sample in one of its forms."""

    def __init__(self, form: str) -> None:
        super().__init__(7)
        self.form = form

    def __getitem__(self, index: int) -> Any:
        array = np.full(2, index, np.float32)
        return {
            "tuple": lambda: (picture(index), index),
            "named": lambda: Pair(array, index),
            "dataclass": lambda: Record(array, {"label": index, "name": str(index)}),
            "nested": lambda: (array, {"boxes": torch.full((2, 4), index), "id": index}),
            "value": lambda: index,
            "pil": lambda: (Image.open(io.BytesIO(picture(index, "PNG"))).resize((6, 5)), index),
            "tensor": lambda: (torch.full((3, 5, 6), index, dtype=torch.uint8), torch.tensor(index)),
            "array": lambda: (np.full((5, 6, 3), index, np.uint8), np.float32(index)),
        }[self.form]()


class Faulty(Plain):
    """Something happens at sample 9."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault

    def __getitem__(self, index: int) -> Any:
        if index == 9:
            if self.fault == "raise":
                raise KeyError("no such key")
            if self.fault == "stop":
                raise StopIteration
            if self.fault == "exit":
                os._exit(3)
            if self.fault == "kill":
                os.kill(os.getpid(), 9)
            if self.fault == "hang":
                time.sleep(900)
            if self.fault == "type":
                return "no number"
        return index


class SetUp(Plain):
    """Heavy set-up that is put off to `__setstate__`."""

    def __init__(self, log: str) -> None:
        super().__init__()
        self.log = log

    def __getstate__(self) -> dict[str, Any]:
        return {"n": self.n, "log": self.log}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        with open(self.log, "a") as file:
            file.write(f"{os.getpid()}\n")

    def __getitem__(self, index: int) -> Any:
        return index


class WhoAmI(Plain):
    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        assert info is not None and info.num_workers == 2 and len(info.dataset) == N
        return index, info.id, os.environ.get("TORCHDALI_TEST_INIT", "-")


def init_worker(number: int) -> None:
    os.environ["TORCHDALI_TEST_INIT"] = f"worker {number}"


class Modules(Plain):
    """Which modules a worker has imported."""

    def __getitem__(self, index: int) -> Any:
        import sys

        return index, any(name.startswith("nvidia.dali") for name in sys.modules)


class Slow(Plain):
    def __getitem__(self, index: int) -> Any:
        time.sleep(0.4)
        return index


class Stream(IterableDataset):
    """Numbers, with random ones beside them."""

    def __init__(self, n: int = N, fail_at: int | None = None) -> None:
        self.n, self.fail_at = n, fail_at

    def __iter__(self) -> Any:
        for index in range(self.n):
            if index == self.fail_at:
                raise OSError("the stream broke")
            yield index, random.random()


class SharedStream(Stream):
    """It shares itself among workers, as torch's documentation has it."""

    def __iter__(self) -> Any:
        info = get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for index in range(first, self.n, step):
            yield index, random.random()


class StatefulStream(Stream):
    """It knows where it is."""

    def __init__(self, n: int = N) -> None:
        super().__init__(n)
        self.at = 0

    def __iter__(self) -> Any:
        start, self.at = self.at, 0
        for index in range(start, self.n):
            self.at = index + 1
            yield index, random.random()
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class Forever(Stream):
    def __iter__(self) -> Any:
        index = 0
        while True:
            yield index
            index += 1


class Numbers(IterableDataset):
    """Fields of one number."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Any:
        yield from ({"x": np.array([i], np.float32)} for i in range(self.n))


class StatefulNumbers(Numbers):
    """They know where they are."""

    at = 0

    def __iter__(self) -> Any:
        while self.at < self.n:
            self.at += 1
            yield {"x": np.array([self.at - 1], np.float32)}
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class Callback:
    """In the manner of DALI's documentation: shards, full iterations, and a permutation for each epoch."""

    def __init__(self, files: list[str], batch_size: int, shard_id: int = 0, num_shards: int = 1) -> None:
        self.files, self.batch_size = files, batch_size
        self.shard_size = len(files) // num_shards
        self.offset = self.shard_size * shard_id
        self.full_iterations = self.shard_size // batch_size
        self.permutation: Any = None
        self.last_epoch: int | None = None

    def __call__(self, sample_info: Any) -> Any:
        if sample_info.iteration >= self.full_iterations:
            raise StopIteration
        if self.last_epoch != sample_info.epoch_idx:
            self.last_epoch = sample_info.epoch_idx
            self.permutation = np.random.default_rng(seed=42 + sample_info.epoch_idx).permutation(len(self.files))
        file = self.files[self.permutation[sample_info.idx_in_epoch + self.offset]]
        return np.fromfile(file, dtype=np.uint8), np.array([int(os.path.basename(file)[:3])], dtype=np.int32)


class UntilTheEnd:
    """Its last batch is a part of one."""

    def __call__(self, info: Any) -> Any:
        if info.idx_in_epoch >= N:
            raise StopIteration
        return {"index": [info.idx_in_epoch, info.idx_in_batch, info.iteration], "epoch": info.epoch_idx}


def batches(info: Any) -> Any:
    if info.iteration >= 4:
        raise StopIteration
    n = 3 + info.iteration
    return np.arange(n) + 100 * info.iteration, [f"epoch {info.epoch_idx}"] * n


class RestartingStream(Stream):
    """It knows where its last iteration is, and begins anew unless it was told to go on, and then once."""

    def __init__(self, n: int = N) -> None:
        super().__init__(n)
        self.at, self.resume = 0, 0

    def __iter__(self) -> Any:
        start, self.resume = self.resume, 0
        for index in range(start, self.n):
            self.at = index + 1
            yield index, random.random()

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.resume = state["at"]


class SharedStatefulStream(StatefulStream):
    """It shares itself unevenly: the first worker has most."""

    def __iter__(self) -> Any:
        info = get_worker_info()
        number, workers = (info.id, info.num_workers) if info else (0, 1)
        mine = [index for index in range(self.n) if (index % 8 if index % 8 < workers else 0) == number]
        start, self.at = self.at, 0
        for place in range(start, len(mine)):
            self.at = place + 1
            yield mine[place], random.random()
        self.at = 0


class EpochStream(Stream):
    """Another order for each epoch that it is told of."""

    epoch = 99

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Any:
        order = np.random.default_rng(self.epoch).permutation(self.n)
        for index in order.tolist():
            yield index, self.epoch


class Itself:
    """An iterator with a state; something happens at sample 9."""

    def __init__(self, fault: str = "") -> None:
        self.fault, self.n = fault, 0

    def __iter__(self) -> Itself:
        return self

    def __next__(self) -> int:
        self.n += 1
        if self.n == 10:
            if self.fault == "raise":
                raise LookupError("sample 9 is lost")
            if self.fault == "kill":
                os.kill(os.getpid(), 9)
            if self.fault == "hang":
                time.sleep(900)
        if self.n > N:
            raise StopIteration
        return self.n - 1

    def state_dict(self) -> dict[str, Any]:
        return {"n": self.n}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.n = state["n"]


def generate():
    for index in range(N):
        yield index, random.random()


def bits() -> tuple[int, int, int]:
    """31 random bits of Python, numpy and torch."""
    return random.getrandbits(31), int(np.random.randint(2**31)), int(torch.randint(2**31, ()))


class Bits(Plain):
    def __getitem__(self, index: int) -> Any:
        return index, *bits()


class AskedBits:
    """A callback: what it was asked, and random bits."""

    def __call__(self, info: Any) -> Any:
        if info.idx_in_epoch >= N:
            raise StopIteration
        return *info, *bits()


def batches_of_bits(info: Any) -> Any:
    if info.iteration >= 4:
        raise StopIteration
    return np.arange(3 + info.iteration), np.array([bits() for _ in range(3 + info.iteration)])
