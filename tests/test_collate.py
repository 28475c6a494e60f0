"""Samples put together: padding, its values, and columns of arrays."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import numpy as np
import pytest
import torch

import torchdali as td
from torchdali import transforms as T
from torchdali.batch import Padded
from torchdali.collate import Padding, collate_arrays
from torchdali.errors import FieldTypeError, PadValueError

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("dtype", "fits", "not_"),
    [
        ("uint8", [0, 255, 7.0], [-1, 256, 0.5, float("nan"), float("inf")]),
        ("int8", [-128, 127], [-129, 128, 0.5]),
        ("int64", [-(2**63), 2**63 - 1, -100], [2**63, 0.5]),
        ("bool", [0, 1, 1.0], [-1, 2, 0.5]),
        ("float16", [0.1, -65504, float("nan"), float("inf")], [65536, -1e6]),
        ("float32", [0.1, -100, 1e38, float("-inf")], [1e39]),
    ],
)
@pytest.mark.parametrize("of", [np.dtype, lambda name: getattr(torch, name)], ids=["numpy", "torch"])
def test_a_pad_value_fits_the_dtype(dtype, fits, not_, of):
    for value in fits:
        assert Padding(value).value_for("x", of(dtype)) is value
        assert Padding({"x": value}).value_for("x", of(dtype)) is value
    for value in not_:
        words = re.escape(f"{value!r}")
        with pytest.raises(
            PadValueError, match=f"got {words} for 'x', which is {dtype}: .* pad_value={{'label': {words}}}"
        ):
            Padding(value).value_for("x", of(dtype))
        with pytest.raises(PadValueError, match=f"pad_value of 'x' must fit its dtype, {dtype}, got {words}"):
            Padding({"x": value}).value_for("x", of(dtype))
        assert Padding({"y": value}).value_for("x", of(dtype)) == 0


def test_a_pad_value_is_a_number_or_a_dict_of_numbers():
    for wrong in ("x", None, True, [1], torch.tensor(1)):
        with pytest.raises(TypeError, match="pad_value must be a number, or a dict of numbers by field, got "):
            Padding(wrong)
        with pytest.raises(TypeError, match=r"pad_value must be a number, .* in the dict"):
            Padding({"x": wrong})
    Padding({"x": -1}).check_fields(["x", "y"])
    with pytest.raises(
        PadValueError, match=r"must name fields among label, mask, got 'labels' \(did you mean 'label'\?\)"
    ):
        Padding({"labels": -1}).check_fields(["label", "mask"])


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("dims", [slice(None), slice(0, 2), slice(1, 3)])
def test_rows_are_padded_at_their_ends(tensors, dims):
    rng = np.random.default_rng(0)
    shapes = [(4, 5, 5), (4, 1, 5), (4, 3, 5)] if dims.start == 1 else [(2, 7, 3), (5, 1, 3), (0, 4, 3)]
    rows = [rng.integers(0, 99, shape) for shape in shapes]
    wanted: list[Any] = [torch.from_numpy(row) for row in rows] if tensors else rows
    empty = (
        (lambda shape: torch.empty(shape, dtype=torch.int64)) if tensors else (lambda shape: np.empty(shape, np.int64))
    )
    out, sizes = Padding({"x": -1}, 4).pad("x", wanted, empty, dims)
    assert type(out) is type(wanted[0]) and sizes.tolist() == [list(shape[dims]) for shape in shapes]
    largest = np.array(shapes).max(axis=0)
    largest[dims] = -(-largest[dims] // 4) * 4
    assert out.shape == (3, *largest)
    for row, one in zip(rows, np.asarray(out), strict=True):
        inside = tuple(map(slice, row.shape))
        assert (one[inside] == row).all()
        one[inside] = -1
        assert (one == -1).all()


def test_two_dtypes_in_a_batch_name_the_samples():
    for of in (lambda array: array, torch.from_numpy):
        column = [of(np.zeros(2, np.float32)), of(np.zeros(3))]
        for uniform in (True, False, None):
            with pytest.raises(
                FieldTypeError, match=r"'x' must be float32 .*, as in sample 8, got float64 .* in sample 3: give"
            ):
                collate_arrays("x", column, uniform, Padding(), CPU, [8, 3])


class Arrays(td.MapDataset):
    """Arrays without a check of their own."""

    def __init__(self, arrays: list[Any]) -> None:
        self._set_fields(["x"], {"x": "array"})
        self.arrays = arrays

    def __len__(self) -> int:
        return len(self.arrays)

    def read_columns(self, indices: Any, names: Any) -> dict[str, Any]:
        return {"x": [self.arrays[i] for i in indices]}

    def fingerprint(self) -> str:
        return "arrays"


@pytest.mark.parametrize("transform", [None, lambda sample, rand: dict(sample)], ids=["plain", "function"])
@pytest.mark.parametrize("on_bad_sample", ["raise", "substitute"])
def test_two_dtypes_in_a_batch_are_the_batchs_error(transform, on_bad_sample):
    """No sample is the bad one, and none is substituted."""
    dataset = Arrays([np.zeros(2), np.zeros(3), np.zeros(4, np.int32)])
    with (
        td.DataLoader(dataset, 3, device="cpu", transform=transform, on_bad_sample=on_bad_sample) as loader,
        pytest.raises(FieldTypeError, match=r"'x' must be float64 .*, as in sample 0, got int32 .* in sample 2"),
    ):
        list(loader)


@pytest.mark.parametrize(("dtype", "value"), [("uint8", -1), ("uint8", 300), ("int16", 0.5), ("bool", 7)])
@pytest.mark.parametrize("transform", [None, lambda sample, rand: dict(sample)], ids=["plain", "function"])
@pytest.mark.parametrize("shapes", [(2, 3), (2, 2)], ids=["ragged", "perhaps"])
def test_a_pad_value_that_does_not_fit_is_the_batchs_error(dtype, value, transform, shapes):
    """It is found at the first batch, also where only a later one is ragged."""
    dataset = Arrays([np.zeros(size, dtype) for size in (*shapes, 5)])
    with (
        td.DataLoader(dataset, 2, device="cpu", pad_value=value, transform=transform) as loader,
        pytest.raises(PadValueError, match=f"got {value} for 'x', which is {dtype}: .*pad_value={{'label': {value}}}"),
    ):
        next(iter(loader))


def test_a_pad_value_that_no_field_needs_is_fine():
    dataset = td.InMemoryDataset(x=np.zeros((4, 2), np.uint8), y=[np.zeros(n, np.int64) for n in range(4)])
    ((x, y),) = td.DataLoader(dataset, 4, device="cpu", pad_value=-1)
    assert x.dtype == torch.uint8 and y.data[0].tolist() == [-1] * 3


def test_a_pad_value_is_checked_when_the_loader_is_made(folder):
    """As far as the dtypes are known there."""
    arrays = td.InMemoryDataset(x=[np.zeros(n, np.uint8) for n in range(3)], y=[np.zeros(n) for n in range(3)])
    with pytest.raises(PadValueError, match="got -1 for 'x', which is uint8"):
        td.DataLoader(arrays, 3, device="cpu", pad_value=-1)
    ((x, y),) = td.DataLoader(arrays, 3, device="cpu", pad_value={"y": -1})
    assert x.data[0].tolist() == [0, 0] and y.data[0].tolist() == [-1, -1]
    images = td.ImageFolder(folder, fields=("image",))
    for transform in (T.Resize((4, 5)), T.ToDtype(torch.float32)):  # of one size; of another dtype
        td.DataLoader(images, 3, device="cpu", pad_value=-1, transform=transform)
    with pytest.raises(PadValueError, match="got -1 for 'image', which is uint8"):
        td.DataLoader(images, 3, device="cpu", pad_value=-1, transform=T.Resize(4))
    with pytest.raises(PadValueError, match=r"got 0.5 for 'image', which is uint8"):
        td.DataLoader(images, 3, device="cpu", pad_value=0.5)


def test_a_pad_value_of_a_python_dataset_is_checked_at_its_first_batch():
    samples = [(np.zeros(n, np.int64), np.zeros(n, bool)) for n in (2, 2, 3)]
    with pytest.raises(PadValueError, match="got -1 for 'field1', which is bool"):
        next(iter(td.DataLoader(samples, 2, device="cpu", pad_value=-1)))
    with pytest.raises(PadValueError, match="must name fields among field0, field1, got 'mask'"):
        next(iter(td.DataLoader(samples, 2, device="cpu", pad_value={"mask": 1})))
    *_, last = td.DataLoader([*samples, samples[0]], 2, device="cpu", pad_value={"field0": -1, "field1": True + 0})
    assert last[0].data[1].tolist() == [0, 0, -1] and last[1].data[1].tolist() == [False, False, True]


def test_a_source_may_refuse_a_sample_of_another_dtype(tmp_path):
    """Then it is that sample's error, and another one can take its place."""
    for i, dtype in enumerate(["f4", "f4", "f8", "f4"]):
        np.save(tmp_path / f"{i}.npy", np.full(3, i, dtype))

    class Checked(td.NumpyDataset):
        def read_columns(self, indices: Any, names: Any) -> dict[str, Any]:
            columns = super().read_columns(indices, names)
            for index in indices:
                if index == 2:
                    raise FieldTypeError("array", "float32", "float64", self.paths[0])
            return columns

    with td.DataLoader(Checked(tmp_path), 2, device="cpu") as loader, pytest.raises(td.BadSampleError) as caught:
        list(loader)
    assert (caught.value.index, caught.value.stage) == (2, "read") and str(tmp_path / "2.npy") in str(caught.value)
    dataset = Checked(tmp_path, fields=("array", "valid"))
    batches = list(td.DataLoader(dataset, 2, device="cpu", on_bad_sample="substitute"))
    assert [valid.tolist() for _, valid in batches] == [[True, True], [False, True]]


