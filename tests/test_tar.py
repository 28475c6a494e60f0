"""WebDataset's tars by index: contents, all formats of tar, WebDataset's grouping, damage, and the loader."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import shutil
import struct
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
import webdataset
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from webdataset.tariterators import base_plus_ext, group_by_keys, tar_file_expander

import torchdali as td
from tests.kind_words import words
from torchdali import transforms as T
from torchdali.datasets.tar import TarDataset
from torchdali.formats import tar as tar_format
from torchdali.formats.webdataset import split_name
from torchdali.storage import open_storage
from torchdali.testing import assert_resumes_exactly, assert_same_stream

from .test_storage import place, s3, web  # noqa: F401  # fixtures

FORMATS = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}


def scan(tar):
    return tar_format.scan(tar, lambda name: split_name(name) is not None)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def jpeg(seed: int) -> bytes:
    rng = np.random.default_rng(seed)
    file = io.BytesIO()
    small = Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
    small.resize(tuple(int(v) for v in rng.integers(24, 60, 2)), Image.Resampling.BICUBIC).save(file, "JPEG")
    return file.getvalue()


def sample(i: int) -> dict:
    array = io.BytesIO()
    np.save(array, np.arange(i % 4 + 1, dtype=np.float32) + i)
    return {
        "__key__": f"part{i // 7}/{i:05d}", "jpg": jpeg(i), "cls": str(i % 10).encode(), "txt": f"text {i} ä".encode(),
        "json": json.dumps({"n": i}).encode(), "npy": array.getvalue(), "bin": bytes(range(i % 5)),
    }  # fmt: skip


SAMPLES = [sample(i) for i in range(23)]


def write_shards(folder: Path, samples=SAMPLES, maxcount: int = 9) -> str:
    """By WebDataset's own writer; gives the pattern of the shards."""
    folder.mkdir(parents=True, exist_ok=True)
    with webdataset.ShardWriter(f"{folder}/s-%03d.tar", maxcount=maxcount, encoder=False, verbose=0) as writer:
        for one in samples:
            writer.write(one)
    return f"{folder}/s-{{000..{(len(samples) - 1) // maxcount:03d}}}.tar"


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> str:
    return write_shards(tmp_path_factory.mktemp("shards"))


def write_tar(path: Path, members, format: int = tarfile.USTAR_FORMAT) -> Path:
    """Of (name, data) or TarInfo with data."""
    with tarfile.open(path, "w", format=format) as file:
        for name, data in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(data)
            file.addfile(info, io.BytesIO(data))
    return path


