"""What the samples of Python code may hold, and what becomes of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset
from torchvision import tv_tensors

import torchdali as td
from torchdali import transforms as T
from torchdali.errors import StateMismatchError
from torchdali.testing import make_image_folder


def loader(dataset: Any, num_workers: int = 0, **options: Any) -> td.DataLoader:
    options = {"device": "cpu"} | options
    if num_workers:
        options.setdefault("multiprocessing_context", "fork")
    return td.DataLoader(dataset, num_workers=num_workers, **options)


def values_of(samples: Any, num_workers: int = 0, **options: Any) -> list[Any]:
    with loader(samples, num_workers, **options) as one:
        return list(one)


class Held(Dataset[Any]):
    """Objects of arrays and tensors, large enough for memory to be used again."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> dict[str, Any]:
        boxes = [np.full(5000, index), torch.full((3,), index), {"deep": np.full(100, index, np.complex64)}]
        return {"index_": index, "boxes": boxes, "complex": np.full(2000, index, np.complex64)}


@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_objects_own_their_memory(num_workers):
    """What a caller keeps is not overwritten by later batches, and tensors stay tensors."""
    with loader(Held(), num_workers, batch_size=4) as one:
        kept = list(one)
    for batch in kept:
        for index, (array, tensor, inner), value in zip(
            batch["index_"].tolist(), batch["boxes"], batch["complex"], strict=True
        ):
            assert (array == index).all() and (inner["deep"] == index).all() and (value == index).all()
            assert type(tensor) is torch.Tensor and tensor.tolist() == [index] * 3


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_list_is_collated_as_a_tuple_is(num_workers):
    samples = [[torch.full((2,), i), i] for i in range(4)]
    ((tensors, numbers),) = values_of(samples, num_workers, batch_size=4)
    expected = torch.utils.data.default_collate(samples)
    assert torch.equal(tensors, expected[0]) and torch.equal(numbers, expected[1])


@pytest.mark.parametrize("samples", [[(0, 1), (0, 1, 2)], [[0, 1], [0]], [(0, 1), 3]], ids=str)
def test_other_parts_than_the_first_samples_are_an_error(samples):
    with pytest.raises(TypeError, match="the sample must have 2 parts, as the first one has"):
        values_of(samples, batch_size=2)


def test_a_key_that_the_loader_has_a_word_for_is_the_samples():
    (batch,) = values_of([{"x": i, "valid": i % 2 == 0, "index": -i} for i in range(4)], batch_size=4)
    assert batch["valid"].tolist() == [True, False, True, False] and batch["index"].tolist() == [0, -1, -2, -3]


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize(
    ("mode", "dtype", "values"),
    [("I;16", np.uint16, (100, 1000, 60000)), ("I", np.int32, (-5, 7, 70000)), ("F", np.float32, (0.1, 0.5, 300.0))],
)
def test_pictures_of_numbers_keep_them(mode, dtype, values, num_workers):
    pictures = [Image.fromarray(np.full((2, 3), value, dtype)) for value in values]
    assert [picture.mode for picture in pictures] == [mode] * 3
    (batch,) = values_of(pictures, num_workers, batch_size=3)
    assert batch.shape == (3, 2, 3) and batch[:, 0, 0].tolist() == pytest.approx(values)


def test_masks_stay_as_they_are():
    classes = np.arange(256, dtype=np.uint8).reshape(16, 16)
    palette = Image.fromarray(classes).convert("P")
    palette.putdata(classes.ravel().tolist())
    mask = tv_tensors.Mask(torch.from_numpy(classes)[None])
    picture = Image.new("RGB", (16, 16))
    ((images, one, other, plain),) = values_of(
        [(picture, palette, mask, classes)], batch_size=1, transform=T.Resize((7, 7))
    )
    assert images.shape == (1, 3, 7, 7)
    assert all(np.array_equal(found[0].squeeze(), classes) for found in (one, other, plain))


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [0, 2, 1]])
def test_grey_pictures_among_others_are_made_like_the_first(order):
    pictures = [Image.new("RGB", (4, 5), (9, 9, 9)), Image.new("L", (4, 5), 9), Image.new("RGB", (4, 5), (9, 9, 9))]
    with loader(pictures, sampler=order, batch_size=3) as one:
        (batch,) = one
    assert batch.shape == (3, 3, 5, 4) and (batch == 9).all()
    with pytest.raises(
        TypeError,
        match="an image with 1 channel, as in the first sample, got an image with 3 channels",
    ):
        values_of(pictures[1:], batch_size=2)


def test_a_damaged_first_sample_does_not_say_what_the_others_are(tmp_path):
    (tmp_path / "folder").mkdir()
    files = [path.read_bytes() for path in sorted(make_image_folder(tmp_path / "folder", 1, 5).rglob("*.jpg"))]
    samples = [(b"damaged", 0), *((data, i) for i, data in enumerate(files, 1))]
    options = {"batch_size": 3, "transform": T.Resize((8, 8)), "on_bad_sample": "substitute"}
    batches = values_of(samples, **options)
    assert [images.shape for images, _ in batches] == [(3, 3, 8, 8)] * 2


def test_numbers_and_arrays_of_unusual_tensors():
    (batch,) = values_of([torch.tensor(1.5, requires_grad=True)] * 2, batch_size=2)
    assert batch.tolist() == [1.5, 1.5]
    with pytest.raises(TypeError, match="bfloat16 cannot travel: give float32"):
        values_of([torch.ones(2, dtype=torch.bfloat16)] * 2)


def test_another_split_of_python_code_is_another_dataset():
    whole = TensorDataset(torch.arange(6))
    with loader(Subset(whole, [1, 2, 3])) as one:
        state = one.state_dict()
        loader(Subset(whole, np.array([1, 2, 3]))).load_state_dict(state)
        for other in ([1, 2, 4], [3, 2, 1]):
            with pytest.raises(StateMismatchError, match="dataset"):
                loader(Subset(whole, other)).load_state_dict(state)
        parts = ConcatDataset([Subset(whole, [1, 2]), Subset(whole, [3])])
        with pytest.raises(StateMismatchError, match="dataset"):
            loader(parts).load_state_dict(state)
