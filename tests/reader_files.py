"""Real files for the native readers, each by its format's own writer, and what is in them."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from torchdali import readers

N = 13  # samples; no multiple of the numbers of ranks


class Case(NamedTuple):
    """One reader and its samples.

    Attributes:
        make: makes the reader, with options.
        samples: what each sample is, in the order of the files.
        full: it can shuffle fully.
        images: it reads image files, of which the first field is one.
    """

    make: Callable[..., readers.Reader]
    samples: list[tuple[Any, ...]]
    full: bool = False
    images: bool = False


def image_file(i: int, ending: str = "jpeg") -> bytes:
    """An image of a size of its own."""
    rng = np.random.default_rng(i)
    small = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    out = io.BytesIO()
    small.resize((20 + i, 30 - i), Image.Resampling.BICUBIC).save(out, ending)
    return out.getvalue()


def octets(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def file_case(root: Path) -> Case:
    samples = []
    for i in range(N):
        folder = root / f"class_{i // 5}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{i:03d}.jpg").write_bytes(image_file(i))
        samples.append((octets(image_file(i)), i // 5))
    return Case(lambda **kw: readers.File(file_root=root, **kw), samples, full=True, images=True)


def numpy_case(root: Path) -> Case:
    root.mkdir()
    samples = []
    for i in range(N):
        array = np.random.default_rng(i).random((1 + i % 3, 2 + i), np.float32)
        np.save(root / f"{i:03d}.npy", np.asfortranarray(array) if i % 2 else array)
        samples.append((array,))
    return Case(lambda **kw: readers.Numpy(file_root=root, **kw), samples, full=True)


def webdataset_case(root: Path) -> Case:
    from webdataset import ShardWriter

    root.mkdir()
    samples = []
    with ShardWriter(str(root / "%06d.tar"), maxcount=5, verbose=0) as writer:
        for i in range(N):
            array = np.arange(i + 1, dtype=np.float64)
            writer.write(
                {
                    "__key__": f"folder.with.dots/sample{i}",
                    "jpg": image_file(i),
                    "cls": i,
                    "txt": f"number {i} ä",
                    "json": {"number": i},
                    "npy": array,
                    "bin": bytes([i] * i),
                }
            )
            samples.append((octets(image_file(i)), i, f"number {i} ä", {"number": i}, array, octets(bytes([i] * i))))
    ext = ["jpg;png", "cls", "txt", "json", "npy", "bin"]
    return Case(lambda **kw: readers.Webdataset(paths=root / "*.tar", ext=ext, **kw), samples, images=True)


def tfrecord_case(root: Path) -> Case:
    from tfrecord.writer import TFRecordWriter

    root.mkdir()
    samples, paths = [], []
    for shard, rows in enumerate(np.array_split(range(N), 2)):
        paths.append(root / f"{shard}.tfrecord")
        writer = TFRecordWriter(str(paths[-1]))
        for i in rows.tolist():
            boxes = np.arange(4 * (i % 3), dtype=np.float32)
            writer.write(
                {
                    "image/encoded": (image_file(i), "byte"),
                    "image/class/label": (i, "int"),
                    "size": ([i, i + 1], "int"),
                    "boxes": (boxes.tolist(), "float"),
                }
            )
            samples.append((octets(image_file(i)), i, np.array([i, i + 1]), boxes))
        writer.close()

    features = {"image/encoded": "bytes", "image/class/label": "int", "size": ("int", (2,)), "boxes": ("float", None)}
    return Case(lambda **kw: readers.TFRecord(path=paths, features=features, **kw), samples, images=True)


def mxnet_case(root: Path) -> Case:
    root.mkdir()
    offsets, samples = [], []
    with open(root / "data.rec", "wb") as file:
        for i in range(N):
            payload = struct.pack("<IfQQ", 0, float(i), i, 0) + image_file(i)
            offsets.append(file.tell())
            file.write(struct.pack("<II", 0xCED7230A, len(payload)) + payload + bytes(-len(payload) % 4))
            samples.append((octets(image_file(i)), i))
    (root / "data.idx").write_text("".join(f"{i}\t{offset}\n" for i, offset in enumerate(offsets)))
    return Case(
        lambda **kw: readers.MXNet(path=root / "data.rec", index_path=root / "data.idx", **kw), samples, images=True
    )


def _message(*fields: tuple[int, int | bytes]) -> bytes:
    """A protobuf message of varints and bytes."""

    def varint(number: int) -> bytes:
        out = b""
        while number > 127:
            out, number = out + bytes([number & 127 | 128]), number >> 7
        return out + bytes([number])

    return b"".join(
        varint(field << 3) + varint(value)
        if isinstance(value, int)
        else varint(field << 3 | 2) + varint(len(value)) + value
        for field, value in fields
    )


def _write_lmdb(root: Path, values: list[bytes]) -> None:
    import lmdb

    with lmdb.open(str(root), map_size=1 << 24) as env, env.begin(write=True) as transaction:
        for i, value in enumerate(values):
            transaction.put(f"{i:08d}".encode(), value)


def caffe_case(root: Path) -> Case:
    """Datum: data = 4, label = 5, encoded = 7."""
    _write_lmdb(root, [_message((4, image_file(i)), (5, i), (7, 1)) for i in range(N)])
    samples = [(octets(image_file(i)), i) for i in range(N)]
    return Case(lambda **kw: readers.Caffe(path=root, **kw), samples, images=True)


def caffe2_case(root: Path) -> Case:
    """TensorProtos of an image (data_type = STRING) and a label (INT32)."""

    def record(i: int) -> bytes:
        image = _message((2, 4), (6, image_file(i)))
        label = _message((1, 1), (2, 2), (4, i))
        return _message((1, image), (1, label))

    _write_lmdb(root, [record(i) for i in range(N)])
    samples = [(octets(image_file(i)), i) for i in range(N)]
    return Case(lambda **kw: readers.Caffe2(path=root, **kw), samples, images=True)


def coco_case(root: Path) -> Case:
    """Boxes of 0 to 2 objects an image."""
    (root / "images").mkdir(parents=True)
    images, annotations, samples = [], [], []
    for i in range(N):
        (root / "images" / f"{i:03d}.jpg").write_bytes(image_file(i))
        images.append({"id": i + 1, "file_name": f"{i:03d}.jpg", "width": 20 + i, "height": 30 - i})
        boxes = [[float(k), 2.0, 3.0 + k, 4.5] for k in range(i % 3)]
        for k, box in enumerate(boxes):
            annotations.append(
                {"id": 10 * i + k, "image_id": i + 1, "category_id": 7 + k, "bbox": box, "area": 9.0, "iscrowd": 0}
            )
        samples.append(
            (
                octets(image_file(i)),
                np.array(boxes, np.float32).reshape(-1, 4),
                np.arange(1, i % 3 + 1, dtype=np.int32),
                i + 1,
            )
        )
    categories = [{"id": 7, "name": "cat"}, {"id": 8, "name": "dog"}]
    (root / "coco.json").write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": categories})
    )
    options = {"file_root": root / "images", "annotations_file": root / "coco.json", "image_ids": True}
    return Case(lambda **kw: readers.COCO(**options, **kw), samples, full=True, images=True)


def nemo_case(root: Path) -> Case:
    import soundfile

    root.mkdir()
    lines, samples = [], []
    for i in range(N):
        audio = np.random.default_rng(i).uniform(-0.5, 0.5, 40 + 7 * i)
        soundfile.write(root / f"{i:03d}.wav", audio, 8000, subtype="PCM_16")
        stored, _ = soundfile.read(root / f"{i:03d}.wav", dtype="float32")
        lines.append({"audio_filepath": str(root / f"{i:03d}.wav"), "duration": len(audio) / 8000, "text": f"wört {i}"})
        samples.append((stored[None], 8000, f"wört {i}"))
    (root / "manifest.json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Case(lambda **kw: readers.NemoAsr(manifest_filepaths=[root / "manifest.json"], **kw), samples, full=True)


def video_case(root: Path) -> Case:
    """Sequences of two frames.  Decoders differ by some levels: test_reader_video compares the frames with PyAV's."""
    import av

    root.mkdir()
    for number, frames in enumerate((10, 16)):
        with av.open(str(root / f"{number}.avi"), "w") as container:
            stream = container.add_stream("mjpeg", rate=10)
            stream.width, stream.height, stream.pix_fmt = 32, 24, "yuvj420p"
            for i in range(frames):
                pixels = np.full((24, 32, 3), 9 * i + 5 * number, np.uint8)
                for packet in stream.encode(av.VideoFrame.from_ndarray(pixels, format="rgb24")):
                    container.mux(packet)
            for packet in stream.encode():
                container.mux(packet)
    options = dict(
        filenames=[root / "0.avi", root / "1.avi"], labels=[3, 4], sequence_length=2, enable_frame_num="sequence"
    )

    def make(**more: Any) -> readers.Reader:
        return readers.experimental.Video(**options, **more)

    samples = list(make())
    assert [int(label) for _, label, *_ in samples] == [3] * 5 + [4] * 8
    return Case(make, samples)


CASES: dict[str, Callable[[Path], Case]] = {
    "File": file_case,
    "Numpy": numpy_case,
    "Webdataset": webdataset_case,
    "TFRecord": tfrecord_case,
    "MXNet": mxnet_case,
    "Caffe": caffe_case,
    "Caffe2": caffe2_case,
    "COCO": coco_case,
    "NemoAsr": nemo_case,
    "Video": video_case,
}
