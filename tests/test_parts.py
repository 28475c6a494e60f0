"""A loader's parts in other hands: code that builds a torch loader of them, or makes batches by itself."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, IterableDataset, RandomSampler, Sampler, SequentialSampler
from torch.utils.data import DataLoader as TorchLoader
from torch.utils.data._utils.collate import default_collate_fn_map

import torchdali as td
from torchdali import transforms as T
from torchdali._dali import dynamic

N = 10


class Pairs(Dataset[tuple[torch.Tensor, int]]):
    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.full((2,), float(index)), index


def load(dataset: Any = None, batch_size: int | None = 4, **options: Any) -> td.DataLoader:
    return td.DataLoader(Pairs() if dataset is None else dataset, batch_size, device="cpu", **options)


def indices(loader: Any) -> list[list[int]]:
    return [label.tolist() for _, label in loader]


PARTS = (
    "dataset", "num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn", "multiprocessing_context",
    "generator", "prefetch_factor", "persistent_workers", "pin_memory_device", "in_order",
)  # fmt: skip


def rebuilt(loader: td.DataLoader, cls: Any = TorchLoader, **more: Any) -> Any:
    """As Opacus and others build a loader of a loader's attributes."""
    return cls(**{name: getattr(loader, name) for name in PARTS} | more)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_torch_loader_of_the_parts_gives_the_loaders_batches(shuffle: bool) -> None:
    loader = load(shuffle=shuffle)
    twin = load(shuffle=shuffle)
    epochs = [indices(twin) for _ in range(3)]
    whole = rebuilt(loader, batch_sampler=loader.batch_sampler)
    assert [indices(whole) for _ in range(3)] == epochs and len(whole) == 3
    samples = rebuilt(loader, batch_size=4, sampler=loader.sampler, drop_last=True)
    assert [indices(samples) for _ in range(3)] == [batches[:2] for batches in epochs]
    images, label = next(iter(whole))
    assert images.dtype == torch.float32 and images.shape == (4, 2) and images[:, 0].tolist() == label.tolist()
    own = rebuilt(loader, type(loader), batch_size=4, sampler=loader.sampler, device="cpu")
    assert indices(own) == epochs[0]
    assert loader.epoch == 0 and indices(loader) == epochs[0]  # it has not moved


@pytest.mark.processes
@pytest.mark.slow
def test_torchs_workers_take_the_parts() -> None:
    dynamic()  # DALI's threads don't come along into torch's workers, which are forked
    loader = load(shuffle=True, num_workers=1)
    whole = rebuilt(loader, batch_sampler=loader.batch_sampler, multiprocessing_context="fork")
    assert [indices(whole) for _ in range(2)] == [indices(loader) for _ in range(2)]


def test_the_views_follow_the_loader_and_set_epoch() -> None:
    loader = load(shuffle=True)
    epochs = [indices(loader) for _ in range(3)]
    loader = load(shuffle=True)
    sampler, batches = loader.sampler, loader.batch_sampler
    assert list(sampler) == sum(epochs[0], []) == list(loader.sampler)  # noqa: RUF017  # another view begins anew
    assert list(sampler) == sum(epochs[1], []) and list(batches) == epochs[0]  # noqa: RUF017
    assert indices(loader) == epochs[0] and list(batches) == epochs[1]  # where the loader stands now
    assert list(batches) == epochs[2]
    sampler.set_epoch(1), batches.set_epoch(1)
    assert list(batches) == epochs[1] and list(sampler) == sum(epochs[1], [])  # noqa: RUF017
    assert list(batches) == epochs[2] and indices(loader) == epochs[1]


def test_views_are_of_torchs_classes() -> None:
    """Scripts and trainers tell a shuffled loader by them, as Lightning does."""
    shuffled, plain, given = load(shuffle=True), load(), load(sampler=RandomSampler(range(N), replacement=True))
    weighted = load(sampler=td.WeightedSampler([1.0] * N, N))
    kinds = [(isinstance(one.sampler, RandomSampler), isinstance(one.sampler, SequentialSampler)) for one in
             (shuffled, plain, given, weighted)]  # fmt: skip
    assert kinds == [(True, False), (False, True), (True, False), (False, False)]
    assert (shuffled.sampler.replacement, given.sampler.replacement) == (False, True)
    assert shuffled.sampler.num_samples == N and shuffled.sampler.data_source is shuffled.dataset
    assert shuffled.sampler.generator is None
    assert isinstance(shuffled.batch_sampler, BatchSampler) and shuffled.batch_sampler.batch_size == 4
    shuffled.batch_sampler.even_batches = False  # by accelerate's join_uneven_inputs, and pytorch-accelerated
    assert shuffled.batch_sampler.even_batches is True
    with pytest.raises(
        TypeError, match="sampler must yield indices, and BatchSampler yields batches: write batch_sampler="
    ):
        load(td.InMemoryDataset(x=np.arange(N), fields=("x",)), sampler=shuffled.batch_sampler)
    assert indices(load(batch_size=1, batch_sampler=shuffled.batch_sampler)) == indices(load(shuffle=True))


