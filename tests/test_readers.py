"""Every native reader that works on the CPU, through the same checks."""

from __future__ import annotations

import itertools
import json
import pickle

import numpy as np
import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import torchdali as td
from torchdali import transforms as T
from torchdali.batch import Padded
from torchdali.errors import StateMismatchError
from torchdali.testing import assert_resumes_exactly, assert_same_stream, read_stream, sample_digests

from .reader_files import CASES, Case, N


@pytest.fixture(scope="module", params=list(CASES))
def case(request, tmp_path_factory) -> Case:
    return CASES[request.param](tmp_path_factory.mktemp("readers") / request.param)


@pytest.fixture
def make(case):
    """Makes a loader, or those of several ranks; the reader's options and the loader's may be mixed."""

    def make(world_size=1, **options):
        reader = {k: options.pop(k) for k in ("shuffle", "seed", "virtual_shards", "initial_fill") if k in options}
        arguments = dict(batch_size=3, device="cpu", seed=7, transform=decode(case)) | options
        loaders = [
            td.DataLoader(case.make(**reader), rank=rank, world_size=world_size, **arguments)
            for rank in range(world_size)
        ]
        return loaders if world_size > 1 else loaders[0]

    return make


def decode(case: Case):
    return T.Resize((8, 8)) if case.images else None


def plain(value):
    """A value to compare and to sort by."""
    if isinstance(value, (torch.Tensor, np.ndarray)) and np.ndim(value):
        array = np.asarray(value)
        return str(array.dtype), array.shape, array.tobytes()
    value = value.item() if isinstance(value, (torch.Tensor, np.generic)) else value
    return float(value) if isinstance(value, (int, float)) else json.dumps(value, sort_keys=True)


def key(sample):
    return tuple(plain(value) for value in sample)


def kinds(case: Case) -> list[str]:
    return list(case.make().kinds.values())


def rows(batch):
    """The samples of a batch, without padding."""
    columns = []
    for value in batch:
        if isinstance(value, Padded):
            sizes = value.sizes.tolist()
            columns.append([row[tuple(slice(0, n) for n in size)] for row, size in zip(value.data, sizes, strict=True)])
        else:
            columns.append(list(value))
    return list(zip(*columns, strict=True))


def test_contents_alone(case):
    """Iterated by itself, it gives what was written, in order."""
    got = list(case.make())
    assert [key(sample) for sample in got] == [key(sample) for sample in case.samples]
    assert len(case.make()) == N


def test_contents_in_a_loader(case):
    """The fields behind the image, and the image itself as bytes."""
    loader = td.DataLoader(case.make(kinds=as_read(case)), batch_size=5, device="cpu")
    got = [key(sample) for batch in loader for sample in rows(batch)]
    assert got == [key(sample) for sample in case.samples]
    assert len(loader) == 3


def test_images_are_decoded(case, make):
    if not case.images:
        assert "encoded" not in kinds(case)
        return
    images = torch.cat([batch[0] for batch in make()])
    direct = td.DataLoader(
        td.InMemoryDataset(image=[sample[0].tobytes() for sample in case.samples]),
        batch_size=N, transform=T.Resize((8, 8)), device="cpu",
    )  # fmt: skip
    assert torch.equal(images, next(iter(direct))[0])


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("shuffle", [False, "window", "full"])
def test_two_epochs_are_right(case, world_size, shuffle):
    """Every sample once over all ranks, in as many steps on each, and unlike the epoch before where it is shuffled."""
    if shuffle == "full" and not case.full:
        with pytest.raises(ValueError, match="no full shuffle"):
            case.make(shuffle="full")
        return
    options = {"initial_fill": 4} if shuffle == "window" else {}
    orders = []
    loaders = [
        td.DataLoader(
            case.make(shuffle=shuffle, kinds=as_read(case), **options), batch_size=3, device="cpu", seed=7,
            rank=rank, world_size=world_size,
        )
        for rank in range(world_size)
    ]  # fmt: skip
    for epoch in range(2):
        per_rank = [[rows(batch) for batch in loader] for loader in loaders]
        steps = {len(batches) for batches in per_rank}
        assert steps == {len(loaders[0])} and all(batch for batches in per_rank for batch in batches)
        order = [key(sample) for batches in per_rank for batch in batches for sample in batch]
        assert sorted(order) == sorted(key(sample) for sample in case.samples)
        assert loaders[0].state_dict()["epoch"] == epoch
        orders.append(order)
    assert (orders[0] == orders[1]) is (shuffle is False)
    assert (orders[0] == [key(sample) for sample in case.samples]) is (shuffle is False and world_size == 1)


def as_read(case: Case) -> dict[str, str]:
    """The kinds by which files leave as bytes, and clips in DALI's layout."""
    return {name: "array" for name, kind in case.make().kinds.items() if kind.word in ("encoded", "video")}


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "prefetch"), [("eager", 2), ("pipeline", 0)])
def test_resumes_at_every_step(case, make, engine, prefetch):
    if not case.images and engine == "pipeline":
        engine = "auto"  # there is nothing for DALI to do behind the reader
    options = dict(shuffle="window", initial_fill=4, engine=engine, prefetch_factor=prefetch)
    assert_resumes_exactly(lambda: make(**options))


