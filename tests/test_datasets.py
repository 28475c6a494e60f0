"""Map-style datasets: what they hold, by index; torchvision's semantics for folders; fingerprints; every refusal."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torch.utils.data import Dataset

from tests.kind_words import words
from torchdali import DataLoader, FieldTypeError, FileDataset, ImageFolder, InMemoryDataset, MapDataset
from torchdali import transforms as T
from torchdali.fingerprint import digest
from torchdali.testing import make_image_folder


def picture(seed: int = 0, height: int = 6, width: int = 9) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)


def png(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


def write(path: Path, seed: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(picture(seed)))
    return path


@pytest.fixture
def zoo(tmp_path: Path) -> Path:
    """Classes with a nested folder, upper-case endings, a file that is no image, and names that sort by case."""
    root = tmp_path / "zoo"
    names = [
        "cat/b.png", "cat/a.PNG", "cat/deep/er/c.png", "Dog/10.png", "Dog/9.png", "ant/x.jpeg", "ant/notes.txt",
        "top.png",
    ]  # fmt: skip
    for seed, name in enumerate(names):
        write(root / name, seed)
    return root


# ImageFolder is torchvision's


def assert_like_torchvision(root: Any, **arguments: Any) -> ImageFolder:
    ours = ImageFolder(root, **arguments)
    if "extensions" in arguments:
        theirs: Any = torchvision.datasets.DatasetFolder(str(root), loader=None, **arguments)
    else:
        theirs = torchvision.datasets.ImageFolder(str(root), **arguments)
    for name in ("classes", "class_to_idx", "samples", "targets", "extensions"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert len(ours) == len(theirs)
    return ours


def test_image_folder_is_torchvisions(zoo: Path) -> None:
    ours = assert_like_torchvision(zoo)
    assert ours.classes == ["Dog", "ant", "cat"]
    assert [Path(path).name for path, _ in ours.samples] == ["10.png", "9.png", "x.jpeg", "a.PNG", "b.png", "c.png"]
    assert ours.imgs == torchvision.datasets.ImageFolder(str(zoo)).imgs


def test_image_folder_of_a_path_a_relative_path_and_a_home(zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(zoo.parent))
    monkeypatch.chdir(zoo.parent)
    for root in (str(zoo), f"{zoo}/", "zoo", "./zoo", "~/zoo"):
        assert_like_torchvision(root)
    assert ImageFolder(zoo).samples == ImageFolder(str(zoo)).samples


def test_image_folder_follows_links(zoo: Path) -> None:
    (zoo / "owl").symlink_to(zoo / "cat")
    assert len(assert_like_torchvision(zoo)) == 9


@pytest.mark.parametrize("extensions", [(".png",), (".png", ".txt"), (".jpeg", ".png", ".txt")])
def test_extensions(zoo: Path, extensions: tuple[str, ...]) -> None:
    assert_like_torchvision(zoo, extensions=extensions, allow_empty=True)


def test_extensions_in_any_case_and_alone(zoo: Path) -> None:
    lower = ImageFolder(zoo, extensions=(".png",), allow_empty=True)
    for extensions in (".png", [".PNG"], (".pNg",)):
        again = ImageFolder(zoo, extensions=extensions, allow_empty=True)
        assert again.samples == lower.samples and again.extensions == (".png",)


def test_is_valid_file(zoo: Path) -> None:
    ours = assert_like_torchvision(zoo, is_valid_file=lambda path: "o" in Path(path).name or path.endswith("ng"))
    assert ours.extensions is None and "notes.txt" in {Path(path).name for path in ours.paths}


def test_allow_empty(zoo: Path) -> None:
    (zoo / "bat").mkdir()
    ours = assert_like_torchvision(zoo, allow_empty=True)
    assert ours.classes == ["Dog", "ant", "bat", "cat"] and 2 not in ours.targets
    for make in (ImageFolder, torchvision.datasets.ImageFolder):
        with pytest.raises(FileNotFoundError, match="Found no valid file for the classes bat"):
            make(str(zoo))


def test_labels_are_the_targets(zoo: Path) -> None:
    dataset = ImageFolder(zoo, fields=("label", "index"))
    columns = dataset.read(np.arange(len(dataset)))
    assert columns["label"].tolist() == dataset.targets and columns["label"].dtype == np.int64
    assert words(dataset.kinds) == {"label": "number", "index": "number"}


def test_image_folder_refuses(zoo: Path, tmp_path: Path) -> None:
    (tmp_path / "bare").mkdir()
    (tmp_path / "hollow" / "class").mkdir(parents=True)
    for root, arguments, error, message in [
        (tmp_path / "nowhere", {}, FileNotFoundError, f"root does not exist: {tmp_path}/nowhere"),
        (zoo / "top.png", {}, NotADirectoryError, f"root must be a folder, got the file {zoo}/top.png"),
        (tmp_path / "bare", {}, FileNotFoundError, "Couldn't find any class folder in"),
        (tmp_path / "hollow", {}, FileNotFoundError, "Found no valid file for the classes class"),
        (tmp_path / "hollow", {"allow_empty": True}, FileNotFoundError, "no image files in the class folders of"),
        (zoo, {"extensions": ()}, ValueError, "extensions must name at least one ending"),
        (zoo, {"extensions": ".png", "is_valid_file": bool}, ValueError, "pass extensions or is_valid_file, not both"),
        (zoo, {"fields": ("image", "mask")}, ValueError, "fields must be different ones of image, label, index,"),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            ImageFolder(root, **arguments)


# Fields


def test_fields_in_any_order(zoo: Path) -> None:
    assert ImageFolder(zoo).fields == ("image", "label")
    fields = ("path", "valid", "label", "image", "index")
    dataset = ImageFolder(zoo, fields=fields)
    columns = dataset.read(np.array([4, 0]))
    assert tuple(columns) == dataset.fields == fields
    assert words(dataset.kinds) == {
        "path": "object", "valid": "number", "label": "number", "image": "encoded", "index": "number",
    }  # fmt: skip
    assert columns["path"] == [dataset.samples[4][0], dataset.samples[0][0]]
    assert columns["index"].tolist() == [4, 0] and columns["valid"].tolist() == [True, True]
    for path, encoded in zip(columns["path"], columns["image"]):
        assert encoded.tobytes() == Path(path).read_bytes()


@pytest.mark.parametrize("fields", ["image", (), ("image", "image"), ("image", "size"), [None], ("index", "label")])
def test_fields_that_cannot_be(zoo: Path, fields: Any) -> None:
    with pytest.raises(ValueError, match=r"fields must be different ones of image, index, path, valid, got"):
        FileDataset([zoo / "top.png"], fields=fields)


def test_only_what_is_asked_for_is_read(zoo: Path) -> None:
    dataset = FileDataset([zoo / "top.png", zoo / "gone.png"], labels=[1, 2], fields=("label", "path"))
    assert dataset.read(np.array([1])) == {"label": np.array([2]), "path": [str(zoo / "gone.png")]}


# One sample to look at


def test_a_sample_is_decoded(zoo: Path) -> None:
    dataset = ImageFolder(zoo, fields=("image", "label", "index", "path", "valid"))
    reference = torchvision.datasets.ImageFolder(str(zoo))
    for i in (0, 3, -1):
        image, label, index, path, valid = dataset[i]
        expected, target = reference[i]
        assert image.dtype == torch.uint8 and torch.equal(image, torch.from_numpy(np.array(expected)).permute(2, 0, 1))
        assert (int(label), int(index), path, bool(valid)) == (target, i % 6, reference.samples[i][0], True)
        assert all(isinstance(value, torch.Tensor) and value.ndim == 0 for value in (label, index, valid))


def test_indices(zoo: Path) -> None:
    dataset = FileDataset([zoo / "top.png"], fields=("index",))
    for index in (0, -1, np.int64(0), torch.tensor(-1)):
        assert dataset[index] == (torch.tensor(0),)
    for index in (1, -2, 10**9):
        with pytest.raises(IndexError, match=f"index {index} is outside a dataset of 1 samples"):
            dataset[index]
    for index in (0.0, "0", slice(1), None):
        with pytest.raises(TypeError):
            dataset[index]
    assert isinstance(dataset, Dataset) and isinstance(dataset, MapDataset) and len(list(dataset)) == 1


def test_a_missing_an_empty_and_a_broken_file(zoo: Path) -> None:
    (zoo / "empty.png").touch()
    (zoo / "text.png").write_text("no image")
    dataset = FileDataset([zoo / name for name in ("top.png", "gone.png", "empty.png", "text.png", "cat")])
    for i, error, message in [
        (1, FileNotFoundError, "gone.png"),
        (2, ValueError, "the file is empty"),
        (3, OSError, "Pillow knows no image format that begins like this"),
        (4, IsADirectoryError, "cat"),
    ]:
        with pytest.raises(error, match=message):
            dataset[i]


# FileDataset


def test_file_dataset(zoo: Path) -> None:
    paths = [zoo / "top.png", str(zoo / "Dog" / "9.png")]
    dataset = FileDataset(paths)
    assert dataset.fields == ("image",) and dataset.labels is None and len(dataset) == 2
    assert dataset.paths == [str(path) for path in paths] and dataset.path(1) == str(paths[1])
    assert dataset.blocking and not dataset.uniform("image")
    (image,) = dataset[1]
    assert torch.equal(image, torch.from_numpy(picture(4)).permute(2, 0, 1))
    assert FileDataset(paths, labels=["a", "b"]).fields == ("image", "label")


LABELS: list[tuple[Any, str, Any]] = [
    ([3, 1], "number", torch.tensor(1)),
    ((0.5, 1.5), "number", torch.tensor(1.5, dtype=torch.float64)),
    ([True, False], "number", torch.tensor(False)),
    (np.array([3, 1], np.int16), "number", torch.tensor(1, dtype=torch.int16)),
    (torch.tensor([3.0, 1.0], requires_grad=True), "number", torch.tensor(1.0)),
    ([torch.tensor(3), torch.tensor(1)], "number", torch.tensor(1)),
    ([np.float32(3), np.float32(1)], "number", torch.tensor(1.0)),
    (np.array([[1, 2], [3, 4]]), "array", torch.tensor([3, 4])),
    ([np.zeros((2, 4)), np.ones((2, 4))], "array", torch.ones(2, 4, dtype=torch.float64)),
    ([torch.zeros(2, 4), torch.ones(3, 4)], "array", torch.ones(3, 4)),
    (["a", "b"], "object", "b"),
    (np.array(["a", "b"]), "object", "b"),
    ([b"a", b"b"], "object", b"b"),
    ([1, None], "object", None),
    ([1, "b"], "object", "b"),
    ([[1, 2], [3]], "object", [3]),
    ([{"x": 1}, {"x": 2}], "object", {"x": 2}),
    ([np.zeros(2), "b"], "object", "b"),
]


def test_labels(zoo: Path) -> None:
    for labels, kind, expected in LABELS:
        dataset = FileDataset([zoo / "top.png"] * 2, labels=labels, fields=("label",))
        assert dataset.kinds["label"].word == kind, labels
        (label,) = dataset[1]
        if isinstance(expected, torch.Tensor):
            assert torch.equal(label, expected) and label.dtype == expected.dtype and not label.requires_grad
        else:
            assert label == expected
        ragged = isinstance(labels[0], torch.Tensor) and labels[0].shape != labels[1].shape
        assert dataset.uniform("label") == (kind in ("number", "array") and not ragged), labels


def test_file_dataset_refuses(zoo: Path) -> None:
    file = zoo / "top.png"
    for arguments, error, message in [
        (([],), ValueError, "paths must name at least one file, got none"),
        ((str(file),), TypeError, r"paths must be a list of files, got '.*': for a folder write ImageFolder\(root\)"),
        ((file,), TypeError, "paths must be a list of files, got PosixPath"),
        (([3],), TypeError, "expected str, bytes or os.PathLike object, not int"),
        (([zoo / "gone.png", file],), FileNotFoundError, "the first of 2 files does not exist: .*gone.png"),
        (([file], [1, 2]), ValueError, "labels must be one for each file, got 2 for 1 files"),
        (([file], []), ValueError, "labels must be one for each file, got 0 for 1 files"),
        (([file], {"top.png": 1}), TypeError, "'labels' must be a list or an array of one value per sample, got dict"),
        (([file], "a"), TypeError, "'labels' must be a list or an array of one value per sample, got str"),
        (([file] * 2, [np.zeros(2), np.zeros((2, 2))]), FieldTypeError, "1 dimension, as in sample 0, got .* 2 dim"),
        (([file] * 2, [np.zeros(2), np.zeros(2, np.int64)]), FieldTypeError, "'labels' must be float64 .* got int64"),
    ]:
        with pytest.raises(error, match=message):
            FileDataset(*arguments)


# InMemoryDataset


def kind(values: Any) -> tuple[str, bool]:
    dataset = InMemoryDataset(x=values)
    return dataset.kinds["x"].word, dataset.uniform("x")


def test_kinds_are_seen_from_the_values() -> None:
    small, large = picture(0), picture(1, 7, 5)
    assert kind([png(small), png(large)]) == ("encoded", False)
    assert kind([bytearray(png(small)), memoryview(png(small))]) == ("encoded", False)
    assert kind([small, large]) == ("image", False)
    assert kind([small, small]) == ("image", True)
    assert kind([small[..., :1], large[..., :1]]) == ("image", False)
    assert kind(np.stack([small, small])) == ("image", True)
    assert kind(torch.zeros(2, 4, 5, 3, dtype=torch.uint8)) == ("image", True)
    assert kind([torch.zeros(4, 5, 3, dtype=torch.uint8)] * 2) == ("image", True)
    # Not images: another dtype, another number of dimensions or of channels.
    assert kind(np.zeros((2, 4, 5, 3), np.float32)) == ("array", True)
    assert kind(np.zeros((2, 4, 5), np.uint8)) == ("array", True)
    assert kind(np.zeros((2, 4, 5, 4), np.uint8)) == ("array", True)
    assert kind([small, large[..., :2]]) == ("array", False)
    assert kind([np.zeros((2, 4)), np.zeros((3, 4))]) == ("array", False)
    assert (
        kind([1, 2])
        == kind((0.5, 1))
        == kind(range(3))
        == kind(np.arange(3))
        == kind(np.array([True]))
        == ("number", True)
    )
    assert kind(["a", "b"]) == kind([None, 1]) == kind([[1], [2, 3]]) == kind([1j]) == ("object", False)


def test_encoded_images_of_equal_length_are_not_taken_for_uniform() -> None:
    """Two bitmaps, one upright and one flat, have the same number of bytes."""
    files = []
    for height, width in ((12, 20), (20, 12)):
        file = io.BytesIO()
        Image.fromarray(picture(0, height, width)).save(file, "BMP")
        files.append(file.getvalue())
    assert len(files[0]) == len(files[1])
    assert not InMemoryDataset(image=files).uniform("image")


def test_in_memory_samples() -> None:
    pictures = [picture(i, 4 + i, 5) for i in range(3)]
    names = ["a", "b", "c"]
    dataset = InMemoryDataset(image=[png(p) for p in pictures], raw=pictures, score=[0.5, 1.5, 2.5], name=names)
    assert len(dataset) == 3 and dataset.fields == ("image", "raw", "score", "name")
    assert dataset.path(0) is None and not dataset.blocking
    for i, sample in enumerate(dataset):
        expected = torch.from_numpy(pictures[i]).permute(2, 0, 1)
        assert torch.equal(sample[0], expected) and torch.equal(sample[1], expected)
        assert float(sample[2]) == i + 0.5 and sample[3] == names[i]
    rows = dataset.read(np.array([2, 0, 2]))
    assert rows["name"] == ["c", "a", "c"] and rows["score"].tolist() == [2.5, 0.5, 2.5]


def test_looking_at_a_sample_cannot_change_it() -> None:
    image, box = np.arange(24, dtype=np.uint8).reshape(2, 4, 3), np.ones(4)
    for dataset in (InMemoryDataset(image=image[None], box=box[None]), InMemoryDataset(image=[image], box=[box])):
        dataset[0][0].fill_(9), dataset[0][1].fill_(9)
        assert image[1, 3, 2] == 23 and np.all(box == 1)


def test_columns_by_name_and_by_dict() -> None:
    one = InMemoryDataset({"left image": [1, 2]}, right=[3, 4], fields=("index", "right", "left image"))
    assert one.fields == ("index", "right", "left image")
    assert [int(value) for value in one[1]] == [1, 4, 2]


@pytest.mark.parametrize("dtype", ["u1", "<f8", "<M8[s]"])
def test_an_arrays_fingerprint_is_that_of_its_elements(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However they lie in memory; and it is what it was before arrays were hashed in pieces."""
    monkeypatch.setattr("torchdali.fingerprint._PIECE", 64)
    base = np.arange(4 * 6 * 10).astype("u1").astype(dtype).reshape(4, 6, 10)
    for array in (base, base.T, base[:, ::2], base[::-1, :, 3:4], base[2], base[:, 0, 0], base[:0], base[1, 1, 1]):
        hasher = hashlib.blake2b(digest_size=8)
        text = f"{array.dtype} {array.shape}".encode()
        for part in (b"tuple", b"1", type(array).__qualname__.encode(), text, array.tobytes()):
            hasher.update(len(part).to_bytes(8, "little") + part)
        assert digest(array) == hasher.hexdigest() == digest(array.copy())