def first_two(samples: list[Any]) -> list[Any]:
    return samples[:2]


def test_collate_fn_is_the_given_one_or_does_as_the_loader() -> None:
    dataset = Pairs()
    assert load(collate_fn=first_two).collate_fn is first_two
    images, label = load().collate_fn([dataset[3], dataset[5]])
    assert images.tolist() == [[3.0, 3.0], [5.0, 5.0]] and label.tolist() == [3, 5]
    named = load(output="dict", kinds={"label": "number"}).collate_fn([dataset[1]])
    assert {name: value.tolist() for name, value in named.items()} == {"field0": [[1.0, 1.0]], "label": [1]}
    ragged = [(np.zeros(size, np.float32), size) for size in (3, 1)]
    padded, sizes = load(ragged, pad_value=-1.0).collate_fn(ragged)
    assert isinstance(padded, td.Padded) and padded.data[1].tolist() == [0.0, -1.0, -1.0] and sizes.tolist() == [3, 1]
    loader = load(ragged)
    assert next(iter(loader))[0].data.shape == (2, 3)
    padded, _ = loader.collate_fn(ragged[:1])  # of one shape, in a field that is known to have several
    assert isinstance(padded, td.Padded)
    names = load([{"x": np.zeros(2), "word": "a"}] * 3)
    assert next(iter(names))["word"] == ["a"] * 3 == names.collate_fn(names.dataset)["word"]
    pixels = [np.full((4, 6, 3), index, np.uint8) for index in range(3)]
    assert load(pixels).collate_fn(pixels).shape == (3, 3, 4, 6)
    parts = load(output="list").collate_fn([dataset[3], dataset[5]])
    assert parts[1] == [3, 5] and [part.tolist() for part in parts[0]] == [[3.0, 3.0], [5.0, 5.0]]
    (whole,) = load([torch.ones(3)], None).collate_fn([np.ones(3)])
    assert isinstance(whole, torch.Tensor)
    memory = td.InMemoryDataset(x=np.arange(N), y=np.ones(N), fields=("x", "y"))
    x, y = load(memory).collate_fn([memory[2], memory[4]])
    assert x.tolist() == [2, 4] and y.tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match=r"a list of samples, got \[\]"):
        load().collate_fn([])
    with pytest.raises(TypeError, match="a list of samples, got 5"):
        load().collate_fn(5)


def test_images_of_the_loaders_own_datasets_come_padded_too(folder: Path) -> None:
    loader = load(td.ImageFolder(folder), shuffle=True, output="dict")
    whole = rebuilt(loader, batch_sampler=loader.batch_sampler)
    for mine, own in zip(whole, loader, strict=True):
        assert mine.keys() == own.keys() == {"image", "image_sizes", "label"}
        assert all(torch.equal(mine[name], own[name]) for name in own)


def test_collate_fn_may_be_set_to_what_it_is() -> None:
    """As fit of sentence-transformers does it, with a method of the model."""

    class Model:
        def collate(self, samples: list[Any]) -> int:
            return len(samples)

    model = Model()
    loader = load(collate_fn=model.collate)
    loader.collate_fn = model.collate
    assert list(loader) == [4, 4, 2]
    with pytest.raises(ValueError, match="write the same function as collate_fn= where you make it"):
        loader.collate_fn = first_two


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: load(td.InMemoryDataset(image=np.zeros((N, 8, 8, 3), np.uint8)), transform=T.Resize((4, 4))),
         "lack what its transform= makes .* write the transform in the dataset and leave transform out"),
        (lambda: load(collate_fn=first_two, transform=T.Resize((4, 4)), kinds={"field0": "array"}),
         "lack what its transform= makes"),
        (lambda: load(batch_transform=lambda images, labels: images), "lack what its batch_transform= makes"),
        (lambda: load(td.PythonDataset(Pairs(), ["x", "y", "index"])), "do not hold index, which the loader adds"),
    ],
)  # fmt: skip
def test_collate_fn_says_where_it_can_not_make_the_loaders_batch(
    make: Callable[[], td.DataLoader], sentence: str
) -> None:
    loader = make()
    with pytest.raises(TypeError, match=sentence):
        loader.collate_fn([loader.dataset[0]])
    again = load(loader.dataset, collate_fn=loader.collate_fn)
    if "index" in sentence:  # another loader adds it too
        assert next(iter(again))[2].tolist() == [0, 1, 2, 3]
    else:
        with pytest.raises(TypeError, match=sentence):
            next(iter(again))


# Code that takes instances of torch's loader only


class Both(td.DataLoader, TorchLoader[Any]):
    """Written where other code asks for torch's class."""