def test_engines_and_prefetch_give_one_stream(case, make):
    engines = ("eager", "pipeline", "debug") if case.images else ("eager", "debug")
    assert_same_stream(
        *(
            lambda e=engine, p=prefetch: make(shuffle="window", initial_fill=4, engine=e, prefetch_factor=p)
            for engine, prefetch in itertools.product(engines, (0, 2))
        ),
        epochs=2,
    )


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_resume_with_another_batch_size(make, world_size):
    options = dict(shuffle="window", initial_fill=3)
    assert_resumes_exactly(
        lambda: make(world_size, **options), lambda: make(world_size, batch_size=2, **options), steps=False
    )


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 3])
def test_virtual_shards_resume_with_another_world_size(make, world_size):
    options = dict(shuffle="window", initial_fill=3, virtual_shards=6)
    assert_resumes_exactly(lambda: make(2, **options), lambda: make(world_size, **options), every=2)


def test_another_world_size_is_refused(case, make):
    loader = make()
    next(iter(loader))
    state = loader.state_dict()
    loader.close()
    with pytest.raises(StateMismatchError, match=rf"(?s)1 shard.*virtual_shards=.*{case.make().twin}"):
        make(2)[0].load_state_dict(state)


def test_breaks_and_seek(case, make):
    whole = read_stream(make(shuffle="window", initial_fill=4), epochs=3)
    loader = make(shuffle="window", initial_fill=4)
    for epoch in range(3):
        got = [sample_digests(batch) for batch in itertools.islice(loader, 2)]
        assert got == [step.samples for step in whole if step.epoch == epoch][:2]
    loader.seek(1, 3)
    assert [sample_digests(batch) for batch in loader] == [step.samples for step in whole if step.epoch == 1][3:]


def test_two_iterators(make):
    """As for any loader: both go on, and the state follows the one that was begun last."""
    loader = make()
    one, other = iter(loader), iter(loader)
    first, second = next(one), next(other)
    assert loader.epoch == 1
    assert len(list(one)) == len(list(other)) == len(loader) - 1
    assert sample_digests(first) == sample_digests(second)  # unshuffled


def test_random_numbers_are_those_of_the_position(case, make):
    """A random transform sees (seed, epoch, rank, ordinal) alone."""
    if not case.images:
        return
    jitter = T.Compose([T.Resize((8, 8)), T.RandomHorizontalFlip(), T.ColorJitter(0.5)])
    options = dict(transform=jitter, virtual_shards=6)
    assert_same_stream(
        lambda: make(1, batch_size=6, **options),
        lambda: make(2, batch_size=3, **options),
        lambda: make(3, batch_size=2, **options),
        epochs=2, steps=False,
    )  # fmt: skip


@pytest.mark.processes
def test_in_torchs_dataloader(case, monkeypatch):
    reader = case.make()
    loader = torch.utils.data.DataLoader(reader, batch_size=None)
    for _ in range(2):
        assert [key(sample) for sample in loader] == [key(sample) for sample in case.samples]
    batches = iter(torch.utils.data.DataLoader(case.make(), batch_size=None, num_workers=1))
    with pytest.raises(RuntimeError, match="num_workers=0"):
        next(batches)
    # A fork beside DALI's threads does not end by itself, and torch gives it five seconds.
    monkeypatch.setattr(torch.utils.data._utils, "MP_STATUS_CHECK_INTERVAL", 0.1)
    batches._shutdown_workers()


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata's
def test_in_stateful_dataloader(case):
    def make():
        return StatefulDataLoader(case.make(shuffle="window", initial_fill=4), batch_size=None, num_workers=0)

    loader = make()
    whole = [[key(sample) for sample in loader] for _ in range(2)]
    assert whole[0] != whole[1]
    for stop in (0, 5, N):
        loader = make()
        iterator = iter(loader)
        head = [key(sample) for sample in itertools.islice(iterator, stop)]
        state = pickle.loads(pickle.dumps(loader.state_dict()))
        assert head == whole[0][:stop]
        resumed = make()
        resumed.load_state_dict(state)
        assert [key(sample) for sample in resumed] == whole[0][stop:]
        assert [key(sample) for sample in resumed] == whole[1]


def test_its_own_state(case):
    whole = [key(sample) for sample in case.make(shuffle="window", seed=3)]
    for stop in range(0, N, 4):
        reader = case.make(shuffle="window", seed=3)
        head = [key(sample) for sample in itertools.islice(reader, stop)]
        state = json.loads(json.dumps(reader.state_dict()))
        other = pickle.loads(pickle.dumps(case.make(shuffle="window", seed=3)))
        other.load_state_dict(state)
        assert head + [key(sample) for sample in other] == whole
        assert other.state_dict()["finished"]