def link(name: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "other"
    return info


# Contents


def test_contents(shards):
    dataset = TarDataset(
        shards, ["jpg", "cls", "txt", "json", "npy", "bin"],
        fields=["photo", "n", "text", "meta", "x", "raw", "key", "path"],
        kinds={"photo": "array"},
    )  # fmt: skip
    assert len(dataset) == 23 and len(dataset.shards) == 3 and dataset.skipped == 0 and dataset.blocking
    assert words(dataset.kinds) == {
        "photo": "array", "n": "number", "text": "object", "meta": "object", "x": "array", "raw": "array",
        "key": "object", "path": "object",
    }  # fmt: skip
    order = np.random.default_rng(0).permutation(23)
    columns = dataset.read(order)
    assert list(columns) == list(dataset.fields) and columns["n"].dtype == np.int64
    for row, i in enumerate(order):
        wanted = SAMPLES[i]
        assert columns["photo"][row].tobytes() == wanted["jpg"] and columns["raw"][row].tobytes() == wanted["bin"]
        assert (
            columns["n"][row] == i % 10 and columns["text"][row] == f"text {i} ä" and columns["meta"][row] == {"n": i}
        )
        np.testing.assert_array_equal(columns["x"][row], np.arange(i % 4 + 1, dtype=np.float32) + i)
        assert columns["key"][row] == wanted["__key__"]
        assert columns["path"][row] == dataset.path(i) == f"{dataset.shards[i // 9]}#{wanted['__key__']}"


def tokens(text):
    """Something like a tokenizer: code points, of one dtype and any number."""
    return [ord(letter) for letter in text]


def test_functions_of_parts(shards):
    dataset = TarDataset(
        shards, ["jpg", "txt", "json", "npy", "cls"],
        convert={"txt": tokens, "json": lambda meta: meta["n"], "npy": np.sum, "label": "class {}".format},
    )  # fmt: skip
    assert [kind.held for kind in dataset.kinds.values()] == ["encoded", "array", "number", "number", "object"]
    columns = dataset.read(np.array([12, 3]))
    assert [row.tolist() for row in columns["txt"]] == [tokens("text 12 ä"), tokens("text 3 ä")]
    assert columns["json"].tolist() == [12, 3] and columns["npy"].tolist() == [12, 18]
    assert columns["label"] == ["class 2", "class 3"]
    assert not dataset.uniform("txt") and dataset.uniform("npy")
    told = TarDataset(shards, ["txt"], convert={"txt": tokens}, kinds={"txt": "object"})
    assert told.kinds["txt"].held == "object"
    with pytest.raises(ValueError, match="convert must be of the fields text, got 'txt'"):
        TarDataset(shards, ["txt"], ["text"], convert={"txt": tokens})
    with pytest.raises(ValueError, match="convert is for fields without images, got 'image': write transform="):
        TarDataset(shards, ["jpg"], convert={"image": tokens})

    def loader(**changes):
        return td.DataLoader(
            TarDataset(shards, ["jpg", "txt", "cls"], convert={"txt": tokens}),
            **{"batch_size": 4, "shuffle": True, "seed": 3, "device": "cpu", "transform": T.CenterCrop(16), **changes},
        )

    for _, text, label in loader():
        for row, size, number in zip(text.data, text.sizes, label, strict=True):
            assert "".join(map(chr, row[: size[0]])).startswith("text") and chr(row[size[0] - 3]) == str(number.item())
    assert_resumes_exactly(loader)


def test_defaults(shards):
    dataset = TarDataset(shards, ["jpg;jpeg;png", "cls"])
    assert dataset.fields == ("image", "label") and words(dataset.kinds) == {"image": "encoded", "label": "number"}
    image, label = dataset[5]
    np.testing.assert_array_equal(image.permute(1, 2, 0), np.asarray(Image.open(io.BytesIO(SAMPLES[5]["jpg"]))))
    assert label.item() == 5 and dataset.uniform("label") and not dataset.uniform("image")
    assert TarDataset(shards, ["txt", "json"]).fields == ("txt", "json")
    with pytest.raises(IndexError):
        dataset[23]


def test_same_as_webdataset(shards):
    dataset = TarDataset(shards, ["jpg", "cls"], fields=("image", "label", "key"))
    with contextlib.ExitStack() as stack:  # webdataset.WebDataset leaves its files open
        opened = [{"url": path, "stream": stack.enter_context(open(path, "rb"))} for path in dataset.shards]
        theirs = list(group_by_keys(tar_file_expander(opened)))
    assert len(theirs) == len(dataset)
    columns = dataset.read(np.arange(23))
    for row, one in enumerate(theirs):
        assert (columns["image"][row].tobytes(), columns["key"][row]) == (one["jpg"], one["__key__"])


def test_alternatives_and_missing_parts(tmp_path):
    path = write_tar(
        tmp_path / "a.tar",
        [
            ("a.png", b"1"), ("a.jpg", b"2"), ("b.JPEG", b"3"), ("b.cls", b"4"), ("c.jpg", b"5"), ("c.CLS", b"6"),
            ("d.x", b""),
        ],
    )  # fmt: skip
    message = r"the ending cls was expected in the sample 'a' at offset 512 of .*a\.tar, got \['jpg', 'png'\]: write"
    with pytest.raises(ValueError, match=message):
        TarDataset(path, ["jpg;jpeg;png", "cls"])
    dataset = TarDataset(path, ["jpg;jpeg;png", "cls"], missing="skip", fields=("image", "label", "key"))
    assert len(dataset) == dataset.skipped == 2
    columns = dataset.read(np.arange(2))
    assert [c.tobytes() for c in columns["image"]] == [b"3", b"5"]
    assert columns["label"].tolist() == [4, 6] and columns["key"] == ["b", "c"]
    for ext, data in [("jpg;png", b"2"), ("png;jpg", b"1"), (".PNG", b"1")]:
        one = TarDataset(path, [ext], missing="skip")
        assert one.read(np.array([0]))["image"][0].tobytes() == data
    with pytest.raises(ValueError, match=r"each of 4 samples lacks a part with ext=\['flac'\]"):
        TarDataset(path, ["flac"], missing="skip")


def test_wrong_arguments(shards, tmp_path):
    for ext in ([], [""], [";"]):
        with pytest.raises(ValueError, match="ext must name the endings"):
            TarDataset(shards, ext)
    for fields in (["image"], ["a", "b", "c"], ["a", "a"], "ab"):
        with pytest.raises(ValueError, match="fields must be 2 different names, one for each of image, label"):
            TarDataset(shards, ["jpg", "cls"], fields=fields)
    with pytest.raises(ValueError, match="fields must be 2 different names"):
        TarDataset(shards, ["jpg", "png"])
    with pytest.raises(ValueError, match="kinds must be of the fields image, label, got 'jpg'"):
        TarDataset(shards, ["jpg", "cls"], kinds={"jpg": "array"})
    assert TarDataset(shards, ["jpg", "cls"], kinds={"image": "image"}).kinds["image"] == td.kinds.ENCODED  # files
    with pytest.raises(
        ValueError, match="the kind of 'cls' must be one of encoded, array, number, object, got 'image'"
    ):
        TarDataset(shards, ["jpg", "cls"], kinds={"label": "image"})
    with pytest.raises(ValueError, match="alternatives must be of one kind, got jpg;npy"):
        TarDataset(shards, ["jpg;npy"])
    with pytest.raises(ValueError, match="missing must be one of error, skip, got 'drop'"):
        TarDataset(shards, ["jpg"], missing="drop")
    with pytest.raises(ValueError, match=r"write a pattern such as .*/\*"):
        TarDataset(tmp_path, ["jpg"])
    with pytest.raises(FileNotFoundError, match=r"none\.tar"):
        TarDataset(tmp_path / "none.tar", ["jpg"])


def test_numpy_parts_are_alike(tmp_path):
    def npy(array):
        file = io.BytesIO()
        np.save(file, array)
        return file.getvalue()

    arrays = [np.zeros(3, ">f4"), np.ones((2,), np.float32), np.zeros(3, np.float64), np.zeros((3, 1), np.float32)]
    path = write_tar(tmp_path / "a.tar", [(f"{i}.npy", npy(array)) for i, array in enumerate(arrays)])
    dataset = TarDataset(path, ["npy"])
    assert dataset.read(np.arange(2))["npy"][0].dtype == np.float32
    for i, got in [(2, "float64 with 1"), (3, "float32 with 2")]:
        with pytest.raises(td.FieldTypeError, match=rf"float32 with 1 dimension, as in .*a\.tar#0, got {got}.* in"):
            dataset.read(np.array([i]))
    path = write_tar(tmp_path / "b.tar", [("a.npy", npy(np.array([{}], object)))])
    with pytest.raises(ValueError, match=r"'npy' at offset 512 of .*b\.tar: an array of bools.*expected, got object"):
        TarDataset(path, ["npy"])


def test_pickle_and_fingerprint(shards, tmp_path):
    dataset = TarDataset(shards, ["jpg", "cls"], fields=("image", "label", "key"))
    dataset.read(np.arange(23))
    copy = pickle.loads(pickle.dumps(dataset))
    assert copy.read(np.array([20]))["key"] == [SAMPLES[20]["__key__"]]
    shutil.copytree(Path(dataset.shards[0]).parent, tmp_path / "moved")
    moved = TarDataset(f"{tmp_path}/moved/*.tar", ["jpg", "cls"])
    assert moved.fingerprint() == copy.fingerprint() == dataset.fingerprint() and len(moved.fingerprint()) <= 100
    others = [
        TarDataset(dataset.shards[::-1], ["jpg", "cls"]), TarDataset(dataset.shards[:2], ["jpg", "cls"]),
        TarDataset(shards, ["jpg", "txt"]), TarDataset(write_shards(tmp_path / "new", SAMPLES[1:]), ["jpg", "cls"]),
    ]  # fmt: skip
    assert len({one.fingerprint() for one in [dataset, *others]}) == 5


def test_index_is_small_and_kept(tmp_path):
    members = [(f"{i:06d}.{ext}", b"12") for i in range(3000) for ext in ("jpg", "cls")]
    path = write_tar(tmp_path / "a.tar", members)
    dataset = TarDataset(path, ["jpg", "cls"], index_dir=tmp_path / "index")
    assert (dataset._offsets.nbytes + dataset._sizes.nbytes) / len(members) <= 12
    assert len(pickle.dumps(dataset)) < 50 * len(dataset)
    (kept,) = (tmp_path / "index").iterdir()
    before = kept.stat().st_mtime_ns
    again = TarDataset(path, ["jpg", "cls"], index_dir=tmp_path / "index")
    assert again.fingerprint() == dataset.fingerprint() and kept.stat().st_mtime_ns == before
    write_tar(path, members[2:])
    changed = TarDataset(path, ["jpg", "cls"], index_dir=tmp_path / "index")
    assert len(changed) == 2999 and kept.stat().st_mtime_ns != before


# Grouping


@settings(max_examples=300, deadline=None)
@given(st.text("ab._/", min_size=1, max_size=9))
def test_names_are_split_as_webdataset_does(name):
    parts = split_name(name.encode())
    key, ending = base_plus_ext(name)
    if key is None or key.endswith("/") or webdataset_skips(name):
        assert parts is None
    else:
        assert parts == (key.encode(), ending.encode())


def webdataset_skips(name: str) -> bool:
    """The conditions of its `tar_file_iterator`."""
    import re

    return bool(
        ("/" not in name and name.startswith("__") and name.endswith("__")) or re.match(r"__[^/]*__($|/)", name)
    )


def test_what_is_left_out(tmp_path):
    folder = tarfile.TarInfo("dir.jpg")
    folder.type = tarfile.DIRTYPE
    fifo = tarfile.TarInfo("f.jpg")
    fifo.type = tarfile.FIFOTYPE
    members = [
        (folder, b""), ("d/a.jpg", b"1"), ("d/._a.jpg", b"mac"), ("__meta__/x.jpg", b""), ("README", b"r"),
        ("d/a.cls", b"2"), (".hidden.jpg", b""), ("__meta__", b""), (fifo, b""), (link("latest", tarfile.SYMTYPE), b""),
        ("./b.jpg", b"3"), ("./b.cls", b"4"),
    ]  # fmt: skip
    for format in FORMATS.values():
        dataset = TarDataset(write_tar(tmp_path / "a.tar", members, format), ["jpg", "cls"], fields=("x", "y", "key"))
        columns = dataset.read(np.arange(len(dataset)))
        assert columns["key"] == ["d/a", "./b"] and columns["y"].tolist() == [2, 4]


def test_parts_that_do_not_lie_together(tmp_path):
    path = write_tar(tmp_path / "a.tar", [("a.jpg", b"1"), ("b.jpg", b"2"), ("a.cls", b"3")])
    with pytest.raises(ValueError, match=r"the sample 'a' comes twice in .*a\.tar, at offsets 512 and 2560"):
        TarDataset(path, ["jpg"])
    path = write_tar(tmp_path / "b.tar", [("a.jpg", b"1"), ("a.cls", b"2"), ("a.JPG", b"3")])
    with pytest.raises(
        ValueError, match=r"'a' has two parts with the ending 'JPG', the second at offset 2560 of .*b\.tar"
    ):
        TarDataset(path, ["cls"])


def test_same_keys_in_two_tars_are_two_samples(tmp_path):
    paths = [write_tar(tmp_path / f"{i}.tar", [("a.cls", b"%d" % i)]) for i in range(2)]
    assert TarDataset(paths, ["cls"]).read(np.arange(2))["label"].tolist() == [0, 1]


def test_empty_tars(tmp_path):
    empty = write_tar(tmp_path / "empty.tar", [])
    with pytest.raises(ValueError, match=r"there are no samples with ext=\['cls'\] in .*empty\.tar"):
        TarDataset(empty, ["cls"])
    full = write_tar(tmp_path / "full.tar", [("a.cls", b"5")])
    with pytest.warns(UserWarning, match=r"2 tars hold no samples: .*empty\.tar"):
        dataset = TarDataset([empty, full, empty], ["cls"])
    assert len(dataset) == 1 and dataset.read(np.array([0]))["label"].tolist() == [5]
    assert dataset.path(0) == f"{full}#a"


# Formats of tar

NAMES = st.one_of(
    st.text("abc.-", min_size=1, max_size=12),
    st.text("xyä.", min_size=95, max_size=130),
    st.lists(st.text("ab", min_size=1, max_size=40), min_size=3, max_size=8).map("/".join),
).filter(lambda name: not name.endswith("/"))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(NAMES, st.binary(max_size=1500), st.floats(0, 1e9) | st.integers(0, 10**9)), max_size=6),
    st.sampled_from(sorted(FORMATS)),
    st.sampled_from([512, 1024, 1536, 1 << 20]),
)
@pytest.mark.slow
def test_scan_is_that_of_tarfile(tmp_path_factory, members, format, window):
    path = tmp_path_factory.mktemp("scan") / "a.tar"
    with tarfile.open(path, "w", format=FORMATS[format]) as file:
        for name, data, time in members:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), time
            try:
                file.addfile(info, io.BytesIO(data))
            except ValueError:  # ustar has no room for the name
                continue
    with tarfile.open(path) as file:
        theirs = [(m.name.encode("utf-8", "surrogateescape"), m.offset_data, m.size) for m in file.getmembers()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tar_format, "WINDOW", window)
        assert list(zip(*scan(open_storage(path)), strict=True)) == theirs
    shutil.rmtree(path.parent)