@pytest.mark.slow
def test_a_large_array_is_neither_copied_nor_read_as_a_whole(tmp_path: Path) -> None:
    """A view of 0.5 GB, and a memmap of 16 GB that has no blocks on disk but one."""
    tracemalloc.start()
    view = np.zeros((1 << 20, 1024), "u1")[:, ::2]
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    first = InMemoryDataset(x=view).fingerprint()
    assert tracemalloc.get_traced_memory()[1] - before < 8 << 20
    tracemalloc.stop()
    view[-1, -1] = 1
    second = InMemoryDataset(x=view).fingerprint()
    view[-1, -1], view[0, 0] = 0, 1
    third = InMemoryDataset(x=view).fingerprint()
    assert len({first, second, third, InMemoryDataset(x=view[1:]).fingerprint()}) == 4

    (tmp_path / "tokens").touch()
    os.truncate(tmp_path / "tokens", 16 << 30)
    tokens = np.memmap(tmp_path / "tokens", np.uint16, "r+")
    empty = InMemoryDataset(token=tokens)
    loader = DataLoader(empty, 4, shuffle=True, device="cpu")
    assert loader.state_dict()["dataset"] == empty.fingerprint()
    tokens[-1] = 7
    assert InMemoryDataset(token=tokens).fingerprint() != empty.fingerprint()
    assert InMemoryDataset(token=np.asarray(tokens)).fingerprint() != empty.fingerprint()


