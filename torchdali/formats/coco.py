"""Annotations of images in COCO's format: a JSON file, or the files that DALI saves from one.

The format: https://cocodataset.org/#format-data.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..fingerprint import digest
from .strict_json import plain_json, strict_json

FARTHEST = 1e6  # pixels; DALI draws an edge point by point, so a much longer one would take hours and gigabytes
PARSED = (
    "annotations_file images skip_empty ratio ltrb size_threshold include_iscrowd avoid_class_remapping"
    " save_preprocessed_annotations"
).split()  # options that act on the JSON file only


class Annotations:
    """A JSON file in COCO's format, checked.

    Args:
        path: the file.
        options: DALI's options, which say what is read; and `masks`, for polygons or run lengths of any form.
        for_dali: refuse what only DALI's parser misreads: ids of more than 32 bits, and odd numbers and strings.

    Attributes:
        files: names of the images that are read.
        images: their entries in the file, in the order of their ids.
        instances: the entries of their annotations, by the id of the image.
        categories: the categories' entries, by their ids.
        digest: a digest of the file's bytes.
        dropped: sentences that count the annotations that are left out.

    Raises:
        ValueError: an entry that DALI would misread.
    """

    def __init__(self, path: str, options: Mapping[str, Any], for_dali: bool = True) -> None:
        self.path, self.options, self.bits = path, options, 32 if for_dali else 64
        document, self.digest = _load(path, strict_json if for_dali else plain_json)
        for key in ("images", "annotations", "categories"):
            required = key != "categories" or not options.get("avoid_class_remapping")
            if key not in document and required:
                raise ValueError(f"{path}: a list of {key} is missing")
            entries = document.get(key, [])
            if not isinstance(entries, list):
                raise ValueError(f"{path}: {key} must be a list, got {type(entries).__name__}")
            for number, entry in enumerate(entries):
                if not isinstance(entry, dict):
                    self._refuse(key, number, f"an object was expected, got {entry!r:.100}")
        self._images = self._by_id(document["images"])
        self.categories = self._by_id(document.get("categories", []), "categories")
        self.instances = self._annotations(document["annotations"])
        selected = self._selected().items()
        kept = [image for number, image in selected if number in self.instances or not options.get("skip_empty")]
        self.files = [image["file_name"] for image in kept]
        self.images = sorted(kept, key=lambda image: image["id"])

    def _refuse(self, key: str, number: int, text: str) -> NoReturn:
        raise ValueError(f"{self.path}, {key}[{number}]: {text}")

    def _integers(self, key: str, number: int, entry: dict[str, Any], *names: str) -> None:
        for name in names:
            value = entry.get(name)
            if type(value) is not int or not -1 << self.bits - 1 <= value < 1 << self.bits - 1:
                self._refuse(key, number, f"{name} must be an integer of {self.bits} bits, got {value!r:.100}")

    def _by_id(self, entries: list[dict[str, Any]], key: str = "images") -> dict[int, dict[str, Any]]:
        """Give the images, or the categories, by their ids."""
        found: dict[int, dict[str, Any]] = {}
        sized = any(self.options.get(option) for option in ("ratio", "pixelwise_masks", "masks"))
        for number, entry in enumerate(entries):
            sizes = [name for name in ("width", "height") if key == "images" and (sized or name in entry)]
            self._integers(key, number, entry, "id", *sizes)
            if key == "images" and not (isinstance(entry.get("file_name"), str) and entry["file_name"]):
                self._refuse(key, number, f"file_name must be a path, got {entry.get('file_name')!r:.100}")
            if sized and any(entry[name] < 1 for name in sizes):
                self._refuse(key, number, f"width and height must be positive, got {[entry[name] for name in sizes]}")
            if entry["id"] in found:
                self._refuse(key, number, f"the id {entry['id']} is taken by another one")
            found[entry["id"]] = entry
        return found

    def _selected(self) -> dict[int, dict[str, Any]]:
        """Give the images that are asked for."""
        if "images" not in self.options:
            return self._images
        wanted = set(self.options["images"])
        selected = {number: image for number, image in self._images.items() if image["file_name"] in wanted}
        if unknown := sorted(wanted - {image["file_name"] for image in selected.values()}):
            raise ValueError(f"{self.path} has no image {unknown[0]!r}, which images= names ({len(unknown)} in all)")
        return selected

    def _annotations(self, entries: list[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
        """Give the annotations that are read by the ids of their images, and set `dropped`."""
        options = self.options
        selected, lost = self._selected(), _Lost()
        kept: dict[int, list[dict[str, Any]]] = {}
        smallest = options.get("size_threshold", 0.1)
        masks = next((name for name in ("polygon_masks", "pixelwise_masks", "masks") if options.get(name)), "")
        for number, entry in enumerate(entries):
            crowd = ["iscrowd"] if "iscrowd" in entry else []
            self._integers("annotations", number, entry, "image_id", "category_id", *crowd)
            x, y, width, height = self._box(number, entry.get("bbox"))
            if not options.get("avoid_class_remapping") and entry["category_id"] not in self.categories:
                self._refuse("annotations", number, f"no category has the id {entry['category_id']}")
            image = self._images.get(entry["image_id"])
            drawn = self._mask(number, entry, image, masks) if masks and "segmentation" in entry else False
            if image is None:
                lost.add("have an image_id that no image has", number)
            elif entry["image_id"] not in selected or (
                entry.get("iscrowd") and not options.get("include_iscrowd", True)
            ):
                pass  # as it is asked for
            elif width < smallest or height < smallest:
                lost.add(f"have a box with a side below size_threshold={smallest}", number)
            else:
                kept.setdefault(entry["image_id"], []).append(entry)
                if masks and not drawn:
                    lost.add(f"have no mask for {masks}" if masks != "masks" else "have no mask (and stay)", number)
                if (
                    x + width <= 0
                    or y + height <= 0
                    or x >= image.get("width", x + 1)
                    or y >= image.get("height", y + 1)
                ):
                    lost.add("have a box outside of the image (which stays)", number)
        self.dropped = lost.sentences()
        return kept

    def _box(self, number: int, box: Any) -> list[float]:
        if not isinstance(box, list) or len(box) != 4 or not _numbers(box, 1e30):
            self._refuse("annotations", number, f"bbox must be four numbers, got {box!r:.100}")
        return box

    def _mask(self, number: int, entry: dict[str, Any], image: dict[str, Any] | None, wanted: str) -> bool:
        """Tell whether an instance has a mask of the wanted kind."""
        mask = entry["segmentation"]
        if isinstance(mask, dict):
            size, counts = mask.get("size"), mask.get("counts")
            if not isinstance(size, list) or len(size) != 2 or any(type(side) is not int or side < 1 for side in size):
                self._refuse("annotations", number, f"the size of a mask must be [height, width], got {size!r:.100}")
            if image is not None and {"height", "width"} <= image.keys() and size != [image["height"], image["width"]]:
                of_image = [image["height"], image["width"]]
                self._refuse("annotations", number, f"a mask of [height, width] {of_image} was expected, got {size}")
            runs = run_lengths(counts)
            if runs is None or runs.sum() != size[0] * size[1]:
                got = f"{counts!r:.60}" if runs is None else f"a sum of {runs.sum()}"
                expected = f"run lengths with a sum of {size[0] * size[1]} pixels were expected"
                self._refuse("annotations", number, f"{expected}, got {got}")
            return wanted != "polygon_masks"
        if not isinstance(mask, list):
            self._refuse("annotations", number, f"segmentation must be polygons or run lengths, got {mask!r:.100}")
        for polygon in mask:
            if not isinstance(polygon, list) or len(polygon) < 6 or len(polygon) % 2:
                self._refuse("annotations", number, f"a polygon must be three points or more, got {polygon!r:.100}")
            if not _numbers(polygon, FARTHEST):
                self._refuse(
                    "annotations", number, f"a polygon must be of numbers up to {FARTHEST:.0f}, got {polygon!r:.100}"
                )
        return bool(mask)


class _Lost:
    """Counts annotations by their fault."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, int]] = {}  # number, first

    def add(self, what: str, number: int) -> None:
        count, first = self._found.get(what, (0, number))
        self._found[what] = count + 1, first

    def sentences(self) -> list[str]:
        return [
            f"{count} annotations {what}, the first is annotations[{first}]"
            for what, (count, first) in self._found.items()
        ]


