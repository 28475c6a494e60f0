"""What DALI's readers let through without a word, or die of: an error or a counted warning here, before they see it."""

from __future__ import annotations

import io
import pickle
import re
import struct
import tarfile

import numpy as np
import pytest

import torchdali as td
from tests.kind_words import words
from torchdali import readers
from torchdali.errors import ReaderError
from torchdali.readers.native import reader_state
from torchdali.testing import truncate_file

from .reader_files import CASES, N, image_file


@pytest.fixture
def write(tmp_path):
    """Writes the files of a case to be spoiled, and gives their folder and the reader's maker."""

    def write(name):
        case = CASES[name](tmp_path / name)
        return tmp_path / name, case.make

    return write


# Options


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"random_shuffle": True}, ValueError, 'write shuffle="window"'),
        ({"shuffle_after_epoch": True}, ValueError, 'write shuffle="full"'),
        ({"shard_id": 0}, ValueError, "rank="),
        ({"num_shards": 2}, ValueError, "virtual_shards="),
        ({"pad_last_batch": True}, ValueError, "pad_last=True"),
        ({"enable_checkpointing": True}, ValueError, "always there"),
        ({"batch_size": 3}, ValueError, "at the DataLoader"),
        ({"initial_fil": 3}, TypeError, "no option 'initial_fil'.*initial_fill"),
        ({"initial_fill": 0}, ValueError, "initial_fill must be at least 1|in \\[1"),
        ({"prefetch_queue_depth": 0}, ValueError, "prefetch_queue_depth must be"),
        ({"shuffle": True}, ValueError, '"full", "window" or False'),
        ({"virtual_shards": 0}, ValueError, "virtual_shards must be"),
        (
            {"fields": ("image",)},
            ValueError,
            "fields must be 2 different names, one for each of image, label in this order",
        ),
        ({"fields": ("image", "image")}, ValueError, "2 different names"),
        ({"fields": ("image", "label", "path")}, ValueError, "does not tell"),
        ({"kinds": {"photo": "encoded"}}, ValueError, "kinds must be of the fields"),
    ],
)
def test_options(write, options, error, match):
    _, make = write("File")
    with pytest.raises(error, match=match):
        make(**options)


def test_the_loader_leaves_the_order_to_the_reader(write):
    _, make = write("File")
    for arguments in ({"shuffle": True}, {"sampler": range(N)}):
        with pytest.raises(ValueError, match='shuffle="full" or shuffle="window"'):
            td.DataLoader(make(), **arguments)
    with pytest.raises(ValueError, match="multiple of the number of ranks"):
        td.DataLoader(make(virtual_shards=4), rank=0, world_size=3).state_dict()
    with pytest.raises(ValueError, match="cannot give each of"):
        td.DataLoader(make(virtual_shards=N + 1), batch_size=2).state_dict()


@pytest.mark.parametrize(
    ("generator", "epoch", "age"), [(0, 0, 0), (2**31 - 1, 0, 0), (1, -1, 0), (1, 0, -1), (1, 0, 2**31)]
)
def test_no_odd_number_reaches_dali(generator, epoch, age):
    """It loops for ever on some of them, and takes the others."""
    with pytest.raises(ValueError, match="not a state of a reader"):
        reader_state(generator, epoch, age)


# File


def test_file_missing_and_empty(write):
    root, make = write("File")
    files = sorted(map(str, root.rglob("*.jpg")))
    with pytest.raises(FileNotFoundError, match=r"1 of 14 files are missing, the first is .*nope"):
        readers.File(files=[*files, "nope.jpg"])
    (root / "class_1" / "empty.jpg").touch()
    with pytest.raises(ValueError, match=r"1 of 14 files are empty, the first is .*empty\.jpg"):
        make()


def test_file_labels(write, tmp_path):
    root, _ = write("File")
    file = str(next(root.rglob("*.jpg")))
    with pytest.raises(ValueError, match=r"label 1099511627776 .* does not fit int32"):
        readers.File(files=[file], labels=[2**40])
    listed = tmp_path / "list.txt"
    listed.write_text(f"{file} 5\n{file} 7\n\n")
    assert [int(label) for _, label in readers.File(file_list=listed)] == [5, 7]
    for line, match in (
        (f"{file} 1099511627776", "does not fit int32"),
        (f"{file}", "line 3: expected"),
        (f"{file} cat", "line 3: expected"),
        ("nope.jpg 3", "missing"),
    ):
        listed.write_text(f"{file} 5\n\n{line}\n")
        with pytest.raises((ValueError, FileNotFoundError), match=match):
            readers.File(file_list=listed)