def test_index_and_path_alone(folder):
    """They are the loader's: a source without fields of its own still has them."""
    dataset = td.ImageFolder(folder, fields=("path", "index"))
    (paths, index), *_ = td.DataLoader(dataset, 5, shuffle=True, device="cpu")
    assert [dataset.paths[i] for i in index.tolist()] == paths


def test_a_kinds_pad_value_fills_its_field():
    """After a number that the loader's dict names for the field, and before the loader's number for all."""
    values = [np.full(n, n, np.float32) for n in (1, 3)]
    counts = [np.full(n, n, np.int64) for n in (2, 3)]
    masks = [np.ones((2, n), np.uint8) for n in (1, 2)]
    of_kinds = {"x": td.kinds.Array(pad_value=-1), "mask": td.kinds.Mask(pad_value=255)}

    class Own:
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return {"x": values[index], "y": counts[index], "mask": masks[index]}

    columns = {"x": values, "y": counts, "mask": masks}
    told = td.InMemoryDataset(columns, kinds=of_kinds)
    for dataset, more in ((told, {}), (Own(), {"kinds": of_kinds})):
        for pad_value, x, y, mask in ((0, -1, 0, 255), (7, -1, 7, 255), ({"x": 3}, 3, 0, 255), ({"mask": 9}, -1, 0, 9)):
            with td.DataLoader(dataset, 2, pad_value=pad_value, output="dict", device="cpu", **more) as loader:
                batch = next(iter(loader))
            assert batch["x"].tolist() == [[1, x, x], [3, 3, 3]]
            assert batch["y"].tolist() == [[2, 2, y], [3, 3, 3]]
            assert batch["mask"].tolist() == [[[1, mask]] * 2, [[1, 1]] * 2]
    wrong = td.InMemoryDataset(columns, kinds=of_kinds | {"mask": td.kinds.Mask(pad_value=-100)})
    with pytest.raises(PadValueError, match="pad_value of 'mask' must fit its dtype, uint8, got -100"):
        next(iter(td.DataLoader(wrong, 2, device="cpu")))
    to_int = T.ToDtype(None, masks=torch.int64)
    assert next(iter(td.DataLoader(wrong, 2, transform=to_int, device="cpu")))[2].data[0, 0].tolist() == [1, -100]


def test_padded_where_a_tensor_is_expected():
    """As a training loop has it whose transform leaves images of several sizes."""
    images = Padded(torch.zeros(2, 3, 4, 5), torch.tensor([[4, 5], [2, 3]]))
    hint = (
        r"is Padded\(data, sizes\), two tensors: write images.data, or .* Resize\(\(height, width\)\) .*output='list'"
    )
    with pytest.raises(TypeError, match=rf"conv2d takes a tensor: .*{hint}"):
        torch.nn.Conv2d(3, 1, 1)(images)
    for name in ("to", "shape", "size", "float"):
        assert not hasattr(images, name)
        with pytest.raises(AttributeError, match=rf"'Padded' object has no attribute '{name}': .*{hint}"):
            getattr(images, name)
    with pytest.raises(AttributeError, match=r"'Padded' object has no attribute 'other'$"):
        images.other  # noqa: B018
    for made in (
        copy.deepcopy(images),
        pickle.loads(pickle.dumps(images)),
        torch.compile(backend="eager")(same)(images),
    ):
        assert type(made) is Padded and torch.equal(made.data, images.data) and torch.equal(made.sizes, images.sizes)


def same(padded):
    return Padded(padded.data + 0, padded.sizes + 0)
