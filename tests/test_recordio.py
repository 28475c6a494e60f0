"""RecordIODataset, against DALI's reader and a writer of the published format."""

from __future__ import annotations

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torchdali as td
from torchdali.datasets.recordio import RecordIODataset
from torchdali.formats import recordio, records
from torchdali.storage import LocalStorage
from torchdali.testing import assert_resumes_exactly, assert_same_stream, read_stream

MAGIC = struct.pack("<I", 0xCED7230A)


def image_record(label, data, number=0) -> bytes:
    """mxnet.recordio.pack: a header, many labels, the image."""
    several = not np.isscalar(label)
    labels = np.asarray(label, "<f4").tobytes() if several else b""
    head = struct.pack("<IfQQ", len(label) if several else 0, 0.0 if several else label, number, 0)
    return head + labels + data


def part(data, flag) -> bytes:
    return MAGIC + struct.pack("<I", flag << 29 | len(data)) + data + bytes(-len(data) % 4)


def framed(content) -> bytes:
    """dmlc::RecordIOWriter::WriteRecord: cut where the magic number lies at a multiple of four."""
    cuts = [i for i in range(0, len(content) - 3, 4) if content[i : i + 4] == MAGIC]
    begins, ends = [0, *(cut + 4 for cut in cuts)], [*cuts, len(content)]
    if not cuts:
        return part(content, 0)
    flags = [1, *[2] * (len(cuts) - 1), 3]
    return b"".join(part(content[b:e], flag) for b, e, flag in zip(begins, ends, flags, strict=True))


def write(path, contents) -> Path:
    """The file and its index, as im2rec writes them."""
    data, lines = b"", []
    for number, content in enumerate(contents):
        lines.append(f"{number}\t{len(data)}\n")
        data += framed(content)
    Path(path).write_bytes(data)
    Path(path).with_suffix(".idx").write_text("".join(lines))
    return Path(path)


def offsets(path) -> list[int]:
    return [int(line.split()[1]) for line in path.with_suffix(".idx").read_text().splitlines()]


def edit(path, offset, data):
    content = bytearray(path.read_bytes())
    content[offset : offset + len(data)] = data
    path.write_bytes(content)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def images(folder, tmp_path):
    """The 22 images, number 5 in three parts."""
    contents = []
    for i, (path, label) in enumerate(td.ImageFolder(folder).samples):
        data = Path(path).read_bytes()
        if i == 5:
            data += bytes(-len(data) % 4) + MAGIC + b"behind" * 2 + MAGIC + b"it"
        contents.append(image_record(float(label), data, 1000 + i))
    return write(tmp_path / "a.rec", contents)


@pytest.fixture
def small(tmp_path):
    return write(tmp_path / "s.rec", [image_record(float(i), b"image %d" % i * i, i) for i in range(7)])


FIELDS = ("image", "label")


def loader(paths, arguments=None, **changes):
    dataset = RecordIODataset(paths, **(arguments or {}))
    return td.DataLoader(dataset, **(dict(batch_size=4, shuffle=True, seed=3, device="cpu") | changes))


def test_everything_comes_back(small):
    dataset = RecordIODataset(small, fields=("id", "image", "label", "path"))
    assert len(dataset) == 7 and dataset.kinds["image"].word == "encoded" and dataset.kinds["label"].word == "number"
    order = np.random.default_rng(1).permutation(7)
    columns = dataset.read(order)
    assert columns["id"].tolist() == order.tolist() and columns["id"].dtype == np.int64
    assert columns["label"].tolist() == order.tolist() and columns["label"].dtype == np.float32
    assert [data.tobytes() for data in columns["image"]] == [b"image %d" % i * i for i in order]
    assert columns["path"] == [f"{small}#{i}" for i in order]
    assert all(data.flags.writeable for data in columns["image"])
    assert [dataset.uniform(name) for name in ("id", "label", "image")] == [True, True, False]


@pytest.mark.parametrize("index", [False, True])
def test_equal_to_dalis_reader(images, index):
    import nvidia.dali.experimental.dynamic as ndd

    reader = ndd.readers.MXNet(path=str(images), index_path=str(images.with_suffix(".idx")), max_batch_size=22)
    theirs = reader(batch_size=22)
    columns = RecordIODataset(images, images.with_suffix(".idx") if index else None).read(np.arange(22))
    for i, (image, label) in enumerate(zip(*theirs, strict=True)):
        np.testing.assert_array_equal(np.array(image), columns["image"][i])
        assert np.array(label).tolist() == [columns["label"][i]]