def test_file_says_what_is_left_out(write):
    root, make = write("File")
    (root / "class_1" / "notes.txt").write_text("x")
    (root / "class_1" / "deeper").mkdir()
    (root / "class_1" / "deeper" / "x.jpg").write_bytes(image_file(1))
    (root / "class_0_empty").mkdir()
    with pytest.warns(RuntimeWarning) as warned:
        reader = make()
    texts = " ".join(str(one.message) for one in warned)
    assert re.search("2 files are left out", texts) and re.search(
        "1 folders have no file to read.*class_0_empty", texts
    )
    assert len(reader) == N


# Numpy


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (np.zeros((2, 2), ">f4"), "little-endian"),
        (np.zeros((2, 2), np.complex64), "little-endian numbers only"),
        (np.array(["a", "b"]), "little-endian numbers only"),
        (np.zeros((2, 2), np.float64), "one dtype and number of dimensions.*<f4 with 2.*<f8 with 2"),
        (np.zeros(2, np.float32), "one dtype and number of dimensions"),
    ],
    ids=["big-endian", "complex", "text", "dtype", "ndim"],
)
def test_numpy(write, array, match):
    root, make = write("Numpy")
    np.save(root / "zzz.npy", array)
    with pytest.raises(ValueError, match=rf"(?s){match}.*zzz\.npy|zzz\.npy.*{match}"):
        make()


def test_numpy_cut_off(write):
    root, make = write("Numpy")
    truncate_file(root / "005.npy", 0.9)
    with pytest.raises(ValueError, match=r"005\.npy"):
        make()


def test_arrays_of_two_dtypes_do_not_mix(tmp_path):
    """Beyond the files that are looked at, each batch is: virtual shards would mix them without a word."""
    paths = []
    for i in range(4):
        paths.append(str(tmp_path / f"{i}.npy"))
        np.save(paths[-1], np.ones(2, np.float32 if i < 2 else np.float64))
    reader = readers.Numpy(files=paths[:2], virtual_shards=2)
    reader.options["files"] = paths  # as if they had come later
    with pytest.raises(td.FieldTypeError, match="must be float32 with 1 dimension, as in sample 0, got float64"):
        list(td.DataLoader(reader, batch_size=4, device="cpu"))


# Webdataset


def tar(path, members, **options):
    with tarfile.open(path, "w", **options) as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def test_webdataset_components(write):
    root, _ = write("Webdataset")
    paths = root / "*.tar"
    with pytest.raises(ValueError, match=r"(?s)ending jpgg was expected.*offset 1536 of .*000000\.tar"):
        readers.Webdataset(paths=paths, ext=["jpgg", "cls"])
    with pytest.raises(ValueError, match="missing_component_behavior must be"):
        readers.Webdataset(paths=paths, ext=["jpg"], missing_component_behavior="ignore")
    with pytest.raises(ValueError, match="needs paths= and ext="):
        readers.Webdataset(paths=paths)


@pytest.mark.parametrize("behavior", ["error", "skip", "empty"])
def test_webdataset_missing(tmp_path, behavior):
    path = tar(
        tmp_path / "x.tar", [("a.bin", b"1"), ("a.cls", b"0"), ("b.bin", b"2"), ("c.cls", b"2"), ("c.bin", b"3")]
    )
    options = dict(paths=path, ext=["bin", "cls"], missing_component_behavior=behavior)
    if behavior == "error":
        with pytest.raises(ValueError, match=r"'b' at offset .*missing_component_behavior=\"skip\""):
            readers.Webdataset(**options)
        return
    reader = readers.Webdataset(
        **options, kinds={"cls": "array"} if behavior == "empty" else None, fields=("bin", "cls")
    )
    got = [(bytes(data.numpy()), bytes(label.numpy()) if label.ndim else int(label)) for data, label in reader]
    assert got == ([(b"1", 0), (b"3", 2)] if behavior == "skip" else [(b"1", b"0"), (b"2", b""), (b"3", b"2")])


