"""Odd image files through DALI's readers and the datasets of the same containers, in a process that may die."""

from __future__ import annotations

import json
import struct
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

import torchdali as td
from torchdali import readers
from torchdali.commands.collection import Sample

from .. import image_variants
from ..reader_files import _message, image_file
from .containers import write_lmdb
from .pixels import Damage, _damaged

ODD = Path(__file__).parents[1] / "data" / "odd-images"
FIELDS = ("image", "index", "valid")
LABELLED = ("image", "label", "index", "valid")


class Round(NamedTuple):
    """All files once through one container.

    Attributes:
        container: its name in `CONTAINERS`.
        how: "", "cut" or "flipped", what is done to the files first.
        seed: of the damage.
        engine: the loader's.
        step: every so many files.
    """

    container: str
    how: str
    seed: int
    engine: str
    step: int


def odd_files(round: Round) -> list[bytes]:
    """Give the files of a round, and whole ones, since a batch in which nothing is good is an error."""
    whole = [bytes(data) for data in image_variants.variants().values()]
    whole += [path.read_bytes() for path in sorted(ODD.iterdir())]
    some = whole[round.seed % round.step :: round.step]
    damages = [Damage(Sample("", ""), round.how, 1000 * round.seed + number) for number in range(len(some))]
    made = [bytes(_damaged(bytearray(one), damage)) for one, damage in zip(some, damages, strict=True)]
    return [data for data in made if data] + [image_file(number) for number in range(3)]


# Each container is written by its own writer, and read by DALI's reader and by the dataset that takes its index.


def of_folder(root: Path, files: Sequence[bytes]) -> tuple[Any, Any]:
    (root / "a").mkdir()
    for number, data in enumerate(files):
        (root / "a" / f"{number:04d}.jpg").write_bytes(data)
    return readers.File(file_root=root, fields=LABELLED), td.ImageFolder(root, fields=FIELDS)


def of_tar(root: Path, files: Sequence[bytes]) -> tuple[Any, Any]:
    import webdataset as wds

    path = root / "a.tar"
    with wds.TarWriter(str(path)) as writer:
        for number, data in enumerate(files):
            writer.write({"__key__": f"{number:04d}", "jpg": data, "cls": number})
    options: dict[str, Any] = {"index_dir": root, "fields": LABELLED}
    native = readers.Webdataset(paths=str(path), ext=["jpg", "cls"], **options)
    return native, td.TarDataset(path, ["jpg", "cls"], **options)


def of_tfrecord(root: Path, files: Sequence[bytes]) -> tuple[Any, Any]:
    from tfrecord.writer import TFRecordWriter

    path, features = root / "a.tfrecord", {"image": "bytes", "label": "int"}
    writer = TFRecordWriter(str(path))
    for number, data in enumerate(files):
        writer.write({"image": (data, "byte"), "label": (number, "int")})
    writer.close()
    native = readers.TFRecord(path=str(path), features=features, index_dir=root, fields=LABELLED)
    return native, td.TFRecordDataset(path, features, index_dir=root, fields=FIELDS)


def of_recordio(root: Path, files: Sequence[bytes]) -> tuple[Any, Any]:
    path = root / "a.rec"
    with open(path, "wb") as out:
        for number, data in enumerate(files):
            record = struct.pack("<IfQQ", 0, float(number), number, 0) + data
            out.write(struct.pack("<II", 0xCED7230A, len(record)) + record + bytes(-len(record) % 4))
    native = readers.MXNet(path=str(path), index_dir=root, fields=LABELLED)
    return native, td.RecordIODataset(path, index_dir=root, fields=FIELDS)


def of_caffe(root: Path, files: Sequence[bytes]) -> tuple[Any, Any]:
    write_lmdb(root / "db", [_message((4, data), (5, number), (7, 1)) for number, data in enumerate(files)])
    return readers.Caffe(path=root / "db", fields=LABELLED), td.LMDBDataset(root / "db", fields=FIELDS)


