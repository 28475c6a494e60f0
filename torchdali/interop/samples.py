"""Finds the files and labels of torchvision's datasets."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from .translation import Step, Translation


@dataclass
class Samples:
    """The samples of a dataset: image files, labels, and the translated transform.

    Attributes:
        paths: the image files.
        labels: their labels, after the dataset's target_transform.
        steps: the translated transform; the first part's, where the parts of a ConcatDataset differ.
        problems: one line for each thing that can't be translated.
        classes, class_to_idx: the dataset's, or None.
    """

    paths: list[str]
    labels: list[Any]
    steps: list[Step] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    classes: list[str] | None = None
    class_to_idx: dict[str, int] | None = None


def samples_of(dataset: Any, place: str = "") -> Samples:
    """Find the samples of a torchvision dataset, or of a Subset or ConcatDataset of such datasets.

    Args:
        dataset: the dataset.
        place: its place inside other datasets, as a prefix of its transform's name.

    Raises:
        TypeError: its samples are not (image file, label).
    """
    if type(dataset) is Subset:
        return _subset(samples_of(dataset.dataset, f"{place}dataset."), dataset.indices)
    if type(dataset) is ConcatDataset:
        return _concatenation([samples_of(part, f"{place}datasets[{i}].") for i, part in enumerate(dataset.datasets)])
    return _leaf(dataset, place)


def _subset(whole: Samples, indices: Sequence[Any]) -> Samples:
    whole.paths = [whole.paths[int(i)] for i in indices]
    whole.labels = [whole.labels[int(i)] for i in indices]
    return whole


def _concatenation(parts: list[Samples]) -> Samples:
    first = parts[0]
    problems = [line for part in parts for line in part.problems]
    if not problems and any(part.steps != first.steps for part in parts):
        problems = [f"datasets[{i}].transform: {part.steps}" for i, part in enumerate(parts)]
        problems.append("the parts of a ConcatDataset: one loader has one transform, so give them the same one")
    same = all(part.classes == first.classes and part.class_to_idx == first.class_to_idx for part in parts)
    return Samples(
        [path for part in parts for path in part.paths],
        [label for part in parts for label in part.labels],
        first.steps,
        problems,
        first.classes if same else None,
        first.class_to_idx if same else None,
    )


def _leaf(dataset: Any, place: str) -> Samples:
    transform, target_transform, word = _transforms_of(dataset)
    dataset = _unwrapped(dataset)
    paths, labels = _files(dataset)
    problems = []
    loader = getattr(dataset, "loader", getattr(dataset, "_loader", None))
    if loader is not None and not _is_plain_loader(loader):
        problems.append(
            f"{place}loader={loader!r:.80}: files are decoded by DALI to RGB: leave it out, "
            "and put what else it does into torchdali.transforms.PerSample(f)"
        )
    if any(isinstance(label, tuple) for label in labels):
        problems.append(f"{place}target_type: there are several labels per sample: choose one")
    translation = Translation()
    translation.add(transform, f"{place}{word}")
    problems += [line for missing in translation.missing for line in missing.lines()]
    return Samples(
        [os.fspath(path) for path in paths],
        _targets(labels, target_transform),
        list(translation.steps) if translation.missing else list(translation.transforms()),
        problems,
        getattr(dataset, "classes", None),
        getattr(dataset, "class_to_idx", None),
    )


def _transforms_of(dataset: Any) -> tuple[Any, Any, str]:
    """Find (transform, target_transform, the attribute's name): most datasets use two attributes, some a joint one."""
    from torchvision.datasets.vision import StandardTransform

    joint = getattr(dataset, "transforms", None)
    if joint is None or isinstance(joint, StandardTransform):
        if _owner(dataset) not in _JOINT and _unwrapped(dataset) is dataset:
            return getattr(dataset, "transform", None), getattr(dataset, "target_transform", None), "transform"
        return getattr(joint, "transform", None), getattr(joint, "target_transform", None), "transform"
    return joint, None, "transforms"


def _unwrapped(dataset: Any) -> Any:
    """Undo `wrap_dataset_for_transforms_v2`."""
    from torchvision.tv_tensors._dataset_wrapper import VisionDatasetTVTensorWrapper

    return dataset._dataset if isinstance(dataset, VisionDatasetTVTensorWrapper) else dataset


def _is_plain_loader(loader: Any) -> bool:
    from torchvision.datasets import folder

    return loader in (folder.default_loader, folder.pil_loader, folder.accimage_loader)


def _targets(labels: list[Any], target_transform: Callable[[Any], Any] | None) -> list[Any]:
    """Apply the target_transform to the labels; it is called once for each different label that is a plain value."""
    if target_transform is None:
        return labels
    known: dict[Any, Any] = {}
    targets = []
    for label in labels:
        key = (type(label), label) if isinstance(label, (int, float, str, bytes, np.generic)) else None
        if key is None or key not in known:
            try:
                target = target_transform(label)
            except Exception as error:
                error.add_note(f"from_torchvision called the dataset's target_transform for the label {label!r:.80}")
                raise
            if key is not None:
                known[key] = target
        else:
            target = known[key]
        targets.append(target)
    return targets


def _owner(dataset: Any) -> str | None:
    """Name the class of torchvision whose `__getitem__` is used; None: it is a class outside torchvision."""
    for kind in type(dataset).__mro__:
        if "__getitem__" in vars(kind):
            return kind.__name__ if kind.__module__.startswith("torchvision.datasets.") else None
    return None


_INSTEAD = {
    "CocoDetection": "write CocoDataset(root, annotations) with a transform of torchdali, which moves images and boxes",
    "VOCSegmentation": (
        'write FileDataset({"image": dataset.images, "mask": dataset.masks}, kinds={"mask": "mask"}) with a transform '
        "of torchdali, which moves both"
    ),
}
"""For datasets whose samples are more than an image and a label: the words to write instead, by their classes."""


def _files(dataset: Any) -> tuple[Sequence[Any], list[Any]]:
    owner = _owner(dataset)
    if owner in _FILES:
        paths, labels = _FILES[owner](dataset)
        return list(paths), list(labels)
    name = type(dataset).__name__
    if owner is not None:
        instead = _INSTEAD.get(owner) or (
            "its images are in memory: write InMemoryDataset(image=..., label=...)"
            if isinstance(getattr(dataset, "data", None), (np.ndarray, list)) or hasattr(dataset, "targets")
            else "write FileDataset(paths, labels)"
        )
        raise TypeError(f"from_torchvision takes datasets of (image file, label), and {name} has others: {instead}")
    found = getattr(dataset, "samples", None) or getattr(dataset, "imgs", None)
    if not isinstance(found, (list, tuple)) or not all(_is_pair(pair) for pair in found):
        raise TypeError(
            "from_torchvision takes torchvision's datasets of image files, or one with `samples` that are "
            f"(path, label), or a transform, got {name}: for files write FileDataset(paths, labels)"
        )
    paths, labels = [path for path, _ in found], [label for _, label in found]
    if not _begins_with(dataset, paths[0], labels[0]):
        raise TypeError(
            f"{name} has a `__getitem__` of its own, and its first sample without transforms is not the RGB image of "
            f"{paths[0]} with the label {labels[0]!r:.80}: write FileDataset(paths, labels), "
            "and what it does as torchdali.transforms.PerSample(f)"
        )
    return paths, labels


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], (str, os.PathLike))


