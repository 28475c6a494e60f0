"""Indexes and headers beside the data are checked before they are believed."""

from __future__ import annotations

import io
import random
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torchdali as td
from torchdali import readers
from torchdali.formats.cache import cached_index, index_file
from torchdali.formats.npy import as_npy, npy_header
from torchdali.formats.webdataset import wds_index
from torchdali.storage import LocalStorage, open_storage
from torchdali.testing import make_image_folder

INDEX = {"offset": np.arange(200), "ends": np.arange(7, dtype=np.int32), "keys": np.arange(90, dtype=np.uint8)}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(range(256)) * 4)
    return path


def kept(folder: Path, ending: str) -> Path:
    (found,) = folder.glob(f"*{ending}")
    return found


def mutations(content: bytes, count: int) -> list[bytes]:
    """Bytes that were flipped, cut, doubled and left out."""
    chance = random.Random(0)
    found = []
    for _ in range(count):
        at, way = chance.randrange(len(content)), chance.randrange(4)
        part = content[at : at + 5]
        flipped = bytes([content[at] ^ 1 << chance.randrange(8)])
        found.append(
            content[:at] + [flipped + content[at + 1 :], b"", part * 2 + content[at + 5 :], content[at + 5 :]][way]
        )
    return found


@pytest.mark.slow
def test_a_damaged_index_is_made_again_and_never_believed(data: Path, tmp_path: Path) -> None:
    folder, made = tmp_path / "kept", []

    def build() -> Any:
        made.append(1)
        return {name: array.copy() for name, array in INDEX.items()}

    def index() -> dict[str, Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            return cached_index(LocalStorage(str(data)), "test1", build, folder)

    index()
    whole = kept(folder, ".npz").read_bytes()
    for content in [*mutations(whole, 600), b"", whole[:100]]:
        kept(folder, ".npz").write_bytes(content)
        found = index()
        assert found.keys() == INDEX.keys()
        assert all(
            np.array_equal(found[name], INDEX[name]) and found[name].dtype == INDEX[name].dtype for name in INDEX
        )
    made.clear()
    index()
    assert not made  # the last one was kept


def test_an_index_without_one_of_its_parts_is_made_again(data: Path, tmp_path: Path) -> None:
    """A zip file whose directory has lost a member is whole for zipfile."""
    folder = tmp_path / "kept"
    cached_index(LocalStorage(str(data)), "test1", lambda: INDEX, folder)
    file = kept(folder, ".npz")
    with zipfile.ZipFile(file) as stored:
        members = {name: stored.read(name) for name in stored.namelist() if name != "ends.npy"}
    with zipfile.ZipFile(file, "w") as damaged:
        for name, content in members.items():
            damaged.writestr(name, content)
    with pytest.warns(RuntimeWarning, match=r"the index .* is damaged and is made again: its digest is another one"):
        assert cached_index(LocalStorage(str(data)), "test1", lambda: INDEX, folder).keys() == INDEX.keys()


def test_a_damaged_text_index_is_made_again(data: Path, tmp_path: Path) -> None:
    folder, text = tmp_path / "kept", "v1.2 1\njpg 512 100 a.jpg\n"

    def file() -> Path:
        return Path(index_file(str(data), "test", lambda: text, index_dir=folder))

    assert file().read_text() == text
    for content in mutations(text.encode(), 100):
        if content == text.encode():
            continue
        kept(folder, ".idx").write_bytes(content)
        with pytest.warns(RuntimeWarning, match="is damaged and is made again: its digest is another one"):
            assert file().read_text() == text
    kept(folder, ".digest").unlink()
    assert file().read_text() == text and kept(folder, ".digest").exists()


def test_a_reader_survives_its_damaged_index(tmp_path: Path) -> None:
    import webdataset as wds

    tar, folder = tmp_path / "a.tar", tmp_path / "kept"
    images = make_image_folder(tmp_path / "images", classes=1, per_class=3)
    with wds.TarWriter(str(tar)) as writer:
        for number, path in enumerate(sorted(images.rglob("*.jpg"))):
            writer.write({"__key__": str(number), "jpg": path.read_bytes(), "cls": number})

    def labels() -> list[int]:
        reader = readers.Webdataset(paths=str(tar), ext=["jpg", "cls"], fields=["image", "label"], index_dir=folder)
        return [int(label) for _, label in reader]

    assert labels() == [0, 1, 2]
    index = kept(folder, ".idx")
    index.write_bytes(index.read_bytes().replace(b"part0", b"part1", 1))
    with pytest.warns(RuntimeWarning, match="damaged"):
        assert labels() == [0, 1, 2]


# .npy


def npy(array: Any, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), version)
    return file.getvalue()


def read(content: bytes) -> Any:
    return as_npy(np.frombuffer(content, np.uint8))


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("array", [np.float32(2.5), np.arange(6).reshape(2, 3), np.zeros((0, 4))])
def test_all_versions_and_arrays_without_dimensions(array: Any, version: tuple[int, int]) -> None:
    found = read(npy(array, version))
    assert found.shape == np.shape(array) and found.dtype == np.asarray(array).dtype and np.array_equal(found, array)


