"""Containers of samples, damaged in their structure, and what comes of reading them, in a process that may die."""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import struct
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import torchdali as td
from torchdali import readers

from ..reader_files import _message, image_file

N = 13
SPARE = 1 << 30  # bytes of address space that reading small files may take
LIMIT = 3.0  # seconds of this process's own work, for files of a hundred KiB
FOR_USERS = (ValueError, OSError, td.errors.TorchDaliError)  # what a dataset's documentation names


class Kind(NamedTuple):
    """A kind of container.

    Attributes:
        write: writes it to a folder, with `payloads`.
        open: gives a source whose first field is the payload, uint8 [n].
        files: the names of the files that are damaged.
        text: they are text, in which a changed number can be a valid one.
        stored: gives a payload as the file has it.
        head: the bytes before a payload that are its sample's own, and have no checksum.
    """

    write: Callable[[Path], object]
    open: Callable[[Path], Any]
    files: tuple[str, ...]
    text: bool = False
    stored: Callable[[bytes], bytes] = bytes
    head: int = 0


class Damage(NamedTuple):
    """One damage: the kind's name, and a seed."""

    kind: str
    seed: int


def payloads() -> list[bytes]:
    """Give the samples: image files, of which some are larger than a page."""
    return [image_file(i) + bytes([i]) * (3000 * (i % 3 == 0)) for i in range(N)]


# Writers


def write_lmdb(root: Path, values: list[bytes]) -> None:
    import lmdb

    with lmdb.open(str(root), map_size=1 << 26, subdir=True) as env, env.begin(write=True) as transaction:
        for i, value in enumerate(values):
            transaction.put(f"{i:08d}".encode(), value)


def write_raw(root: Path) -> None:
    write_lmdb(root, payloads())


def write_caffe(root: Path) -> None:
    write_lmdb(root, [_message((4, data), (5, i), (7, 1)) for i, data in enumerate(payloads())])


def write_recordio(root: Path) -> None:
    offsets = []
    with open(root / "data.rec", "wb") as file:
        for i, data in enumerate(payloads()):
            record = struct.pack("<IfQQ", 0, float(i), i, 0) + data
            offsets.append(file.tell())
            file.write(struct.pack("<II", 0xCED7230A, len(record)) + record + bytes(-len(record) % 4))
    (root / "data.idx").write_text("".join(f"{i}\t{offset}\n" for i, offset in enumerate(offsets)))


def write_tfrecord(root: Path) -> None:
    from tfrecord.tools.tfrecord2idx import create_index
    from tfrecord.writer import TFRecordWriter

    writer = TFRecordWriter(str(root / "data.tfrecord"))
    for i, data in enumerate(payloads()):
        writer.write({"image": (data, "byte"), "label": (i, "int")})
    writer.close()
    create_index(str(root / "data.tfrecord"), str(root / "data.idx"))


def write_tar(root: Path) -> None:
    import webdataset as wds

    with wds.TarWriter(str(root / "data.tar")) as writer:
        for i, data in enumerate(payloads()):
            writer.write({"__key__": f"{i:03d}", "jpg": data, "cls": i})
    from torchdali.formats.tar import BLOCK
    from torchdali.formats.webdataset import tar_index
    from torchdali.storage import open_storage

    index = tar_index(open_storage(root / "data.tar"), root)
    offset, size = index["offset"].tolist(), index["size"].tolist()
    assert len(offset) == 2 * N and not offset[0] % BLOCK
    names = ["jpg", "cls"] if size[0] > size[1] else ["cls", "jpg"]
    lines = [
        " ".join(f"{name} {offset[2 * i + k]} {size[2 * i + k]} {i:03d}.{name}" for k, name in enumerate(names))
        for i in range(N)
    ]
    (root / "data.idx").write_text(f"v1.2 {N}\n" + "".join(f"{line}\n" for line in lines))
    for path in root.glob("*.npz"):
        path.unlink()


def write_pack(root: Path) -> None:
    arrays = [np.frombuffer(data, np.uint8).copy() for data in payloads()]
    data = td.InMemoryDataset(image=arrays, label=np.arange(N), kinds={"image": "array"})
    td.pack(data, root / "pack")


