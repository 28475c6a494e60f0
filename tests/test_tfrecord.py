"""TFRecordDataset: what tfrecord's writer wrote comes back, in any order, and damaged files are named."""

from __future__ import annotations

import pickle
import struct
from collections import namedtuple
from itertools import pairwise
from pathlib import Path

import crc32c
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tfrecord import TFRecordWriter, example_pb2

import torchdali as td
from tests.kind_words import words
from torchdali.datasets.tfrecord import TFRecordDataset
from torchdali.formats import records, tfrecord
from torchdali.formats.example import parse_example
from torchdali.formats.feature import Feature
from torchdali.storage import LocalStorage
from torchdali.testing import assert_resumes_exactly, assert_same_stream, read_stream

IMAGES = {"image/encoded": "bytes", "image/class/label": "int"}
FEATURES = {"data": "bytes", "label": "int", "box": ("float", (4,)), "ids": ("int", None)}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def write(path, records) -> Path:
    writer = TFRecordWriter(str(path))
    for record in records:
        writer.write(record)
    writer.close()
    return Path(path)


def record(i, **changes):
    parts = {
        "data": (b"abc%d" % i * i, "byte"),
        "label": (i - 3, "int"),
        "box": ([1.0, 2.5, -3.0, float(i)], "float"),
        "ids": ([1 << 62, -1, 300][: i % 4], "int"),
    }
    return {name: part for name, part in (parts | changes).items() if part is not None}


def starts(path) -> list[int]:
    data, at, found = Path(path).read_bytes(), 0, []
    while at < len(data):
        found.append(at)
        at += struct.unpack_from("<Q", data, at)[0] + 16
    return found


def edit(path, offset, data):
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)


def index_file(path) -> Path:
    """As DALI's tfrecord2idx writes it."""
    begins = [*starts(path), path.stat().st_size]
    lines = [f"{begin} {end - begin}\n" for begin, end in pairwise(begins)]
    index = path.with_suffix(".idx")
    index.write_text("".join(lines))
    return index


@pytest.fixture
def file(tmp_path):
    return write(tmp_path / "a.tfrecord", [record(i) for i in range(9)])


@pytest.fixture
def shards(folder, tmp_path):
    """The 22 images in three files."""
    samples = td.ImageFolder(folder).samples
    paths = []
    for number, some in enumerate(np.array_split(np.arange(len(samples)), 3)):
        records = [
            {
                "image/encoded": (Path(samples[i][0]).read_bytes(), "byte"),
                "image/class/label": (samples[i][1], "int"),
                "boxes": (np.arange(4 * (i % 3)).astype(np.float32) + i, "float"),
                "name": (Path(samples[i][0]).name.encode(), "byte"),
            }
            for i in some
        ]
        paths.append(write(tmp_path / f"train-{number:05d}-of-00003", records))
    return paths


def loader(paths, features=IMAGES, fields=("image", "label"), arguments=None, **changes):
    dataset = TFRecordDataset(paths, features, fields, **(arguments or {}))
    return td.DataLoader(dataset, **(dict(batch_size=4, shuffle=True, seed=3, device="cpu") | changes))


def test_everything_comes_back(file):
    dataset = TFRecordDataset(file, FEATURES, kinds={"data": "array"})
    assert dataset.fields == ("data", "label", "box", "ids") and len(dataset) == 9
    assert words(dataset.kinds) == {"data": "array", "label": "number", "box": "array", "ids": "array"}
    assert [dataset.uniform(name) for name in dataset.fields] == [False, True, True, False]
    order = np.random.default_rng(0).permutation(9)
    columns = dataset.read(order)
    assert columns["label"].dtype == np.int64 and columns["box"].dtype == np.float32
    assert columns["label"].tolist() == [i - 3 for i in order]
    for row, i in enumerate(order.tolist()):
        expected = record(i)
        assert columns["data"][row].tobytes() == expected["data"][0] and columns["data"][row].dtype == np.uint8
        assert columns["box"][row].tolist() == expected["box"][0]
        assert columns["ids"][row].tolist() == expected["ids"][0] and columns["ids"][row].dtype == np.int64
    for name in ("data", "box", "ids"):
        assert all(value.flags.writeable for value in columns[name])