@pytest.mark.processes
@pytest.mark.parametrize("format", ["gnu", "pax", "ustar", "v7", "oldgnu", "posix"])
def test_tars_by_gnu_tar(tmp_path, format):
    names = ["a.jpg", "a.cls", "d/" + "long" * 20 + ".jpg", "ü.jpg"]
    if format not in ("ustar", "v7"):
        names.append("/".join(["folder" * 15] * 4) + ".jpg")
    for i, name in enumerate(names):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_bytes(bytes([i]) * (i * 400))
    path = tmp_path / "a.tar"
    subprocess.run(["tar", f"--format={format}", "-cf", path, *names], cwd=tmp_path / "in", check=True, timeout=60)
    found, offsets, sizes = scan(open_storage(path))
    assert [name.decode() for name in found] == names and sizes == [i * 400 for i in range(len(names))]
    data = path.read_bytes()
    for i, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        assert data[offset : offset + size] == bytes([i]) * size


def header(name: bytes, size: bytes, kind: bytes = b"0", magic: bytes = b"ustar\x0000") -> bytes:
    block = bytearray(512)
    block[: len(name)] = name
    block[124:136], block[156:157], block[257:265], block[148:156] = size, kind, magic, b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def octal(size: int) -> bytes:
    return b"%011o\0" % size