def write_npy(root: Path) -> None:
    for i, data in enumerate(payloads()):
        np.save(root / f"{i:03d}.npy", np.frombuffer(data, np.uint8))


def write_npz(root: Path) -> None:
    rows = np.stack([np.frombuffer(data[:600].ljust(600), np.uint8) for data in payloads()])
    np.savez(root / "data.npz", image=rows, label=np.arange(N))


def write_coco(root: Path) -> None:
    (root / "images").mkdir()
    images, annotations = [], []
    for i, data in enumerate(payloads()):
        (root / "images" / f"{i:03d}.jpg").write_bytes(data)
        images.append({"id": i + 1, "file_name": f"{i:03d}.jpg", "width": 20 + i, "height": 30 - i})
        for k in range(i % 3):
            annotations.append(
                {
                    "id": 10 * i + k,
                    "image_id": i + 1,
                    "category_id": 7 + k,
                    "bbox": [float(k), 2.0, 3.0 + k, 4.5],
                    "area": 9.0,
                    "iscrowd": 0,
                    "segmentation": [[1, 1, 5, 1, 5, 5.5]],
                }
            )
    categories = [{"id": 7, "name": "cat"}, {"id": 8, "name": "dog"}]
    (root / "coco.json").write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": categories})
    )


def write_tokens(root: Path) -> None:
    np.save(root / "tokens.npy", np.arange(N * 512 + 1, dtype=np.uint16))


def _ids(tokens: bytes) -> bytes:
    return np.frombuffer(tokens, np.int64).astype(np.uint16).tobytes()


FEATURES = {"image": "bytes", "label": "int"}
ARRAY: dict[str, Any] = {"kinds": {"image": "array"}}
KINDS: dict[str, Kind] = {
    "LMDB": Kind(write_raw, lambda at: td.LMDBDataset(at, "raw"), ("data.mdb",)),
    "LMDB, Caffe": Kind(write_caffe, lambda at: td.LMDBDataset(at, **ARRAY), ("data.mdb",)),
    "LMDB, DALI": Kind(write_caffe, lambda at: readers.Caffe(path=at, **ARRAY), ("data.mdb",)),
    "RecordIO": Kind(
        write_recordio, lambda at: td.RecordIODataset(at / "data.rec", index_dir=at, **ARRAY), ("data.rec",), head=32
    ),
    "RecordIO and index": Kind(
        write_recordio,
        lambda at: td.RecordIODataset(at / "data.rec", at / "data.idx", index_dir=at, **ARRAY),
        ("data.rec", "data.idx"),
        head=32,
    ),
    "RecordIO and index, DALI": Kind(
        write_recordio,
        lambda at: readers.MXNet(path=at / "data.rec", index_path=at / "data.idx", index_dir=at, **ARRAY),
        ("data.rec", "data.idx"),
        head=32,
    ),
    "TFRecord": Kind(
        write_tfrecord,
        lambda at: td.TFRecordDataset(at / "data.tfrecord", FEATURES, index_dir=at, **ARRAY),
        ("data.tfrecord",),
    ),
    "TFRecord and index": Kind(
        write_tfrecord,
        lambda at: td.TFRecordDataset(
            at / "data.tfrecord", FEATURES, index_paths=at / "data.idx", index_dir=at, check_crc=True, **ARRAY
        ),
        ("data.tfrecord", "data.idx"),
    ),
    "TFRecord and index, DALI": Kind(
        write_tfrecord,
        lambda at: readers.TFRecord(
            path=at / "data.tfrecord", features=FEATURES, index_path=at / "data.idx", index_dir=at, **ARRAY
        ),
        ("data.tfrecord", "data.idx"),
    ),
    "tar": Kind(
        write_tar,
        lambda at: td.TarDataset(at / "data.tar", ["jpg", "cls"], index_dir=at, **ARRAY),
        ("data.tar",),
    ),
    "tar and index": Kind(
        write_tar,
        lambda at: td.TarDataset(at / "data.tar", ["jpg", "cls"], index_paths=at / "data.idx", index_dir=at, **ARRAY),
        ("data.tar", "data.idx"),
    ),
    "tar, DALI": Kind(
        write_tar,
        lambda at: readers.Webdataset(paths=at / "data.tar", ext=["jpg", "cls"], index_dir=at, **ARRAY),
        ("data.tar",),
    ),
    "pack": Kind(
        write_pack,
        lambda at: td.Packed(at / "pack"),
        ("pack/pack.json", "pack/shard-00000.0-image.at.npy", "pack/shard-00000.0-image.npy"),
    ),
    "npy": Kind(write_npy, lambda at: td.NumpyDataset(at), tuple(f"{i:03d}.npy" for i in range(3))),
    "npy, DALI": Kind(write_npy, lambda at: readers.Numpy(file_root=at), tuple(f"{i:03d}.npy" for i in range(3))),
    "npz": Kind(write_npz, lambda at: td.NumpyDataset(at / "data.npz"), ("data.npz",)),
    "COCO": Kind(
        write_coco, lambda at: td.CocoDataset(at / "images", at / "coco.json", masks=True), ("coco.json",), True
    ),
    "COCO, DALI": Kind(
        write_coco,
        lambda at: readers.COCO(file_root=at / "images", annotations_file=at / "coco.json", **ARRAY),
        ("coco.json",),
        True,
    ),
    "tokens": Kind(write_tokens, lambda at: td.TokenWindows(at / "tokens.npy", 512), ("tokens.npy",), stored=_ids),
}


