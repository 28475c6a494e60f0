"""The promise of one stream: engines, prefetching and resuming do not change it."""

from __future__ import annotations

import itertools
import json
import random
from functools import partial

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import SubsetRandomSampler, WeightedRandomSampler

import torchdali as td
from torchdali import transforms as T
from torchdali.testing import assert_resumes_exactly, assert_same_stream, read_stream, sample_digests

FIELDS = ("image", "label", "index")
AUGMENT = T.Compose(
    [
        T.RandomResizedCrop(24),
        T.RandomHorizontalFlip(),
        T.ColorJitter(0.4, 0.4),
        T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
)


@pytest.fixture
def make(folder):
    """Makes a loader with some arguments changed."""

    def make(**changes):
        arguments = dict(batch_size=4, shuffle=True, seed=5, device="cpu", transform=AUGMENT) | changes
        return td.DataLoader(td.ImageFolder(folder, fields=FIELDS), **arguments)

    return make


def ranks(make, world_size, **changes):
    return [make(rank=rank, world_size=world_size, **changes) for rank in range(world_size)]


def test_engines_prefetch_and_threads_give_one_stream(make):
    grid = itertools.product(("eager", "pipeline", "debug"), (0, 1, 4), (1, 2))
    stream = assert_same_stream(
        *(
            lambda e=engine, p=prefetch, t=threads: make(engine=e, prefetch_factor=p, num_threads=t)
            for engine, prefetch, threads in grid
        ),
        epochs=2,
    )
    samples = [sample for step in stream if step.epoch == 0 for sample in step.samples]
    assert len(set(samples)) == 22  # and they are different samples, all of them
    assert not set(samples) & {sample for step in stream if step.epoch == 1 for sample in step.samples}


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 8])
def test_world_sizes_give_one_stream(make, world_size):
    """The same global batch of 24 split in any way: larger than the folder, and so the split of the end too."""
    assert_same_stream(
        lambda: make(batch_size=24),
        lambda: ranks(make, world_size, batch_size=24 // world_size),
        lambda: ranks(make, world_size, batch_size=24 // world_size, engine="pipeline"),
        epochs=2,
    )


@pytest.mark.parametrize("world_size", [2, 4])
def test_world_sizes_give_the_same_global_steps(make, world_size):
    """With several steps an epoch: 22 is 8 + 8 + 6."""
    assert_same_stream(
        lambda: make(batch_size=8), lambda: ranks(make, world_size, batch_size=8 // world_size), epochs=3
    )


def test_another_batch_size_is_the_same_order(make):
    assert_same_stream(lambda: make(), lambda: make(batch_size=7), lambda: ranks(make, 3, batch_size=2), steps=False)


def test_breaks_change_nothing(make):
    """After a break the next pass is the next epoch, and equal to that of a loader that was never broken."""
    whole = read_stream(make(), epochs=6)
    draw = random.Random(0)
    for engine in ("eager", "pipeline"):
        loader = make(engine=engine)
        for epoch in range(6):
            taken = draw.randrange(1, 7)
            got = [sample_digests(batch) for batch in itertools.islice(loader, taken)]
            assert loader.epoch == epoch
            assert got == [step.samples for step in whole if step.epoch == epoch][:taken]


def test_break_without_set_epoch(make):
    loader = make()
    for _ in loader:
        break
    assert loader.state_dict()["samples_seen"] == 4
    second = [index for _, _, index in loader]
    assert loader.state_dict()["epoch"] == 1
    reference = make()
    reference.set_epoch(1)
    assert torch.equal(torch.cat(second), torch.cat([index for _, _, index in reference]))


@pytest.mark.parametrize("changes", [{}, {"engine": "pipeline"}, {"prefetch_factor": 0}, {"drop_last": True}], ids=str)
@pytest.mark.slow
def test_resumes_at_every_step_of_two_epochs(make, changes):
    assert_resumes_exactly(lambda: make(**changes), epochs=2)


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.slow
def test_resumes_with_another_world_size_and_batch_size(make, world_size):
    assert_resumes_exactly(
        lambda: ranks(make, 2, batch_size=3), lambda: ranks(make, world_size, batch_size=4), epochs=2
    )


@pytest.mark.slow
def test_resumes_in_the_other_engine(make):
    assert_resumes_exactly(lambda: make(), lambda: make(engine="pipeline", prefetch_factor=4), steps=True)


@pytest.mark.parametrize(
    "sampler",
    [
        lambda: SubsetRandomSampler(range(3, 20)),
        lambda: WeightedRandomSampler([1.0] * 22, 30),
        lambda: SubsetRandomSampler(range(15), generator=torch.Generator().manual_seed(1)),
        lambda: [5, 3, 1, 21, 0, 7, 2],
    ],
)
@pytest.mark.slow
def test_torch_samplers_resume(make, sampler):
    assert_resumes_exactly(lambda: make(shuffle=False, sampler=sampler()))
    assert_same_stream(
        lambda: make(shuffle=False, sampler=sampler()),
        lambda: ranks(make, 2, batch_size=2, shuffle=False, sampler=sampler()),
        steps=False,  # one sample left over is no step for two ranks: the last two steps are split together
    )


def test_a_sample_drawn_twice_is_augmented_twice(make):
    loader = make(shuffle=False, sampler=[3, 3, 3, 3])
    ((images, _, index),) = loader
    assert index.tolist() == [3, 3, 3, 3]
    assert len({image.numpy().tobytes() for image in images}) == 4


def test_state_is_small_plain_and_free_of_side_effects(make, tmp_path):
    loader = make()
    fresh = loader.state_dict()
    assert fresh == loader.state_dict() and len(json.dumps(fresh)) < 1024
    for _ in loader:
        state = loader.state_dict()
        torch.save(state, tmp_path / "state.pt")
        assert torch.load(tmp_path / "state.pt", weights_only=True) == state == loader.state_dict()
        assert all(type(value) in (int, str, bool) for value in state.values())


def test_the_boundary(make):
    """After the last batch, the rest of the epoch is empty; after the end of the loop, the next epoch comes."""
    loader = make()
    for _ in loader:
        inside = loader.state_dict()
    outside = loader.state_dict()
    resumed = make()
    resumed.load_state_dict(inside)
    assert resumed.epoch == 0 and len(resumed) == 6
    assert list(resumed) == [] and resumed.epoch == 1 and len(list(resumed)) == 6
    resumed = make()
    resumed.load_state_dict(outside)
    assert resumed.epoch == 1 and len(list(resumed)) == 6


def test_an_open_iterator_that_has_not_begun_takes_the_state(make):
    loader = make()
    iterator = iter(loader)
    other = make()
    next(it := iter(other))
    loader.load_state_dict(other.state_dict())
    assert torch.equal(next(iterator)[2], next(it)[2])


def test_states_of_other_streams_are_refused(make, folder, own_folder):
    loader = make()
    before = loader.state_dict()
    for changes, word in [
        ({"seed": 6}, "seed: expected 5, got 6"),
        ({"shuffle": False}, "order: expected 'shuffle', got 'sequential'"),
        ({"shuffle": False, "sampler": range(21)}, "num_samples: expected 22, got 21"),
    ]:
        with pytest.raises(td.StateMismatchError, match=word):
            loader.load_state_dict(make(**changes).state_dict())
        assert loader.state_dict() == before
    next(own_folder.rglob("*.jpg")).rename(own_folder / "class_0" / "other.jpg")
    other = td.DataLoader(td.ImageFolder(own_folder), 4, shuffle=True, seed=5, device="cpu")
    with pytest.raises(td.StateMismatchError, match="dataset: expected"):
        loader.load_state_dict(other.state_dict())
    loader.load_state_dict(other.state_dict(), strict=False)


def test_few_samples_left_for_many_ranks_repeat_and_say_so(make):
    """21 of 22 samples are gone when four ranks take over."""
    state = make().state_dict() | {"samples_seen": 21}
    loaders = ranks(make, 4)
    for loader in loaders:
        loader.load_state_dict(state)
        with pytest.warns(RuntimeWarning, match="1 samples of the epoch are left for 4 ranks"):
            ((image, _, _),) = loader
        assert len(image) == 1


def test_pad_last_marks_the_repeated_rows(folder):
    def make(rank):
        dataset = td.ImageFolder(folder, fields=("index", "valid"))
        return td.DataLoader(dataset, 5, rank=rank, world_size=3, pad_last=True, shuffle=True, device="cpu")

    seen = []
    for rank in range(3):
        loader = make(rank)
        batches = list(loader)
        assert len(batches) == len(loader) == 2 and all(len(index) == 5 for index, _ in batches)
        seen += [int(i) for index, valid in batches for i in index[valid]]
    assert sorted(seen) == list(range(22))


@pytest.mark.parametrize("engine", ["eager", "pipeline", "debug"])
def test_images_in_memory_and_files_draw_alike(tmp_path, engine):
    """Decoding is a step of files only, and no step's numbers depend on the steps beside it."""
    rng = np.random.default_rng(0)
    arrays = [rng.integers(0, 256, (40 + i, 50, 3), dtype=np.uint8) for i in range(9)]
    paths = [tmp_path / f"{i}.png" for i in range(9)]
    for array, path in zip(arrays, paths, strict=True):
        Image.fromarray(array).save(path)
    encoded = [path.read_bytes() for path in paths]
    views = T.Views([[T.RandomCrop(20), T.RandomHorizontalFlip()]] * 2)
    several = [T.RandomApply([T.RandomRotation(9)]), T.RandomResizedCrop(24), T.ColorJitter(0.3), T.RandAugment()]
    for transform in (T.Compose(several), T.Compose([T.RandomVerticalFlip(), views])):
        sources = td.FileDataset(paths), td.InMemoryDataset(image=encoded), td.InMemoryDataset(image=arrays)
        options = {"batch_size": 4, "shuffle": True, "seed": 3, "device": "cpu", "engine": engine}
        assert_same_stream(*(partial(td.DataLoader, one, transform=transform, **options) for one in sources))