def extended(pax: bytes, kind: bytes = b"x") -> bytes:
    return header(b"pax", octal(len(pax)), kind) + pax + bytes(512 - len(pax))


END = bytes(1024)


def scan_bytes(tmp_path: Path, data: bytes):
    (tmp_path / "raw.tar").write_bytes(data)
    return scan(open_storage(tmp_path / "raw.tar"))


def test_rare_headers(tmp_path):
    pad = bytes(509)
    base256 = b"\x80" + (3).to_bytes(11, "big")
    made = b"".join([
        header(b"a.x", base256), b"abc", pad,
        header(b"b.x", b"          3 "), b"abc", pad,
        header(b"c.x", b"00000000003 "), b"abc", pad,
        header(b"d.x", b"000000000003"), b"abc", pad,
        header(b"e.x", b"3\0trash....."[:12], b"\0", b"\0" * 8), b"abc", pad,
        header(b"old/", b"3\0" + b"\0" * 10, b"\0", b"\0" * 8),
        header(b"f.x", octal(3), b"7"), b"abc", pad,
        extended(b"19 path=long/z.cls\n"), header(b"short", octal(3)), b"abc", pad,
        extended(b"9 size=3\n"), header(b"g.x", octal(0)), b"abc", pad,
        header(b"label", octal(0), b"V"), header(b"other", octal(700), b"Z"), bytes(1024),
        extended(b"9 size=3\n", b"g"), header(b"h.x", octal(0)), b"abc", pad,
        END,
    ])  # fmt: skip
    names, offsets, sizes = scan_bytes(tmp_path, made)
    assert names == [b"a.x", b"b.x", b"c.x", b"d.x", b"e.x", b"f.x", b"long/z.cls", b"g.x", b"h.x"]
    assert sizes == [3] * 9 and {made[offset : offset + 3] for offset in offsets} == {b"abc"}