def test_labels_of_any_number(tmp_path):
    labels = [[1.0, 2.0, 3.0], [4.0], [5.0] * 6]
    path = write(tmp_path / "a.rec", [image_record(label, b"x") for label in labels])
    dataset = RecordIODataset(path)
    assert dataset.kinds["label"].word == "array" and not dataset.uniform("label")
    assert [label.tolist() for label in dataset.read(np.arange(3))["label"]] == labels
    mixed = write(
        tmp_path / "b.rec", [image_record(7.0, b"x"), image_record([1.0, 2.0], b"x"), image_record([3.0], b"x")]
    )
    with pytest.raises(ValueError, match=r"b.rec#1: one label was expected, as in the first record, got 2: .*'array'"):
        RecordIODataset(mixed).read(np.array([0, 1]))
    assert RecordIODataset(mixed).read(np.array([0, 2]))["label"].tolist() == [7, 3]
    arrays = RecordIODataset(mixed, kinds={"label": "array", "image": "array"})
    assert [label.tolist() for label in arrays.read(np.arange(3))["label"]] == [[7], [1, 2], [3]]
    assert arrays.kinds["image"].word == "array"


@given(st.lists(st.lists(st.sampled_from([MAGIC, b"abcd", b"x", b"", MAGIC[:2]]), max_size=8), min_size=1, max_size=6))
@settings(max_examples=150, deadline=None)
def test_any_content_with_magic_numbers_in_it(tmp_path_factory, contents):
    folder = tmp_path_factory.mktemp("any")
    written = [image_record(1.0, b"".join(pieces)) for pieces in contents]
    path = write(folder / "a.rec", written)
    for index in (None, path.with_suffix(".idx")):
        dataset = RecordIODataset(path, index, index_dir=folder)
        assert [
            recordio.whole(record.data).tobytes() for record in dataset.records.read(range(len(dataset)))
        ] == written


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_records_are_value_errors(data):
    pieces = data.draw(st.lists(st.sampled_from([MAGIC, b"abcd", b"\0" * 24]), min_size=1, max_size=6))
    raw = bytearray(framed(image_record([1.0, 2.0], b"".join(pieces))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, max(0, len(raw) - 1)))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    try:
        recordio.Image.of(recordio.whole(np.frombuffer(bytes(raw), np.uint8)))
    except ValueError as error:
        assert str(error)


def test_large_records_are_found_by_their_headers(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "WINDOW", 64)
    monkeypatch.setattr(LocalStorage, "gap", 16)
    contents = [image_record(float(i), bytes(size)) for i, size in enumerate([1, 700, 3, 0, 5000, 2])]
    dataset = RecordIODataset(write(tmp_path / "a.rec", contents))
    assert dataset.read(np.arange(6))["label"].tolist() == list(range(6))


def test_a_last_record_without_padding(small):
    data = small.read_bytes()
    padding = -len(image_record(6.0, b"image 6" * 6, 6)) % 4
    assert padding
    small.write_bytes(data[:-padding])
    for index in (None, small.with_suffix(".idx")):
        assert RecordIODataset(small, index).read(np.array([6]))["image"][0].tobytes() == b"image 6" * 6


def test_fingerprints_pickles_and_several_files(small, images):
    dataset = RecordIODataset([images, small], [images.with_suffix(".idx"), small.with_suffix(".idx")])
    scanned = RecordIODataset([images, small])
    assert len(dataset) == 29 and dataset.path(22) == f"{small}#0"
    assert scanned.fingerprint() == dataset.fingerprint() != RecordIODataset([small, images]).fingerprint()
    again = pickle.loads(pickle.dumps(dataset))
    assert again.read(np.array([28, 0]))["label"].tolist() == [6, 0]
    image, label = RecordIODataset(images)[0]
    assert image.shape[0] == 3 and label.item() == 0


def test_the_fingerprint_stays_when_the_folder_moves(small, tmp_path):
    before = RecordIODataset(small).fingerprint()
    (tmp_path / "moved").mkdir()
    assert RecordIODataset(small.rename(tmp_path / "moved" / small.name)).fingerprint() == before


def test_remote_files(small):
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.pipe("/records/s.rec", small.read_bytes())
    memory.pipe("/records/s.idx", small.with_suffix(".idx").read_bytes())
    for index in (None, "memory://records/s.idx"):
        dataset = RecordIODataset("memory://records/s.rec", index)
        assert dataset.read(np.arange(7))["label"].tolist() == list(range(7))
    memory.rm("/records", recursive=True)


# Damage.


