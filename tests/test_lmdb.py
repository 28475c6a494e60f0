"""LMDBDataset and check_lmdb: databases written by lmdb, read as DALI's readers do, and damaged in all ways."""

from __future__ import annotations

import contextlib
import faulthandler
import multiprocessing
import os
import pickle
import random
import shutil
from pathlib import Path

import lmdb
import numpy as np
import pytest
import torch
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

import torchdali as td
from tests.kind_words import words
from torchdali.datasets.lmdb import LMDBDataset
from torchdali.formats import caffe
from torchdali.formats.lmdb import check_lmdb
from torchdali.testing import assert_resumes_exactly, assert_same_stream, read_stream


def messages(name, **fields):
    """Protobuf's own classes for a message, from fields (number, type, label), proto2."""
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package="test", syntax="proto2")
    for message, parts in fields.items():
        descriptor = file.message_type.add(name=message)
        for part, (number, kind, label) in parts.items():
            field = descriptor.field.add(name=part, number=number, label=label)
            if isinstance(kind, str):
                field.type, field.type_name = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, f".test.{kind}"
            else:
                field.type = kind
                if label == MANY and kind != BYTES:
                    field.options.packed = True
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"test.{message}")) for message in fields]


ONE, MANY = 1, 3
FLOAT, INT64, INT32, BOOL, BYTES = 2, 3, 5, 8, 12
(Datum,) = messages(
    "caffe",
    Datum={
        "channels": (1, INT32, ONE), "height": (2, INT32, ONE), "width": (3, INT32, ONE), "data": (4, BYTES, ONE),
        "label": (5, INT32, ONE), "float_data": (6, FLOAT, MANY), "encoded": (7, BOOL, ONE),
    },
)  # fmt: skip
Tensor, Tensors = messages(
    "caffe2",
    Tensor={
        "dims": (1, INT64, MANY), "data_type": (2, INT32, ONE), "float_data": (3, FLOAT, MANY),
        "int32_data": (4, INT32, MANY), "byte_data": (5, BYTES, ONE), "string_data": (6, BYTES, MANY),
    },
    Tensors={"protos": (1, "Tensor", MANY)},
)  # fmt: skip


def encoded(data, label):
    return Datum(data=data, label=label, encoded=True).SerializeToString()


def string(data):
    return Tensor(dims=[1], data_type=4, string_data=[data])


def ints(*values):
    return Tensor(dims=[len(values)], data_type=2, int32_data=values)


def reals(*values):
    return Tensor(dims=[len(values)], data_type=1, float_data=values)


def tensors(*protos):
    return Tensors(protos=protos).SerializeToString()


def write(path, values, keys=None, subdir=True) -> Path:
    with lmdb.open(str(path), map_size=1 << 26, subdir=subdir) as database, database.begin(write=True) as change:
        for i, value in enumerate(values):
            change.put(keys[i] if keys else b"%08d" % i, value)
    return Path(path)


@pytest.fixture
def images(folder, tmp_path):
    samples = td.ImageFolder(folder).samples
    return write(tmp_path / "caffe", [encoded(Path(path).read_bytes(), label) for path, label in samples])


@pytest.fixture
def large(tmp_path):
    """A tree of several levels, and values on pages of their own."""
    rng = random.Random(0)
    return write(tmp_path / "large", [encoded(rng.randbytes(rng.choice([100, 600, 9000])), i) for i in range(400)])


def theirs(name, path, count, **options):
    import nvidia.dali.experimental.dynamic as ndd

    outputs = getattr(ndd.readers, name)(path=str(path), max_batch_size=count, **options)(batch_size=count)
    return [[np.array(value) for value in output] for output in (outputs if isinstance(outputs, tuple) else [outputs])]


def loader(path, arguments=None, **changes):
    dataset = LMDBDataset(path, **(arguments or {}))
    return td.DataLoader(dataset, **(dict(batch_size=4, shuffle=True, seed=3, device="cpu") | changes))


# Contents.