def test_signed_checksums(tmp_path):
    block = bytearray(header("ä.x".encode(), octal(0)))
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(struct.unpack("512b", block))
    assert scan_bytes(tmp_path, bytes(block) + END)[0] == ["ä.x".encode()]


def test_one_block_of_zeros_or_a_whole_record_ends_a_tar(tmp_path):
    member = header(b"a.x", octal(0))
    for zeros in (512, 1024, 10240 - 512):
        assert scan_bytes(tmp_path, member + bytes(zeros))[0] == [b"a.x"]


# Damage


def three_members(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "a.tar", [(f"{i}.jpg", bytes([65 + i]) * 700) for i in range(3)])


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (0, "is cut off at offset 0"),
        (100, "is cut off at offset 0"),
        (512, "at offset 0: 700 bytes of data were expected, got 0"),
        (512 + 699, "at offset 0: 700 bytes of data were expected, got 699"),
        (512 + 800, "is cut off at offset 1536"),
        (1536, "is cut off at offset 1536: a tar ends with two blocks of zeros"),
        (1536 + 100, "is cut off at offset 1536"),
        (3 * 1536 - 400, "at offset 3072: 700 bytes of data were expected, got 624"),
        (3 * 1536, "is cut off at offset 4608"),
        (3 * 1536 + 100, "is cut off at offset 4608"),
    ],
)
@pytest.mark.parametrize("window", [512, 1 << 20])
def test_truncated_tars(tmp_path, monkeypatch, keep, message, window):
    monkeypatch.setattr(tar_format, "WINDOW", window)
    path = three_members(tmp_path)
    os.truncate(path, keep)
    with pytest.raises(ValueError, match=rf"a\.tar.*{message}"):
        TarDataset(path, ["jpg"])


