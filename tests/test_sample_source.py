"""Callbacks in DALI's manner: which question is asked by whom, how an epoch ends, and where a pass goes on."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import torchdali as td
from torchdali import transforms as T
from torchdali.errors import LoaderTimeoutError, StateMismatchError
from torchdali.testing import assert_resumes_exactly, assert_same_stream
from torchdali.workers import WorkerDiedError

from . import source_datasets as S

pytestmark = pytest.mark.timeout(300)
N = 10


def loader(callback: Any, num_workers: int = 0, source: dict[str, Any] | None = None, **options: Any) -> td.DataLoader:
    options = dict(batch_size=4, device="cpu") | options
    if num_workers:
        options.setdefault("multiprocessing_context", "fork")
    return td.DataLoader(td.SampleSource(callback, **source or {}), num_workers=num_workers, **options)


def asked(info: Any) -> Any:
    """What was asked, and random numbers."""
    if info.idx_in_epoch >= N:
        raise StopIteration
    return {"info": list(info), "drawn": [random.random(), np.random.rand(), torch.rand(()).item()]}


def infos(batches: Any) -> list[list[list[int]]]:
    return [batch["info"] for batch in batches]


EPOCH = [[[4 * i + j, j, i, 0] for j in range(min(4, N - 4 * i))] for i in range(3)]
"""[idx_in_epoch, idx_in_batch, iteration, epoch_idx] of each sample of each batch."""


# Questions


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
def test_what_is_asked(num_workers):
    with loader(asked, num_workers, persistent_workers=num_workers == 2) as one:
        for epoch in range(2):
            assert infos(one) == [[[*info[:3], epoch] for info in batch] for batch in EPOCH]
        one.set_epoch(7)
        assert infos(one)[0][0] == [0, 0, 0, 7]
        one.seek(3, 2)
        assert infos(one) == [[[8, 0, 2, 3], [9, 1, 2, 3]]]


def test_infos_have_names():
    names = []

    def named(info: Any) -> int:
        names.append((type(info).__name__, info._fields, info.idx_in_epoch))
        return 1

    with loader(named, source={"num_samples": 1}) as one:
        list(one)
    assert names[-1] == ("SampleInfo", ("idx_in_epoch", "idx_in_batch", "iteration", "epoch_idx"), 0)
    assert td.SampleInfo(1, 2, 3, 4).iteration == 3 and td.BatchInfo(1, 2).epoch_idx == 2


@pytest.mark.processes
def test_one_stream():
    assert_same_stream(
        lambda: loader(asked),
        lambda: loader(asked, 1, multiprocessing_context="spawn"),
        lambda: loader(asked, 2, multiprocessing_context="forkserver", prefetch_factor=1),
        lambda: loader(asked, 3, persistent_workers=True, prefetch_factor=3),
        lambda: loader(asked, 2, engine="eager"),
        epochs=2,
    )


@pytest.mark.parametrize("num_workers", [0, 2])
def test_each_rank_asks_its_own_callback(num_workers):
    """Shards are the callback's, as in DALI."""
    for rank in range(2):
        with loader(lambda info: 2 * asked(info)["info"][0] + rank, num_workers, rank=rank, world_size=2) as one:  # noqa: B023
            assert next(iter(one)).tolist() == [rank, 2 + rank, 4 + rank, 6 + rank]


# Ends


class Uneven:
    """Its iterations take different times, so that later workers are ahead; the epoch ends with one of them."""

    def __init__(self, end: int) -> None:
        self.end = end

    def __call__(self, info: Any) -> int:
        time.sleep(0.02 * (info.iteration % 2 == 0))
        if info.idx_in_epoch >= self.end:
            raise StopIteration
        return int(info.idx_in_epoch)


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
@pytest.mark.parametrize("end", [1, 4, 11, 16])
def test_the_first_iteration_that_stops_ends_the_epoch(num_workers, end):
    with loader(Uneven(end), num_workers, persistent_workers=bool(num_workers)) as one:
        for _ in range(2):
            got = [batch.tolist() for batch in one]
            assert got == [list(range(i, min(i + 4, end))) for i in range(0, end, 4)]
        assert one.state_dict()["samples_seen"] == end and one.state_dict()["finished"]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_no_sample_at_all_is_no_batch(num_workers):
    """As with torch's loader of an empty iterable; a later epoch may have samples."""

    def late(info: Any) -> int:
        if info.epoch_idx == 0 or info.idx_in_epoch >= 3:
            raise StopIteration
        return int(info.idx_in_epoch)

    for callback, batch in ((Uneven(0), False), (lambda info: next(iter(())), True)):
        with loader(callback, num_workers, {"batch": batch}) as one:
            for epoch in range(2):
                assert one.epoch == epoch and list(one) == []
            one.load_state_dict(one.state_dict())
            assert list(one) == [] and one.epoch == 3
    with loader(late, num_workers) as one:
        assert list(one) == [] and [batch.tolist() for batch in one] == [[0, 1, 2]]