def test_the_loader_pickles(make):
    loader = pickle.loads(pickle.dumps(make()))
    assert_same_stream(lambda: loader, lambda: make())


def test_any_reader_of_dynamic_mode(tmp_path):
    """`Reader` takes a class that torchdali does not know."""
    import nvidia.dali.experimental.dynamic as ndd

    root = tmp_path / "files"
    samples = CASES["File"](root).samples
    options = dict(fields=("photo", "number"), kinds={"photo": "encoded", "number": "number"}, file_root=root)

    def make(**more):
        reader = td.readers.Reader(ndd.readers.File, **options, **more)
        return td.DataLoader(reader, batch_size=4, transform=T.Resize((8, 8)), device="cpu")

    assert [int(number) for _, numbers in make() for number in numbers] == [sample[1] for sample in samples]
    assert_resumes_exactly(lambda: make(shuffle="window", initial_fill=4))
    with pytest.raises(ValueError, match="2 outputs here, and fields names 1"):
        list(td.readers.Reader(ndd.readers.File, fields=("photo",), file_root=root))
    with pytest.raises(TypeError, match=r"a reader of dynamic mode was expected, such as ndd\.readers\.File"):
        td.readers.Reader(ndd.decoders.image, fields=("photo",))


def test_fixed_features_are_tensors(tmp_path):
    """A feature of a known shape leaves as a plain tensor, one of any number padded."""
    batch = next(iter(td.DataLoader(CASES["TFRecord"](tmp_path / "r").make(), 4, transform=T.Resize((8, 8)))))
    assert batch[2].shape == (4, 2) and isinstance(batch[3], Padded)


# Windows over several shards


@pytest.mark.parametrize(
    ("n", "ranks", "virtual"), [(23, 2, None), (24, 2, None), (25, 4, None), (23, 3, 6), (9, 8, None)]
)
def test_ranks_change_their_shards_with_the_epoch(tmp_path, n, ranks, virtual):
    """With a window, no rank reads the same shard for ever; each epoch holds each sample once, and resumes exactly."""
    for i in range(n):
        path = tmp_path / "files" / "all" / f"{i:03d}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([i]))

    def load(rank, world_size=ranks):
        reader = td.readers.File(
            file_root=tmp_path / "files", file_filters="*.bin", fields=["data", "label"], kinds={"data": "array"},
            shuffle="window", initial_fill=2, virtual_shards=virtual,
        )  # fmt: skip
        return td.DataLoader(reader, 1, rank=rank, world_size=world_size, device="cpu", seed=5)

    epochs = 8
    loaders = [load(rank) for rank in range(ranks)]
    seen = [
        [[int(value) for data, _ in loader for value in data.data[:, 0]] for loader in loaders] for _ in range(epochs)
    ]
    for epoch in seen:
        assert {sample for share in epoch for sample in share} == set(range(n))
    for rank in range(ranks):
        shares = {tuple(sorted(epoch[rank])) for epoch in seen}
        assert len(shares) > 1
        if ranks == 2:
            assert set().union(*map(set, shares)) == set(range(n))
    # The state stays derived.
    loader = load(ranks - 1)
    loader.set_epoch(3)
    iterator = iter(loader)
    first = [int(next(iterator)[0].data[0, 0])]
    other = load(ranks - 1)
    other.load_state_dict(loader.state_dict())
    assert first + [int(value) for data, _ in other for value in data.data[:, 0]] == seen[3][ranks - 1]


def test_file_order_keeps_its_shards(tmp_path):
    for i in range(8):
        path = tmp_path / "all" / f"{i}.bin"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes([i]))
    reader = td.readers.File(
        file_root=tmp_path, file_filters="*.bin", fields=["data", "label"], kinds={"data": "array"}
    )
    loader = td.DataLoader(reader, 4, rank=1, world_size=2, device="cpu")
    assert [batch[0].data.flatten().tolist() for _ in range(3) for batch in loader] == [[4, 5, 6, 7]] * 3


def test_with_a_window_a_rank_reads_other_shards_in_each_epoch(folder):
    """As DALI's stick_to_shard=False; in file order it keeps its own."""
    paths = td.ImageFolder(folder).paths

    def shards(shuffle: str | bool) -> list[list[set[int]]]:
        """What each rank reads in each epoch."""
        found = []
        for rank in range(2):
            reader = td.readers.File(files=paths, labels=list(range(22)), shuffle=shuffle, initial_fill=4)
            options = {"device": "cpu", "rank": rank, "world_size": 2, "transform": T.Resize(4)}
            with td.DataLoader(reader, 11, **options) as loader:
                found.append([{int(i) for batch in loader for i in batch[1]} for _ in range(3)])
        return found

    fixed, window = shards(False), shards("window")
    for ranks in (fixed, window):
        assert all(one | two == set(range(22)) and not one & two for one, two in zip(*ranks, strict=True))
    assert all(epoch == fixed[0][0] for epoch in fixed[0])
    assert len({frozenset(epoch) for epoch in window[0]}) > 1