def _numbers(values: list[Any], largest: float) -> bool:
    """Tell whether all values are numbers of at most this size; the loops run in C, since there are many values."""
    return {int, float}.issuperset(map(type, values)) and -largest <= min(values) and max(values) <= largest


def _load(path: str, parse: Callable[[str], Any]) -> tuple[dict[str, Any], str]:
    """Read the object in a JSON file, and give its digest too.

    Raises:
        ValueError: the file holds no object in JSON; with the offset.
    """
    if not isinstance(path, str):
        raise TypeError(f"annotations_file must be one path, got {path!r}")
    with open(path, "rb") as file:
        raw = file.read()
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, byte {error.start}: not UTF-8") from None
    hashed = digest(raw)
    del raw
    try:
        document = parse(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, byte {len(text[: error.pos].encode())}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{path}: an object with images and annotations was expected, got {document!r:.100}")
    return document, hashed


def run_lengths(counts: Any) -> NDArray[np.int64] | None:
    """Read run lengths from a list, or from COCO's string of 6 bits per character; None: they are neither."""
    if isinstance(counts, list):
        good = all(type(count) is int and 0 <= count < 2**32 for count in counts)
        return np.array(counts, np.int64) if good else None
    if not isinstance(counts, str) or not counts.isascii():
        return None
    codes = np.frombuffer(counts.encode(), np.uint8).astype(np.int64) - 48
    if not len(codes) or codes.min() < 0 or codes.max() > 63 or codes[-1] & 32:
        return None
    ends = np.flatnonzero((codes & 32) == 0)
    starts = np.concatenate([[0], ends[:-1] + 1])
    digit = np.arange(len(codes)) - np.repeat(starts, ends - starts + 1)
    if digit.max() > 6:
        return None
    runs = np.add.reduceat((codes & 31) << 5 * digit, starts)
    runs -= np.where(codes[ends] & 16, 1 << 5 * (ends - starts + 1), 0)
    # From the fourth on, each is a difference to the number two places before it.
    runs[1::2], runs[2::2] = np.cumsum(runs[1::2]), np.cumsum(runs[2::2])
    return None if (runs < 0).any() else runs


def check_preprocessed(options: Mapping[str, Any]) -> tuple[list[str], str]:
    """Check the files that `save_preprocessed_annotations` has written: DALI dies where some are missing.

    Returns:
        the images' names below `file_root`, and a digest of the files.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: the files don't belong together, or an option acts only when they are saved.
    """
    folder = options["preprocessed_annotations"]
    for name in PARSED:
        if name in options:
            raise ValueError(f"COCO takes no {name} with preprocessed_annotations: it counts when they are saved")
    wanted = {"offsets": 1, "counts": 1, "labels": 1, "boxes": 1}
    wanted |= {"original_ids": 1} if options.get("image_ids") else {}
    if options.get("polygon_masks") or options.get("pixelwise_masks"):
        wanted |= {"polygons_count": 2, "polygon_offset": 2, "vertices_count": 2, "vertices_offset": 2}
        wanted |= {"polygon_data": 3, "vertices": 2}
    if options.get("pixelwise_masks"):
        wanted |= {"heights": 1, "widths": 1, "masks_offset": 2, "mask_count": 2}
    saved = {name: _saved(folder, name, words) for name, words in wanted.items()}
    lengths = {name: len(entries) for name, entries in saved.items()}
    if options.get("pixelwise_masks") and (n := saved["mask_count"][:, 0].sum()):
        lengths["masks_rles_idx"] = len(_saved(folder, "masks_rles_idx", 1)) - int(n)
    names = os.path.join(folder, "filenames.dat")
    with open(names, encoding="utf-8", errors="surrogateescape") as file:
        files = file.read().splitlines()
    per_image = ("offsets", "counts", "original_ids", "polygons_count", "heights", "widths", "mask_count")
    wrong = [name for name in per_image if lengths.get(name, len(files)) != len(files)]
    if wrong or lengths["boxes"] != 4 * lengths["labels"] or lengths.get("masks_rles_idx"):
        raise ValueError(f"COCO: the files in {folder} do not belong together: save the annotations again")
    return files, digest(files, saved)


def _saved(folder: str, name: str, words: int) -> NDArray[np.int32]:
    """Read [n, words] int32 from a file that holds n and then n entries."""
    path = os.path.join(folder, f"{name}.dat")
    if not os.path.isfile(path):
        raise FileNotFoundError(f"COCO: {path} is missing: save the annotations with the same options")
    size = os.path.getsize(path)
    data = np.fromfile(path, "<i4")
    expected = 4 + 4 * words * int(data[0]) if len(data) else 4
    if size != expected:
        raise ValueError(f"COCO: {path} must have {expected} bytes for what it says at its start, got {size}")
    return data[1:].reshape(-1, words)