def test_caffe_is_equal_to_dalis_reader(images, folder):
    dataset = LMDBDataset(images, fields=("image", "label", "key", "index"))
    assert len(dataset) == 22 and dataset.kinds["image"].word == "encoded" and dataset.kinds["label"].word == "number"
    columns = dataset.read(np.arange(22)[::-1])
    for i, image, label in zip(columns["index"], columns["image"], columns["label"], strict=True):
        expected, target = (output[i] for output in theirs_of_caffe(images))
        np.testing.assert_array_equal(image, expected)
        assert label == target[0] and columns["label"].dtype == np.int64
    assert columns["label"].tolist() == td.ImageFolder(folder).targets[::-1]
    assert columns["key"] == [f"{i:08d}" for i in range(21, -1, -1)]
    assert all(image.flags.writeable for image in columns["image"])


def theirs_of_caffe(path, known={}):  # noqa: B006  # read once
    return known.setdefault(path, theirs("Caffe", path, 22))


PIXELS = np.random.default_rng(0).integers(0, 256, (5, 4, 3), np.uint8)


def test_caffe_pixels(tmp_path):
    height, width, channels = PIXELS.shape
    shape = dict(channels=channels, height=height, width=width)
    path = write(
        tmp_path / "hwc",
        [Datum(**shape, data=PIXELS.tobytes(), label=-i, encoded=False).SerializeToString() for i in range(3)],
    )
    dataset = LMDBDataset(path)
    assert dataset.kinds["image"].word == "image"
    columns = dataset.read(np.arange(3))
    for image, expected in zip(columns["image"], theirs("Caffe", path, 3)[0], strict=True):
        np.testing.assert_array_equal(image, expected)
        np.testing.assert_array_equal(image, PIXELS)
    assert columns["label"].tolist() == [0, -1, -2]
    planes = np.ascontiguousarray(PIXELS[..., ::-1].transpose(2, 0, 1))  # as Caffe writes them, without the flag
    path = write(tmp_path / "chw", [Datum(**shape, data=planes.tobytes(), label=1).SerializeToString()])
    np.testing.assert_array_equal(LMDBDataset(path, layout="CHW").read(np.array([0]))["image"][0], PIXELS)
    array = LMDBDataset(path, layout="CHW", kinds={"image": "array"})
    assert array.kinds["image"].word == "array" and array.read(np.array([0]))["image"][0].shape == (5, 4, 3)
    with loader(path, {"layout": "CHW"}) as batches:
        image, _ = next(iter(batches))
    np.testing.assert_array_equal(image.data[0].permute(1, 2, 0).numpy(), PIXELS)


def caffe2(path, protos, **options):
    return LMDBDataset(write(path, [tensors(*parts) for parts in protos]), "caffe2", **options)


def test_caffe2_is_equal_to_dalis_reader(tmp_path):
    names = iter("abcdefg")
    raw = Tensor(dims=PIXELS.shape, data_type=3, byte_data=PIXELS.tobytes())
    grey = Tensor(dims=[5, 12], data_type=3, byte_data=PIXELS.tobytes())
    for images in ([string(b"one"), string(b"other")], [raw, raw], [grey, grey]):
        for label, number in (
            (lambda i: ints(i - 1), 0),
            (lambda i: reals(i + 0.5), 0),
            (lambda i: reals(*range(i + 2)), 2),
        ):
            path = tmp_path / next(names) if number == 0 else tmp_path / f"dense{len(list(tmp_path.iterdir()))}"
            dataset = caffe2(path, [(image, label(i)) for i, image in enumerate(images)], label_type=number)
            columns = dataset.read(np.arange(2))
            for i, (image, label_) in enumerate(zip(*theirs("Caffe2", path, 2, label_type=number), strict=True)):
                np.testing.assert_array_equal(columns["image"][i], image)
                np.testing.assert_array_equal(np.atleast_1d(columns["label"][i]), label_)
                assert columns["label"][i].dtype == (np.int64 if label_.dtype == np.int32 else label_.dtype)
            assert words(dataset.kinds) == {
                "image": "encoded" if images[0].data_type == 4 else "image",
                "label": "number" if number == 0 else "array",
            }
    path = tmp_path / "boxes"
    boxes = caffe2(path, [(string(b"x"), ints(5), ints(1, 2, 3, 4 + i)) for i in range(2)], fields=("image", "bbox"))
    expected = theirs("Caffe2", path, 2, bbox=True)[2]
    np.testing.assert_array_equal(boxes.read(np.arange(2))["bbox"], expected)
    assert boxes.uniform("bbox")
    unlabelled = caffe2(tmp_path / "none", [(string(b"x"),)] * 2, label_type="none")
    assert unlabelled.fields == ("image",)
    assert theirs("Caffe2", tmp_path / "none", 2, label_type=4)[0][0].tobytes() == b"x"