@pytest.mark.parametrize("at", [0, 124, 130, 156, 257, 345, 511])
def test_every_bit_of_a_header_counts(tmp_path, at):
    path = three_members(tmp_path)
    data = bytearray(path.read_bytes())
    data[1536 + at] ^= 1
    path.write_bytes(data)
    with pytest.raises(
        ValueError, match=r"a tar header was expected at offset 1536 of .*a\.tar, got bytes with a wrong"
    ):
        TarDataset(path, ["jpg"])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_garbled_tars_end_in_one_error_or_in_the_same_members(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("garbled") / "a.tar"
    format = data.draw(st.sampled_from(sorted(FORMATS)))
    whole = bytearray(
        write_tar(path, [("x" * 120 + f"/{i}.jpg", b"A" * 700) for i in range(2)], FORMATS[format]).read_bytes()
    )
    before = scan(open_storage(path))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(whole[: data.draw(st.integers(len(whole) - 9000, len(whole)))])
    try:
        names, offsets, sizes = scan(open_storage(path))
    except ValueError as error:
        assert "a.tar" in str(error) and "offset" in str(error)
    else:  # the damage is in data, in an extended header's text, or behind the end
        assert (offsets, sizes) == before[1:] and len(names) == 2
    shutil.rmtree(path.parent)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (extended(b"9 size=x\n") + header(b"a.x", octal(0)), "at offset 1024: invalid literal"),
        (extended(b"10 size=-9") + header(b"a.x", octal(0)), "at offset 0: a pax record"),
        (extended(b"11 size=-9\n") + header(b"a.x", octal(0)), "-9 bytes of data were expected"),
        (extended(b"8 path=ab") + header(b"a.x", octal(0)), "at offset 0: a pax record"),
        (extended(b"x path=ab") + header(b"a.x", octal(0)), "at offset 0: a pax record"),
        (extended(b"9 path=a\n"), "a file was expected after its extended header"),
        (header(b"L", octal(1 << 21), b"L"), "a name or pax records of at most 1 MiB were expected, got 2097152 bytes"),
        (header(b"L", octal(2000), b"L") + bytes(512), "is cut off: 2000 bytes expected at offset 512"),
        (header(b"a.x", b"123456789xyz"), "at offset 0: an octal number was expected, got b'123456789xyz'"),
        (header(b"a.x", b"\xff" * 12), "at offset 0: an octal number was expected"),
        (header(b"a.x", octal(0), b"S"), "at offset 0: sparse files can't be read"),
        (extended(b"22 GNU.sparse.major=1\n") + header(b"a.x", octal(0)), "sparse files"),
        (header(b"a.x", octal(0), b"1"), "a file was expected, got the link 'a.x': pack it again with tar's --deref"),
        (header(b"a.x", octal(0), b"2"), "a file was expected, got the link 'a.x'"),
    ],
)
def test_odd_headers_are_named(tmp_path, made, message):
    with pytest.raises(ValueError, match=rf"raw\.tar.*{message}"):
        scan_bytes(tmp_path, made + (END if "cut off" not in message else b""))


def test_joined_tars(tmp_path):
    one = write_tar(tmp_path / "1.tar", [("a.cls", b"1")]).read_bytes()
    (tmp_path / "2.tar").write_bytes(one + one)
    with pytest.raises(ValueError, match=r"2\.tar goes on after its end at offset 1024: joined tars"):
        TarDataset(tmp_path / "2.tar", ["cls"])


@pytest.mark.parametrize("packing", ["gz", "bz2", "xz"])
def test_compressed_tars(tmp_path, packing):
    with tarfile.open(tmp_path / f"a.tar.{packing}", f"w:{packing}") as file:
        file.addfile(tarfile.TarInfo("a.cls"))
    with pytest.raises(ValueError, match=r"is compressed .* and has no random access: decompress it"):
        TarDataset(tmp_path / f"a.tar.{packing}", ["cls"])


def test_no_tar_at_all(tmp_path):
    (tmp_path / "a.tar").write_bytes(b"hello " * 1000)
    with pytest.raises(ValueError, match=r"a tar header was expected at offset 0 of .*a\.tar"):
        TarDataset(tmp_path / "a.tar", ["cls"])


def test_a_tar_that_changes_later(tmp_path):
    path = three_members(tmp_path)
    dataset = TarDataset(path, ["jpg"])
    write_tar(path, [("0.jpg", b"new")])
    with pytest.raises(ValueError, match=r"a\.tar has changed since"):
        pickle.loads(pickle.dumps(dataset)).read(np.array([1]))


def test_bad_values_name_tar_and_offset(tmp_path):
    path = write_tar(tmp_path / "a.tar", [("a.cls", b"1"), ("b.cls", b"one")])
    dataset = TarDataset(path, ["cls"])
    with pytest.raises(
        ValueError, match=r"'label' at offset 1536 of .*a\.tar: an integer in text was expected, got b'one'"
    ):
        dataset.read(np.array([1]))


# wds2idx


def wds2idx(path: Path | str) -> Path:
    index = Path(path).with_suffix(".idx")
    script = Path(sys.executable).with_name("wds2idx")
    subprocess.run([script, path, index], check=True, timeout=60, stdout=subprocess.DEVNULL)
    return index