def test_shapes_kinds_and_names(file, tmp_path):
    texts = write(tmp_path / "b", [{"t": (["ä".encode(), b"b"], "byte"), "n": (b"17", "byte"), "o": ([], "float")}] * 2)
    dataset = TFRecordDataset(
        texts,
        {"t": ("bytes", None), "n": "string", "o": ("float32", (None, 3))},
        {"names": "t", "number": "n", "other": "o", "index": "index", "path": "path"},
        kinds={"number": "number"},
    )
    assert dataset.kinds["names"].word == "object"
    columns = dataset.read(np.array([1]))
    assert columns["names"] == [["ä", "b"]] and columns["number"].tolist() == [17]
    assert columns["other"][0].shape == (0, 3) and columns["index"].tolist() == [1]
    assert columns["path"] == [f"{texts}#1"]
    square = TFRecordDataset(file, {"box": ("float", (2, 2))})
    assert square.read(np.array([0, 1]))["box"].shape == (2, 2, 2)
    assert TFRecordDataset(file, {"box": ("float", (-1, 2))}).read(np.array([0]))["box"][0].shape == (2, 2)
    assert TFRecordDataset(file, FEATURES, ("box", "label")).read(np.array([8]))["label"].tolist() == [5]
    renamed = TFRecordDataset(file, FEATURES, ("jpg", "y", "index", "bbox", "w"))
    assert renamed.fields == ("jpg", "y", "index", "bbox", "w") and renamed.kinds["jpg"].word == "encoded"
    text = TFRecordDataset(file, {"data": "bytes"}, kinds={"data": "object"})
    assert text.read(np.array([2]))["data"] == ["abc2abc2"]


def test_functions_of_features(file):
    dataset = TFRecordDataset(
        file,
        FEATURES,
        convert={"data": len, "label": lambda n: np.full(2, n), "ids": sum, "box": list},
        kinds={"data": "number", "box": "boxes"},
    )
    assert [str(kind) for kind in dataset.kinds.values()] == ["number", "array", "boxes", "number"]
    columns = dataset.read(np.array([5, 2]))
    assert columns["data"].tolist() == [20, 8] and columns["ids"].tolist() == [1 << 62, (1 << 62) - 1]
    assert [row.tolist() for row in columns["label"]] == [[2, 2], [-1, -1]]
    assert [row.tolist() for row in columns["box"]] == [[1, 2.5, -3, 5], [1, 2.5, -3, 2]]
    assert [dataset.uniform(name) for name in dataset.fields] == [True, False, False, True]
    text = TFRecordDataset(file, {"data": "bytes"}, convert={"data": lambda value: bytes(value[:3]).decode()})
    assert text.read(np.array([1, 2]))["data"] == ["abc", "abc"] and text.kinds["data"].held == "object"


def test_defaults(tmp_path):
    path = write(
        tmp_path / "a", [record(1), record(2, label=None, box=None, data=None, ids=None), record(3, box=([], "float"))]
    )
    features = {
        "data": ("bytes", (), b"none"), "label": ("int", (), -7),
        "box": ("float", (4,), 0.5), "ids": ("int", None, [5]),
    }  # fmt: skip
    columns = TFRecordDataset(path, features, kinds={"data": "object"}).read(np.arange(3))
    assert columns["data"] == ["abc1", "none", "abc3abc3abc3"] and columns["label"].tolist() == [-2, -7, 0]
    assert columns["box"].tolist() == [record(1)["box"][0], [0.5] * 4, [0.5] * 4]
    assert columns["ids"][1].tolist() == [5]
    columns["ids"][1][:] = 0
    empty = TFRecordDataset(path, {"ids": ("int", None, ()), "box": ("float", [4], [1, 2, 3, 4])}).read(np.array([1]))
    assert empty["ids"][0].tolist() == [] and empty["box"].tolist() == [[1, 2, 3, 4]]


Dtype = namedtuple("Dtype", "name")
FixedLen = namedtuple("FixedLenFeature", "shape dtype default_value")
VarLen = namedtuple("VarLenFeature", "dtype")
Sequence = namedtuple("FixedLenSequenceFeature", "shape dtype allow_missing default_value")


