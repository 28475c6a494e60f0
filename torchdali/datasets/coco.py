"""A dataset of images with objects, in COCO's format, read by index."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..batch import Columns
from ..checks import flag, nearest_path, one_of, resolve
from ..fingerprint import digest
from ..formats.coco import Annotations
from ..formats.files import as_root, read_file
from ..formats.image import own_size
from ..kinds import AnyKind, Array, Boxes, Image, Number, Polygons, as_kinds
from .base import MapDataset

GROUP = "target"
_NAMES = ("boxes", "labels", "area", "iscrowd", "image_id")


class CocoDataset(MapDataset):
    """Images and their objects, in COCO's format: a sample is `(image, target)`, in the order of the images' ids.

    The target is a dict, as torchvision's detection models take it; its fields are named "target.boxes" and so on:

        boxes     float32 [m, 4], in pixels of the file's own rows and columns
        labels    int64 [m], the categories' ids
        area      float32 [m]; where the file has none, that of the box
        iscrowd   int64 [m]
        image_id  one number
        masks     with `masks`: polygons or run lengths, which leave the loader as uint8 [K, H, W]

    An image without objects has m = 0.  All annotations stay, also boxes without an inside, and crowds unless they are
    left out.

    Args:
        root: the folder of the images.
        annotations: the JSON file.  It is read once, when the dataset is made.
        fields: some of the fields, "boxes" for "target.boxes", and any of index, path and valid; by default image and
            the whole target.
        masks: read the objects' outlines too.
        box_format: "xywh" (left, top, width, height), as the file has it, or "xyxy" (left, top, right, bottom).
        skip_empty: leave out images without an annotation.
        crowds: keep the annotations of crowds (`iscrowd`); trainings in torchvision's references, DETR's and others'
            leave them out.  An image that has no others stays, without objects.
        exif: what annotations mean where a file has an EXIF orientation: False: its own rows and columns, as Pillow
            opens it, and so COCO's tools; True: those of the upright image.  None: such a file is a bad sample.
        kinds: the kinds of fields that differ from these.

    Attributes:
        ids: int64 [n], the images' ids.
        categories: the categories' names by their ids.
        coco: the file as pycocotools' `COCO`, for its evaluation.

    Raises:
        ValueError: entries that are not in COCO's format; no image, or a repeated id.  A file whose size is not that
            in the annotations is a bad sample.
        FileNotFoundError: no such folder or file, or the first image is missing.
    """

    blocking = True
    nested = True
    paths: list[str]

    def __init__(
        self,
        root: str | Path,
        annotations: str | Path,
        fields: Sequence[str] | None = None,
        *,
        masks: bool = False,
        box_format: Literal["xywh", "xyxy"] = "xywh",
        skip_empty: bool = False,
        crowds: bool = True,
        exif: bool | None = None,
        kinds: Mapping[str, AnyKind] | None = None,
    ) -> None:
        one_of("box_format", box_format, ("xywh", "xyxy"))
        flag("crowds", crowds)
        self.root, self.exif = as_root(root), exif
        read = {"size_threshold": -np.inf, "avoid_class_remapping": True, "masks": masks, "skip_empty": skip_empty}
        found = Annotations(os.path.expanduser(os.fspath(annotations)), read, for_dali=False)
        self._annotations = found.path
        if not found.images:
            raise ValueError(f"{found.path} names no image" + (" with an annotation" if skip_empty else ""))
        if found.dropped:
            warnings.warn(f"{found.path}: {'; '.join(found.dropped)}", RuntimeWarning, stacklevel=2)
        self.categories = {number: str(entry.get("name", "")) for number, entry in found.categories.items()}
        self.paths = [os.path.join(self.root, image["file_name"]) for image in found.images]
        if not os.path.exists(self.paths[0]):
            raise FileNotFoundError(
                f"the first of {len(self.paths)} images does not exist: {self.paths[0]}{nearest_path(self.paths[0])}"
            )
        self.ids = np.array([image["id"] for image in found.images], np.int64)
        # Height and width; zeros where the annotations don't say both.
        sizes = [(image.get("height", 0), image.get("width", 0)) for image in found.images]
        self._sizes = np.array([size if min(size) > 0 else (0, 0) for size in sizes], np.int64)
        objects = [
            [entry for entry in found.instances.get(number, ()) if crowds or not entry.get("iscrowd")]
            for number in self.ids.tolist()
        ]
        self._ends = np.cumsum([len(entries) for entries in objects])
        entries = [entry for some in objects for entry in some]
        boxes = np.array([entry["bbox"] for entry in entries], np.float32).reshape(-1, 4)
        area = [entry.get("area", entry["bbox"][2] * entry["bbox"][3]) for entry in entries]
        if box_format == "xyxy":
            boxes[:, 2:] += boxes[:, :2]
        self._objects: dict[str, Any] = {
            "boxes": boxes,
            "labels": np.array([entry["category_id"] for entry in entries], np.int64),
            "area": np.array(area, np.float32),
            "iscrowd": np.array([entry.get("iscrowd", 0) for entry in entries], np.int64),
        }
        known: dict[str, AnyKind] = {
            "image": Image(encoded=True, exif=exif),
            **{f"{GROUP}.{name}": Array(group=GROUP) for name in _NAMES},
            f"{GROUP}.boxes": Boxes(box_format, group=GROUP),
            f"{GROUP}.image_id": Number(),
        }
        if masks:
            self._objects["masks"] = [_outline(entry.get("segmentation", [])) for entry in entries]
            known[f"{GROUP}.masks"] = Polygons(group=GROUP)
        told = resolve(as_kinds(kinds), list(known), "kinds")
        if fields is not None and not isinstance(fields, str):
            fields = [f"{GROUP}.{name}" if f"{GROUP}.{name}" in known else name for name in fields]
        self._set_fields(tuple(known) if fields is None else fields, known, {**known, **told})
        self._fingerprint = (
            f"{len(self)} images {digest(found.digest, masks, skip_empty, *([] if crowds else ['no crowds']))}"
        )

    @cached_property
    def coco(self) -> Any:
        """The whole file as pycocotools' `COCO`, which `COCOeval` takes, read when it is first asked for.

        Raises:
            ImportError: no pycocotools.
        """
        try:
            from pycocotools.coco import COCO
        except ImportError as error:
            raise ImportError("COCO's evaluation is pycocotools': pip install 'torchdali[coco]'") from error
        with redirect_stdout(None):  # it prints what it does
            return COCO(self._annotations)

    def get_height_and_width(self, index: int) -> tuple[int, int]:
        """Give the size of an image as the annotations say it, by which torchvision's references group images.

        Raises:
            ValueError: they don't say it.
        """
        height, width = self._sizes[index].tolist()
        if not height:
            raise ValueError(f"the annotations do not say height and width of {self.paths[index]}")
        return height, width

    def __len__(self) -> int:
        return len(self.paths)

    def read_columns(self, indices: Sequence[int], names: Sequence[str]) -> Columns:
        columns: Columns = {}
        for name in names:
            key = name.removeprefix(f"{GROUP}.")
            if key == "image":
                columns[name] = [self._image(i) for i in indices]
            elif key == "image_id":
                columns[name] = self.ids[list(indices)]
            else:
                columns[name] = [self._of(key, i) for i in indices]
        return columns

    def _of(self, key: str, index: int) -> Any:
        """Give a field of the objects of an image."""
        rows = self._objects[key][self._ends[index - 1] if index else 0 : self._ends[index]]
        return rows.copy() if isinstance(rows, np.ndarray) else rows

    def _image(self, index: int) -> NDArray[np.uint8]:
        """Read an image file.

        Raises:
            ValueError: its size is not that in the annotations, or it is not said which size that is.
        """
        data = read_file(self.paths[index], image=True)
        told = tuple(self._sizes[index].tolist())
        if told == (0, 0) and self.exif is not None:
            return data
        height, width, orientation = own_size(data)
        turned = (width, height) if orientation > 4 else (height, width)
        if orientation != 1 and self.exif is None:
            raise ValueError(
                f"the file has the EXIF orientation {orientation}: its own height and width are {[height, width]}, "
                f"those of the upright image {list(turned)}, and the annotations are of {list(told)}. Write exif=False "
                "if they count the file's own rows and columns, as COCO's tools do, or exif=True if the upright image's"
            )
        size = turned if self.exif else (height, width)
        if told != (0, 0) and told != size:
            raise ValueError(
                f"the annotations are of an image of height and width {list(told)}, and the file has {list(size)}"
                + (" upright" if self.exif and orientation != 1 else "")
            )
        return data

    def uniform(self, name: str) -> bool:
        return self.kinds[name].held == "number"

    def fingerprint(self) -> str:
        """Hash the annotations' file."""
        return self._fingerprint


def _outline(segmentation: Any) -> Any:
    """Keep polygons as arrays, which take a quarter of the memory of lists of numbers; run lengths as they are."""
    if isinstance(segmentation, Mapping):
        return segmentation
    return [np.array(polygon, np.float64) for polygon in segmentation]
