"""Arrays in .npy files: what numpy wrote comes back, in one dtype and byte order, and every other file is named."""

from __future__ import annotations

import io
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

import torchdali as td
from tests.kind_words import words
from torchdali.datasets.numpy import NumpyDataset
from torchdali.formats.npy import as_npy
from torchdali.testing import assert_resumes_exactly, assert_same_stream, garble_file, truncate_file

from .test_storage import place, s3, web  # noqa: F401  # fixtures


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def array_of(i: int) -> np.ndarray:
    return np.random.default_rng(i).normal(size=(i % 3 + 1, 4)).astype(np.float32)


@pytest.fixture
def folder(tmp_path) -> Path:
    """13 ragged arrays in two folders, and a file of another kind."""
    for i in range(13):
        file = tmp_path / "npy" / f"part{i // 7}" / f"{i:02d}.npy"
        file.parent.mkdir(parents=True, exist_ok=True)
        np.save(file, array_of(i))
    (tmp_path / "npy" / "notes.txt").write_text("none")
    return tmp_path / "npy"


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.npy"))


def test_contents(folder):
    dataset = NumpyDataset(folder)
    assert dataset.fields == ("array",) and len(dataset) == 13 and dataset.blocking
    assert dataset.paths == [str(path) for path in files_of(folder)] and dataset.path(3) == dataset.paths[3]
    order = np.random.default_rng(0).permutation(13)
    for i, array in zip(order, dataset.read(order)["array"], strict=True):
        np.testing.assert_array_equal(array, array_of(i))
        assert array.dtype == np.float32 and array.flags.c_contiguous and array.flags.writeable
    assert torch.equal(dataset[4][0], torch.from_numpy(array_of(4)))


def test_files_labels_and_fields(folder):
    files = files_of(folder)[::-1]
    dataset = NumpyDataset(files, labels=list(range(13)), fields=("label", "array", "index", "path", "valid"))
    columns = dataset.read(np.array([2, 0]))
    assert columns["label"].tolist() == [2, 0] and columns["path"] == [str(files[2]), str(files[0])]
    np.testing.assert_array_equal(columns["array"][0], array_of(10))
    assert words(NumpyDataset(files, labels=list("abcdefghijklm")).kinds) == {"array": "array", "label": "object"}
    assert NumpyDataset(f"{folder}/part1/*.npy").paths == [str(path) for path in files_of(folder / "part1")]
    assert len(NumpyDataset(files[0])) == 1
    assert pickle.loads(pickle.dumps(dataset)).read(np.array([2]))["label"].tolist() == [2]