def test_features_of_tensorflow_and_dali(file, tmp_path):
    features = {
        "data": FixedLen([], Dtype("string"), ""), "label": FixedLen((), Dtype("int64"), None),
        "box": FixedLen([4], Dtype("float32"), None), "ids": VarLen(Dtype("int64")),
        "none": VarLen(Dtype("float32")), "pairs": Sequence([2], Dtype("float32"), True, None),
    }  # fmt: skip
    columns = TFRecordDataset(file, features).read(np.array([6]))
    assert columns["label"].tolist() == [3] and columns["ids"][0].tolist() == [1 << 62, -1]
    assert columns["none"][0].shape == (0,) and columns["pairs"][0].shape == (0, 2)
    assert TFRecordDataset(file, {"label": int, "box": (float, (4,))}).read(np.array([0]))["label"].tolist() == [-3]
    import nvidia.dali.tfrecord as tfrec

    with pytest.raises(TypeError, match=r"can't be looked into: write \('int', \(\), 0\)"):
        TFRecordDataset(file, {"label": tfrec.FixedLenFeature((), tfrec.int64, 0)})


def test_equal_to_dalis_reader(shards, folder):
    import nvidia.dali.experimental.dynamic as ndd
    import nvidia.dali.tfrecord as tfrec

    reader = ndd.readers.TFRecord(
        path=[str(path) for path in shards],
        index_path=[str(index_file(path)) for path in shards],
        features={
            "image/encoded": tfrec.FixedLenFeature((), tfrec.string, ""),
            "image/class/label": tfrec.FixedLenFeature([1], tfrec.int64, -1),
            "boxes": tfrec.VarLenFeature([4], tfrec.float32, 0.0),
        },
        max_batch_size=22,
    )
    theirs = reader(batch_size=22)
    ours = TFRecordDataset(shards, {**IMAGES, "boxes": ("float", (None, 4))}, ("image", "label", "boxes"))
    columns = ours.read(np.arange(22))
    for i, (image, label, boxes) in enumerate(zip(*theirs.values(), strict=True)):
        np.testing.assert_array_equal(np.array(image), columns["image"][i])
        assert int(np.array(label)[0]) == columns["label"][i] == td.ImageFolder(folder).targets[i]
        np.testing.assert_array_equal(np.array(boxes).reshape(-1, 4), columns["boxes"][i])


def test_the_index_is_kept_and_dalis_are_read(file, tmp_path, monkeypatch):
    first = TFRecordDataset(file, FEATURES, index_dir=tmp_path / "indexes")
    assert len(list((tmp_path / "indexes").iterdir())) == 1
    read_by_index = TFRecordDataset(file, FEATURES, index_paths=index_file(file))
    monkeypatch.setattr(records, "scan", lambda *_: pytest.fail("scanned again"))
    monkeypatch.setattr(tfrecord, "scan", lambda *_: pytest.fail("scanned again"))
    again = TFRecordDataset(file, FEATURES, index_dir=tmp_path / "indexes")
    for other in (again, read_by_index):
        assert other.fingerprint() == first.fingerprint()
        assert other.read(np.arange(9))["label"].tolist() == list(range(-3, 6))


def test_the_fingerprint_is_that_of_the_samples(file, shards, tmp_path):
    fingerprint = TFRecordDataset(file, FEATURES).fingerprint()
    (tmp_path / "moved").mkdir()
    moved = file.rename(tmp_path / "moved" / file.name)
    assert TFRecordDataset(moved, FEATURES).fingerprint() == fingerprint and len(fingerprint) <= 100
    several = TFRecordDataset(shards, IMAGES).fingerprint()
    assert TFRecordDataset(shards[::-1], IMAGES).fingerprint() != several != fingerprint