def test_a_fingerprint_that_is_given() -> None:
    one, other = (InMemoryDataset(x=values, fingerprint="digits v1") for values in ([1, 2], [3, 4]))
    assert one.fingerprint() == other.fingerprint() == "2 in memory digits v1"
    assert DataLoader(one, 1, device="cpu").state_dict()["dataset"] == "2 in memory digits v1"
    column = InMemoryDataset({"fingerprint": [1, 2]}, x=[3, 4], fingerprint="v2")
    assert column.fields == ("fingerprint", "x") and column.fingerprint() == "2 in memory v2"
    with pytest.raises(TypeError, match=r'got list: for a column of this name write InMemoryDataset\({"fingerprint"'):
        InMemoryDataset(fingerprint=[1, 2])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="fingerprint must be a string that names the data, got an empty one"):
        InMemoryDataset(x=[1], fingerprint="")


def test_in_memory_refuses() -> None:
    for make, error, message in [
        (lambda: InMemoryDataset(), ValueError, r"InMemoryDataset needs at least one column, such as image=\[...\]"),
        (lambda: InMemoryDataset({}), ValueError, "InMemoryDataset needs at least one column"),
        (lambda: InMemoryDataset(np.zeros(3)), TypeError, "columns must be a dict or a table, got ndarray: write"),
        (lambda: InMemoryDataset(x=[]), ValueError, r"columns must be of one length, at least 1, got {'x': 0}"),
        (lambda: InMemoryDataset(x=[1], y=[1, 2]), ValueError, r"one length, at least 1, got {'x': 1, 'y': 2}"),
        (lambda: InMemoryDataset(x=[1], fields=("y",)), ValueError, "fields must be different ones of x, index, path,"),
        (lambda: InMemoryDataset(index=[1]), ValueError, "index, path, valid have a meaning of their own, got the col"),
        (lambda: InMemoryDataset(x=5), TypeError, "'x' must be a list or an array of one value per sample, got int"),
        (lambda: InMemoryDataset(x=b"png"), TypeError, "'x' must be a list or an array of one value per sample, got b"),
        (lambda: InMemoryDataset(x={1, 2}), TypeError, "'x' must be a list or an array of one value per sample, got s"),
        (lambda: InMemoryDataset(x=[picture(), picture()[0]]), FieldTypeError, "'x' must be uint8 with 3 dim"),
        (lambda: InMemoryDataset(x=[picture(), picture()[..., :1]]), FieldTypeError, "'x' must be an image with 3 ch"),
    ]:  # fmt: skip
        with pytest.raises(error, match=message):
            make()