def test_wrong_arguments(folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="root does not exist"):
        NumpyDataset(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match=r"none\.npy"):
        NumpyDataset([tmp_path / "none.npy"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match=r"no \.npy files in .*empty"):
        NumpyDataset(tmp_path / "empty")
    with pytest.raises(ValueError, match="at least one file, got none"):
        NumpyDataset([])
    with pytest.raises(ValueError, match="labels must be one for each file, got 2 for 13 files"):
        NumpyDataset(folder, labels=[1, 2])
    with pytest.raises(ValueError, match="fields must be different ones of array, index"):
        NumpyDataset(folder, fields=["image"])
    with pytest.raises(TypeError, match="must be strings or pathlib's paths, got 5"):
        NumpyDataset([5])


def test_fingerprint(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "moved")
    prints = [
        NumpyDataset(folder).fingerprint(), NumpyDataset(folder, labels=range(13)).fingerprint(),
        NumpyDataset(files_of(folder)[1:]).fingerprint(), NumpyDataset(files_of(folder)[::-1]).fingerprint(),
    ]  # fmt: skip
    assert len(set(prints)) == 4 and max(len(one) for one in prints) <= 100
    assert NumpyDataset(tmp_path / "moved").fingerprint() == prints[0]


DTYPES = st.one_of(
    arrays_of.boolean_dtypes(), arrays_of.integer_dtypes(endianness="?"),
    arrays_of.unsigned_integer_dtypes(endianness="?"), arrays_of.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(arrays_of.arrays(DTYPES, arrays_of.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)), st.booleans())
def test_any_array_of_numbers_comes_back(array, fortran):
    written = np.asfortranarray(array) if fortran else array
    got = as_npy(np.frombuffer(bytearray(npy(written)), np.uint8))
    np.testing.assert_array_equal(got, written)
    assert got.shape == written.shape and got.dtype == array.dtype.newbyteorder("=") and got.dtype.isnative
    assert got.flags.c_contiguous and got.flags.aligned and got.flags.writeable
    torch.from_numpy(got)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_garbled_files_are_an_error_or_an_array(data):
    raw = bytearray(npy(np.arange(12, dtype=np.int16).reshape(3, 4)))
    for _ in range(data.draw(st.integers(1, 5))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    raw = raw[: data.draw(st.integers(0, len(raw)))]
    try:
        got = as_npy(np.frombuffer(raw, np.uint8))
    except ValueError as error:
        assert str(error)
    else:
        assert got.nbytes <= 24 and got.dtype.kind in "biuf"


def test_header_versions():
    array = np.arange(6, dtype=np.float32)
    for version in ((1, 0), (2, 0), (3, 0)):
        file = io.BytesIO()
        np.lib.format.write_array(file, array, version)
        np.testing.assert_array_equal(as_npy(np.frombuffer(file.getvalue(), np.uint8)), array)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([{}], object), "an array of bools, integers or floats was expected, got object"),
        (np.array(["a"]), "an array of bools, integers or floats was expected, got <U1"),
        (np.array([1j]), "got complex128"),
        (np.zeros(2, "M8[s]"), "got datetime64"),
        (np.zeros(2, np.longdouble), "got float128"),
        (np.zeros(2, [("猫", "f4")]), "an array of bools, integers or floats was expected, got"),
        (np.zeros(2, [("a", "f4")]), "got .*'a'"),
        (
            np.zeros((2, 4), np.float64),
            r"'array' must be float32 with 2 dimensions, as in .*00\.npy, got float64 with 2 dimensions in",
        ),
        (np.zeros(4, np.float32), r"'array' must be float32 with 2 dim.* got float32 with 1 dimension in"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Stored array in format 3.0:UserWarning")
def test_other_arrays_are_named(folder, array, message):
    file = files_of(folder)[5]
    file.write_bytes(npy(array))
    dataset = NumpyDataset(folder)
    with pytest.raises(td.FieldTypeError if "'array' must be" in message else ValueError, match=message) as caught:
        dataset.read(np.arange(13))
    assert str(file) in str(caught.value)
    dataset.read(np.array([0, 4, 6]))


def test_the_first_file_is_read_at_once(folder):
    first = files_of(folder)[0]
    first.write_bytes(npy(np.array([1j])))
    with pytest.raises(ValueError, match=r"00\.npy: an array of bools.*got complex128"):
        NumpyDataset(folder)


def test_damaged_files_are_named(folder):
    for file, keep in zip(files_of(folder)[1:5], (0, 5, 60, 140), strict=True):
        with open(file, "r+b") as opened:
            opened.truncate(keep)
    files_of(folder)[5].unlink()
    dataset = NumpyDataset([*files_of(folder)[:5], folder / "part0" / "05.npy"])
    for i, message in [
        (1, r"01\.npy: a .npy file was expected, got b''"),
        (2, r"02\.npy: a .npy file was expected, got b'\\x93NUMP'"),
        (3, r"03\.npy: a .npy header of 128 bytes was expected, got 60 bytes"),
        (4, r"04\.npy: 32 bytes of float32 \[2, 4\] were expected at offset 128, got 12"),
    ]:
        with pytest.raises(ValueError, match=message):
            dataset.read(np.array([i]))
    with pytest.raises(FileNotFoundError, match=r"05\.npy"):
        dataset.read(np.array([5]))


def test_one_shape(folder, tmp_path):
    for i in range(4):
        np.save(tmp_path / f"{i}.npy", np.full((2, 3), i, ">i2"))
    dataset = NumpyDataset([tmp_path / f"{i}.npy" for i in range(4)], labels=range(4), ragged=False)
    assert dataset.uniform("array") and dataset.uniform("label") and not NumpyDataset(folder).uniform("array")
    loader = td.DataLoader(dataset, batch_size=4, device="cpu")
    ((arrays, labels),) = list(loader)
    assert arrays.shape == (4, 2, 3) and arrays.dtype == torch.int16 and labels.tolist() == [0, 1, 2, 3]
    loader.close()
    with pytest.raises(td.FieldTypeError, match=r"must be float32 \[1, 4\], as in .*got float32 \[2, 4\] in .*01\.npy"):
        NumpyDataset(folder, ragged=False).read(np.array([1]))


def test_remote_files(place, folder):  # noqa: F811
    address, options, write = place
    for file in files_of(folder):
        write(file.name, file.read_bytes())
    names = [f"{address}/{file.name}" for file in files_of(folder)]
    found = [NumpyDataset(names, storage_options=options)]
    if not address.startswith("http"):
        found.append(NumpyDataset(address, storage_options=options))
    local = NumpyDataset(folder).read(np.arange(13))["array"]
    for dataset in found:
        for one, other in zip(dataset.read(np.arange(13))["array"], local, strict=True):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(FileNotFoundError):
        NumpyDataset([f"{address}/none.npy"], storage_options=options)


# Arrays in memory, and in one file


def rows(**changes: np.ndarray) -> dict[str, np.ndarray]:
    x = np.random.default_rng(0).normal(size=(13, 2, 3)).astype(np.float32)
    return {"x": x, "image": np.zeros((13, 4, 5, 3), np.uint8), "y": np.arange(13), **changes}


def test_a_dict_of_arrays(tmp_path):
    arrays = rows()
    np.save(tmp_path / "x.npy", arrays["x"])
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for paths in (arrays, {**arrays, "x": mapped}, {**arrays, "x": torch.from_numpy(arrays["x"])}):
        dataset = NumpyDataset(paths, labels=[f"row {i}" for i in range(13)])
        assert dataset.fields == ("x", "image", "y", "label") and len(dataset) == 13 and not dataset.blocking
        assert [str(kind) for kind in dataset.kinds.values()] == ["array", "array", "number", "object"]
        assert dataset.uniform("x") and dataset.dtype("x") == np.float32 and dataset.path(0) is None
        columns = dataset.read(np.array([5, 0]))
        np.testing.assert_array_equal(columns["x"], arrays["x"][[5, 0]])
        assert columns["y"].tolist() == [5, 0] and columns["label"] == ["row 5", "row 0"]
    told = NumpyDataset(arrays, ["image", "y", "index"], kinds={"image": "image"})
    assert told.kinds["image"] == td.kinds.IMAGE
    images, y, index = next(iter(td.DataLoader(told, batch_size=4, device="cpu")))
    assert images.shape == (4, 3, 4, 5) and torch.equal(y, index)
    one = NumpyDataset(arrays).fingerprint()
    assert one == NumpyDataset(rows()).fingerprint() != NumpyDataset(rows(y=np.arange(13) + 1)).fingerprint()


def test_a_npz_file(tmp_path):
    np.savez(tmp_path / "train.npz", x_test=np.zeros(3), **rows())
    with pytest.raises(
        ValueError, match=r"arrays must be of one length, at least 1, got {.*'x_test': 3.*: choose some by"
    ):
        NumpyDataset(tmp_path / "train.npz")
    dataset = NumpyDataset(tmp_path / "train.npz", ["x", "y", "index"])
    assert dataset.fields == ("x", "y", "index") and pickle.loads(pickle.dumps(dataset)).read(np.array([2]))["y"] == [2]
    assert dataset.fingerprint() == NumpyDataset({name: rows()[name] for name in ("x", "y")}).fingerprint()
    np.savez(tmp_path / "objects.npz", x=np.array([{}], object))
    with pytest.raises(ValueError, match="Object arrays cannot be loaded"):
        NumpyDataset(tmp_path / "objects.npz")
    with pytest.raises(FileNotFoundError):
        NumpyDataset(tmp_path / "none.npz")

    def loader(**changes):
        return td.DataLoader(dataset, **{"batch_size": 4, "shuffle": True, "seed": 5, "device": "cpu", **changes})

    for x, y, index in loader():
        np.testing.assert_array_equal(x, rows()["x"][index.numpy()])
        assert torch.equal(y, index)
    assert_resumes_exactly(loader)
    ranks = lambda: [loader(batch_size=2, rank=r, world_size=2) for r in range(2)]  # noqa: E731
    assert_same_stream(loader, ranks, steps=False)


def test_what_is_no_array():
    for value, got in [("a", "str"), (np.array(3.0), "float64"), (np.array(["a"]), "<U1"), ([1, 2], "list")]:
        with pytest.raises(TypeError, match=f"arrays of numbers with a row per sample, got {got}.* for 'x'"):
            NumpyDataset({"x": value})
    with pytest.raises(ValueError, match="labels must be one for each row, got 1 for 13 rows"):
        NumpyDataset(rows(), labels=[1])
    with pytest.raises(ValueError, match="kinds must be of the fields x, image, y, got 'mask'"):
        NumpyDataset(rows(), kinds={"mask": "mask"})


# Through the loader


def make_loader(folder, **changes):
    dataset = NumpyDataset(folder, labels=range(13), fields=("array", "label", "index", "path", "valid"))
    return td.DataLoader(dataset, **{"batch_size": 4, "shuffle": True, "seed": 5, "device": "cpu", **changes})


def test_loader_gives_what_was_written(folder):
    loader = make_loader(folder)
    seen = []
    for arrays, labels, indices, paths, valid in loader:
        assert labels.tolist() == indices.tolist() and valid.all()
        for i, data, size, path in zip(indices.tolist(), arrays.data, arrays.sizes, paths, strict=True):
            np.testing.assert_array_equal(data[: size[0], : size[1]], array_of(i))
            assert path.endswith(f"{i:02d}.npy")
        seen += indices.tolist()
    assert sorted(seen) == list(range(13))
    loader.close()


def test_resumes_exactly_on_any_ranks(folder):
    assert_resumes_exactly(lambda: make_loader(folder), epochs=2)
    for world in (2, 3):
        assert_same_stream(
            lambda: make_loader(folder, batch_size=6),
            lambda: [make_loader(folder, batch_size=6 // world, rank=r, world_size=world) for r in range(world)],  # noqa: B023
            steps=False,
        )


def test_bad_files_are_replaced(folder):
    garble_file(files_of(folder)[3])
    truncate_file(files_of(folder)[8])
    files_of(folder)[9].write_bytes(npy(np.zeros(3)))
    loader = make_loader(folder, on_bad_sample="substitute")
    batches = list(loader)
    assert sum(len(batch[1]) for batch in batches) == 13 and sum(int(batch[4].sum()) for batch in batches) == 10
    assert {one.index: one.stage for one in loader.bad_samples} == {3: "read", 8: "read", 9: "read"}
    loader.close()
    raising = make_loader(folder, shuffle=False)
    with pytest.raises(td.BadSampleError, match=r"read failed for sample 3 \(.*03\.npy\): .*a \.npy file was expected"):
        list(raising)
    raising.close()
