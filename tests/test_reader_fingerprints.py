"""Fingerprints of native readers, and the indexes that they need: neither depends on where the files are."""

from __future__ import annotations

import json
import shutil
import struct
import warnings

import numpy as np
import pytest
import soundfile

from torchdali import readers
from torchdali.errors import StateMismatchError
from torchdali.fingerprint import digest, portable

from .reader_files import _message, _write_lmdb, image_file

N = 4  # samples of each reader, also of those that must differ


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


# Each makes a folder's files, which differ by `seed`, and then a reader of them.


def write_images(root, seed):
    for i in range(N):
        folder = root / "data" / f"class{i % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{seed}-{i}.jpg").write_bytes(image_file(i))
    return sorted((root / "data").rglob("*.jpg"))


def file_root(root):
    return readers.File(file_root=root / "data")


def write_image_list(root, seed):
    names = [str(path.relative_to(root)) for path in write_images(root, 0)]
    (root / "list.txt").write_text("".join(f"{name} {i + seed}\n" for i, name in enumerate(names)))


def file_list(root):
    return readers.File(file_list=root / "list.txt")


def write_arrays(root, seed):
    (root / "arrays").mkdir()
    for i in range(N):
        np.save(root / "arrays" / f"{seed}-{i}.npy", np.arange(i + 1.0))


def numpy_root(root):
    return readers.Numpy(file_root=root / "arrays")


def write_array_list(root, seed):
    write_arrays(root, 0)
    names = sorted(path.name for path in (root / "arrays").iterdir())
    (root / "list.txt").write_text("".join(f"{name}\n" for name in np.roll(names, seed)))


def numpy_list(root):
    return readers.Numpy(file_root=root / "arrays", file_list=root / "list.txt")


def write_coco(root, seed):
    write_images(root, 0)
    paths = sorted((root / "data").rglob("*.jpg"))
    images = [{"id": i, "file_name": str(path.relative_to(root)), "width": 20, "height": 20}
              for i, path in enumerate(paths)]  # fmt: skip
    annotations = [{"id": i, "image_id": i, "category_id": 1, "bbox": [seed, 0, 5, 5], "area": 25} for i in range(N)]
    document = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "x"}]}
    (root / "coco.json").write_text(json.dumps(document))


def coco(root):
    return readers.COCO(file_root=root, annotations_file=root / "coco.json")


def write_speech(root, seed):
    for i in range(N):
        soundfile.write(root / f"{i}.wav", np.zeros(100), 8000, subtype="PCM_16")