@pytest.mark.processes
def test_indexes_of_wds2idx(shards, tmp_path):
    shutil.copytree(Path(shards).parent, tmp_path / "s")
    ours = TarDataset(f"{tmp_path}/s/*.tar", ["jpg", "cls", "txt"], fields=("a", "b", "c", "key"), kinds={"a": "array"})
    for path in ours.shards:
        wds2idx(path)
    theirs = TarDataset(
        ours.shards, ["jpg", "cls", "txt"], fields=("a", "b", "c", "key"), kinds={"a": "array"},
        index_paths=f"{tmp_path}/s/*.idx",
    )  # fmt: skip
    assert theirs.fingerprint() == ours.fingerprint()
    for one, other in zip(ours.read(np.arange(23)).values(), theirs.read(np.arange(23)).values(), strict=True):
        assert [str(value) for value in one] == [str(value) for value in other]
    with pytest.raises(ValueError, match="index_paths must be one for each tar, got 2 for 3 tars"):
        TarDataset(ours.shards, ["jpg"], index_paths=[tmp_path / "s" / "s-000.idx"] * 2)


@pytest.mark.processes
@pytest.mark.parametrize("format", sorted(FORMATS))
def test_indexes_of_wds2idx_with_odd_names(tmp_path, format):
    names = ["a b.x", "ü.x", "d/plain.x"] + (["n" * 110 + ".x"] if format != "ustar" else [])
    path = write_tar(tmp_path / "a.tar", [(name, name.encode()) for name in names], FORMATS[format])
    dataset = TarDataset(path, ["x"], fields=("x", "key"), index_paths=wds2idx(path))
    if format == "gnu":
        message = (
            r"the header of n*\.x with 112 bytes was expected at offset 3072, got another: wds2idx takes long names"
        )
        with pytest.raises(ValueError, match=message):
            dataset.read(np.array([3]))
        names.pop()
    columns = dataset.read(np.arange(len(names)))
    assert [f"{key}.x" for key in columns["key"]] == names
    assert [data.tobytes().decode() for data in columns["x"]] == names


@pytest.mark.processes
def test_a_wrong_index_is_an_error(tmp_path):
    path = write_tar(tmp_path / "a.tar", [(f"{i}.{ext}", b"%d" % i) for i in range(4) for ext in ("cls", "x")])
    other = write_tar(tmp_path / "b.tar", [("0.x", b"0123"), *((f"{i}.cls", b"%d" % i) for i in range(4))])
    for lines, message in [
        ("v1.2 1\ncls 1024 1 0.cls", "a tar header was expected at offset 512"),
        (
            "v1.2 1\ncls 512 2 0.cls",
            r"the header of 0\.cls with 2 bytes was expected at offset 0, got another",
        ),
        ("v1.2 1\ncls 1536 1 0.cls", r"the header of 0\.cls with 1 bytes was expected at offset 1024"),
        ("v1.2 1\ncls 512 1 1.cls", r"the header of 1\.cls"),
        (wds2idx(other).read_text(), "the header of .*cls"),
    ]:
        (tmp_path / "w.idx").write_text(lines)
        dataset = TarDataset(path, ["cls"], index_paths=tmp_path / "w.idx", missing="skip")
        with pytest.raises(ValueError, match=message):
            dataset.read(np.array([0]))
    for lines, message in [
        ("v1.2 1\ncls 512 9999999 0.cls\n", r"line 2 of .*w\.idx points beyond the end of .*a\.tar"),
        ("v1.2 1\ncls 0 1 0.cls\n", r"line 2 of .*w\.idx points"),
        ("v1.2 3\ncls 512 1 0.cls\n", r"w\.idx is cut off: 3 samples expected, got 1"),
        ("v1.1 1\ncls 512 1\n", r"an index of version v1\.2 was expected, got b'v1\.1 1' in .*w\.idx"),
        ("", r"an index of version v1\.2 was expected"),
        ("v1.2 1\ncls 512 x 0.cls\n", r"'ending offset size name' were expected in line 2 of .*w\.idx"),
        ("v1.2 2\ncls 512 1 0.cls\ncls 512 1 0.cls cls 512 1 0.cls\n", "'0' has two parts with the ending 'cls'"),
        ("v1.2 3\ncls 512 1 0.cls\ncls 1536 1 1.cls\ncls 512 1 0.cls\n", "'0' comes twice"),
    ]:
        (tmp_path / "w.idx").write_text(lines)
        with pytest.raises(ValueError, match=message):
            TarDataset(path, ["cls"], index_paths=tmp_path / "w.idx")


# Remote


