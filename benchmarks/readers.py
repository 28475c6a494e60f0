"""Compare native readers and their index-driven twins with the same reader in DALI's pipeline mode, interleaved.

There are two kinds of work: `records` of 4 KiB that come out as padded bytes with their labels, where only reading
counts; and `images`, JPEG files of 92 kB that are decoded and resized to 224 x 224. The pipeline gives the same: bytes
padded by `fn.pad`, images resized by `fn.resize`, both copied into torch tensors. torchdali shuffles by a window as the
pipeline does, and gives its state after each batch.

    python benchmarks/readers.py                          # all formats, five rounds
    python benchmarks/readers.py --rounds 1 --seconds 0.5 # a smoke test
    python benchmarks/readers.py --formats TFRecord --work records
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from _work import BATCH_SIZE, ensure_photos, machine

RECORDS, RECORD_BYTES = 20_000, 4096
IMAGES = 2000
THREADS = 2
WINDOW = 1024
Item = tuple[bytes, int]


def payloads(work: str, photos: Path) -> Iterator[Item]:
    """Yield the samples: bytes and a label."""
    if work == "records":
        rng = np.random.default_rng(0)
        for i in range(RECORDS):
            yield rng.bytes(RECORD_BYTES - i % 64), i
        return
    files = sorted(photos.rglob("*_01.jpg"))
    for i in range(IMAGES):
        yield files[i % len(files)].read_bytes(), i


def write_file(root: Path, items: Iterator[Item]) -> None:
    for data, i in items:
        (root / f"{i % 100:02d}").mkdir(exist_ok=True)
        (root / f"{i % 100:02d}" / f"{i:06d}.jpg").write_bytes(data)


def write_webdataset(root: Path, items: Iterator[Item]) -> None:
    from webdataset import ShardWriter

    with ShardWriter(str(root / "%06d.tar"), maxcount=5000, verbose=0) as writer:
        for data, i in items:
            writer.write({"__key__": f"{i:06d}", "jpg": data, "cls": i})


def write_tfrecord(root: Path, items: Iterator[Item]) -> None:
    from tfrecord.writer import TFRecordWriter

    writer = TFRecordWriter(str(root / "data.tfrecord"))
    for data, i in items:
        writer.write({"image": (data, "byte"), "label": (i, "int")})
    writer.close()
    offsets, at, size = [], 0, (root / "data.tfrecord").stat().st_size
    with open(root / "data.tfrecord", "rb") as file:
        while at < size:
            file.seek(at)
            length = struct.unpack("<Q", file.read(8))[0] + 16
            offsets.append(f"{at} {length}\n")
            at += length
    (root / "data.idx").write_text("".join(offsets))


def write_mxnet(root: Path, items: Iterator[Item]) -> None:
    with open(root / "data.rec", "wb") as file, open(root / "data.idx", "w") as index:
        for data, i in items:
            payload = struct.pack("<IfQQ", 0, float(i), i, 0) + data
            index.write(f"{i}\t{file.tell()}\n")
            file.write(struct.pack("<II", 0xCED7230A, len(payload)) + payload + bytes(-len(payload) % 4))


def write_numpy(root: Path, items: Iterator[Item]) -> None:
    for data, i in items:
        np.save(root / f"{i:06d}.npy", np.frombuffer(data, np.uint8))


def write_caffe(root: Path, items: Iterator[Item]) -> None:
    import lmdb

    def varint(number: int) -> bytes:
        out = b""
        while number > 127:
            out, number = out + bytes([number & 127 | 128]), number >> 7
        return out + bytes([number])

    with lmdb.open(str(root), map_size=4 << 30) as env, env.begin(write=True) as transaction:
        for data, i in items:
            # Caffe's Datum: data = 4, label = 5, encoded = 7.
            datum = b"\x22" + varint(len(data)) + data + b"\x28" + varint(i) + b"\x38\x01"
            transaction.put(f"{i:08d}".encode(), datum)


def features() -> dict[str, Any]:
    import nvidia.dali.tfrecord as tfrec

    return {
        "image": tfrec.FixedLenFeature((), tfrec.string, ""),
        "label": tfrec.FixedLenFeature([1], tfrec.int64, -1),
    }


def options(name: str, root: Path) -> dict[str, Any]:
    """Give a native reader's options, which are the same in pipeline mode."""
    return {
        "File": lambda: {"file_root": str(root)},
        "Webdataset": lambda: {"paths": sorted(map(str, root.glob("*.tar"))), "ext": ["jpg", "cls"]},
        "TFRecord": lambda: {
            "path": [str(root / "data.tfrecord")],
            "index_path": [str(root / "data.idx")],
            "features": features(),
        },
        "MXNet": lambda: {"path": [str(root / "data.rec")], "index_path": [str(root / "data.idx")]},
        "Numpy": lambda: {"file_root": str(root)},
        "Caffe": lambda: {"path": str(root)},
    }[name]()