# Damages


def mutate(content: bytes, rng: random.Random, spared: list[tuple[int, int]]) -> tuple[bytes, list[tuple[int, int]]]:
    """Damage some bytes, rather not of payloads.

    Args:
        content: the file.
        rng: chooses.
        spared: the places of payloads in it: begin and end.

    Returns:
        the file, and the places that are not what they were; to its end where bytes were moved.
    """

    def place() -> int:
        for _ in range(50):
            at = rng.choice((rng.randrange(len(content)), rng.randrange(min(len(content), 600))))
            if not any(begin <= at < end for begin, end in spared) or rng.random() < 0.02:
                break
        return at

    way, at = rng.randrange(8), place()
    some = rng.choice((1, 2, 4, 8, 17, 100))
    numbers = [match.span() for match in re.finditer(rb"(?<![\w.-])\d{1,12}\b", content[:200_000])]
    if way == 0:
        changed = bytearray(content)
        changed[at] ^= 1 << rng.randrange(8)
        return bytes(changed), [(at, at + 1)]
    if way == 1:
        return content[:at], [(at, len(content))]
    if way == 2:
        return content[:at] + content[at + some :], [(at, len(content))]
    if way == 3:
        return content[:at] + rng.randbytes(some) + content[at:], [(at, len(content))]
    if way == 4:
        other = place()
        at, other = sorted((at, other))
        some = min(some, other - at)
        swapped = bytearray(content)
        swapped[at : at + some], swapped[other : other + some] = content[other : other + some], content[at : at + some]
        return bytes(swapped[: len(content)]), [(at, at + some), (other, other + some)]
    if way == 5:  # a count, or an offset, that is too large
        size, at = rng.choice((2, 4, 8)), at // 4 * 4
        value = rng.choice(
            (0, 1, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)
        )
        changed = bytearray(content)
        changed[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, rng.choice(("little", "big")))
        return bytes(changed[: len(content)]), [(at, at + size)]
    if way == 6 and len(numbers) > 3:  # a number in a text
        begin, end = rng.choice(numbers)
        other = rng.choice((b"0", b"-1", b"1e999", b"9" * 5000, b"99999999999", b"4294967296", b"NaN", b"null", b'"7"'))
        if rng.random() < 0.3:
            a, b = rng.choice(numbers)
            other = content[a:b]
        return content[:begin] + other + content[end:], [(begin, len(content))]
    lines = content.split(b"\n")
    if way == 7 and len(lines) > 5 and b"\0" not in content:
        a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
        lines[a : a + 1] = rng.choice(([], [lines[a]] * 2, [lines[b]]))
        return b"\n".join(lines), [(0, len(content))]
    changed = bytearray(content)
    changed[at : at + some] = rng.choice((b"\0", b"\xff", b"7")) * some
    return bytes(changed[: len(content)]), [(at, at + some)]


def make_read(folder: Path) -> Callable[[Damage], str]:
    """Make the function that damages and reads; the containers are in a folder."""
    warnings.simplefilter("ignore")
    for name, kind in KINDS.items():
        list(_samples(kind.open(_copy(folder, name))))  # imports, and what DALI keeps
    own = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (own + SPARE, own + SPARE))
    return lambda damage: read_damaged(folder, damage)