@pytest.mark.processes
def test_a_known_length():
    with loader(asked, 2, {"num_samples": 6}) as one:
        assert len(one) == 2 and infos(one) == [EPOCH[0], EPOCH[1][:2]]
    with loader(asked, 2, {"num_samples": 100}) as one:
        assert infos(one) == EPOCH
    with pytest.raises(ValueError, match="num_samples must be at least 1, got 0"):
        td.SampleSource(asked, num_samples=0)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_endless_callbacks_and_a_break(num_workers):
    with loader(lambda info: info.idx_in_epoch, num_workers) as one:
        batches = iter(one)
        for i in range(5):
            assert next(batches).tolist() == list(range(4 * i, 4 * i + 4))
        del batches


# Resuming


@pytest.mark.parametrize(("num_workers", "every"), [(0, 1), (1, 3), (2, 1), (3, 3)])
def test_resumes_at_every_step(num_workers, every):
    assert_resumes_exactly(lambda: loader(asked, num_workers), every=every)


@pytest.mark.processes
@pytest.mark.parametrize(("before", "after"), [(0, 3), (3, 0), (1, 2), (2, 1)])
def test_resumes_under_another_number_of_workers(before, after):
    assert_resumes_exactly(lambda: loader(asked, before), lambda: loader(asked, after), steps=True, every=2)


def test_no_place_for_a_state():
    state = loader(asked).state_dict()
    with pytest.raises(StateMismatchError, match="dataset: expected"):
        loader(Uneven(3)).load_state_dict(state)
    with pytest.raises(StateMismatchError, match="dataset: expected"):
        loader(asked, source={"num_samples": 3}).load_state_dict(state)
    with pytest.raises(StateMismatchError, match="seed: expected 1, got 0"):
        loader(asked, seed=1).load_state_dict(state)


# Whole batches


def columns(info: Any) -> dict[str, Any]:
    """Batches of different sizes."""
    if info.iteration >= 4:
        raise StopIteration
    n = info.iteration + 1
    return {
        "image": [np.frombuffer(S.picture(10 * info.iteration + i), np.uint8) for i in range(n)],
        "number": np.arange(n, dtype=np.int16) + 10 * info.iteration,
        "epoch": [str(info.epoch_idx)] * n,
        "drawn": np.random.rand(n),
    }


@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches(num_workers):
    with loader(columns, num_workers, {"batch": True}, batch_size=9, transform=T.Resize((6, 5))) as one:
        for epoch in range(2):
            got = list(one)
            assert [batch["number"].tolist() for batch in got] == [[0], [10, 11], [20, 21, 22], [30, 31, 32, 33]]
            assert got[2]["image"].shape == (3, 3, 6, 5) and got[2]["epoch"] == [str(epoch)] * 3
            assert got[0]["number"].dtype == torch.int16


@pytest.mark.processes
def test_batches_resume():
    def make(num_workers: int) -> td.DataLoader:
        return loader(columns, num_workers, {"batch": True}, transform=T.RandomResizedCrop(8), output="dict")

    assert_resumes_exactly(lambda: make(2), lambda: make(1), steps=True)


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("bad", [(), [], ([], []), ([1, 2], [3]), {"a": [1], "b": []}])
@pytest.mark.parametrize("at", [0, 2])
def test_batches_that_are_none(num_workers, bad, at):
    """The first one, and one in the middle of things."""
    good = {"a": [1], "b": [2]} if isinstance(bad, dict) else ([1, 2], [3, 4]) if isinstance(bad, tuple) else [1]

    with loader(lambda info: bad if info.iteration == at else good, num_workers, {"batch": True}) as one:
        batches = iter(one)
        for _ in range(at):
            next(batches)
        with pytest.raises(ValueError, match=r"a batch must hold one array or list .* a callback raises StopIteration"):
            next(batches)


# Faults


class Faulty:
    def __init__(self, fault: str) -> None:
        self.fault = fault

    def __call__(self, info: Any) -> int:
        if info.idx_in_epoch >= 16:
            raise StopIteration
        if info.idx_in_epoch == 9 and not info.epoch_idx:
            if self.fault == "raise":
                raise KeyError("no answer")
            if self.fault == "exit":
                os._exit(3)
            time.sleep(900)
        return int(info.idx_in_epoch)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_error_has_its_place_and_the_pass_goes_on(num_workers):
    with loader(Faulty("raise"), num_workers) as one:
        batches = iter(one)
        next(batches), next(batches)
        with pytest.raises(KeyError, match="no answer") as caught:
            next(batches)
        assert "sample 9" in " ".join(caught.value.__notes__)
        assert one.state_dict()["samples_seen"] == 8
        assert [batch.tolist() for batch in batches] == [[12, 13, 14, 15]]
        assert len(list(one)) == 4


