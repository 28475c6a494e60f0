"""Reading local and remote files at any offset, patterns, and the cache of indexes; the servers are real."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import braceexpand
import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchdali import kinds, storage
from torchdali.fingerprint import below_common_folder
from torchdali.formats import parts
from torchdali.formats.cache import cached_index
from torchdali.formats.texts import Texts
from torchdali.paths import expand, expand_braces
from torchdali.storage import LocalStorage, is_remote, open_storage, read_many

from .launcher import finish, start_code

CONTENT = np.random.default_rng(0).integers(0, 256, 300_000, dtype=np.uint8)


class RangeHandler(BaseHTTPRequestHandler):
    """A web server of one folder that gives ranges, as object stores do."""

    root: Path
    ranges = True

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        file = self.root / self.path.lstrip("/").partition("?")[0]
        if not file.is_file():
            self.send_error(404)
            return
        data = file.read_bytes()
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")) if self.ranges else None
        total = len(data)
        if wanted:
            begin, end = int(wanted[1]), int(wanted[2] or total - 1)
            if begin >= total:
                self.send_error(416)
                return
            data = data[begin : end + 1]
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{begin + len(data) - 1}/{total}")
        else:
            self.send_response(200)
        if self.ranges:
            self.send_header("Accept-Ranges", "bytes")
        self.send_header("ETag", f'"{file.stat().st_mtime_ns}"')
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def web(tmp_path):
    """(address, folder) of a server."""
    folder = tmp_path / "web"
    folder.mkdir()
    handler = type("Handler", (RangeHandler,), {"root": folder})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", folder, handler
    server.shutdown()
    server.server_close()
    thread.join(10)


@pytest.fixture(scope="session")
def s3(tmp_path_factory):
    """(bucket's address, options) of an S3 server on this machine."""
    pytest.importorskip("s3fs")
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {"key": "a", "secret": "b", "client_kwargs": {"endpoint_url": f"http://{host}:{port}"}}
    filesystem = fsspec.filesystem("s3", **options)
    filesystem.makedirs("bucket", exist_ok=True)  # this server's buckets belong to the process
    yield "s3://bucket", options
    server.stop()


@pytest.fixture(params=["local", "memory", "http", "s3"])
def place(request, tmp_path):
    """(folder's address, options, write) of each kind of storage."""
    if request.param == "http":
        address, folder, _ = request.getfixturevalue("web")
        return address, {}, lambda name, data: (folder / name).write_bytes(data)
    if request.param == "s3":
        address, options = request.getfixturevalue("s3")
        address += f"/{tmp_path.name}"
    else:
        address, options = str(tmp_path) if request.param == "local" else f"memory://{tmp_path.name}", {}

    def write(name, data):
        with fsspec.open(f"{address}/{name}", "wb", **options) as file:
            file.write(data)

    return address, options, write


def test_reads_any_part(place):
    address, options, write = place
    write("a.bin", CONTENT.tobytes())
    file = open_storage(f"{address}/a.bin", **options)
    assert file.path == f"{address}/a.bin" and file.exists and file.size == len(CONTENT)
    for offset, size in [(0, 1), (0, 512), (123_457, 50_000), (len(CONTENT) - 7, 7), (5, 0)]:
        got = file.read(offset, size)
        np.testing.assert_array_equal(got, CONTENT[offset : offset + size])
        assert got.dtype == np.uint8 and got.flags.writeable
    np.testing.assert_array_equal(file.read_all(), CONTENT)
    parts = [file.read(at, min(70_001, len(CONTENT) - at)) for at in range(0, len(CONTENT), 70_001)]
    np.testing.assert_array_equal(np.concatenate(parts), CONTENT)
    ranges = [(200_000, 5), (0, 10), (5, 20), (299_990, 10), (0, 10), (77, 0), (4_000, 100_000)]
    for (offset, size), got in zip(ranges, file.read_many(ranges), strict=True):
        np.testing.assert_array_equal(got, CONTENT[offset : offset + size])


def test_reads_several_files_at_once(place):
    address, options, write = place
    write("a.bin", CONTENT.tobytes())
    write("b.bin", CONTENT[::-1].tobytes())
    one, other = (open_storage(f"{address}/{name}.bin", **options) for name in "ab")
    got = read_many([(other, 3, 4), (one, 100, 5), (other, 0, 2), (one, 250_000, 1)])
    wanted = [CONTENT[::-1][3:7], CONTENT[100:105], CONTENT[::-1][:2], CONTENT[250_000:250_001]]
    assert [part.tolist() for part in got] == [part.tolist() for part in wanted]
    assert read_many([]) == []


def test_what_is_not_there(place):
    address, options, write = place
    write("a.bin", b"x" * 100)
    missing = open_storage(f"{address}/b.bin", **options)
    assert not missing.exists
    for ask in (lambda: missing.size, lambda: missing.version, lambda: missing.read(0, 4), missing.read_all):
        with pytest.raises(FileNotFoundError):
            ask()
    file = open_storage(f"{address}/a.bin", **options)
    for offset, got in [(90, 10), (100, 0), (300, 0)]:
        with pytest.raises(ValueError, match=rf"a\.bin is cut off: 20 bytes expected at offset {offset}, got {got}"):
            file.read(offset, 20)


def test_version_changes_with_the_file(place):
    address, options, write = place
    write("a.bin", b"one")
    version = open_storage(f"{address}/a.bin", **options).version
    assert open_storage(f"{address}/a.bin", **options).version == version and len(version) < 200
    time.sleep(0.02)
    write("a.bin", b"two")
    for filesystem in (fsspec.filesystem(name) for name in ("memory", "http")):
        filesystem.invalidate_cache()
    if address.startswith("s3"):
        fsspec.filesystem("s3", **options).invalidate_cache()
    assert open_storage(f"{address}/a.bin", **options).version != version


def test_pickled_and_in_threads(place):
    address, options, write = place
    write("a.bin", CONTENT.tobytes())
    file = open_storage(f"{address}/a.bin", **options)
    file.read(0, 3)
    copy = pickle.loads(pickle.dumps(file))
    offsets = np.random.default_rng(1).integers(0, 290_000, 60).tolist()
    with ThreadPoolExecutor(6) as threads:
        for offset, got in zip(offsets, threads.map(lambda offset: copy.read(offset, 999), offsets), strict=True):
            np.testing.assert_array_equal(got, CONTENT[offset : offset + 999])


def _child(file, offset, queue):
    queue.put(file.read(offset, 1000).tobytes())


@pytest.mark.processes
def test_after_a_fork(place):
    address, options, write = place
    write("a.bin", CONTENT.tobytes())
    file = open_storage(f"{address}/a.bin", **options)
    file.read(0, 3)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_child, args=(file, 500, queue)) for _ in range(2)]
    for child in children:
        child.start()
    got = [queue.get(timeout=60) for _ in children]
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert got == [CONTENT[500:1500].tobytes()] * 2
    np.testing.assert_array_equal(file.read(7, 3), CONTENT[7:10])


