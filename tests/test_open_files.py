"""A process that may open no more files: the process's limit is no fault of a sample."""

from __future__ import annotations

import io
import os
import resource
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import torchdali as td
from torchdali import storage
from torchdali.errors import OpenFilesError

SHARDS = 300


@pytest.fixture
def limit() -> Iterator[Callable[[int], None]]:
    """Let this process open so many files beside those that are open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)

    def set_limit(more: int) -> None:
        # The lowest number that is free counts.
        open_ones = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_ones + 1 + more, before[1]))

    yield set_limit
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{number:03}.tar" for number in range(SHARDS)]
    for number, path in enumerate(paths):
        with tarfile.open(path, "w") as file:
            data = str(number).encode()
            info = tarfile.TarInfo("x.cls")
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return paths


def test_more_shards_than_files_that_may_be_open(shards, limit):
    """All of them are read, in any order, and some room is left for others."""
    data = td.TarDataset(shards, ["cls"])
    loader = td.DataLoader(data, 50, shuffle=True, device="cpu", on_bad_sample="substitute")
    batches = iter(loader)
    numbers = next(batches)[0].tolist()  # DALI is loaded, and the threads run
    limit(20)
    numbers += [number for batch in batches for number in batch[0].tolist()]
    assert sorted(numbers) == list(range(SHARDS)) and loader.bad_samples == []
    with open(shards[0], "rb"):
        pass


def test_the_oldest_are_closed_where_others_took_all_the_rest(shards, limit):
    data = td.TarDataset(shards[:40], ["cls"])
    with td.DataLoader(data, 40, device="cpu", prefetch_factor=0, on_bad_sample="substitute") as loader:
        next(iter(loader))
        limit(0)
        others = []
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                others.append(os.open(shards[0], os.O_RDONLY))
        try:
            files = [storage.open_storage(path) for path in shards[40:]]
            assert all(file.read(0, 5).tobytes() == b"x.cls" for file in files)
        finally:
            for descriptor in others:
                os.close(descriptor)
    assert loader.bad_samples == []


def test_where_none_of_ours_is_open_the_error_says_what_to_write(shards, limit):
    while storage._close_oldest():
        pass
    limit(0)
    others = []
    with pytest.raises(OSError, match="Too many open files"):
        while True:
            others.append(os.open(shards[0], os.O_RDONLY))
    try:
        with pytest.raises(
            OpenFilesError, match=r"this process may have \d+ files open \(`ulimit -n`\), and has: write"
        ):
            storage.open_storage(shards[0]).read(0, 5)
    finally:
        for descriptor in others:
            os.close(descriptor)


class Greedy:
    """Opens a file for each sample, and closes none."""

    def __init__(self, path: Path) -> None:
        self.path, self.opened = path, []

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> Any:
        self.opened.append(open(self.path, "rb"))
        return index


@pytest.mark.parametrize("policy", ["raise", "substitute"])
def test_nor_is_it_a_samples_fault_in_a_dataset_of_others(shards, limit, policy):
    data = Greedy(shards[0])
    loader = td.DataLoader(data, 10, device="cpu", on_bad_sample=policy)
    try:
        next(iter(loader))
        limit(30)
        with pytest.raises(OSError, match="Too many open files") as caught:
            list(loader)
    finally:
        for file in data.opened:
            file.close()
    assert any("`ulimit -n`" in note for note in caught.value.__notes__) and loader.bad_samples == []