def _begins_with(dataset: Any, path: Any, label: Any) -> bool:
    """Tell whether a dataset, without its transforms, gives this image and label first."""
    from torchvision.datasets.folder import pil_loader

    plain = copy.copy(dataset)
    for name in ("transform", "target_transform"):
        if getattr(plain, name, None) is not None:
            setattr(plain, name, lambda value: value)
    if getattr(plain, "transforms", None) is not None:
        plain.transforms = lambda *values: values
    sample = plain[0]
    if not isinstance(sample, (list, tuple)) or len(sample) != 2 or not hasattr(sample[0], "convert"):
        return False
    return np.array_equal(np.asarray(sample[0]), np.asarray(pil_loader(path))) and np.array_equal(sample[1], label)


# Where torchvision's datasets keep their files and labels.

_Files = tuple[Sequence[Any], Sequence[Any]]


def _pairs(attribute: str) -> Callable[[Any], _Files]:
    def files(d: Any) -> _Files:
        found = getattr(d, attribute)
        return [path for path, _ in found], [label for _, label in found]

    return files


def _columns(paths: str, labels: str) -> Callable[[Any], _Files]:
    return lambda d: (getattr(d, paths), getattr(d, labels))


def _one_of(targets: Sequence[Sequence[Any]], n: int) -> Sequence[Any]:
    """Give the labels of the only target type; tuples, where there are several types."""
    return [None] * n if not targets else targets[0] if len(targets) == 1 else list(zip(*targets, strict=True))