def test_damage_is_found_at_once(small):
    good, at = small.read_bytes(), offsets(small)
    cases = [
        (
            at[3],
            b"\x00",
            rf"s.rec is not RecordIO at offset {at[3]}: the number 0xced7230a was expected, got 0xced72300",
        ),
        (at[3] + 7, b"\x60", rf"s.rec is damaged at offset {at[3]}: a part of kind 3 can't follow there"),
        (at[3] + 7, b"\xe0", "a part of kind 7"),
        (at[3] + 7, b"\x20", rf"is damaged at offset {at[4]}: a part of kind 0"),
        (at[6] + 7, b"\x20", "the record of several parts at its end has no last one"),
        (at[5] + 4, b"\xff\xff\xff\x1f", rf"s.rec is cut off: the record at offset {at[5]} needs 536870920 bytes"),
    ]
    for offset, data, message in cases:
        small.write_bytes(good)
        edit(small, offset, data)
        with pytest.raises(ValueError, match=message):
            RecordIODataset(small)
    for cut in (4, 20, len(good) - at[6] - 5):
        small.write_bytes(good[:-cut])
        with pytest.raises(ValueError, match=f"s.rec is cut off: the record at offset {at[6]} needs"):
            RecordIODataset(small)
    small.write_bytes(b"")
    with pytest.raises(ValueError, match="there are no records in"):
        RecordIODataset(small)
    with pytest.raises(FileNotFoundError):
        RecordIODataset(small.with_name("none.rec"))


def test_wrong_indexes(small):
    index, at = small.with_suffix(".idx"), offsets(small)

    def made(found):
        index.write_text("".join(f"{i}\t{offset}\n" for i, offset in enumerate(found)))
        return RecordIODataset(small, index)

    for found, message in [
        ([*at, 99999], "s.idx does not fit .*s.rec: offsets from 0, multiples of 4 and below .* got 99999"),
        ([offset + 4 for offset in at], "got 4"),
        ([*at[:2], at[1], *at[2:]], f"got {at[1]}"),
        ([*at[:3], at[3] + 2, *at[4:]], f"got {at[3] + 2}"),
        (at[:-1], rf"record 5 at offset {at[5]} of .*: a record of .* bytes was expected, got .*: the index lacks"),
        ([], "does not fit"),
    ]:
        with pytest.raises(ValueError, match=message):
            made(found)
    index.write_text("a b")
    with pytest.raises(ValueError, match="does not fit"):
        RecordIODataset(small, index)
    shifted = made([*at[:3], at[3] + 8, *at[4:]])
    with pytest.raises(ValueError, match=rf"record 3 at offset {at[3] + 8} of .*s.rec: no record begins at byte 0"):
        shifted.read(np.array([3]))
    assert made(at[::-1]).read(np.arange(7))["label"].tolist() == list(range(7))
    with pytest.raises(ValueError, match="got 1 for 2 files"):
        RecordIODataset([small, small], index)


def test_records_that_are_no_images(tmp_path):
    other = write(tmp_path / "o.rec", [b"12345", b"6789"])
    with pytest.raises(
        ValueError, match=r"record 0 at offset 0 of .*o.rec: an image's header of 24 bytes .* got 5 bytes"
    ):
        RecordIODataset(other)
    many = write(tmp_path / "m.rec", [image_record(1.0, b"x"), image_record([1.0] * 9, b"")])
    edit(many, offsets(many)[1] + 8, b"\xff")
    with pytest.raises(ValueError, match=r"record 1 at offset .* 255 labels were expected"):
        RecordIODataset(many).read(np.array([1]))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"fields": ("image", "labels")}, "fields must be"),
        ({"kinds": {"id": "array"}}, r"kinds must be of \{'image': 'encoded'\} or .*, got \{'id': 'array'\}"),
        ({"kinds": {"label": "object"}}, "kinds must be of"),
    ],
)
def test_wrong_arguments(small, arguments, message):
    with pytest.raises(ValueError, match=message):
        RecordIODataset(small, **arguments)


# Through a loader.


def test_a_loader_gives_the_images(images, folder):
    with (
        loader(images, shuffle=False) as ours,
        td.DataLoader(td.ImageFolder(folder), batch_size=4, device="cpu") as other,
    ):
        for (image, label), (expected, target) in zip(ours, other, strict=True):
            assert torch.equal(image.data, expected.data) and torch.equal(label, target.float())


def test_resumes_exactly(images):
    assert_resumes_exactly(lambda: loader(images, batch_size=6))


@pytest.mark.parametrize("world_size", [2, 3])
def test_ranks_see_one_stream(images, world_size):
    def ranks(batch_size):
        return [loader(images, batch_size=batch_size, rank=rank, world_size=world_size) for rank in range(world_size)]

    assert_same_stream(lambda: loader(images, batch_size=6), lambda: ranks(6 // world_size))
    assert_resumes_exactly(lambda: loader(images, batch_size=6), lambda: ranks(2), epochs=1, every=2)


def test_a_garbled_record_is_replaced(images):
    at = offsets(images)[9]
    edit(images, at + 8, b"\xff\xff\xff\x7f")
    with loader(images, on_bad_sample="substitute", shuffle=False) as batches:
        assert sum(len(step.samples) for step in read_stream(batches)) == 22
        (entry,) = batches.bad_samples
        assert entry.index == 9 and entry.path == f"{images}#9" and entry.stage == "read"
        assert f"record 9 at offset {at} of {images}: 2147483647 labels were expected" in entry.reason