@pytest.mark.processes
def test_remote_tars(place, tmp_path):  # noqa: F811
    address, options, write = place
    write_shards(tmp_path / "made")
    for file in sorted((tmp_path / "made").iterdir()):
        write(file.name, file.read_bytes())
        write(f"{file.stem}.idx", wds2idx(file).read_bytes())
    local = TarDataset(f"{tmp_path}/made/*.tar", ["jpg", "cls", "npy"], fields=("image", "label", "x", "key"))
    order = np.random.default_rng(0).permutation(23)
    wanted = local.read(order)
    for index_paths in (None, f"{address}/s-{{000..002}}.idx"):
        dataset = TarDataset(
            f"{address}/s-{{000..002}}.tar", ["jpg", "cls", "npy"], fields=("image", "label", "x", "key"),
            index_paths=index_paths, storage_options=options, index_dir=tmp_path / "index",
        )  # fmt: skip
        assert dataset.fingerprint() == local.fingerprint()
        got = pickle.loads(pickle.dumps(dataset)).read(order)
        for name, column in wanted.items():
            assert [np.asarray(v).tobytes() for v in got[name]] == [np.asarray(v).tobytes() for v in column]
    loader = td.DataLoader(dataset, batch_size=5, shuffle=True, seed=1, transform=T.Resize((8, 8)), device="cpu")
    here = td.DataLoader(local, batch_size=5, shuffle=True, seed=1, transform=T.Resize((8, 8)), device="cpu")
    for one, other in zip(loader, here, strict=True):
        assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1]) and one[3] == other[3]
    loader.close()
    here.close()


def test_remote_tar_that_is_cut_off(place, tmp_path):  # noqa: F811
    address, options, write = place
    data = three_members(tmp_path).read_bytes()
    write("cut.tar", data[:2100])
    with pytest.raises(ValueError, match=r"cut\.tar at offset 1536: 700 bytes of data were expected"):
        TarDataset(f"{address}/cut.tar", ["jpg"], storage_options=options)


# Through the loader


def make_loader(shards, **changes):
    fields = changes.pop("fields", ("image", "label", "index", "key", "txt"))
    dataset = TarDataset(shards, ["jpg", "cls", "txt"], fields=fields)
    arguments = {"batch_size": 5, "shuffle": True, "seed": 3, "transform": T.RandomResizedCrop(12), "device": "cpu"}
    return td.DataLoader(dataset, **{**arguments, **changes})


@pytest.mark.parametrize("engine", ["eager", "pipeline"])
def test_loader_gives_what_was_written(shards, engine):
    loader = make_loader(shards, transform=T.Resize((16, 16)), engine=engine)
    seen = []
    for images, labels, indices, keys, texts in loader:
        assert images.shape[1:] == (3, 16, 16)
        assert labels.tolist() == [i % 10 for i in indices.tolist()]
        assert keys == [SAMPLES[i]["__key__"] for i in indices.tolist()]
        assert texts == [f"text {i} ä" for i in indices.tolist()]
        seen += indices.tolist()
    assert sorted(seen) == list(range(23)) != seen
    loader.close()


def test_arrays_leave_padded(shards):
    loader = td.DataLoader(TarDataset(shards, ["npy", "bin"]), batch_size=23, device="cpu")
    ((arrays, raw),) = list(loader)
    assert arrays.data.dtype == torch.float32 and raw.data.dtype == torch.uint8
    for i in range(23):
        assert arrays.data[i, : i % 4 + 1].tolist() == [float(i + k) for k in range(i % 4 + 1)]
        assert raw.sizes[i].tolist() == [i % 5]
    loader.close()


def test_resumes_exactly(shards):
    assert_resumes_exactly(lambda: make_loader(shards), epochs=2, every=2)


@pytest.mark.parametrize("world", [2, 3])
def test_ranks(shards, world):
    assert_same_stream(
        lambda: make_loader(shards, batch_size=6),
        lambda: [make_loader(shards, batch_size=6 // world, rank=r, world_size=world) for r in range(world)],
    )
    assert_resumes_exactly(
        lambda: [make_loader(shards, batch_size=2, rank=r, world_size=world) for r in range(world)],
        lambda: make_loader(shards, batch_size=4),
        epochs=1,
        every=2,
    )


def test_bad_parts_are_replaced(tmp_path):
    samples = [dict(one) for one in SAMPLES]
    samples[4]["jpg"] = os.urandom(300)
    samples[11]["cls"] = b"garbage"
    pattern = write_shards(tmp_path, samples)
    fields = ("image", "label", "index", "path", "valid")
    loader = make_loader(pattern, on_bad_sample="substitute", fields=("image", "label", "txt", *fields[2:]))
    indices, valid = [], []
    for _, _, _, index, _, good in loader:
        indices += index.tolist()
        valid += good.tolist()
    assert len(indices) == 23 and sum(valid) == 21 and not {4, 11} & set(indices)
    bad = {one.index: one for one in loader.bad_samples}
    assert set(bad) == {4, 11} and bad[4].stage == "decode" and bad[11].stage == "read"
    assert bad[11].path.endswith("s-001.tar#part1/00011") and "an integer in text was expected" in bad[11].reason
    assert_resumes_exactly(lambda: make_loader(pattern, on_bad_sample="substitute"), epochs=1, every=3)
    loader.close()
    raising = make_loader(pattern, shuffle=False)
    with pytest.raises(td.BadSampleError, match=r"decode failed for sample 4 \(.*s-000\.tar#part0/00004\)"):
        list(raising)
    raising.close()