def test_patterns_pickles_and_empty_files(shards, tmp_path):
    (tmp_path / "train-00003-of-00003").write_bytes(b"")
    dataset = TFRecordDataset(tmp_path / "train-*", IMAGES, {"label": "image/class/label"})
    assert len(dataset) == 22 and len(dataset.shards) == 4
    expected = dataset.read(np.arange(22))["label"].tolist()
    assert pickle.loads(pickle.dumps(dataset)).read(np.arange(22))["label"].tolist() == expected
    assert dataset.path(21) == f"{shards[2]}#6" and dataset.path(8) == f"{shards[1]}#0"
    image, label = TFRecordDataset(shards, IMAGES, ("image", "label"))[-1]
    assert image.shape[0] == 3 and label == 1


def test_remote_files(file):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/records/a.tfrecord", file.read_bytes())
    dataset = TFRecordDataset("memory://records/a.tfrecord", FEATURES)
    assert dataset.read(np.arange(9))["label"].tolist() == list(range(-3, 6))
    memory.rm("/records", recursive=True)


@pytest.mark.parametrize("window, sizes", [(64, [1, 2, 300]), (300, [0, 5000, 0, 0, 20]), (1 << 20, [3] * 50)])
def test_files_larger_than_what_is_read_at_once(tmp_path, monkeypatch, window, sizes):
    monkeypatch.setattr(records, "WINDOW", window)
    monkeypatch.setattr(LocalStorage, "gap", 16)
    path = write(tmp_path / "a", [{"x": (b"z" * size, "byte"), "n": (i, "int")} for i, size in enumerate(sizes)])
    dataset = TFRecordDataset(path, {"x": "bytes", "n": "int"})
    columns = dataset.read(np.arange(len(sizes)))
    assert [len(x) for x in columns["x"]] == sizes and columns["n"].tolist() == list(range(len(sizes)))


# Damage.


def test_a_garbled_length_is_found_at_once(file):
    third = starts(file)[3]
    edit(file, third, b"\x07")
    with pytest.raises(
        ValueError, match=rf"a.tfrecord is not a TFRecord at offset {third}: the checksum of the record's len"
    ):
        TFRecordDataset(file, FEATURES)


@pytest.mark.parametrize("cut", [1, 5, 20, 60])
def test_a_cut_file_is_found_at_once(file, cut):
    data, last = file.read_bytes(), starts(file)[-1]
    file.write_bytes(data[:-cut])
    with pytest.raises(
        ValueError, match=rf"a.tfrecord is cut off: the record at offset {last} needs {len(data) - last} b"
    ):
        TFRecordDataset(file, FEATURES)
    file.write_bytes(data[: last + 9])
    with pytest.raises(ValueError, match=f"cut off: the record at offset {last} needs"):
        TFRecordDataset(file, FEATURES)


def test_other_formats(tmp_path):
    import gzip

    path = tmp_path / "a"
    path.write_bytes(gzip.compress(b"x" * 1000))
    with pytest.raises(ValueError, match=r"compressed \(gzip\) and has no random access: decompress it"):
        TFRecordDataset(path, FEATURES)
    path.write_bytes(b"something else that is long enough")
    with pytest.raises(ValueError, match=r"at offset 0: .* it has another format, or is compressed"):
        TFRecordDataset(path, FEATURES)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="there are no records in"):
        TFRecordDataset(path, FEATURES)
    with pytest.raises(FileNotFoundError):
        TFRecordDataset(tmp_path / "none", FEATURES)


def test_payload_checksums(file, monkeypatch):
    fifth = starts(file)[5]
    edit(file, file.read_bytes().index(b"abc5"), b"X")  # it can still be parsed
    assert len(TFRecordDataset(file, {"label": "int"}).read(np.arange(9))["label"]) == 9
    checked = TFRecordDataset(file, {"label": "int"}, check_crc=True)
    assert checked.read(np.array([4, 6]))["label"].tolist() == [1, 3]
    with pytest.raises(ValueError, match=rf"record 5 at offset {fifth} of .*a.tfrecord is damaged: its checksum"):
        checked.read(np.array([4, 5, 6]))
    monkeypatch.setitem(__import__("sys").modules, "google_crc32c", None)
    with pytest.raises(ValueError, match="its checksum"):
        TFRecordDataset(file, {"label": "int"}, check_crc=True).read(np.array([5]))
    monkeypatch.setitem(__import__("sys").modules, "crc32c", None)
    with pytest.raises(ImportError, match="pip install google-crc32c"):
        TFRecordDataset(file, {"label": "int"}, check_crc=True)