@pytest.mark.processes
def test_a_worker_that_ends_or_hangs_is_named():
    with loader(Faulty("exit"), 2) as one:
        with pytest.raises(WorkerDiedError, match=r"exited with code 3 .*sample 9"):
            list(one)
    with loader(Faulty("hang"), 2, timeout=2) as one, pytest.raises(LoaderTimeoutError, match="sample 9"):
        list(one)


# The example of DALI's documentation


class ExternalInputCallable:
    """Files and labels in another order in each epoch; each shard has its part, in whole batches."""

    def __init__(self, batch_size: int, root: str, shard_id: int, num_shards: int) -> None:
        self.root = root
        with open(os.path.join(root, "file_list.txt")) as file:
            self.files = [line.split() for line in file if line.strip()]
        self.shard_size = len(self.files) // num_shards
        self.shard_offset = self.shard_size * shard_id
        self.full_iterations = self.shard_size // batch_size
        self.perm: Any = None
        self.last_seen_epoch: int | None = None

    def __call__(self, sample_info: Any) -> Any:
        if sample_info.iteration >= self.full_iterations:
            raise StopIteration()
        if self.last_seen_epoch != sample_info.epoch_idx:
            self.last_seen_epoch = sample_info.epoch_idx
            self.perm = np.random.default_rng(seed=42 + sample_info.epoch_idx).permutation(len(self.files))
        name, label = self.files[self.perm[sample_info.idx_in_epoch + self.shard_offset]]
        with open(os.path.join(self.root, name), "rb") as file:
            encoded = np.frombuffer(file.read(), dtype=np.uint8)
        return encoded, np.int32([label])


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> str:
    folder: Path = tmp_path_factory.mktemp("files")
    lines = []
    for i in range(27):
        (folder / f"{i}.jpg").write_bytes(S.picture(i))
        lines.append(f"{i}.jpg {i % 5 + 100 * i}\n")
    (folder / "file_list.txt").write_text("".join(lines))
    return str(folder)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")  # DALI's pool
@pytest.mark.parametrize(("num_shards", "num_workers"), [(1, 0), (1, 3), (2, 2)])
def test_the_documentations_example(root, num_shards, num_workers):
    """The callback, unchanged, in DALI's pipeline and here: the same images and labels in the same order."""
    from nvidia.dali import Pipeline, fn

    for shard in range(num_shards):
        callback = ExternalInputCallable(4, root, shard, num_shards)
        pipe = Pipeline(4, 1, None, py_num_workers=1, py_start_method="fork", exec_dynamic=True)
        with pipe:
            encoded, label = fn.external_source(callback, num_outputs=2, batch=False, parallel=True)
            pipe.set_outputs(fn.decoders.image(encoded), label)
        pipe.start_py_workers()
        pipe.build()
        seen = []
        with loader(callback, num_workers, persistent_workers=bool(num_workers)) as one:
            for _ in range(2):
                steps = 0
                for images, labels in one:
                    expected, numbers = pipe.run()
                    assert np.array_equal(labels.numpy(), np.stack([np.asarray(number) for number in numbers]))
                    assert labels.dtype == torch.int32 and labels.shape == (4, 1)
                    for image, (height, width), theirs in zip(
                        images.data, images.sizes.tolist(), expected, strict=True
                    ):
                        ours = image[:, :height, :width].permute(1, 2, 0).numpy()
                        assert np.array_equal(ours, np.asarray(theirs))
                    seen += labels.flatten().tolist()
                    steps += 1
                assert steps == callback.full_iterations == 27 // num_shards // 4
                with pytest.raises(StopIteration):
                    pipe.run()
                pipe.reset()
        half = len(seen) // 2
        assert len(set(seen[:half])) == half and seen[:half] != seen[half:]
        del pipe


@pytest.mark.processes
def test_the_documentations_example_resumes(root):
    def make(num_workers: int) -> td.DataLoader:
        callback = ExternalInputCallable(4, root, 1, 2)
        return loader(callback, num_workers, transform=T.Resize((8, 8)))

    assert_resumes_exactly(lambda: make(2), lambda: make(0), epochs=3, steps=True)


# Iterables and generators, which are no callbacks


@pytest.mark.parametrize("num_workers", [0, 1])
def test_generators(num_workers):
    class Numbers:
        def __iter__(self) -> Any:
            yield from ((i, random.random()) for i in range(N))

    with td.DataLoader(td.IterableSource(Numbers()), 4, num_workers=num_workers, device="cpu") as one:
        epochs = [[(batch[0].tolist(), batch[1].tolist()) for batch in one] for _ in range(2)]
    assert [numbers for numbers, _ in epochs[0]] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert epochs[0] != epochs[1]
    with pytest.raises(TypeError, match=r"callback must be callable.* write IterableSource"):
        td.SampleSource(Numbers())
    with pytest.raises(TypeError, match="generator can be iterated only once"):
        td.IterableSource(iter(Numbers()))
