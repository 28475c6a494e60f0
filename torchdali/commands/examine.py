"""Examines one sample in a process of its own: every decoder that a loader may use must give the whole image."""

from __future__ import annotations

import functools
import hashlib
import time
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from PIL import Image as PILImage
from PIL import UnidentifiedImageError

from .. import _dali, pillow
from ..errors import first_line, let_through
from ..formats.example import parse_example, type_of, values_of
from ..formats.files import read_file
from ..formats.headers import Bytes, read_header
from ..formats.parts import kind_of_bytes
from ..formats.recordio import Image, whole
from ..formats.report import Entry
from ..storage import Storage, is_remote, open_storage
from ..transforms.decode import Decode
from .collection import Part, Sample

_NAMES = {"dali": "DALI", "pillow": "Pillow"}  # in the order in which a loader asks them
_ORDER = ("refused", "bad", "oversized", "good")  # the worst of a sample's images counts


def make_examine(max_pixels: int | None) -> Callable[[Sample], Entry]:
    """Make the function that examines a sample, and use each decoder once, so that no file's time has their start."""
    warnings.simplefilter("ignore")  # of each file's oddities
    PILImage.init()  # loads all formats
    dali = _Dali()
    dali(pillow.as_pnm(np.zeros((8, 8, 3), np.uint8)))
    return functools.partial(_examine, dali, max_pixels)


class _Dali:
    """DALI's decoder on the CPU, as a loader calls it, for one file."""

    def __init__(self) -> None:
        self._session = _dali.Session(1, torch.device("cpu"))
        self._ops = _dali.DynamicOps("cpu")

    def __call__(self, data: Bytes) -> tuple[int, ...]:
        """Decode a file and give its shape; DALI's errors rise."""
        with self._session:
            return _dali.Output(Decode().transform(self._ops, _dali.as_batch([data]))).shapes()[0]


def _examine(dali: _Dali, max_pixels: int | None, sample: Sample) -> Entry:
    entry = Entry(sample.path, sample.version, "good", max_pixels=max_pixels)
    try:
        images = [image for part in sample.parts for image in read_images(sample.kind, part)]
    except (OSError, ValueError) as error:
        let_through(error)
        return replace(entry, status="refused", reason=first_line(error))
    hasher = hashlib.blake2b(digest_size=16)
    for image in images:
        hasher.update(image.data)
    found = [_examine_image(dali, image, entry) for image in images]
    worst = min(found, key=lambda one: (_ORDER.index(one.status), one.decoder == "dali"))
    return replace(worst, seconds=round(sum(one.seconds for one in found), 6), digest=hasher.hexdigest())


def _examine_image(dali: _Dali, data: Bytes, entry: Entry) -> Entry:
    """Decode a file by all decoders that a loader may use for it; never one that promises more than `max_pixels`."""
    header = read_header(data)
    entry = replace(entry, height=header.height, width=header.width)
    refused: dict[str, str] = {}
    seconds: dict[str, float] = {}
    unknown = False
    try:
        pillow.check_pixels(header.height, header.width, entry.max_pixels)
        start = time.process_time()
        height, width, _ = pillow.decode(data, entry.max_pixels).shape
        seconds["pillow"] = time.process_time() - start
        entry = replace(entry, height=height, width=width)
    except pillow.OversizedError as error:
        return replace(entry, status="oversized", reason=first_line(error))
    except Exception as error:
        let_through(error)
        refused["pillow"] = first_line(error)
        unknown = isinstance(error, UnidentifiedImageError)
    if header.exact:
        try:
            start = time.process_time()
            dali(data)
            seconds["dali"] = time.process_time() - start
        except Exception as error:
            let_through(error)
            refused["dali"] = first_line(error).rstrip(" :")
    if "pillow" in refused:  # DALI may let through a file that is cut off
        entry = replace(entry, status="refused" if unknown else "bad")
    decoder = next((name for name in _NAMES if name in seconds), "")
    return replace(
        entry,
        decoder=decoder,
        refused_by=tuple(sorted(refused)),
        reason="; ".join(f"{_NAMES[name]}: {reason}" for name, reason in sorted(refused.items())),
        seconds=seconds.get(decoder, 0.0),
    )


@functools.lru_cache(maxsize=64)
def _opened(file: str) -> Storage:
    return open_storage(file)


def read_images(kind: str, part: Part) -> list[Bytes]:
    """Read the image files of a part."""
    if part.size < 0:
        return [open_storage(part.file).read_all() if is_remote(part.file) else read_file(part.file, image=True)]
    data = _opened(part.file).read(part.offset, part.size)
    if kind == "recordio":
        return [Image.of(whole(data)).data]
    if kind == "tfrecord":
        return _images_of(data[12:-4])  # between the length with its checksum, and the checksum of the data
    return [data]


def _images_of(data: Bytes) -> list[Bytes]:
    """Give the image files in a tf.train.Example: features whose names or contents say so."""
    images: list[Bytes] = []
    features = parse_example(data)
    for name in sorted(features):
        if type_of(features[name]) == "bytes":
            for value in values_of(features[name]):
                if kind_of_bytes(name) == "encoded" or (len(value) and pillow.is_image_file(value)):
                    images.append(value)
    if not images:
        raise ValueError(f"no image was found in the features {', '.join(sorted(features))}")
    return images