# Fingerprints


def test_a_moved_folder_is_the_same(zoo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = ImageFolder(zoo).fingerprint()
    shutil.copytree(zoo, tmp_path / "some" / "where else")
    assert ImageFolder(tmp_path / "some" / "where else").fingerprint() == before
    monkeypatch.chdir(zoo.parent)
    assert ImageFolder("zoo").fingerprint() == before
    assert before.startswith("6 files ") and len(before) <= 100


def test_another_folder_differs(zoo: Path) -> None:
    before = ImageFolder(zoo).fingerprint()
    (zoo / "cat" / "b.png").rename(zoo / "cat" / "bb.png")
    renamed = ImageFolder(zoo).fingerprint()
    (zoo / "cat" / "bb.png").rename(zoo / "Dog" / "b.png")
    moved = ImageFolder(zoo).fingerprint()
    (zoo / "Dog" / "b.png").unlink()
    assert len({before, renamed, moved, ImageFolder(zoo).fingerprint()}) == 4


def test_file_fingerprints(tmp_path: Path) -> None:
    a, b, c = (write(tmp_path / name) for name in ("one/a.png", "one/b.png", "two/c.png"))
    fingerprints = [
        FileDataset(*arguments).fingerprint()
        for arguments in [
            ([a, b],),
            ([b, a],),
            ([a, b, c],),
            ([a],),
            ([b],),
            ([a, a],),
            ([a, b], [0, 1]),
            ([a, b], [1, 0]),
            ([a, b], np.array([1, 0], np.int32)),
            ([a, b], [1.0, 0.0]),
            ([a, b], ["x", "y"]),
            ([a, b], ["y", "x"]),
            ([a, b], [np.zeros((1, 4)), np.zeros((2, 4))]),
            ([a, b], [np.zeros((2, 4)), np.zeros((1, 4))]),
            ([a, b], [np.zeros((4, 1)), np.zeros((4, 2))]),
            ([a, b], [{"x": 1}, {"x": 2}]),
            ([a, b], [{"x": 2}, {"x": 1}]),
        ]
    ]
    assert len(set(fingerprints)) == len(fingerprints)
    # The first and the last in one folder, and one in between elsewhere.
    for folder in ("six", "two"):
        write(tmp_path / folder / "c.png")
        fingerprints.append(FileDataset([a, tmp_path / folder / "c.png", b]).fingerprint())
    assert len(set(fingerprints)) == len(fingerprints)
    # What is the same in other words: fields, kinds of sequences.
    assert FileDataset((str(a), b), (0, 1), fields=("label",)).fingerprint() == fingerprints[6]
    assert FileDataset([a, b], np.array([0, 1])).fingerprint() == fingerprints[6]


def test_names_that_are_no_text(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png")
    write(Path(path))
    dataset = FileDataset([path], fields=("image", "path"))
    assert dataset[0][1] == path and dataset.fingerprint() != FileDataset([write(tmp_path / "cafe.png")]).fingerprint()


def test_in_memory_fingerprints() -> None:
    def fingerprint(**columns: Any) -> str:
        return InMemoryDataset(**columns).fingerprint()

    images = np.stack([picture(0), picture(1)])
    different = [
        fingerprint(x=images),
        fingerprint(y=images),
        fingerprint(x=images[::-1]),
        fingerprint(x=images.transpose(0, 2, 1, 3)),
        fingerprint(x=[png(i) for i in images]),
        fingerprint(x=images, label=[0, 1]),
        fingerprint(x=images, label=[1, 0]),
        fingerprint(x=images, label=["0", "1"]),
        fingerprint(x=images, label=[("0",), ("1",)]),
        fingerprint(x=images, label=[["0"], ["1"]]),
        fingerprint(x=np.arange(6).reshape(2, 3)),
        fingerprint(x=np.arange(6).reshape(2, 3).astype(np.uint64)),
        fingerprint(x=[np.arange(2), np.arange(1)]),
        fingerprint(x=[np.arange(1), np.arange(2)]),
    ]
    assert len(set(different)) == len(different)
    assert fingerprint(x=images) == fingerprint(x=torch.from_numpy(images.copy()))
    assert fingerprint(x=np.asfortranarray(images)) == fingerprint(x=images)
    assert different[0].startswith("2 in memory ") and len(different[0]) <= 100


class Thing:
    """Its repr holds an address, which is another one in each process."""


@pytest.mark.processes
def test_a_fingerprint_is_the_same_in_another_process(zoo: Path) -> None:
    script = f"""
import numpy as np, torchdali as td
class Thing: pass
print(td.ImageFolder({str(zoo)!r}).fingerprint())
print(td.InMemoryDataset(x=[Thing(), {{"a", "b", "c"}}], y=["a", None], z=[np.float32(2), 3.5]).fingerprint())
"""
    expected = [
        ImageFolder(zoo).fingerprint(),
        InMemoryDataset(x=[Thing(), {"a", "b", "c"}], y=["a", None], z=[np.float32(2), 3.5]).fingerprint(),
    ]
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True, timeout=60,
        env={**os.environ, "PYTHONHASHSEED": "17"},
    )  # fmt: skip
    assert done.stdout.split("\n")[:2] == expected


def test_digest_tells_values_apart() -> None:
    values: list[Any] = [
        (), ("",), ("", ""), ("ab",), ("a", "b"), (b"ab",), (["a", "b"],), (("a", "b"),), (1,), (True,), (1.0,), ("1",),
        (None,), ({"a": 1},), ({"a": [1]},), ([],), ({},), (np.zeros(2),), (np.zeros(2, int),), (np.zeros((2, 1)),),
        (np.array(["a", None], object),), (np.array([None, "a"], object),), (torch.zeros(2),), (np.float64(1),), (1j,),
        ({"a": 1, "b": 2},), ({"a": 2, "b": 1},), ([[1], [2]],), ([[1, 2]],), ([1, [2]],),
    ]  # fmt: skip
    assert len({digest(*value) for value in values}) == len(values)
    assert digest("a", 1, [np.arange(3)]) == digest("a", 1, [np.arange(3)])


# Processes


@pytest.mark.parametrize("which", ["folder", "files", "memory"])
def test_datasets_pickle(zoo: Path, which: str) -> None:
    dataset: MapDataset = {
        "folder": lambda: ImageFolder(zoo, is_valid_file=lambda path: not path.endswith("txt")),
        "files": lambda: FileDataset([zoo / "top.png"], [torch.zeros(2, 4)], fields=("path", "image", "label")),
        "memory": lambda: InMemoryDataset(image=[png(picture())], raw=picture()[None], name=["x"]),
    }[which]()
    again = pickle.loads(pickle.dumps(dataset))
    assert again.fingerprint() == dataset.fingerprint() and again.fields == dataset.fields
    assert len(again) == len(dataset)
    for one, two in zip(again[0], dataset[0], strict=True):
        assert torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two


def test_a_subclass_of_ones_own() -> None:
    class Squares(MapDataset):
        def __init__(self) -> None:
            self._set_fields(("square", "index", "path"), {"square": "number"})

        def __len__(self) -> int:
            return 10**9

        def read_columns(self, indices: Any, names: Any) -> Any:
            return {name: np.asarray(indices) ** 2 for name in names}

        def fingerprint(self) -> str:
            return "squares"

    dataset = Squares()
    assert dataset.uniform("square") and dataset.path(3) is None
    assert [value if value is None else int(value) for value in dataset[-1]] == [(10**9 - 1) ** 2, 10**9 - 1, None]
    for call in (lambda d: len(d), lambda d: d.read_columns([0], ["x"]), lambda d: d.fingerprint()):
        with pytest.raises(NotImplementedError):
            call(MapDataset())


def test_a_dataset_that_forgets_its_fields_is_told_so():
    class Forgetful(MapDataset):
        def __len__(self):
            return 3

    for ask in (lambda: Forgetful().fields, lambda: Forgetful()[0], lambda: DataLoader(Forgetful(), 2)):
        with pytest.raises(TypeError, match=r"Forgetful has no fields yet: call _set_fields\(fields, kinds\) in its"):
            ask()


# Kinds that are told


def test_kinds_of_columns_in_memory() -> None:
    from torchdali import kinds as K

    masks = np.random.default_rng(0).integers(0, 5, (3, 6, 9)).astype(np.uint8)
    dataset = InMemoryDataset(
        image=np.stack([picture(i) for i in range(3)]), mask=masks, file=[png(mask) for mask in masks],
        flat=np.zeros((3, 6, 9, 1), np.uint8), boxes=[[[1, 2, 3, 4]], [], [[0, 0, 5, 5], [1, 1, 2, 2]]],
        points=[[], [[1, 2, 1]], []], raw=[b"a", b"b", b"c"],
        kinds={
            "mask": "mask", "file": K.Mask(fill=9), "flat": "array", "boxes": K.Boxes("xywh"), "points": "points",
            "raw": "object",
        },
    )  # fmt: skip
    assert dataset.kinds == {
        "image": K.IMAGE, "mask": K.MASK, "file": K.Mask(fill=9, encoded=True), "flat": K.ARRAY,
        "boxes": K.Boxes("xywh"), "points": K.Points(), "raw": K.OBJECT,
    }  # fmt: skip
    columns = dataset.read(np.array([1, 2]))
    assert [value.shape for value in columns["boxes"]] == [(0, 4), (2, 4)] and columns["boxes"][0].dtype == np.float32
    assert [value.shape for value in columns["points"]] == [(1, 3), (0, 3)] and columns["raw"] == [b"b", b"c"]
    for told, message in {
        "image": "kinds must fit the values, got 'image' for 'x', which holds str",
        "boxes": "kinds must fit the values, got 'boxes' for 'x', which holds str",
    }.items():
        with pytest.raises(ValueError, match=message):
            InMemoryDataset(x=["a", "b"], kinds={"x": told})
    with pytest.raises(TypeError, match=r"kinds must be a dict such as .* got list: for a column of this name"):
        InMemoryDataset(x=[1], kinds=[1])


def test_links_that_lead_back_up_are_not_followed(tmp_path: Path) -> None:
    """Two of them have more paths than can ever be walked."""
    folder = make_image_folder(tmp_path, classes=2, per_class=2)
    plain = ImageFolder(folder).samples
    one, other = sorted(path for path in folder.iterdir() if path.is_dir())
    for number in range(4):
        (one / f"loop{number}").symlink_to(one)
        (other / f"up{number}").symlink_to(folder)
    assert ImageFolder(folder).samples == plain
    # These are followed, once: they lead on to one that is above them.
    (one / "beside").symlink_to(other)
    (other / "beside").symlink_to(one)
    assert len(ImageFolder(folder).samples) == 2 * len(plain)


def test_a_file_that_is_larger_than_any_image_is_not_read(tmp_path: Path) -> None:
    folder = make_image_folder(tmp_path, classes=1, per_class=3)
    huge = Path(ImageFolder(folder).paths[1])
    os.truncate(huge, 20 << 30)  # of which the disk holds little
    loader = DataLoader(ImageFolder(folder), 3, device="cpu", transform=T.Resize((4, 4)), on_bad_sample="skip")
    assert [len(images) for images, _ in loader] == [2]
    (bad,) = loader.bad_samples
    assert bad.path == str(huge) and "at most 2,863,311,520 bytes was expected" in str(bad)