def test_caffe2_sparse_labels(tmp_path):
    # DALI 2.4.0 refuses these: it leaves one of its own outputs empty.
    sparse = caffe2(tmp_path / "a", [(string(b"x"), ints(0, 3)), (string(b"x"), ints())], label_type=1, num_labels=5)
    columns = sparse.read(np.arange(2))
    assert [label.tolist() for label in columns["label"]] == [[1, 0, 0, 1, 0], [0] * 5] and sparse.uniform("label")
    assert columns["label"][0].dtype == np.int32
    protos = [(string(b"x"), ints(4, 1), reals(0.5, 0.25))]
    weighted = caffe2(tmp_path / "b", protos, label_type="weighted", num_labels=5)
    assert weighted.read(np.array([0]))["label"][0].tolist() == [0, 0.25, 0, 0, 0.5]
    with pytest.raises(ValueError, match=r"labels in \[0, 3\) were expected, got \[4, 1\]: write num_labels="):
        LMDBDataset(tmp_path / "b", "caffe2", label_type="weighted", num_labels=3)


def test_raw_values(tmp_path):
    keys = [b"b", b"a", b"\xff\x00z"]
    path = write(tmp_path / "raw", [b"one", b"two", b""], keys)
    dataset = LMDBDataset(path, "raw", ("key", "value", "path"))
    columns = dataset.read(np.array([2, 0, 1]))
    assert [key.encode("utf-8", "surrogateescape") for key in columns["key"]] == [keys[2], keys[1], keys[0]]
    assert [value.tobytes() for value in columns["value"]] == [b"", b"two", b"one"]
    assert columns["path"][1] == f"{path}/data.mdb#a" and dataset.kinds["value"].word == "array"
    assert LMDBDataset(path, "raw", kinds={"value": "encoded"}).kinds["value"].word == "encoded"


def decode_dict(value):
    number = int(value)
    return {"image": b"jpeg%d" % number, "x": np.full((2, 3), number, np.float32), "n": number, "name": f"n{number}"}


def decode_tuple(value):
    number = int(value)
    return torch.arange(number), 0.5 * number


def test_values_with_a_function_of_ones_own(tmp_path):
    path = write(tmp_path / "raw", [b"%d" % i for i in range(4)])
    dataset = LMDBDataset(path, "raw", decode=decode_dict)
    assert words(dataset.kinds) == {"image": "encoded", "x": "array", "n": "number", "name": "object"}
    columns = dataset.read(np.array([3, 1]))
    assert columns["image"][0].tobytes() == b"jpeg3" and columns["n"].tolist() == [3, 1]
    assert columns["x"][1].tolist() == [[1] * 3] * 2 and columns["name"] == ["n3", "n1"]
    pair = LMDBDataset(path, "raw", ("index", "data", "key", "half"), decode=decode_tuple)
    assert pair.kinds["data"].word == "array" and pair.kinds["half"].word == "number"
    columns = pickle.loads(pickle.dumps(pair)).read(np.array([3]))
    assert (
        columns["data"][0].tolist() == [0, 1, 2]
        and columns["half"].tolist() == [1.5]
        and columns["key"] == ["00000003"]
    )
    with pytest.raises(ValueError, match=r"decode must return a dict, or a tuple as long as fields="):
        LMDBDataset(path, "raw", ("a",), decode=decode_tuple)
    with pytest.raises(ValueError, match="decode must not return 'key'"):
        LMDBDataset(path, "raw", decode=lambda value: {"key": 1})
    mixed = LMDBDataset(path, "raw", decode=lambda value: {"n": int(value) if value < b"2" else 0.5})
    with pytest.raises(
        td.FieldTypeError, match=r"'n' must be a number of int64, as in .*#00000000, got .* float64 in .*#00000002"
    ):
        mixed.read(np.array([1, 2]))