@pytest.mark.parametrize("place", ["http", "s3"], indirect=True)
def test_all_threads_share_one_connection(place):
    address, options, write = place
    for i in range(6):
        write(f"{i}.bin", bytes([i]) * 9)
    files = [open_storage(f"{address}/{i}.bin", **options) for i in range(6)]
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(lambda file: file.size, files)) == [9] * 6
    assert len({id(file.connect()[0]) for file in files}) == 1
    assert [part.tolist() for part in read_many([(file, 2, 2) for file in files])] == [[i] * 2 for i in range(6)]


# Local files


def test_local_changes_are_noticed(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"x" * 1000)
    file = open_storage(path)
    assert file.size == 1000
    path.write_bytes(b"y" * 900)
    with pytest.raises(ValueError, match="has changed since it was first looked at"):
        file.read(0, 5)
    file = open_storage(path)
    file.read(0, 5)
    os.truncate(path, 10)
    with pytest.raises(ValueError, match="is cut off: 50 bytes expected at offset 5, got 5"):
        file.read(5, 50)


def test_local_paths(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"abc")
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("~/a", f"file://{tmp_path}/a", tmp_path / "a"):
        assert open_storage(path).read_all().tobytes() == b"abc"
    with pytest.raises(IsADirectoryError, match="a file was expected, got the folder"):
        _ = open_storage(tmp_path).size
    assert [is_remote(p) for p in ("s3://b/c", "simplecache::s3://b", "file:///a", "/a/b", "C:/a", "a:b//c")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip


def test_few_files_stay_open(tmp_path, monkeypatch):
    monkeypatch.setattr(storage, "OPEN_FILES", 5)
    files = []
    for i in range(40):
        (tmp_path / str(i)).write_bytes(bytes([i]) * 10)
        files.append(LocalStorage(str(tmp_path / str(i))))
    before = len(os.listdir("/proc/self/fd"))

    def read(i):
        return files[i % 40].read(3, 2).tolist()

    with ThreadPoolExecutor(4) as threads:
        got = list(threads.map(read, range(400)))
    assert got == [[i % 40] * 2 for i in range(400)]
    assert len(os.listdir("/proc/self/fd")) - before <= 5
    files.clear()
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.processes
def test_local_files_need_no_fsspec(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    code = (
        "import sys; sys.modules['fsspec'] = None\n"
        "from torchdali.paths import expand\nfrom torchdali.storage import open_storage\n"
        f"assert open_storage(expand({str(tmp_path / '*')!r})[0]).read_all().tobytes() == b'abc'\n"
        "try: open_storage('s3://b/c').size\n"
        "except ImportError as error: print(error)\n"
    )
    printed, _ = finish(start_code(code, tmp_path))
    assert printed.strip() == "s3://b/c is a remote file: pip install torchdali[remote]"


def test_unknown_scheme(tmp_path):
    with pytest.raises(ValueError, match="nonsense"):
        _ = open_storage("nonsense://a/b").size


def test_server_without_ranges(web):
    address, folder, handler = web
    handler.ranges = False
    (folder / "a").write_bytes(b"x" * 1000)
    with pytest.raises(ValueError, match="gives no parts of files"):
        open_storage(f"{address}/a").read(10, 5)


# Patterns


def test_expand(place):
    address, options, write = place
    for name in ("t-2.tar", "t-0.tar", "t-1.tar", "v-0.tar", "notes.txt"):
        write(name, b"x")
    files = [f"{address}/t-{i}.tar" for i in range(3)]
    assert expand(f"{address}/t-{{0..2}}.tar", **options) == files
    assert expand([f"{address}/v-0.tar", f"{address}/t-1.tar"]) == [f"{address}/v-0.tar", f"{address}/t-1.tar"]
    assert expand(Path("x")) == ["x"]
    if not address.startswith("http"):
        assert [name.removeprefix("memory:///") for name in expand(f"{address}/t-*.tar", **options)] == [
            name.removeprefix("memory://") for name in files
        ]
        assert len(expand(f"{address}/{{v,t}}-?.tar", **options)) == 4
        assert expand(f"{address}/[v]*.tar", **options)[0].endswith("v-0.tar")
        with pytest.raises(FileNotFoundError, match=r"no file matches .*/x\*"):
            expand(f"{address}/x*", **options)


def test_expand_refuses(tmp_path):
    with pytest.raises(ValueError, match=rf"got the folder {tmp_path}: write a pattern such as {tmp_path}/\*"):
        expand(tmp_path)
    with pytest.raises(ValueError, match="at least one file, got none"):
        expand([])
    with pytest.raises(TypeError, match="must be strings or pathlib's paths, got 3"):
        expand(["a", 3])
    with pytest.raises(ValueError, match="nested braces"):
        expand("a{1,{2,3}}")


def test_a_file_that_looks_like_a_pattern(tmp_path):
    for name in ("a[1].tar", "b{1..2}.tar"):
        (tmp_path / name).write_bytes(b"")
        assert expand(tmp_path / name) == [str(tmp_path / name)]
    assert expand("http://host/a?b=[1]") == ["http://host/a?b=[1]"]


BOUND = st.one_of(st.integers(-12, 120).map(str), st.integers(0, 12).map("{:03d}".format))
GROUP = st.one_of(
    st.tuples(BOUND, BOUND).map(lambda b: f"{{{b[0]}..{b[1]}}}"),
    st.tuples(BOUND, BOUND, st.integers(1, 9)).map(lambda b: f"{{{b[0]}..{b[1]}..{b[2]}}}"),
    st.tuples(st.sampled_from("abcz"), st.sampled_from("abdy")).map(lambda b: f"{{{b[0]}..{b[1]}}}"),
    st.lists(st.text("ab-", max_size=3), min_size=2, max_size=4).map(lambda parts: "{" + ",".join(parts) + "}"),
    st.text("ab.-/", max_size=4).filter(lambda text: ".." not in text),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(GROUP, max_size=3))
@pytest.mark.slow
def test_braces_are_those_of_webdataset(groups):
    text = "".join(groups)
    assert expand_braces(text) == list(braceexpand.braceexpand(text))


def test_below_common_folder():
    assert below_common_folder(["/a/b/x/1", "/a/b/y/1"]) == ["x/1", "y/1"]
    assert below_common_folder(["/a/b/x1", "/a/b/x2"]) == ["x1", "x2"]
    assert below_common_folder(["s3://a/b/x1"]) == ["x1"]


# The cache of indexes


def build_counted(calls, values=(1, 2, 3)):
    def build():
        calls.append(1)
        return {"offset": np.array(values), "name": np.array(["a", "b"])}

    return build


def test_index_is_built_once_for_a_version(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"abc")
    calls: list[int] = []
    for _ in range(3):
        found = cached_index(open_storage(path), "kind1", build_counted(calls), tmp_path / "cache")
        assert found["offset"].tolist() == [1, 2, 3] and found["name"].tolist() == ["a", "b"] and len(found) == 2
    assert len(calls) == 1
    cached_index(open_storage(path), "kind2", build_counted(calls), tmp_path / "cache")
    assert len(calls) == 2
    path.write_bytes(b"abcd")
    for _ in range(2):
        cached_index(open_storage(path), "kind1", build_counted(calls), tmp_path / "cache")
    assert len(calls) == 3
    assert len(os.listdir(tmp_path / "cache")) == 2


def test_index_goes_to_the_users_cache(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"abc")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    cached_index(open_storage(tmp_path / "a"), "kind", build_counted([]))
    assert len(os.listdir(tmp_path / "xdg" / "torchdali" / "index")) == 1
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    cached_index(open_storage(tmp_path / "a"), "kind", build_counted([]))
    assert len(os.listdir(tmp_path / "home" / ".cache" / "torchdali" / "index")) == 1


@pytest.mark.parametrize("damage", ["cut", "garbled", "bits", "empty", "other"])
def test_damaged_index_is_made_again(tmp_path, damage):
    path, cache = tmp_path / "a", tmp_path / "cache"
    path.write_bytes(b"abc")
    values = range(1000)
    cached_index(open_storage(path), "kind", build_counted([], values), cache)
    (file,) = cache.iterdir()
    data = file.read_bytes()
    middle = data.index(np.array(values).tobytes()) + 77
    file.write_bytes(
        {
            "cut": data[: len(data) // 2],
            "garbled": os.urandom(len(data)),
            "bits": data[:middle] + bytes([data[middle] ^ 4]) + data[middle + 1 :],
            "empty": b"",
            "other": b"PK\x05\x06" + bytes(18),
        }[damage]
    )
    calls: list[int] = []
    with pytest.warns(RuntimeWarning, match="is damaged and is made again"):
        found = cached_index(open_storage(path), "kind", build_counted(calls, values), cache)
    assert calls == [1] and found["offset"].tolist() == list(values)
    cached_index(open_storage(path), "kind", build_counted(calls, values), cache)
    assert calls == [1]


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "file").write_bytes(b"")
    with pytest.warns(RuntimeWarning, match=r"can't be kept in .*file/cache.*Write index_dir="):
        found = cached_index(open_storage(tmp_path / "a"), "kind", build_counted([]), tmp_path / "file" / "cache")
    assert found["offset"].tolist() == [1, 2, 3]


def _cache_in_child(path, cache, queue):
    queue.put(cached_index(open_storage(path), "kind", build_counted([], range(50_000)), cache)["offset"].sum())


@pytest.mark.processes
def test_several_processes_make_one_index(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    children = [context.Process(target=_cache_in_child, args=(tmp_path / "a", tmp_path / "c", queue)) for _ in range(3)]
    for child in children:
        child.start()
    assert [queue.get(timeout=100) for _ in children] == [sum(range(50_000))] * 3
    for child in children:
        child.join(60)
    assert len(os.listdir(tmp_path / "c")) == 1


@given(st.lists(st.binary(max_size=9), max_size=20))
def test_texts(raw):
    texts = Texts.of(raw)
    assert [texts[i] for i in range(len(texts))] == [part.decode("utf-8", "surrogateescape") for part in raw]
    some = [i for i in range(len(raw)) if i % 2]
    taken, double = texts.take(some), Texts.joined([texts, texts.take(some)])
    assert [taken[i] for i in range(len(taken))] == [texts[i] for i in some]
    assert [double[i] for i in range(len(double))] == [texts[i] for i in [*range(len(raw)), *some]]


# Components


def as_array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


@pytest.mark.parametrize(
    ("ext", "kind", "data", "value"),
    [
        ("cls", "number", b"17\n", 17), ("id", "number", b"-3", -3), ("index", "number", b"0", 0),
        ("txt", "object", "äb".encode(), "äb"), ("Caption.TXT", "object", b"", ""),
        ("json", "object", b'{"a": [1, null]}', {"a": [1, None]}),
    ],
)  # fmt: skip
def test_components(ext, kind, data, value):
    part = parts.component(ext)
    assert part.kind == kind and part.convert(as_array(data)) == value


def test_components_of_bytes():
    for ext, kind in [("jpg", "encoded"), ("left.PNG", "encoded"), ("pickle", "array"), ("flac", "encoded")]:
        part = parts.component(ext)
        assert part.kind == kind and part.convert(as_array(b"ab")).tolist() == [97, 98]
    assert parts.component("a.wav").of_field == kinds.Audio(encoded=True)
    assert parts.component("MP4").of_field == kinds.Video(encoded=True) and parts.component("jpg").of_field.encoded
    assert parts.component_as("mp4", "array").kind == "array"
    assert parts.component_as("pyd", "object").convert(as_array(b"ab")) == b"ab"
    assert parts.component_as("count", "number").convert(as_array(b"12")) == 12
    assert parts.component_as("jpg", "array").kind == "array"
    assert parts.component_as("jpg", "image").kind == parts.component_as("png", "mask").kind == "encoded"


def test_kind_of_bytes():
    names = "image img jpg left.jpeg image/encoded image/left/encoded PNG webp".split()
    assert {parts.kind_of_bytes(name) for name in names} == {"encoded"}
    assert {parts.kind_of_bytes(name) for name in "audio label image/text mask.npy encoded".split()} == {"array"}


def npy_with(header: bytes) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8)


@pytest.mark.parametrize(
    ("ext", "data", "message"),
    [
        ("cls", b"abc", "an integer in text was expected, got b'abc'"),
        ("cls", b"", "an integer in text was expected, got b''"),
        ("cls", b"1" * 30, "an integer of 64 bits was expected"),
        ("txt", b"ab\xff\xfe", "text in UTF-8 was expected, got .* at 2"),
        ("json", b'{"a": ', "JSON was expected"),
        ("json", b"\xff\xff", "JSON was expected"),
        ("npy", b"\x93NUM", "a .npy file was expected"),
        ("npy", b"\x93NUMPY\x01\x00\xff\xff{}", "a .npy header of 65545 bytes was expected, got 12 bytes"),
        ("npy", b"\x93NUMPY\x01\x00\x02\x00{}", "a .npy header of numbers was expected"),
        ("npy", npy_with(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, -1)}"), r"got the shape \[1, -1\]"),
        ("npy", npy_with(b"{'descr': '<f4', 'fortran_order': False, 'shape': (1 << 40,)}"), "header of numbers"),
        (
            "npy",
            npy_with(b"{'descr': '<f4', 'fortran_order': False, 'shape': (9" + b"9" * 30 + b",)}"),
            "were expected",
        ),
        ("npy", npy_with(b"{'descr': '<f4', 'fortran_order': (\n"), "a .npy header of numbers was expected"),
        ("npy", b"\x93NUMPY\x03\x00\x02\x00\x00\x00{}", "a .npy header of numbers was expected"),
    ],
)
def test_components_that_are_not_what_they_say(ext, data, message):
    with pytest.raises(ValueError, match=message):
        parts.component(ext).convert(as_array(data))