def of_caffe2(root: Path, files: Sequence[bytes]) -> tuple[Any, Any]:
    values = [
        _message((1, _message((2, 4), (6, data))), (1, _message((1, 1), (2, 2), (4, number))))
        for number, data in enumerate(files)
    ]
    write_lmdb(root / "db", values)
    return readers.Caffe2(path=root / "db", fields=LABELLED), td.LMDBDataset(root / "db", "caffe2", fields=FIELDS)


def of_coco(root: Path, files: Sequence[bytes]) -> tuple[Any, Any]:
    (root / "images").mkdir()
    for number, data in enumerate(files):
        (root / "images" / f"{number:04d}.jpg").write_bytes(data)
    images = [{"id": number + 1, "file_name": f"{number:04d}.jpg"} for number in range(len(files))]
    objects = [
        {"id": k, "image_id": k + 1, "category_id": 1, "bbox": [0, 0, 1, 1], "area": 1, "iscrowd": 0}
        for k in range(len(files))
    ]
    rest = {"annotations": objects, "categories": [{"id": 1, "name": "a"}]}
    # DALI's reader wants sizes; the dataset would refuse files that have others.
    sized = [one | {"width": 1, "height": 1} for one in images]
    (root / "sized.json").write_text(json.dumps({"images": sized, **rest}))
    (root / "plain.json").write_text(json.dumps({"images": images, **rest}))
    names = ("image", "boxes", "labels", "image_id", "index", "valid")
    native = readers.COCO(file_root=root / "images", annotations_file=root / "sized.json", image_ids=True, fields=names)
    return native, td.CocoDataset(root / "images", root / "plain.json", exif=True, fields=FIELDS)


CONTAINERS: dict[str, Callable[[Path, Sequence[bytes]], tuple[Any, Any]]] = {
    "folder": of_folder, "tar": of_tar, "tfrecord": of_tfrecord, "recordio": of_recordio, "caffe": of_caffe,
    "caffe2": of_caffe2, "coco": of_coco,
}  # fmt: skip


def make_read(folder: str) -> Callable[[Round], dict[str, int]]:
    warnings.simplefilter("ignore")
    return partial(read, folder)


def read(folder: str, round: Round) -> dict[str, int]:
    """Read a round's files both ways.

    Returns:
        How often a row had the pixels of the dataset in memory ("equal"), other ones ("wrong"), or none where it had
        some ("lost"); "lenient" and "refused" where it had none; samples that came twice ("repeated"), and those that
        were neither given nor named ("lost").
    """
    files = odd_files(round)
    memory, expected = td.InMemoryDataset(image=files), []
    for number in range(len(files)):
        try:
            expected.append(memory[number][0])
        except Exception:
            expected.append(None)
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(dir=folder) as root:
        for source in CONTAINERS[round.container](Path(root), files):
            counts += _count(source, expected, round.engine)
    return dict(counts)


def _count(source: Any, expected: list[torch.Tensor | None], engine: str) -> Counter[str]:
    plain = {"boxes": "array"} if "boxes" in source.fields else None  # no box fits these sizes
    loader = td.DataLoader(
        source, 8, device="cpu", engine=engine, on_bad_sample="skip", max_bad_samples=None, output="dict", kinds=plain
    )
    seen: Counter[int] = Counter()
    counts: Counter[str] = Counter()
    for batch in loader:
        images = batch["image"].unbind() if isinstance(batch["image"], td.Padded) else list(batch["image"])
        if "image_sizes" in batch:
            images = td.batch.unpadded(batch["image"], batch["image_sizes"].tolist())
        for image, index, valid in zip(images, batch["index"].tolist(), batch["valid"].tolist(), strict=True):
            if not valid:
                continue
            seen[index] += 1
            own = expected[index]
            counts["lenient" if own is None else "equal" if torch.equal(image, own) else "wrong"] += 1
    refused = {bad.index for bad in loader.bad_samples}
    counts["lost"] += sum(expected[index] is not None for index in refused)
    counts["refused"] += sum(expected[index] is None for index in refused)
    counts["lost"] += len(set(range(len(expected))) - set(seen) - refused)
    counts["repeated"] += sum(seen.values()) - len(seen)
    return counts