def test_a_dataset_of_arrays_without_dimensions(tmp_path: Path) -> None:
    for number in range(4):
        np.save(tmp_path / f"{number}.npy", np.int64(number * 10))
    with td.DataLoader(td.NumpyDataset(tmp_path), 4, device="cpu") as loader:
        ((values,),) = loader
        assert values.tolist() == [0, 10, 20, 30] and values.shape == (4,)


def test_a_file_has_exactly_the_bytes_that_its_header_says(tmp_path: Path) -> None:
    whole = npy(np.arange(6.0))
    for content in (whole + b"x", whole[:60] + b" " + whole[60:], whole[:-1]):
        with pytest.raises(ValueError, match=r"bytes of float64 \[6\] were expected at offset 128, got|npy header"):
            read(content)
        path = tmp_path / "a.npy"
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"a\.npy is not a \.npy file that DALI can read"):
            npy_header(str(path))


def test_any_header_is_an_array_or_one_error(tmp_path: Path) -> None:
    whole = npy(np.arange(6).reshape(2, 3))
    path = tmp_path / "a.npy"
    for content in mutations(whole, 400):
        path.write_bytes(content)
        for look in (lambda: read(path.read_bytes()), lambda: npy_header(str(path))):
            try:
                look()
            except ValueError:
                pass


# wds2idx


def test_a_long_line_of_an_index_is_read_in_one_pass(tmp_path: Path) -> None:
    """By a pattern that begins anew at each character, this takes minutes."""
    tar = tmp_path / "a.tar"
    tar.write_bytes(b"\0" * 10240)
    for line in ("x" * 400_000, "a " * 200_000, "jpg 512 1 " + "n 1 " * 100_000):
        (tmp_path / "a.idx").write_text(f"v1.2 1\n{line}\n")
        try:
            wds_index(open_storage(str(tmp_path / "a.idx")), open_storage(str(tar)))
        except ValueError as error:
            assert "line 2" in str(error) or "offset" in str(error)


def test_names_with_blanks_in_an_index(tmp_path: Path) -> None:
    tar = tmp_path / "a.tar"
    tar.write_bytes(b"\0" * 10240)
    (tmp_path / "a.idx").write_text("v1.2 1\njpg 512 5 a b 1 2.jpg cls 1536 1 a b 1 2.cls\n")
    index = wds_index(open_storage(str(tmp_path / "a.idx")), open_storage(str(tar)))
    assert index["offset"].tolist() == [512, 1536] and index["size"].tolist() == [5, 1]
    assert index["keys"].tobytes() == b"a b 1 2"


# Others


def test_the_places_of_packed_values_are_checked(tmp_path: Path) -> None:
    """A wrong place is another sample's bytes, and only the checksum knows."""
    data = td.InMemoryDataset(image=[np.full(n, n, np.uint8) for n in (3, 5, 4)], kinds={"image": "array"})
    td.pack(data, tmp_path)
    (places,) = tmp_path.glob("*.at.npy")
    content = bytearray(places.read_bytes())
    assert content[-8] == 4
    content[-8] = 3
    places.write_bytes(content)
    with pytest.raises(ValueError, match=r"\.at\.npy is damaged: the CRC-32"):
        td.Packed(tmp_path)[0]
    content[40] ^= 1
    places.write_bytes(content)
    with pytest.raises(ValueError, match=r"\.at\.npy is damaged"):
        td.Packed(tmp_path)[0]


def test_a_damaged_npz_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, image=np.zeros((4, 3), np.float32), label=np.arange(4))
    whole = path.read_bytes()
    for content in [*mutations(whole, 60), b"", whole[:50]]:
        path.write_bytes(content)
        try:
            assert len(td.NumpyDataset(path)) == 4
        except (ValueError, TypeError) as error:  # an array that is lost leaves one of another form
            assert "a.npz" in str(error)


def test_tokens_named_npy_are_in_a_npy_file(tmp_path: Path) -> None:
    path = tmp_path / "tokens.npy"
    whole = npy(np.arange(200, dtype=np.uint16))
    for content in (b"\x92" + whole[1:], whole[:6], whole[:60], whole[:40] + b"\xff" + whole[41:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"tokens\.npy"):
            td.TokenWindows(path, 8)


def test_an_index_that_leaves_out_a_record_is_refused(tmp_path: Path) -> None:
    """DALI would leave out the record too."""
    from .reader_files import mxnet_case

    mxnet_case(tmp_path / "data")
    index = tmp_path / "data" / "data.idx"
    lines = index.read_text().splitlines(keepends=True)
    index.write_text("".join(lines[:5] + lines[6:]))
    with pytest.raises(ValueError, match=r"data\.rec has 12 records, and the file 13"):
        readers.MXNet(path=tmp_path / "data" / "data.rec", index_path=index, index_dir=tmp_path)


def test_a_database_whose_tree_is_said_to_be_empty_is_named(tmp_path: Path) -> None:
    import lmdb

    with lmdb.open(str(tmp_path), map_size=1 << 20) as env, env.begin(write=True) as transaction:
        transaction.put(b"a", b"value")
    content = bytearray((tmp_path / "data.mdb").read_bytes())
    for page in (0, 4096):
        content[page + 94 : page + 96] = bytes(2)  # the tree's depth
    (tmp_path / "data.mdb").write_bytes(content)
    with pytest.raises(ValueError, match=r"data\.mdb is damaged: 1 values were expected in its tree"):
        td.LMDBDataset(tmp_path, "raw")