def test_a_loader_of_both_classes_is_the_same_loader() -> None:
    loader, plain = Both(Pairs(), 4, shuffle=True, device="cpu"), load(shuffle=True)
    assert isinstance(loader, TorchLoader) and not isinstance(plain, TorchLoader)
    assert [indices(loader) for _ in range(2)] == [indices(plain) for _ in range(2)] and len(loader) == 3
    iterator = iter(loader)
    begun = [next(iterator)[1].tolist()]
    other = pickle.loads(pickle.dumps(Both(Pairs(), 4, shuffle=True, device="cpu")))
    other.load_state_dict(loader.state_dict())
    assert type(other) is Both and begun + indices(other) == indices(plain)
    assert other._iterator is None and other.multiprocessing_context is None
    assert isinstance(other.sampler, RandomSampler) and other.dataset is not loader.dataset
    with pytest.raises(ValueError, match="batch_size can't be changed"):
        other.batch_size = 3
    assert sorted(vars(copy.deepcopy(other))) == sorted(vars(loader))


@pytest.mark.parametrize("module", ["torch_lr_finder.lr_finder", "monai.optimizers.lr_finder", "speechbrain.core"])
def test_some_libraries_that_refuse_others_take_it(module: str) -> None:
    names: dict[str, Any] = {"__name__": module, "DataLoader": TorchLoader}
    exec("def takes(loader): return isinstance(loader, DataLoader)", names)
    assert names["takes"](load())
    names["__name__"] = f"my_{module}"
    assert not names["takes"](load())


# Samplers that have a length, and no end


class Endless(Sampler[int]):
    """As InfiniteSampler of mmengine, mmdetection and YOLOX."""

    def __iter__(self) -> Iterator[int]:
        while True:
            yield from torch.randperm(N).tolist()

    def __len__(self) -> int:
        return N


def test_a_sampler_with_a_length_and_no_end_is_refused_with_what_to_write() -> None:
    loader = load(sampler=Endless())
    assert len(loader) == 3
    with pytest.raises(ValueError, match=r"Endless says len 10 and yielded 1020 indices without an end: .* shuffle="):
        next(iter(loader))
    endless = load(batch_size=1, batch_sampler=BatchSampler(Endless(), 4, False))
    with pytest.raises(ValueError, match="without an end"):
        next(iter(endless))


# Types that torch was told how to collate


class Table(dict[str, torch.Tensor]):
    """A mapping with a state of its own, as TensorDict has."""

    def __init__(self, values: Mapping[str, torch.Tensor], size: int | None = None) -> None:
        super().__init__(values)
        self.size = size


def stacked(tables: list[Table], *, collate_fn_map: Any = None) -> Table:
    return Table({name: torch.stack([table[name] for table in tables]) for name in tables[0]}, len(tables))


@pytest.fixture
def registered() -> Iterator[None]:
    default_collate_fn_map[Table] = stacked
    yield
    del default_collate_fn_map[Table]


def test_a_registered_mapping_is_collated_by_its_own_function(registered: None) -> None:
    tables = [Table({"a": torch.full((3,), index)}) for index in range(N)]
    for loader in (load(tables), load([(table, index) for index, table in enumerate(tables)])):
        batches = [batch[0] if isinstance(batch, tuple) else batch for batch in loader]
        expected = [batch[0] if isinstance(batch, list) else batch for batch in TorchLoader(loader.dataset, 4)]
        assert [type(batch) for batch in batches] == [Table] * 3 and [batch.size for batch in batches] == [4, 4, 2]
        assert [batch["a"].tolist() for batch in batches] == [batch["a"].tolist() for batch in expected]
    # Its parts are fields where they have to be: for names, kinds and transforms.
    assert next(iter(load(tables, output="dict")))["a"].shape == (4, 3)
    assert next(iter(load(tables, kinds={"a": "array"})))["a"].shape == (4, 3)


# Lengths that can't be told


class Unsized(Dataset[int]):
    def __getitem__(self, index: int) -> int:
        return index

    def __len__(self) -> int:
        raise ValueError("ask me later")


class UnsizedStream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(N))

    __len__ = Unsized.__len__


class UnsizedBatches(Sampler[list[int]]):
    """As PyG's DynamicBatchSampler."""

    def __iter__(self) -> Iterator[list[int]]:
        return iter([[3, 1], [2], [0, 4, 5]])

    __len__ = Unsized.__len__


def test_a_length_that_raises_is_no_length() -> None:
    expected = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    for loader in (load(UnsizedStream()), load(Unsized(), sampler=range(N))):
        assert [batch.tolist() for batch in loader] == [batch.tolist() for batch in loader] == expected
    assert len(loader) == 3  # the sampler's
    batches = load(list(range(N)), 1, batch_sampler=UnsizedBatches())
    assert [batch.tolist() for batch in batches] == [[3, 1], [2], [0, 4, 5]]
    for loader in (load(UnsizedStream()), batches):
        with pytest.raises(TypeError, match="length"):
            len(loader)
    with pytest.raises(ValueError, match="ask me later"):
        load(Unsized())