def _caltech101(d: Any) -> _Files:
    folder = os.path.join(d.root, "101_ObjectCategories")
    paths = [os.path.join(folder, d.categories[y], f"image_{i:04d}.jpg") for y, i in zip(d.y, d.index, strict=True)]
    if d.target_type != ["category"]:
        raise TypeError(f"from_torchvision takes Caltech101 with target_type='category', got {d.target_type}")
    return paths, d.y


def _caltech256(d: Any) -> _Files:
    folder = os.path.join(d.root, "256_ObjectCategories")
    return [
        os.path.join(folder, d.categories[y], f"{y + 1:03d}_{i:04d}.jpg") for y, i in zip(d.y, d.index, strict=True)
    ], d.y


def _celeba(d: Any) -> _Files:
    columns = {
        "attr": list(d.attr),
        "identity": list(d.identity[:, 0]),
        "bbox": list(d.bbox),
        "landmarks": list(d.landmarks_align),
    }
    folder = os.path.join(d.root, d.base_folder, "img_align_celeba")
    paths = [os.path.join(folder, name) for name in d.filename]
    return paths, _one_of([columns[name] for name in d.target_type], len(paths))


def _inaturalist(d: Any) -> _Files:
    paths = [os.path.join(d.root, d.all_categories[category], name) for category, name in d.index]
    targets = [
        [category if kind == "full" else d.categories_map[category][kind] for category, _ in d.index]
        for kind in d.target_type
    ]
    return paths, _one_of(targets, len(paths))


def _oxford_iiit_pet(d: Any) -> _Files:
    columns = {"category": d._labels, "binary-category": d._bin_labels}
    if not set(d._target_types) <= set(columns):
        raise TypeError(f"from_torchvision takes OxfordIIITPet with labels alone, got target_types={d._target_types}")
    return d._images, _one_of([columns[name] for name in d._target_types], len(d._images))


def _sbu(d: Any) -> _Files:
    return [os.path.join(d.root, "dataset", photo) for photo in d.photos], d.captions


def _flickr8k(d: Any) -> _Files:
    return d.ids, [d.annotations[name] for name in d.ids]


def _flickr30k(d: Any) -> _Files:
    return [os.path.join(d.root, name) for name in d.ids], [d.annotations[name] for name in d.ids]


_FILES: dict[str | None, Callable[[Any], _Files]] = {
    "CLEVRClassification": _columns("_image_files", "_labels"),
    "Caltech101": _caltech101,
    "Caltech256": _caltech256,
    "CelebA": _celeba,
    "DTD": _columns("_image_files", "_labels"),
    "DatasetFolder": _pairs("samples"),
    "FGVCAircraft": _columns("_image_files", "_labels"),
    "Flickr30k": _flickr30k,
    "Flickr8k": _flickr8k,
    "Flowers102": _columns("_image_files", "_labels"),
    "Food101": _columns("_image_files", "_labels"),
    "GTSRB": _pairs("_samples"),
    "INaturalist": _inaturalist,
    "Imagenette": _pairs("_samples"),
    "LFWPeople": _columns("data", "targets"),
    "OxfordIIITPet": _oxford_iiit_pet,
    "Places365": _pairs("imgs"),
    "RenderedSST2": _pairs("_samples"),
    "SBU": _sbu,
    "SUN397": _columns("_image_files", "_labels"),
    "StanfordCars": _pairs("_samples"),
}
_JOINT = ("OxfordIIITPet", "Places365")