def test_files_without_a_folder(tmp_path, images):
    path = write(tmp_path / "single.mdb", [encoded(b"x", 7)], subdir=False)
    assert LMDBDataset(path).read(np.array([0]))["label"].tolist() == [7]
    assert LMDBDataset(images / "data.mdb").fingerprint() == LMDBDataset(images).fingerprint()


def test_the_fingerprint_stays_when_the_folder_moves(images, tmp_path):
    before = LMDBDataset(images).fingerprint()
    assert len(before) <= 100
    moved = images.rename(tmp_path / "moved")
    assert LMDBDataset(moved).fingerprint() == before
    assert LMDBDataset(write(tmp_path / "other", [encoded(b"x", 1)])).fingerprint() != before


# Processes and threads.


def labels_of(dataset, results):
    results.put(dataset.read(np.arange(22))["label"].tolist())


@pytest.mark.processes
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_read_too(images, method):
    dataset = LMDBDataset(images)
    expected = dataset.read(np.arange(22))["label"].tolist()
    context = multiprocessing.get_context(method)
    results = context.SimpleQueue()
    process = context.Process(target=labels_of, args=(dataset, results))
    process.start()
    process.join(60)
    assert process.exitcode == 0 and results.get() == expected
    assert dataset.read(np.arange(22))["label"].tolist() == expected


def test_several_datasets_of_one_database(images):
    first, second = LMDBDataset(images), LMDBDataset(images, fields=("label",))
    copies = [pickle.loads(pickle.dumps(first)) for _ in range(8)]
    del first
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda one: one.read(np.arange(22))["label"].tolist(), [second, *copies]))
    assert all(labels == found[0] for labels in found)
    del second, copies
    with lmdb.open(str(images), lock=False) as database:  # lmdb refuses it while it is open
        assert database.stat()["entries"] == 22


def test_a_database_that_changes_is_an_error(images):
    dataset = LMDBDataset(images)
    os.truncate(images / "data.mdb", 20000)
    with pytest.raises(ValueError, match=r"data\.mdb has changed since it was first looked at: make the dataset again"):
        dataset.read(np.arange(22))


def test_a_database_that_is_written_anew_beside_the_old_one(tmp_path):
    """lmdb opens a folder once in a process, be it that its file is another one by now."""

    def write(count: int) -> None:
        with lmdb.open(str(tmp_path / "new")) as database, database.begin(write=True) as view:
            for number in range(count):
                view.put(b"%04d" % number, b"%d" % count)
        os.makedirs(tmp_path / "data", exist_ok=True)
        os.replace(tmp_path / "new" / "data.mdb", tmp_path / "data" / "data.mdb")
        shutil.rmtree(tmp_path / "new")

    kept = []
    for count in (3, 5, 7):
        write(count)
        kept.append(LMDBDataset(tmp_path / "data", "raw"))
        assert [bytes(value) for value in kept[-1].read(np.arange(count))["value"]] == [b"%d" % count] * count
    with pytest.raises(ValueError, match="has changed since it was first looked at"):
        kept[0].read(np.arange(3))


# Damage.


def outcome(path) -> str:
    """What lmdb does with a database: reads all of it, refuses, or dies; in a process of its own."""
    pid = os.fork()
    if not pid:
        faulthandler.disable()  # it may die as expected
        code = 1
        with contextlib.suppress(lmdb.Error), lmdb.open(str(path), readonly=True, lock=False) as database:
            with database.begin() as view:
                code = 0 if sum(len(value) for _, value in view.cursor()) else 2
        os._exit(code)
    status = os.waitpid(pid, 0)[1]
    return "dies" if os.WIFSIGNALED(status) else ["reads", "refuses", "reads nothing"][os.WEXITSTATUS(status)]