def twin(name: str, root: Path) -> Any:
    """Make the dataset that reads the same files by index."""
    import torchdali as td

    makers: dict[str, Callable[[], Any]] = {
        "File": lambda: td.ImageFolder(root),
        "Webdataset": lambda: td.TarDataset(root / "*.tar", ext=["jpg", "cls"]),
        "TFRecord": lambda: td.TFRecordDataset(root / "data.tfrecord", {"image": "bytes", "label": "int"}),
        "MXNet": lambda: td.RecordIODataset(root / "data.rec"),
        "Numpy": lambda: td.NumpyDataset(root),
        "Caffe": lambda: td.LMDBDataset(root, format="caffe"),
    }
    return makers[name]()


WRITERS: dict[str, Callable[[Path, Iterator[Item]], None]] = {
    "File": write_file, "Webdataset": write_webdataset, "TFRecord": write_tfrecord, "MXNet": write_mxnet,
    "Numpy": write_numpy, "Caffe": write_caffe,
}  # fmt: skip


def dali_pipeline(name: str, root: Path, work: str) -> Iterator[int]:
    from nvidia.dali import Pipeline, fn

    pipe = Pipeline(BATCH_SIZE, THREADS, None, exec_dynamic=True, prefetch_queue_depth=2)
    with pipe:
        reader = getattr(fn.readers, name.lower())
        outputs = reader(**options(name, root), random_shuffle=True, initial_fill=WINDOW, pad_last_batch=True, name="r")
        if isinstance(outputs, dict):
            outputs = list(outputs.values())
        outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        if work == "images":
            outputs[0] = fn.resize(fn.decoders.image(outputs[0]), size=[224, 224])
        else:
            outputs[0] = fn.pad(outputs[0], axes=(0,))
        if name == "Webdataset":
            outputs[1] = fn.pad(outputs[1], axes=(0,))
        pipe.set_outputs(*outputs)
    pipe.build()
    while True:
        for output in pipe.run():
            torch.from_dlpack(output.as_tensor()).clone()
        yield BATCH_SIZE


def loader(source: Any, work: str, **more: Any) -> Iterator[int]:
    import torchdali as td
    from torchdali import transforms as T

    transform = T.Resize((224, 224)) if work == "images" else None
    batches = td.DataLoader(source, BATCH_SIZE, transform=transform, device="cpu", num_threads=THREADS, seed=1, **more)
    while True:
        for batch in batches:
            batches.state_dict()
            yield len(batch[0].data if isinstance(batch[0], td.Padded) else batch[0])


def torchdali_reader(name: str, root: Path, work: str) -> Iterator[int]:
    from torchdali import readers

    kinds = {"image": "array"} if work == "records" and name != "Numpy" else None
    reader = getattr(readers, name)(**options(name, root), kinds=kinds, shuffle="window", initial_fill=WINDOW)
    return loader(reader, work)


def torchdali_twin(name: str, root: Path, work: str) -> Iterator[int]:
    source = twin(name, root)
    if work == "records" and name != "Numpy":
        source.kinds["image"] = "array"  # the bytes themselves
    return loader(source, work, shuffle=True)


PEERS = {"dali-pipeline": dali_pipeline, "reader": torchdali_reader, "twin": torchdali_twin}


def rate(batches: Iterator[int], seconds: float) -> float:
    """Measure samples per second."""
    for _ in range(20):
        next(batches)
    samples, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        samples += next(batches)
    return samples / elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--formats", default=",".join(WRITERS), type=lambda text: text.split(","))
    parser.add_argument("--work", default="records,images", type=lambda text: text.split(","))
    parser.add_argument("--rounds", default=5, type=int)
    parser.add_argument("--seconds", default=2.0, type=float)
    parser.add_argument("--data", default=Path.home() / ".cache" / "torchdali" / "bench-readers", type=Path)
    parser.add_argument("--photos", default=Path.home() / ".cache" / "torchdali" / "bench-jpegs", type=Path)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")

    ensure_photos(args.photos)
    results: dict[str, dict[str, list[float]]] = {}
    print(f"{'work':8} {'format':11} " + " ".join(f"{peer:>26}" for peer in PEERS))
    for work in args.work:
        for name in args.formats:
            if work == "images" and name == "Numpy":
                continue
            root = args.data / work / name
            if not root.exists():
                root.mkdir(parents=True)
                WRITERS[name](root, payloads(work, args.photos))
            rates: dict[str, list[float]] = {peer: [] for peer in PEERS}
            for turn in range(args.rounds):
                order = list(PEERS)
                for peer in order[turn % 3 :] + order[: turn % 3]:
                    batches = PEERS[peer](name, root, work)
                    rates[peer].append(rate(batches, args.seconds))
                    del batches
            base = rates["dali-pipeline"]
            cells = []
            for peer in PEERS:
                ratios = sorted(mine / other for mine, other in zip(rates[peer], base, strict=True))
                cells.append(f"{median(rates[peer]):10.0f} {ratios[0]:4.2f}-{median(ratios):4.2f}-{ratios[-1]:4.2f}")
            print(f"{work:8} {name:11} " + " ".join(f"{cell:>26}" for cell in cells), flush=True)
            results[f"{work} {name}"] = rates
    print("each cell: samples/s (median), and the ratio to the pipeline in the same round: min-median-max")
    if args.json:
        args.json.write_text(json.dumps({"machine": machine(), "rates": results}, indent=2))


if __name__ == "__main__":
    sys.exit(main())
