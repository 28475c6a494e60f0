"""The dataset that a path on the command line means: folders, files and packs, by what lies in them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..checks import nearest_path
from ..datasets import (
    CocoDataset,
    FileDataset,
    ImageFolder,
    MapDataset,
    NumpyDataset,
    Packed,
    RecordIODataset,
    TarDataset,
    TFRecordDataset,
    VideoClips,
)
from ..formats.example import parse_example, type_of, values_of
from ..formats.packed import INDEX
from ..formats.parts import AUDIO, IMAGES, VIDEO, ending
from ..formats.records import RecordFiles
from ..formats.texts import Texts
from ..formats.tfrecord import TFRECORD, read_records
from ..formats.webdataset import tar_index
from ..kinds import AnyKind, Image, Mask
from ..paths import expand
from ..storage import is_remote, open_storage
from .collection import kind_of, read_list
from .command import UsageError, wrong_input

EXPECTED = (
    "a folder of images, sounds, videos or .npy files (perhaps one folder per class), a folder with images/ and "
    "masks/, or images/ and instances.json, a pack, such a file, a list of files (.txt, .lst), tars (.tar), TFRecords "
    "or RecordIO (.rec)"
)
FRAMES = 16  # of a clip, where nothing is told
SPLITS = ("train", "training")
_SHARD = re.compile(r"shard-\d{5}\.\d+-.+\.npy(\.part)?")  # of a pack


def dataset_of(path: str, index_dir: str | None = None) -> MapDataset:
    """Make the dataset that a path means.

    Raises:
        UsageError: it does not exist, or nothing is known of what lies there.
    """
    path = os.path.expanduser(path)
    with wrong_input():
        several = [path] if is_remote(path) or os.path.exists(path) else expand(path)
    for one in several:
        if not is_remote(one) and not os.path.exists(one):
            raise UsageError(f"{one} does not exist{nearest_path(one)}")
    with wrong_input(path):
        found = _of_folder(path) if os.path.isdir(path) else _of_files(several, index_dir)
    if found is None:
        raise UsageError(f"{EXPECTED} was expected, got {path}")
    return found


def _of_folder(path: str) -> MapDataset | None:
    names = sorted(name for name in os.listdir(path) if not name.startswith("."))
    folders = [name for name in names if os.path.isdir(os.path.join(path, name))]
    if INDEX in names or any(_SHARD.fullmatch(name) for name in names):
        return Packed(path)  # it says so where the pack is not finished
    if "images" in folders and "instances.json" in names:
        return CocoDataset(os.path.join(path, "images"), os.path.join(path, "instances.json"), masks=True)
    if "images" in folders and "masks" in folders:
        return _with_masks(path)
    for split in SPLITS:
        if split in folders:
            return _of_folder(os.path.join(path, split))
    if any(ending(name) in IMAGES for name in names):
        return FileDataset([os.path.join(path, name) for name in names if ending(name) in IMAGES])
    here = [os.path.join(path, name) for name in names if name not in folders]
    if (found := _of_sounds(here, None)) is not None:
        return found
    if any(ending(name) == "npy" for name in names):
        return NumpyDataset(path)
    shards = [one for one in here if kind_of(one) in ("tar", "tfrecord", "recordio")]
    if shards and len({kind_of(one) for one in shards}) == 1:
        return _of_files(shards, None)
    inside = {folder: _files(os.path.join(path, folder)) for folder in folders}
    labelled = [(file, label) for label, files in enumerate(inside.values()) for file in files]
    found = _of_sounds([file for file, _ in labelled], dict(labelled))
    if found is not None:
        found.classes = folders  # type: ignore[attr-defined]  # as ImageFolder's
        return found
    if any(ending(file) in IMAGES for file, _ in labelled):
        return ImageFolder(path, allow_empty=True)
    return None


def _files(folder: str) -> list[str]:
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if not name.startswith(".")]


def _of_sounds(files: list[str], labels: Mapping[str, int] | None) -> MapDataset | None:
    """Make the dataset of files of sound or videos; None: there are none."""
    for endings in (AUDIO, VIDEO):
        some = [file for file in files if ending(file) in endings]
        if not some:
            continue
        numbers = None if labels is None else [labels[file] for file in some]
        if endings is AUDIO:
            return FileDataset({"audio": some}, numbers, kinds={"audio": "audio"})
        return VideoClips(some, FRAMES, step=2**40, labels=numbers)
    return None


def _with_masks(path: str) -> MapDataset:
    masks = {Path(file).stem: file for file in _files(os.path.join(path, "masks"))}
    images = [file for file in _files(os.path.join(path, "images")) if ending(file) in IMAGES]
    lost = [file for file in images if Path(file).stem not in masks]
    if lost:
        raise UsageError(f"a mask of the same name was expected in {path}/masks for each image, and {lost[0]} has none")
    files = {"image": images, "mask": [masks[Path(file).stem] for file in images]}
    return FileDataset(files, kinds={"image": Image(exif=False), "mask": Mask()})


def _of_files(paths: list[str], index_dir: str | None) -> MapDataset | None:
    kinds = {kind_of(path) for path in paths}
    if kinds == {"list"} and len(paths) == 1:
        files, labels = read_list(paths[0])
        return FileDataset(files, labels)
    if kinds == {"image"}:
        return FileDataset(paths)
    if kinds == {"tar"}:
        return _of_tars(paths, index_dir)
    if kinds == {"recordio"}:
        return RecordIODataset(paths, index_dir=index_dir)
    if kinds == {"tfrecord"}:
        return _of_tfrecords(paths, index_dir)
    if all(ending(path) == "npy" for path in paths):
        return NumpyDataset(paths)
    return _of_sounds(paths, None)


def _of_tars(paths: list[str], index_dir: str | None) -> MapDataset:
    """Take the parts of the tar's first kind of sample: its images, and what else each sample has."""
    index = tar_index(open_storage(paths[0]), index_dir)
    texts = Texts(index["endings"], index["ending_ends"])
    endings = sorted(texts[number] for number in range(len(texts)))
    images = [one for one in endings if ending(one) in IMAGES]
    return TarDataset(paths, [*([";".join(images)] if images else []), *(one for one in endings if one not in images)],
                      missing="skip", index_dir=index_dir)  # fmt: skip


def _of_tfrecords(paths: list[str], index_dir: str | None) -> MapDataset:
    """Take the features that the first example has."""
    records = RecordFiles(TFRECORD, paths, index_dir=index_dir)
    ((_, first),) = read_records(records, [0])
    features: dict[str, Any] = {}
    kinds: dict[str, AnyKind] = {}
    for name, feature in sorted(parse_example(first).items()):
        type_, values = type_of(feature), values_of(feature)
        if type_ is None or (type_ == "bytes" and len(values) != 1):
            continue
        features[name] = (type_, () if len(values) == 1 else None)
        if type_ == "bytes":
            kinds[name] = _kind_of_value(bytes(values[0]))
    return TFRecordDataset(paths, features, kinds=kinds, index_dir=index_dir)


def _kind_of_value(value: bytes) -> str:
    """Tell an image file from a string, and both from other bytes."""
    if value[:3] == b"\xff\xd8\xff" or value[:4] in (b"\x89PNG", b"RIFF", b"GIF8") or value[:2] == b"BM":
        return "encoded"
    try:
        value.decode()
    except UnicodeDecodeError:
        return "array"
    return "object"
