"""A state that is loaded while a pass is open: the pass goes on at the loaded place, and the state follows it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import torchdali as td
from torchdali import readers
from torchdali import transforms as T
from torchdali.testing import sample_digests

from . import source_datasets as S
from .source_datasets import N

pytestmark = pytest.mark.timeout(120)


def numbers() -> Any:
    return td.InMemoryDataset(label=np.arange(N), fields=["index", "label"])


SOURCES: dict[str, Callable[[], Any]] = {
    "memory": numbers,
    "python": S.Plain,
    "iterable": S.Stream,
    "stateful": S.StatefulStream,
    "restarting": S.RestartingStream,
    "itself": lambda: td.IterableSource(S.Itself()),
    "callback": lambda: td.SampleSource(S.AskedBits()),
    "batches": lambda: td.SampleSource(S.batches_of_bits, batch=True),
}


def loader(name: str, num_workers: int = 0, **options: Any) -> td.DataLoader:
    options = dict(batch_size=4, seed=3, device="cpu", output="dict") | options
    if num_workers:
        options.setdefault("multiprocessing_context", "fork")
    if name in ("memory", "python"):
        options.setdefault("shuffle", True)
    return td.DataLoader(SOURCES[name](), num_workers=num_workers, transform=T.Compose([]), **options)


def epochs_of(one: td.DataLoader, count: int) -> tuple[list[list[list[str]]], list[list[dict[str, Any]]]]:
    """The digests of each batch of each epoch, and the state after each."""
    batches, states = [], []
    for _ in range(count):
        batches.append([])
        states.append([])
        for batch in one:
            batches[-1].append(sample_digests(batch))
            states[-1].append(one.state_dict())
        states[-1].append(one.state_dict())  # the epoch's end
    return batches, states


WORKERS = [{}, {"prefetch_factor": 0}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}]


@pytest.mark.parametrize(
    ("name", "options"),
    [pair for pair in itertools.product(SOURCES, WORKERS) if pair[0] != "memory" or "num_workers" not in pair[1]],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*samples are iterated again:RuntimeWarning")
def test_an_open_pass_goes_on_at_the_loaded_place(name, options):
    """Back, forward, into another epoch, and to an epoch's end."""
    with loader(name, **options) as one:
        batches, states = epochs_of(one, 2)
    with loader(name, **options) as one:
        opened = iter(one)
        for _ in range(3):
            next(opened)
        for epoch, after in ((0, 1), (1, 2), (0, 3)):
            one.load_state_dict(states[epoch][after - 1])
            assert one.state_dict() == states[epoch][after - 1]
            for number in range(after, min(after + 2, len(batches[epoch]))):
                assert sample_digests(next(opened)) == batches[epoch][number]
                assert one.state_dict() == states[epoch][number]
        one.load_state_dict(states[0][-1])
        assert next(opened, None) is None and one.state_dict() == states[0][-1]
        assert [sample_digests(batch) for batch in one] == batches[1]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loop_that_loads_inside(num_workers):
    """A fault-tolerant trainer: after a fault it loads the last checkpoint, and its loop goes on; then the epoch ends,
    and the next one begins."""
    with loader("python", num_workers) as one:
        (expected, following), _ = epochs_of(one, 2)
    with loader("python", num_workers) as one:
        done: list[list[str]] = []
        saved, failed = one.state_dict(), False
        for batch in one:
            if len(done) == 4 and not failed:
                failed = True
                one.load_state_dict(saved)
                del done[2:]
                continue
            done.append(sample_digests(batch))
            if len(done) == 2:
                saved = one.state_dict()
        assert failed and done == expected and one.state_dict()["finished"]
        assert [sample_digests(batch) for batch in one] == following


def test_of_several_passes_the_one_begun_last_goes_there():
    with loader("memory") as one:
        batches, states = epochs_of(one, 2)
    with loader("memory") as one:
        first, second = iter(one), iter(one)
        next(first), next(second)
        one.load_state_dict(states[0][2])
        assert sample_digests(next(first)) == batches[0][1]
        assert one.state_dict() == states[0][2]
        assert sample_digests(next(second)) == batches[0][3]
        assert one.state_dict() == states[0][3]
        # A pass that begins at the loaded place leaves the others alone.
        one.load_state_dict(states[1][0])
        third = iter(one)
        assert sample_digests(next(third)) == batches[1][1]
        assert sample_digests(next(second)) == batches[0][4]


def test_a_pass_that_ended_with_an_error_goes_on_after_a_load():
    """Its threads are gone; the loaded state begins new ones."""
    with loader("memory") as one:
        batches, states = epochs_of(one, 1)
        opened = iter(one)
        next(opened)
        one.close()
        with pytest.raises(RuntimeError, match=r"call iter\(loader\) again"):
            next(opened)
        one.load_state_dict(states[0][0])
        assert sample_digests(next(opened)) == batches[0][1]


def test_a_seek_moves_an_open_pass_too():
    with loader("memory") as one:
        _, following = epochs_of(one, 2)[0]
        opened = iter(one)
        one.seek(0, 3)
        next(opened)
        one.seek(1, 2)
        assert [sample_digests(batch) for batch in opened] == following[2:]


def test_the_state_follows_an_open_pass_after_set_epoch():
    """A wrapper that is ahead names the next epoch before the last batches have gone out."""
    with loader("memory") as one:
        batches, states = epochs_of(one, 1)
    with loader("memory") as one:
        opened = iter(one)
        next(opened), next(opened)
        one.set_epoch(1)
        assert sample_digests(next(opened)) == batches[0][2] and one.state_dict() == states[0][2]
        list(opened)
        next(iter(one))
        assert one.state_dict()["epoch"] == 1


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    root = tmp_path_factory.mktemp("arrays")
    for number in range(N):
        np.save(root / f"{number:02d}.npy", np.full(3, number, np.int32))
    return root


@pytest.mark.parametrize("shuffle", [False, "full", "window"])
def test_native_readers(arrays, shuffle):
    def make() -> td.DataLoader:
        reader = readers.Numpy(file_root=str(arrays), shuffle=shuffle)
        return td.DataLoader(reader, batch_size=4, seed=3, device="cpu", output="dict")

    with make() as one:
        batches, states = epochs_of(one, 2)
    with make() as one:
        opened = iter(one)
        next(opened), next(opened)
        for epoch, number in ((0, 0), (1, 2), (0, 3)):
            one.load_state_dict(states[epoch][number])
            assert sample_digests(next(opened)) == batches[epoch][number + 1]
            assert one.state_dict() == states[epoch][number + 1]


def test_a_native_reader_by_itself(arrays):
    def plain(samples: Any) -> list[list[int]]:
        return [sample[0].tolist() for sample in samples]

    reader = readers.Numpy(file_root=str(arrays), shuffle="full", seed=1)
    expected = plain(reader)
    reader.set_epoch(0)
    opened = iter(reader)
    list(itertools.islice(opened, 3))
    state = reader.state_dict()
    list(itertools.islice(opened, 9))
    reader.load_state_dict(state)
    assert plain(itertools.islice(opened, 2)) == expected[3:5] and reader.state_dict()["samples_seen"] == 5
    reader.load_state_dict(state)
    assert plain(opened) == expected[3:] and reader.state_dict()["finished"]
