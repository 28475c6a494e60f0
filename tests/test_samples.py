"""What the samples of Python code may hold, and what becomes of it."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, Dataset, Subset, TensorDataset, default_collate
from torch.utils.data._utils.collate import default_collate_fn_map
from torchvision import tv_tensors

import torchdali as td
from torchdali import transforms as T
from torchdali.errors import StateMismatchError
from torchdali.testing import make_image_folder

from .launcher import ROOT


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


def test_masks_stay_as_they_are_where_it_is_told():
    classes = np.arange(256, dtype=np.uint8).reshape(16, 16)
    palette = Image.fromarray(classes).convert("P")
    palette.putdata(classes.ravel().tolist())
    mask = tv_tensors.Mask(torch.from_numpy(classes)[None])
    picture = Image.new("RGB", (16, 16))
    ((images, one, other, plain),) = values_of(
        [(picture, palette, mask, classes)],
        batch_size=1,
        transform=T.Resize((7, 7)),
        kinds={f"field{number}": "array" for number in (1, 2, 3)},
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
    (batch,) = values_of([torch.ones(2, dtype=torch.bfloat16)] * 2, batch_size=2)
    assert torch.equal(batch, torch.ones(2, 2, dtype=torch.bfloat16))


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


# Samples of many kinds, against torch's default_collate


class Point(NamedTuple):
    x: Any
    y: Any


class Own(Mapping[str, Any]):
    def __init__(self, parts: dict[str, Any]) -> None:
        self.parts = parts

    def __getitem__(self, key: str) -> Any:
        return self.parts[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parts)

    def __len__(self) -> int:
        return len(self.parts)


AS_TORCH: dict[str, Callable[[int], Any]] = {
    "int": lambda i: i,
    "float": lambda i: i / 2,
    "bool": lambda i: i > 0,
    "str": lambda i: f"s{i}",
    "np.float32": np.float32,
    "np.int8": np.int8,
    "np.bool_": np.bool_,
    "0-d array": np.array,
    "0-d tensor": torch.tensor,
    "an int and floats": lambda i: i or 0.5,
    "a large int": lambda i: 2**40 + i,
    "a negative int": lambda i: -(2**62) + i,
    "tensor": lambda i: torch.full((2, 3), i),
    "float16": lambda i: torch.full((2,), i, dtype=torch.float16),
    "bfloat16": lambda i: torch.full((2,), i, dtype=torch.bfloat16),
    "0-d bfloat16": lambda i: torch.tensor(i, dtype=torch.bfloat16),
    "float8": lambda i: torch.full((2,), i, dtype=torch.float8_e4m3fn),
    "complex tensor": lambda i: torch.full((2,), i * 1j),
    "a conjugate": lambda i: torch.full((2,), i * 1j).conj(),
    "complex array": lambda i: np.full(2, i * 1j),
    "complex number of numpy": lambda i: np.complex64(i * 1j),
    "array": lambda i: np.full(2, i),
    "float64 array": lambda i: np.full((2, 2), i / 2),
    "uint16 array": lambda i: np.full(2, i, np.uint16),
    "uint64 array": lambda i: np.full(2, i, np.uint64),
    "an empty array": lambda i: np.zeros((0, 3)),
    "a list of ints": lambda i: [i, i + 1],
    "a list of tensors": lambda i: [torch.full((2,), i)] * 3,
    "crops and a label": lambda i: [[torch.full((2, k), i) for k in range(10)], i],
    "a list of arrays in a dict": lambda i: {"crops": [np.full(2, i + k) for k in range(2)]},
    "a list of numbers in a dict": lambda i: {"box": [i, i + 0.5, 3.0], "id": i},
    "a list of lists": lambda i: {"v": [[i, 1], [2, i]]},
    "dict": lambda i: {"b": i, "a": torch.ones(1)},
    "dict in a dict": lambda i: {"x": {"y": i}, "z": "t"},
    "ints as keys": lambda i: {0: i, 1: "a"},
    "keys with dots": lambda i: {"a.b": i, "a": {"b": -i}},
    "OrderedDict": lambda i: OrderedDict(b=i, a=2),
    "another Mapping": lambda i: Own({"x": i}),
    "defaultdict": lambda i: defaultdict(int, x=i),
    "another Sequence": lambda i: {"v": range(i, i + 2)},
}


ON_PURPOSE: dict[str, tuple[Callable[[int], Any], Any]] = {
    "tuples stay tuples": (lambda i: (i, "a"), (torch.arange(3), ["a"] * 3)),
    "strings are a list, in a NamedTuple too": (lambda i: Point(i, "s"), Point(torch.arange(3), ["s"] * 3)),
    "arrays of several shapes": (
        lambda i: torch.full((i,), i),
        td.Padded(torch.tensor([[0, 0], [1, 0], [2, 2]]), torch.tensor([[0], [1], [2]])),
    ),
    "bytes": (lambda i: bytes([i, 7]), torch.tensor([[0, 7], [1, 7], [2, 7]], dtype=torch.uint8)),
    "a complex number": (lambda i: i * 1j, torch.arange(3) * torch.tensor(1j, dtype=torch.complex128)),
    "None": (lambda i: {"v": None, "x": i}, {"v": [None] * 3, "x": torch.arange(3)}),
    "a list of strings": (lambda i: {"v": ["a", f"{i}"]}, {"v": [["a", f"{i}"] for i in range(3)]}),
    "a list of dicts": (lambda i: {"v": [{"a": i}]}, {"v": [[{"a": i}] for i in range(3)]}),
    "lists of several lengths": (lambda i: {"v": [0] * i}, {"v": [[0] * i for i in range(3)]}),
    "uint8 arrays [H, W, C] of 1 or 3 channels": (
        lambda i: np.full((2, 4, 3), i, np.uint8),
        torch.arange(3, dtype=torch.uint8)[:, None, None, None].expand(3, 3, 2, 4),
    ),
    "a sparse or nested tensor": (
        lambda i: (i * torch.eye(2)).to_sparse(),
        [(i * torch.eye(2)).to_sparse() for i in range(3)],
    ),
}


def assert_same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype and one.shape == other.shape and one.layout == other.layout
        one, other = one.to_dense(), other.to_dense()
        assert torch.equal(one.to(torch.complex128), other.to(torch.complex128))
    elif isinstance(one, Mapping):
        assert list(one) == list(other)
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for first, second in zip(one, other, strict=True):
            assert_same(first, second)
    else:
        assert one == other


@pytest.mark.parametrize("kind", AS_TORCH)
def test_samples_are_collated_as_torch_does_it(kind: str) -> None:
    samples = [AS_TORCH[kind](i) for i in range(3)]
    (batch,) = td.DataLoader(samples, 3, device="cpu")
    assert_same(batch, default_collate(samples))


def test_the_migration_guide_lists_what_is_otherwise_on_purpose() -> None:
    guide = (ROOT / "docs" / "coming-from.md").read_text()
    assert [line[2:].partition(":")[0] for line in guide.splitlines() if line.startswith("- ")] == list(ON_PURPOSE)


@pytest.mark.parametrize("kind", ON_PURPOSE)
def test_samples_that_are_collated_otherwise_on_purpose(kind: str) -> None:
    make, expected = ON_PURPOSE[kind]
    (batch,) = td.DataLoader([make(i) for i in range(3)], 3, device="cpu")
    assert_same(batch, expected)


class Unusual:
    KINDS = ("bfloat16", "0-d bfloat16", "float8", "complex array", "a conjugate", "a list of tensors")

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {kind: AS_TORCH[kind](index) for kind in self.KINDS}


@pytest.mark.processes
def test_unusual_samples_leave_workers_as_they_are() -> None:
    with td.DataLoader(Unusual(), 3, device="cpu", num_workers=1) as loader:
        (batch,) = loader
    assert_same(batch, default_collate([Unusual()[i] for i in range(3)]))


@pytest.mark.parametrize("numbers", [[1, 2**63], [2**63, 2**63 + 1], [2**64], [1, -(2**64)], [0.5, 2**70]])
def test_integers_that_no_tensor_holds_are_an_error_and_never_floats(numbers: list[Any]) -> None:
    loader = td.DataLoader(numbers, len(numbers), device="cpu")
    with pytest.raises(OverflowError, match=r"integers must fit int64 to become a tensor, got .*: give strings"):
        next(iter(loader))


def test_a_list_of_another_length_later_is_an_error_that_says_what_to_write() -> None:
    samples: list[Any] = [{"v": [1, 2], "w": i} for i in range(12)] + [{"v": [1], "w": 0}]
    with pytest.raises(TypeError, match=r"v of the sample must have 2 parts, .*: give lists of one length, an array"):
        list(td.DataLoader(samples, 1, device="cpu"))


def test_shapes_are_tuples_of_numbers() -> None:
    """torch makes lists of tuples, here they stay tuples."""
    (batch,) = td.DataLoader([{"shape": torch.zeros(i, 2).shape} for i in range(3)], 3, device="cpu")
    assert_same(batch, {"shape": (torch.arange(3), torch.full((3,), 2))})


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    ],
    ids=["sparse", "nested"],
)
def test_tensors_that_are_no_plain_memory_are_listed(make: Callable[[], torch.Tensor]) -> None:
    samples = [{"x": i, "graph": make()} for i in range(3)]
    (batch,) = td.DataLoader(samples, 3, device="cpu")
    assert [id(one) for one in batch["graph"]] == [id(one["graph"]) for one in samples]


class Mesh:
    def __init__(self, corners: int) -> None:
        self.corners = corners


def test_types_that_are_registered_with_torch_are_collated_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def collate_meshes(meshes: list[Mesh], *, collate_fn_map: Any = None) -> torch.Tensor:
        return torch.tensor([mesh.corners for mesh in meshes])

    monkeypatch.setitem(default_collate_fn_map, Mesh, collate_meshes)
    samples = [{"mesh": Mesh(i), "name": "a"} for i in range(3)]
    (batch,) = td.DataLoader(samples, 3, device="cpu")
    assert_same(batch, default_collate(samples))