def nemo(root):
    # Its paths are absolute: a folder that moves gets a new manifest.
    texts = json.loads((root / "texts.json").read_text())
    lines = [{"audio_filepath": str(root / f"{i}.wav"), "duration": 0.0125, "text": texts[i]} for i in range(N)]
    (root / "manifest.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return readers.NemoAsr(manifest_filepaths=[root / "manifest.json"])


def write_spoken(root, seed):
    write_speech(root, seed)
    (root / "texts.json").write_text(json.dumps([f"{seed} {i}" for i in range(N)]))


def write_tfrecords(root, seed):
    from tfrecord.writer import TFRecordWriter

    writer = TFRecordWriter(str(root / "train.tfrecord"))
    for i in range(N):
        writer.write({"x": (list(range(1000 * seed, 1000 * seed + 40)), "int"), "label": (i, "int")})
    writer.close()


def tfrecord(root):
    return readers.TFRecord(path=root / "train.tfrecord", features={"label": "int"})


def write_recordio(root, seed):
    with open(root / "train.rec", "wb") as file:
        for i in range(N):
            payload = struct.pack("<IfQQ", 0, float(i), i, 0) + image_file(i + 10 * seed)
            file.write(struct.pack("<II", 0xCED7230A, len(payload)) + payload + bytes(-len(payload) % 4))


def mxnet(root):
    return readers.MXNet(path=root / "train.rec")


def write_tars(root, seed):
    from webdataset import TarWriter

    with TarWriter(str(root / "train.tar")) as writer:
        for i in range(N):
            writer.write({"__key__": f"{i}", "jpg": image_file(i + 10 * seed), "cls": i})


def webdataset(root):
    return readers.Webdataset(paths=root / "train.tar", ext=["jpg", "cls"])


def write_caffe(root, seed):
    values = [_message((4, image_file(i)), (5, i), (7, 1)) for i in range(N)]
    import lmdb

    if not seed:
        return _write_lmdb(root / "train_lmdb", values)
    with lmdb.open(str(root / "train_lmdb"), map_size=1 << 24) as env, env.begin(write=True) as transaction:
        for i, value in enumerate(values):
            transaction.put(f"other {i}".encode(), value)


def caffe(root):
    return readers.Caffe(path=root / "train_lmdb")


CASES = {
    "File(file_root)": (write_images, file_root),
    "File(file_list)": (write_image_list, file_list),
    "Numpy(file_root)": (write_arrays, numpy_root),
    "Numpy(file_list)": (write_array_list, numpy_list),
    "COCO": (write_coco, coco),
    "NemoAsr": (write_spoken, nemo),
    "TFRecord": (write_tfrecords, tfrecord),
    "MXNet": (write_recordio, mxnet),
    "Webdataset": (write_tars, webdataset),
    "Caffe": (write_caffe, caffe),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fingerprint_is_that_of_the_files(tmp_path, name):
    """Also where an option names all of them by one word: the folder may move, and other files are other data."""
    write, make = CASES[name]
    one, other, moved = (tmp_path / folder / "same" for folder in ("one", "other", "moved"))
    for folder, seed in ((one, 0), (other, 1)):
        folder.mkdir(parents=True)
        write(folder, seed)
    shutil.copytree(one, moved)
    shutil.move(moved, tmp_path / "moved" / "another name")
    first, second, third = make(one), make(other), make(tmp_path / "moved" / "another name")
    assert len(first) == len(second) == N
    assert first.fingerprint() == third.fingerprint() != second.fingerprint()
    assert len(first.fingerprint()) <= 100
    samples = iter(first)
    next(samples)
    state = first.state_dict()
    third.load_state_dict(state)
    with pytest.raises(StateMismatchError, match=r"dataset: expected [\s\S]*strict=False"):
        second.load_state_dict(state)
    second.load_state_dict(state, strict=False)


def test_a_fingerprint_of_listed_files_is_that_of_the_options(tmp_path):
    files = [str(path) for path in write_images(tmp_path, 0)]
    reader = readers.File(files=files, labels=[0, 1, 2, 3], seed=5)
    assert reader.fingerprint() == f"File {digest(portable({'files': files, 'labels': [0, 1, 2, 3]}), 5)}"


@pytest.mark.parametrize("name", ["TFRecord", "MXNet", "Webdataset"])
def test_an_index_goes_elsewhere_where_the_cache_cannot_be_written(tmp_path, monkeypatch, name):
    write, make = CASES[name]
    write(tmp_path, 0)
    expected = len(list(make(tmp_path)))
    (tmp_path / "file").write_text("no folder")  # root can write any folder, but none below a file
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "below"))
    with pytest.warns(RuntimeWarning, match=r"indexes can't be kept in .*file/below.*index_dir="):
        reader = make(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert len(list(reader)) == expected == N
        assert make(tmp_path).fingerprint() == reader.fingerprint()


@pytest.mark.parametrize("name", ["TFRecord", "MXNet", "Webdataset"])
def test_an_index_goes_where_it_is_told(tmp_path, name):
    write, make = CASES[name]
    write(tmp_path, 0)
    options = make(tmp_path).options
    reader = getattr(readers, name)(index_dir=tmp_path / "kept", **options)
    assert len(list(reader)) == N
    assert {path.suffix for path in (tmp_path / "kept").iterdir()} == {".idx", ".digest", ".npz"}
    assert reader.fingerprint() == make(tmp_path).fingerprint()