def refused(path) -> str:
    try:
        check_lmdb(path)
    except ValueError as error:
        assert "data.mdb" in str(error)
        return str(error)
    return ""


@pytest.mark.processes
def test_where_lmdb_would_die_is_found(large):
    file = large / "data.mdb"
    good, died = file.read_bytes(), 0
    for keep in [0.2, 0.5, 0.8, 0.99]:
        file.write_bytes(good[: int(len(good) * keep)])
        assert "cut off" in refused(large)
        died += outcome(large) == "dies"
    assert died
    file.write_bytes(good[:-4096])
    assert "cut off" in refused(large)
    rng = random.Random(1)
    for page in range(2, len(good) // 4096, 7):
        bad = bytearray(good)
        bad[page * 4096 : page * 4096 + 4096] = rng.randbytes(4096)
        file.write_bytes(bad)
        assert refused(large) or outcome(large) != "dies"
    file.write_bytes(good)
    assert len(check_lmdb(large)[1]) == 400


@pytest.mark.parametrize(
    "cut, message", [(0, "cut off"), (100, "cut off: 152 bytes expected at offset 0"), (4200, "offset 4096")]
)
def test_cut_in_front(large, cut, message):
    os.truncate(large / "data.mdb", cut)
    assert message in refused(large)


@pytest.mark.parametrize(
    "offset, message",
    [
        (16, "not an LMDB database, or is damaged at offset 0"),
        (4096 + 16, "damaged at offset 4096"),
        (20, "LMDB's format 1, got"),
    ],
)
def test_garbled_in_front(large, offset, message):
    with open(large / "data.mdb", "r+b") as file:
        file.seek(offset)
        file.write(b"\xee\xee")
    assert message in refused(large)


def test_every_page_of_the_tree_is_checked(large):
    file = large / "data.mdb"
    good = file.read_bytes()
    tree = [page for page in range(2, len(good) // 4096) if good[page * 4096 + 10] in (1, 2)]
    refusals = 0
    for page in tree:
        for at, data in [(0, b"\xff"), (10, b"\x03"), (12, b"\x00\xff"), (16, b"\xff\xff"), (12, b"\x03\x00")]:
            bad = bytearray(good)
            bad[page * 4096 + at : page * 4096 + at + len(data)] = data
            file.write_bytes(bad)
            refusals += bool(refused(large))
    # Pages that are free now are not looked at.
    assert len(tree) > 20 and refusals > 0.9 * 5 * len(tree)


@given(seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_sound_databases_are_accepted(tmp_path_factory, seed):
    """Also where freed pages at the end were never written, so that the file is shorter than its last page."""
    rng = random.Random(seed)
    path = tmp_path_factory.mktemp("sound")
    with lmdb.open(str(path), map_size=1 << 26, sync=False) as database:
        for _ in range(rng.randint(1, 4)):
            with database.begin(write=True) as change:
                for _ in range(rng.randint(1, rng.choice([60, 1000]))):
                    change.put(b"%05d" % rng.randint(0, 2000), rng.randbytes(rng.choice([0, 10, 500, 3000, 9000])))
                for _ in range(rng.randint(0, 200)):
                    change.delete(b"%05d" % rng.randint(0, 2000))
        with database.begin() as view:
            keys = [key.decode() for key, _ in view.cursor()]
    if keys:
        _, found = check_lmdb(path)
        assert [found[i] for i in range(len(found))] == keys
    else:
        assert "empty database" in refused(path)


def test_databases_of_another_kind(tmp_path):
    with lmdb.open(str(tmp_path / "named"), max_dbs=1, map_size=1 << 20) as database:
        table = database.open_db(b"table")
        with database.begin(write=True, db=table) as change:
            change.put(b"a", b"b")
    with pytest.raises(ValueError, match="holds named databases"):
        LMDBDataset(tmp_path / "named")
    file = write(tmp_path / "several", [b"x"]) / "data.mdb"
    bad = bytearray(file.read_bytes())
    for page in (0, 4096):
        bad[page + 92] |= 4  # MDB_DUPSORT, which lmdb for Python can't set there
    file.write_bytes(bad)
    with pytest.raises(ValueError, match=r"several values for a key \(dupsort\)"):
        LMDBDataset(tmp_path / "several")
    with pytest.raises(ValueError, match="local disks only, got s3://bucket/db: copy it"):
        LMDBDataset("s3://bucket/db")
    with pytest.raises(FileNotFoundError, match=r"no LMDB database at .*severall \(did you mean '.*several'\?\)"):
        LMDBDataset(tmp_path / "severall")
    (tmp_path / "images").mkdir()
    with pytest.raises(FileNotFoundError, match=r"an LMDB database was expected, got .*images, which has no data.mdb"):
        LMDBDataset(tmp_path / "images")


@pytest.mark.parametrize(
    "format, value, message",
    [
        ("caffe", b"\xff\xfe\xfd", "protobuf"),
        ("caffe", b"", "a Datum with data was expected"),
        ("caffe", Datum(data=b"x", encoded=True), r"a Datum with a label .* fields=\('image',\)"),
        ("caffe", Datum(label=1, float_data=[0.5]), "float_data is not read"),
        ("caffe", Datum(label=1, data=b"xy", channels=1, height=1, width=3, encoded=False), "1 x 3 pixels of 1 bytes"),
        ("caffe", b"\x28\x80\x80\x80\x80\x80\x20\x22\x01x", "numbers of 32 bits were expected, got 1099511627776"),
        ("caffe2", b"", "at least 2 parts were expected, got 0"),
        ("caffe2", Tensors(protos=[string(b"x")]), "at least 2 parts were expected, got 1"),
        ("caffe2", Tensors(protos=[Tensor(data_type=4), ints(1)]), "an image as one string or as bytes"),
        (
            "caffe2",
            Tensors(protos=[Tensor(data_type=3, dims=[2, 2], byte_data=b"xyz"), ints(1)]),
            r"shape \[2, 2\] were",
        ),
        ("caffe2", Tensors(protos=[string(b"x"), ints(1, 2)]), "one label was expected, got 2"),
        ("caffe2", Tensors(protos=[string(b"x"), string(b"y")]), "floats or int32 was expected, got type 4"),
    ],
)
def test_damaged_values_are_named(tmp_path, format, value, message):
    bad = value if isinstance(value, bytes) else value.SerializeToString()
    good = encoded(b"x", 1) if format == "caffe" else tensors(string(b"x"), ints(1))
    path = write(tmp_path / "db", [good, bad])
    dataset = LMDBDataset(path, format)
    with pytest.raises(ValueError, match=rf"db/data.mdb#00000001: .*{message}"):
        dataset.read(np.arange(2))
    # A damaged first one does not hide what the others are.
    assert LMDBDataset(write(tmp_path / "late", [bad, good]), format).kinds["image"].word == "encoded"
    with pytest.raises(ValueError, match=message):
        LMDBDataset(write(tmp_path / "all", [bad]), format)


def test_samples_that_differ_from_the_first(tmp_path):
    dataset = caffe2(tmp_path / "a", [(string(b"x"), ints(1)), (string(b"x"), reals(1.5))])
    with pytest.raises(td.FieldTypeError, match=r"'label' must be a number of int64, as in .*, got .* float32 in"):
        dataset.read(np.arange(2))
    with pytest.raises(ValueError, match="a box of 4 int32 was expected in the last part, got 4 of float32"):
        caffe2(tmp_path / "b", [(string(b"x"), ints(1), reals(1, 2, 3, 4))], fields=("bbox",))


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_messages_are_parsed_as_protobuf_does(data):
    small = st.integers(-(1 << 31), (1 << 31) - 1)
    datum = Datum(**{
        name: data.draw(values)
        for name, values in {
            "channels": small, "height": small, "width": small, "label": small, "data": st.binary(max_size=200),
            "encoded": st.booleans(), "float_data": st.lists(st.floats(width=32, allow_nan=False), max_size=3),
        }.items()
        if data.draw(st.booleans())
    })  # fmt: skip
    raw = datum.SerializeToString()
    octets = np.frombuffer(raw, np.uint8)
    if datum.HasField("label"):
        assert caffe.caffe_sample(octets, ("label",), "HWC")["label"] == datum.label
    else:
        with pytest.raises(ValueError, match="a Datum with a label was expected"):
            caffe.caffe_sample(octets, ("label",), "HWC")
    if datum.HasField("data") and datum.encoded:
        assert caffe.caffe_sample(octets, ("image",), "HWC")["image"].tobytes() == datum.data
    bad = bytearray(raw + b"\x22\x03abc")
    bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        caffe.caffe_sample(np.frombuffer(bytes(bad), np.uint8), ("image", "label"), "CHW")
    bad = bytearray(tensors(string(b"abc"), ints(1, 300, -5), reals(1.5, 2, 3)))
    bad[data.draw(st.integers(0, len(bad) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        caffe.caffe2_sample(np.frombuffer(bytes(bad), np.uint8), ("image", "label", "bbox"), "weighted", 400)


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ({"format": "hdf5"}, ValueError, "format must be one of caffe, caffe2, raw"),
        ({"layout": "NHWC"}, ValueError, "layout must be one of"),
        ({"label_type": "many"}, ValueError, "label_type must be one of"),
        ({"label_type": 5}, ValueError, r"label_type must be in \[0, 4\]"),
        ({"num_labels": 0}, ValueError, "num_labels must be at least 1"),
        ({"decode": len}, ValueError, 'decode is for format="raw"'),
        ({"fields": ("image", "value")}, ValueError, "fields must be different ones of image, label"),
        ({"kinds": {"label": "array"}}, ValueError, "the kind of 'label' must be number, got 'array'"),
        ({"kinds": {"image": "number"}}, ValueError, "must be encoded or array"),
        ({"kinds": {"x": "image"}}, ValueError, "kinds must be of the fields image, label"),
    ],
)
def test_wrong_arguments(images, arguments, error, message):
    with pytest.raises(error, match=message):
        LMDBDataset(images, **arguments)


def test_without_the_package(images, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "lmdb", None)
    with pytest.raises(ImportError, match=r"pip install torchdali\[lmdb\]"):
        LMDBDataset(images)


# Through a loader.


def test_without_protobuf(images, tmp_path, monkeypatch):
    caffe._messages.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "google.protobuf", None)
    with pytest.raises(ImportError, match=r"pip install torchdali\[records\]"):
        LMDBDataset(images)
    assert len(LMDBDataset(write(tmp_path / "raw", [b"x"]), "raw")) == 1


def test_a_loader_gives_the_images(images, folder):
    with (
        loader(images, shuffle=False) as ours,
        td.DataLoader(td.ImageFolder(folder), batch_size=4, device="cpu") as other,
    ):
        for (image, label), (expected, target) in zip(ours, other, strict=True):
            assert torch.equal(image.data, expected.data) and torch.equal(label, target)


def test_resumes_exactly(images):
    assert_resumes_exactly(lambda: loader(images, batch_size=6))


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_see_one_stream(images, world_size):
    def ranks(batch_size):
        return [loader(images, batch_size=batch_size, rank=rank, world_size=world_size) for rank in range(world_size)]

    assert_same_stream(lambda: loader(images, batch_size=6), lambda: ranks(6 // world_size))
    assert_resumes_exactly(lambda: loader(images, batch_size=6), lambda: ranks(2), epochs=1, every=2)


def test_a_garbled_value_is_replaced(images):
    with lmdb.open(str(images)) as database, database.begin(write=True) as change:
        change.put(b"00000009", b"\xff" * 100)
    with loader(images, on_bad_sample="substitute", shuffle=False) as batches:
        assert sum(len(step.samples) for step in read_stream(batches)) == 22
        (entry,) = batches.bad_samples
        assert entry.index == 9 and entry.path == f"{images}/data.mdb#00000009" and entry.stage == "read"
        assert "data.mdb#00000009: a protobuf message Datum was expected" in entry.reason