def write_all(folder: Path) -> None:
    """Write the containers."""
    for number, kind in enumerate(KINDS.values()):
        (folder / str(number)).mkdir()
        kind.write(folder / str(number))


def _copy(folder: Path, name: str) -> Path:
    scratch = Path(tempfile.mkdtemp(dir=folder)) / "c"
    shutil.copytree(folder / str(list(KINDS).index(name)), scratch)
    return scratch


def _samples(source: Any) -> list[bytes]:
    if isinstance(source, readers.Reader):
        return [sample[0].numpy().tobytes() for sample in source]
    names = list(source.fields)
    found: list[bytes] = []
    for index in range(len(source)):
        try:
            columns = source.read_columns([index], names)
        except ValueError as error:
            error.add_note(str(source.path(index)))  # as a loader's BadSampleError has it
            raise
        found.append(np.asarray(columns[names[0]][0]).tobytes())
    return found


def read_damaged(folder: Path, damage: Damage) -> str:
    """Damage a container and read it.

    Returns:
        "right": what was there; "refused": an error that names the file; else what is wrong, a word of
        `trial.COLUMNS` first.
    """
    kind, rng = KINDS[damage.kind], random.Random(repr(damage))
    scratch = _copy(folder, damage.kind)
    try:
        path = scratch / rng.choice(kind.files)
        content = path.read_bytes()
        expected = expected_of(damage.kind)
        places = []
        for data in map(kind.stored, expected):
            at = content.find(data)
            places.append((at, at + len(data)) if at >= 0 and data else None)
        status = path.stat()
        changed, touched = mutate(content, rng, [place for place in places if place])
        path.write_bytes(changed)
        if rng.random() < 0.5:
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        before = time.process_time()
        try:
            found = _samples(kind.open(scratch))
        except FOR_USERS as error:
            whole = "\n".join([str(error), *getattr(error, "__notes__", ())])
            if str(scratch) not in whole:
                return f"crashes {type(error).__name__}, no path: {whole[:300]}"
            outcome = "refused"
        except Exception as error:
            return f"crashes {type(error).__name__}: {str(error)[:300]}"
        else:
            outcome = _judge(expected, found, places, touched, kind)
        took = time.process_time() - before
        return outcome if took < LIMIT else f"hangs {took:.1f} s: {outcome}"
    finally:
        shutil.rmtree(scratch.parent)


def expected_of(name: str) -> list[bytes]:
    """Give the samples of a kind."""
    if name == "tokens":
        return [np.arange(i * 512, i * 512 + 513, dtype=np.int64).tobytes() for i in range(N)]
    if name == "npz":
        return [data[:600].ljust(600) for data in payloads()]
    return payloads()


def swapped(tokens: bytes) -> bytes:
    """Give ids as they are read in the other byte order; no other payload is a multiple of eight with such bytes."""
    ids = np.frombuffer(tokens[: len(tokens) // 8 * 8], np.int64)
    return ids.astype(np.uint16).byteswap().astype(np.int64).tobytes()


def _judge(
    expected: list[bytes],
    found: list[bytes],
    places: list[tuple[int, int] | None],
    touched: list[tuple[int, int]],
    kind: Kind,
) -> str:
    if found == expected:
        return "right"
    if kind.text and all(data in expected for data in found):
        return "right"  # other entries of a list that says nothing of itself
    if len(found) < len(expected):
        return f"lost {len(expected) - len(found)}"
    if len(found) > len(expected):
        return f"repeated {len(found) - len(expected)}"
    for number, (data, before, place) in enumerate(zip(found, expected, places, strict=True)):
        if data == swapped(before):
            continue  # of a header of two bytes, one says the other order
        own = head = False
        for begin, end in touched if place else ():
            own |= begin < place[1] and place[0] < end
            head |= begin < place[0] and place[0] - kind.head < end
        if data != before and not head and not (own and len(data) == len(before)):
            return f"wrong sample {number}: {len(data)} bytes for {len(before)}, {found.count(data)} times"
    return "right"  # a payload's own bytes were changed, and nothing says what they were