def test_a_garbled_message_is_named(file):
    second = starts(file)[2]
    edit(file, second + 12, b"\xff" * 8)
    dataset = TFRecordDataset(file, FEATURES)
    with pytest.raises(
        ValueError,
        match=rf"record 2 at offset {second} of .*: a protobuf message tf.train.Example was expec",
    ):
        dataset.read(np.array([1, 2]))


@pytest.mark.parametrize(
    "change, features, message",
    [
        (
            {"label": None},
            FEATURES,
            r"record 0 at offset 0 of .*: there is no feature 'label': .*\(type, shape, default\)",
        ),
        ({"ids": None}, FEATURES, "there is no feature 'ids'"),
        ({"label": (1.5, "float")}, FEATURES, "'label' was expected to be of type int, got float"),
        ({"label": ([1, 2], "int")}, FEATURES, r"'label' has 2 values, and the shape \(\) .* \('int', \(2,\)\), or"),
        ({"box": ([1.0] * 3, "float")}, FEATURES, r"'box' has 3 values, and the shape \(4,\)"),
        ({"box": ([1.0] * 5, "float")}, {"box": ("float", (None, 4))}, r"'box' has 5 values, .* \(None, 4\)"),
        ({"data": ([], "byte")}, FEATURES, "'data' has 0 values"),
        ({"data": ([b"a", b"b"], "byte")}, FEATURES, "'data' has 2 values"),
    ],
)
def test_other_features_are_found_at_once_or_when_read(tmp_path, change, features, message):
    bad = write(tmp_path / "a", [record(1, **change), record(2)])
    with pytest.raises(ValueError, match=message):
        TFRecordDataset(bad, features)
    late = write(tmp_path / "b", [record(0), record(1, **change)])
    dataset = TFRecordDataset(late, features)
    with pytest.raises(ValueError, match=f"record 1 at offset {starts(late)[1]} of {late}"):
        dataset.read(np.array([0, 1]))


def test_text_that_is_none(tmp_path):
    path = write(tmp_path / "a", [{"t": (b"\xff", "byte")}])
    with pytest.raises(ValueError, match=r"record 0 .* text in UTF-8 was expected"):
        TFRecordDataset(path, {"t": "bytes"}, kinds={"t": "object"}).read(np.array([0]))


def test_wrong_indexes(file, tmp_path):
    index = index_file(file)
    lines = index.read_text().splitlines()

    def refused(text, match):
        index.write_text(text)
        with pytest.raises(ValueError, match=match):
            TFRecordDataset(file, FEATURES, index_paths=index)

    refused("\n".join(lines[:-1]), "a.idx does not fit .*a.tfrecord: records one after the other from 0 to")
    refused("\n".join([*lines[:3], *lines[4:]]), "line 3 is not")
    refused("\n".join(f"{int(a) + 3} {b}" for a, b in map(str.split, lines)), "line 1 is not")
    refused("", "from 0 to")
    refused("a b", "does not fit")
    refused("1", "1 words")
    a, b = map(int, lines[0].split())
    refused(
        "\n".join([f"{a} {b + 1}", f"{b + 1} {int(lines[1].split()[1]) - 1}", *lines[2:]]), "record 0 at offset 0 of"
    )
    fourth = starts(file)[4]
    size = int(lines[4].split()[1])
    index.write_text(
        "\n".join(
            [*lines[:4], f"{fourth} {size - 1}", f"{fourth + size - 1} {int(lines[5].split()[1]) + 1}", *lines[6:]]
        )
    )
    dataset = TFRecordDataset(file, FEATURES, index_paths=index)
    with pytest.raises(ValueError, match=f"record 4 at offset {fourth} of .* is damaged, or its index is wrong"):
        dataset.read(np.array([4]))
    with pytest.raises(ValueError, match="index_paths must be one for each file, got 1 for 2"):
        TFRecordDataset([file, file], FEATURES, index_paths=index)


