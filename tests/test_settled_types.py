"""A field is Padded in every batch or in none: the type is settled by the dataset, and not by a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import torchdali as td
from torchdali import transforms as T
from torchdali.python.shapes import LOOKED, spread


class Rows(torch.utils.data.Dataset[Any]):
    """Arrays of the lengths of a list; it counts what is read."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths
        self.read: list[int] = []

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        self.read.append(index)
        if self.lengths[index] < 0:
            raise OSError("this sample is lost")
        return np.full(self.lengths[index], index, np.float32), index


class Stream(torch.utils.data.IterableDataset[Any]):
    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __iter__(self) -> Any:
        return (np.full(length, index, np.float32) for index, length in enumerate(self.lengths))


def make(dataset: Any, batch_size: int = 3, **options: Any) -> td.DataLoader:
    return td.DataLoader(dataset, batch_size, device="cpu", **options)


def types(loader: td.DataLoader) -> set[type]:
    return {type(x) for x, _ in loader}


RAGGED = [2, 2, 2, 2, 2, 2, 2, 2, 3]  # whose first batches are of one shape


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.processes)])
def test_arrays_are_padded_in_every_batch_or_in_none(workers: int) -> None:
    with make(Rows(RAGGED), num_workers=workers) as loader:
        assert types(loader) == {td.Padded}
    assert types(make(Rows([2] * 9))) == {torch.Tensor}
    dicts = list(make(Rows(RAGGED), output="dict"))
    assert all(list(batch) == ["field0", "field0_sizes", "label"] for batch in dicts)


def test_a_resume_anywhere_and_any_order_settle_the_same() -> None:
    for options in (
        {},
        {"shuffle": True, "seed": 1},
        {"sampler": [0, 1, 2, 3, 4, 5]},
        {"rank": 1, "world_size": 2, "drop_last": True},
    ):
        for step in range(2):
            loader = make(Rows(RAGGED), 2, **options)
            loader.seek(1, step)
            assert types(loader) == {td.Padded}


def test_samples_all_over_the_dataset_are_looked_at() -> None:
    data = Rows([4] * 100)
    loader = make(data)
    next(iter(loader))
    looked = [index for index in data.read if index > 2]
    assert looked == spread(100)[1:] and len(spread(100)) == LOOKED and {0, 99} < set(spread(100))
    assert [spread(n) for n in (0, 1, 3)] == [[], [0], [0, 1, 2]]
    # No more than are needed, and none where it is told.
    data = Rows([1, *range(2, 60)])
    next(iter(make(data)))
    assert len(data.read) < 3 + 4
    for options in ({"ragged": ["field0"]}, {"uniform": ["field0"]}, {"output": "list"}, {"collate_fn": list}):
        data = Rows([4] * 100)
        next(iter(make(data, **options)))
        assert set(data.read) <= {0, 1, 2}


def test_lost_samples_show_nothing() -> None:
    data = Rows([-1, 3, -1, 3, 3, -1, 3, -1])
    batch, _ = next(iter(make(data, sampler=[1, 3, 4])))
    assert batch.shape == (3, 3)


def test_a_sample_that_differs_after_all_is_an_error_that_says_what_to_write() -> None:
    lengths = [2] * 100
    lengths[50] = 5
    assert 50 not in spread(100)
    loader = make(Rows(lengths), sampler=[7, 50, 3])
    with pytest.raises(td.TransformError) as caught:
        list(loader)
    assert str(caught.value) == (
        "the samples of the field 'field0' must have one shape, since those that were looked at first had one, and a "
        "later batch has [2] in sample 7 and [5] in sample 50: write ragged=['field0'] at the DataLoader, which gives "
        "Padded in every batch, or make them of one shape in the transform"
    )
    assert types(make(Rows(lengths), sampler=[7, 50, 3], ragged=["field0"])) == {td.Padded}


@pytest.mark.parametrize(
    "dataset",
    [Stream([2, 2, 2, 3]), td.SampleSource(lambda info: np.zeros(2 + info.idx_in_epoch // 3), num_samples=4)],
    ids=["iterable", "callback"],
)
def test_what_can_not_be_looked_at_has_one_shape_unless_it_is_told(dataset: Any) -> None:
    loader = make(dataset, 2)
    iterator = iter(loader)
    assert isinstance(next(iterator), torch.Tensor)
    with pytest.raises(td.TransformError, match=r"\[2\] in sample 2 and \[3\] in sample 3: write ragged=\['value'\]"):
        next(iterator)
    assert all(isinstance(batch, td.Padded) for batch in make(dataset, 2, ragged=["value"]))
    assert [len(batch) for batch in make(dataset, 2, output="list")] == [2, 2]


def test_images_are_settled_by_the_transform_or_the_dataset() -> None:
    sizes = [(4, 4)] * 8 + [(5, 6)]
    images = [(np.zeros((*size, 3), np.uint8), i) for i, size in enumerate(sizes)]
    assert types(make(images)) == {td.Padded}
    assert types(make(images, transform=T.Resize((3, 3)))) == {torch.Tensor}
    assert types(make(images[:8])) == {torch.Tensor}
    same = make(images, uniform=["image"], drop_last=False, sampler=[0, 1, 2])
    assert types(same) == {torch.Tensor}


def test_fields_are_named_by_the_last_parts_of_their_names() -> None:
    data = [{"a": {"x": torch.ones(2)}, "b": {"x": torch.ones(2), "y": torch.ones(n)}} for n in (1, 2)]
    (batch,) = make(data, 2, ragged=["a.x"], uniform=["b.x"])
    assert isinstance(batch["a"]["x"], td.Padded) and isinstance(batch["b"]["x"], torch.Tensor)
    assert isinstance(next(iter(make([{"b": {"y": torch.ones(2)}}], ragged=["y"])))["b"]["y"], td.Padded)
    source = td.PythonDataset([{"b": {"y": torch.ones(2)}}], ragged=["y"])
    assert isinstance(next(iter(make(source)))["b"]["y"], td.Padded)
    with pytest.raises(td.TransformError, match=r"'b\.y' must have one shape, since uniform= names it"):
        next(iter(make(data, 2, uniform=["y"])))
    with pytest.raises(ValueError, match=r"ragged must name one field, and 'x' may be a\.x or b\.x"):
        next(iter(make(td.PythonDataset(data, ragged=["x"]), 2)))
    with pytest.raises(ValueError, match=r"ragged must name fields .*got 'x'"):
        next(iter(make(data, 2, ragged=["x"])))