@pytest.mark.parametrize("format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT], ids=["gnu", "pax"])
def test_webdataset_long_names(tmp_path, format):
    """DALI by itself gives wrong data for them."""
    members = [(f"{'long' * 60}ä{i}.{ext}", f"{i}".encode()) for i in range(5) for ext in ("bin", "cls")]
    path = tar(tmp_path / "x.tar", members, format=format)
    got = [(bytes(data.numpy()), int(label)) for data, label in readers.Webdataset(paths=path, ext=["bin", "cls"])]
    assert got == [(f"{i}".encode(), i) for i in range(5)]


def test_webdataset_damaged(write, tmp_path):
    root, make = write("Webdataset")
    with pytest.raises(ValueError, match=r"no samples in .*empty\.tar"):
        readers.Webdataset(paths=tar(tmp_path / "empty.tar", []), ext=["jpg"])
    apart = tar(tmp_path / "apart.tar", [("a.bin", b"1"), ("b.bin", b"2"), ("a.cls", b"1"), ("b.cls", b"1")])
    with pytest.raises(ValueError, match=r"'a' comes twice in .*apart\.tar, at offsets"):
        readers.Webdataset(paths=apart, ext=["bin", "cls"])
    truncate_file(root / "000001.tar", 0.5)
    with pytest.raises(ValueError, match=r"000001\.tar is cut off|cut off"):
        make()


@pytest.mark.processes
def test_webdataset_index(write, tmp_path):
    from wds2idx import IndexCreator

    root, make = write("Webdataset")
    tars = sorted(root.glob("*.tar"))
    indexes = [tmp_path / f"{path.stem}.idx" for path in tars]
    for path, index in zip(tars, indexes, strict=True):
        creator = IndexCreator(str(path), str(index), verbose=False)
        creator.create_index()
        creator.close()
    assert len(list(make(index_paths=indexes))) == N
    with pytest.raises(ValueError, match="one for each tar"):
        make(index_paths=indexes[:1])
    with pytest.raises(ValueError, match=r"does not belong to|points beyond"):
        make(index_paths=indexes[1:] + indexes[:1])


# TFRecord and RecordIO


@pytest.mark.parametrize(
    ("features", "match"),
    [
        ({"nope": "int"}, r"record 0 at offset 0 of .*0\.tfrecord: the feature 'nope' has 0 values"),
        ({"size": ("int", (3,))}, "'size' has 2 values, and DALI would give 3"),
        ({"size": "int"}, "Output tensor shape is too small"),
        ({"size": "float"}, "'size'"),
    ],
    ids=str,
)
def test_tfrecord_features(write, features, match):
    root, _ = write("TFRecord")
    with pytest.raises((ValueError, ReaderError), match=match):
        readers.TFRecord(path=sorted(root.glob("*.tfrecord")), features=features)


def test_tfrecord_with_dalis_features(write):
    import nvidia.dali.tfrecord as tfrec

    root, _ = write("TFRecord")
    features = {
        "image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""),
        "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1),
        "boxes": tfrec.VarLenFeature(tfrec.float32, 0.0),
    }
    reader = readers.TFRecord(
        path=sorted(root.glob("*.tfrecord")), features=features, fields=("image", "label", "boxes")
    )
    assert words(reader.kinds) == {"image": "encoded", "label": "number", "boxes": "array"}
    assert [int(label) for _, label, _ in reader] == list(range(N))
    with pytest.raises(TypeError, match="DALI's features do not pickle"):
        pickle.dumps(reader)
    wrong = {"absent": tfrec.FixedLenFeature([2], tfrec.int64, 5)}
    with pytest.raises(ValueError, match="'absent' has 0 values, and DALI would give"):
        readers.TFRecord(path=sorted(root.glob("*.tfrecord")), features=wrong)


def test_tfrecord_files(write):
    root, make = write("TFRecord")
    path = root / "1.tfrecord"
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    with pytest.raises(ValueError, match=r"1\.tfrecord is cut off: the record at offset \d+"):
        make()
    path.write_bytes(whole[:8] + bytes(4) + whole[12:])
    with pytest.raises(ValueError, match=r"1\.tfrecord is not a TFRecord at offset 0"):
        make()
    path.write_bytes(whole)
    index = root / "wrong.idx"
    index.write_text("0 10\n10 20\n")
    features = {"image/class/label": "int"}
    with pytest.raises(ValueError, match=r"wrong\.idx does not fit"):
        readers.TFRecord(path=path, features=features, index_path=index)


def test_recordio_files(write):
    root, make = write("MXNet")
    index = root / "data.idx"
    right = index.read_text()
    index.write_text(right.replace("\t0\n", "\t4\n"))
    with pytest.raises(ValueError, match=r"data\.idx does not fit"):
        make()
    index.write_text(right)
    reader = readers.MXNet(path=root / "data.rec")  # it makes the index
    assert len(list(reader)) == N
    data = (root / "data.rec").read_bytes()
    (root / "data.rec").write_bytes(struct.pack("<I", 7) + data[4:])
    with pytest.raises(ValueError, match=r"data\.rec is not RecordIO at offset 0"):
        readers.MXNet(path=root / "data.rec")


# LMDB


@pytest.mark.parametrize("name", ["Caffe", "Caffe2"])
def test_lmdb_cut_off(write, name):
    """DALI's process would die of it."""
    root, make = write(name)
    truncate_file(root / "data.mdb", 0.5)
    with pytest.raises(ValueError, match=r"data\.mdb"):
        make()
    with pytest.raises(FileNotFoundError):
        getattr(readers, name)(path=root / "nowhere")


# While reading


@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_names_the_place_and_goes_on(write, prefetch):
    """A file that goes away later costs the batches around it, though more of such small files are read at once."""
    root, make = write("File")
    files = sorted(root.rglob("*.jpg"))
    reader = readers.File(files=files, kinds={"image": "array"})
    walked = make()
    assert len(walked) == N
    files[8].unlink()
    seen, errors = [], []
    with td.DataLoader(reader, batch_size=2, device="cpu", prefetch_factor=prefetch) as loader:
        iterator = iter(loader)
        for number in range(len(loader)):
            try:
                next(iterator)
                seen.append(number)
            except ReaderError as error:
                errors.append(str(error))
        with pytest.raises(StopIteration):
            next(iterator)
    assert {0, 1, 5, 6} <= set(seen) and 4 not in seen
    with pytest.raises(ReaderError, match="there are 12 samples now, and were 13 before"):
        list(walked)
    assert re.search(r"File failed at epoch 0, positions \d+ to \d+, or while it read ahead: .*008\.jpg", errors[0])


def test_small_samples_are_read_many_at_once(write, tmp_path):
    """As many as fit into 4 MiB; the stream does not depend on it."""
    _, make = write("TFRecord")
    assert make().rows_at_once(3) == 256 and make().rows_at_once(1000) == 1000
    large = tmp_path / "large.jpg"
    large.write_bytes(bytes(1 << 20))
    assert readers.File(files=[large] * 9).rows_at_once(3) == 4
    whole = [list(td.DataLoader(make(shuffle="window", seed=1), batch_size=size, device="cpu")) for size in (2, 13)]
    labels = [[int(number) for batch in batches for number in batch[1]] for batches in whole]
    assert labels[0] == labels[1]


def test_a_bad_image_is_named_or_replaced(write):
    """A decoder's error is of one sample, and has the loader's policies."""
    root, _ = write("TFRecord")
    from tfrecord.writer import TFRecordWriter

    writer = TFRecordWriter(str(root / "2.tfrecord"))
    for i in range(3):
        writer.write({"image": (b"\xff\xd8\xff junk" if i == 1 else image_file(i), "byte"), "label": (i, "int")})
    writer.close()

    def loader(**options):
        reader = readers.TFRecord(path=root / "2.tfrecord", features={"image": "bytes", "label": "int"})
        return td.DataLoader(reader, batch_size=3, device="cpu", transform=td.transforms.Resize((8, 8)), **options)

    with pytest.raises(td.BadSampleError, match="decode failed for sample 1"):
        next(iter(loader()))
    images, labels = next(iter(loader(on_bad_sample="substitute")))
    assert images.shape == (3, 3, 8, 8) and set(labels.tolist()) <= {0, 2} and labels[0] == 0 and labels[2] == 2


def test_no_paths_and_no_arrays(tmp_path):
    with pytest.raises(TypeError, match="paths must be one path or several, got 3"):
        td.TarDataset(3, ["jpg"])
    (tmp_path / "x.npy").write_bytes(b"text")
    with pytest.raises(ValueError, match=r"x\.npy is not a \.npy file"):
        readers.Numpy(file_root=tmp_path)