@pytest.mark.parametrize(
    "features, arguments, error, message",
    [
        ([], {}, TypeError, "features must be a dict"),
        ({"a": "double"}, {}, TypeError, "'a' must be a type such as 'int'"),
        ({"label": ("int", 4)}, {}, TypeError, "shape of 'label' must be a tuple"),
        ({"label": ("int", (0,))}, {}, ValueError, "must be at least 1"),
        ({"data": ("bytes", (2, 2))}, {}, ValueError, "which is bytes"),
        ({"label": ("int", (), 0.5)}, {}, TypeError, "default of 'label' must be of type int"),
        ({"data": ("bytes", (), 5)}, {}, TypeError, "default of 'data' must be bytes"),
        ({"box": ("float", (4,), [1.0])}, {}, ValueError, "'box' has 1 values"),
        (FEATURES, {"fields": ("a", "b")}, ValueError, "write a dict {field: feature}"),
        (FEATURES, {"fields": {"a": "b"}}, ValueError, "must be of the features data, label"),
        (FEATURES, {"kinds": {"label": "array"}}, ValueError, "kind of 'label' must be number"),
        (FEATURES, {"kinds": {"none": "array"}}, ValueError, "kinds must be of the fields"),
        ({"index": "int"}, {}, ValueError, "have a meaning of their own"),
    ],
)
def test_wrong_arguments(file, features, arguments, error, message):
    with pytest.raises(error, match=message):
        TFRecordDataset(file, features, **arguments)


# The parsers, against protobuf's own.


def lists(draw_values):
    return st.lists(draw_values, max_size=12)


FEATURE = st.one_of(
    st.tuples(st.just("bytes_list"), lists(st.binary(max_size=300))),
    st.tuples(st.just("int64_list"), lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-2, 200))),
    st.tuples(st.just("float_list"), lists(st.floats(width=32, allow_nan=False))),
)
TYPES = {"bytes_list": "bytes", "int64_list": "int", "float_list": "float"}


def message_of(parts) -> example_pb2.Example:
    message = example_pb2.Example()
    for name, (kind, values) in parts.items():
        list_of = getattr(message.features.feature[name], kind)
        list_of.SetInParent()
        list_of.value.extend(values)
    return message


@given(st.dictionaries(st.text(max_size=20), FEATURE, max_size=5))
@settings(max_examples=200, deadline=None)
def test_examples_are_parsed_as_protobuf_does(parts):
    raw = np.frombuffer(message_of(parts).SerializeToString(), np.uint8)
    found = parse_example(raw)
    assert set(found) == set(parts)
    for name, (kind, values) in parts.items():
        got = Feature.of(name, (TYPES[kind], None)).read(found)
        assert [one.tobytes() for one in got] == values if kind == "bytes_list" else got.tolist() == values


def tag(number, wire):
    return bytes([number << 3 | wire])


def varint(value):
    value &= (1 << 64) - 1
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


@given(st.lists(st.tuples(st.booleans(), lists(st.integers(-(1 << 63), (1 << 63) - 1))), max_size=4))
@settings(max_examples=100, deadline=None)
def test_packed_and_single_numbers_mix(runs):
    """As old writers do it; and lists that are written in several parts are one."""
    integers = b"".join(
        tag(1, 2) + varint(len(body)) + body if packed else b"".join(tag(1, 0) + varint(value) for value in values)
        for packed, values in runs
        for body in [b"".join(map(varint, values))]
    )
    values = [float(np.float32(value)) for _, some in runs for value in some]
    single = b"".join(tag(1, 5) + struct.pack("<f", value) for value in values)
    both = single + tag(1, 2) + varint(4 * len(values)) + struct.pack(f"<{len(values)}f", *values)
    # Each feature in two parts, as protobuf merges messages.
    halves = {"int": tag(3, 2) + varint(len(integers)) + integers, "float": tag(2, 2) + varint(len(both)) + both}
    expected = {"int": list(example_pb2.Int64List.FromString(integers).value) * 2, "float": values * 4}
    for kind, half in halves.items():
        entry = tag(1, 2) + varint(1) + b"x" + (tag(2, 2) + varint(len(half)) + half) * 2
        features = tag(1, 2) + varint(len(entry)) + entry
        example = np.frombuffer(tag(1, 2) + varint(len(features)) + features, np.uint8)
        assert Feature.of("x", (kind, None)).read(parse_example(example)).tolist() == expected[kind]


@given(st.data(), st.dictionaries(st.sampled_from("abc"), FEATURE, min_size=1, max_size=3))
@settings(max_examples=200, deadline=None)
def test_damaged_examples_are_value_errors(data, parts):
    raw = bytearray(message_of(parts).SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        if not raw:
            break
    array = np.frombuffer(bytes(raw), np.uint8)
    try:
        found = parse_example(array)
        for name in {"a", "b", "c"} & set(found):
            for kind in ("bytes", "int", "float"):
                Feature.of(name, (kind, None)).read(found)
    except ValueError as error:
        assert str(error)


def test_messages_that_end_too_early():
    for raw in (b"\x0a\x05ab", b"\x08\x80", b"\x08" + b"\x80" * 11, b"\x0d\x01", b"\x0b", b"\x02\x00"):
        with pytest.raises(ValueError, match=r"a protobuf message tf\.train\.Example was expected"):
            parse_example(np.frombuffer(raw, np.uint8))


def test_without_the_package(file, monkeypatch):
    from torchdali.formats import example

    example._example.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "google.protobuf", None)
    with pytest.raises(ImportError, match=r"pip install torchdali\[records\]"):
        TFRecordDataset(file, FEATURES)


@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1, max_size=20))
@settings(max_examples=100, deadline=None)
def test_checksums(lengths):
    expected = [tfrecord.masked(crc32c.crc32c(struct.pack("<Q", length))) for length in lengths]
    assert tfrecord.length_checksums(lengths).tolist() == expected
    assert TFRecordWriter.masked_crc(struct.pack("<Q", lengths[0])) == struct.pack("<I", expected[0])


# Through a loader.


def test_a_loader_gives_the_images(shards, folder):
    ours = loader(shards, fields=("image", "label"), shuffle=False)
    folders = td.DataLoader(td.ImageFolder(folder), batch_size=4, device="cpu")
    with ours, folders:
        for (image, label), (expected, target) in zip(ours, folders, strict=True):
            assert torch.equal(image.data, expected.data) and torch.equal(label, target)


def test_boxes_and_texts_leave_padded_and_as_lists(shards):
    features = {**IMAGES, "boxes": ("float", (None, 4)), "name": "bytes"}
    arguments = {"kinds": {"name": "object"}}
    with loader(shards, features, ("image", "label", "boxes", "name"), arguments, shuffle=False) as batches:
        _, _, boxes, names = next(iter(batches))
    assert boxes.data.shape == (4, 2, 4) and boxes.sizes[:, 0].tolist() == [0, 1, 2, 0]
    assert names == [f"{i:04d}.jpg" for i in range(4)]


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_resumes_exactly(shards, engine):
    assert_resumes_exactly(lambda: loader(shards, engine=engine, batch_size=6))


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_see_one_stream(shards, world_size):
    assert_same_stream(
        lambda: loader(shards, batch_size=6),
        lambda: [
            loader(shards, batch_size=6 // world_size, rank=rank, world_size=world_size) for rank in range(world_size)
        ],
    )
    assert_resumes_exactly(
        lambda: loader(shards, batch_size=6),
        lambda: [loader(shards, batch_size=2, rank=rank, world_size=world_size) for rank in range(world_size)],
        epochs=1,
        every=2,
    )


def test_a_garbled_record_is_replaced(shards):
    begin = starts(shards[1])[2]
    edit(shards[1], begin + 12, b"\xff" * 30)
    bad = 8 + 2
    with loader(shards, fields=("image", "label"), on_bad_sample="substitute", shuffle=False) as batches:
        assert sum(len(step.samples) for step in read_stream(batches)) == 22
        (entry,) = batches.bad_samples
        assert entry.index == bad and entry.path == f"{shards[1]}#2" and entry.stage == "read"
        assert f"record 2 at offset {begin} of {shards[1]}" in entry.reason
    with loader(shards) as batches, pytest.raises(td.BadSampleError, match=f"sample {bad} "):
        list(batches)
