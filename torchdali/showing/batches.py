"""Finds the samples in a batch of any form, and guesses the kinds of values that no dataset has told."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..batch import Padded
from ..checks import last_part
from ..kinds import ARRAY, IMAGE, MASK, NUMBER, OBJECT, Audio, Boxes, Image, Kind, Points, Video
from ..schema import typed

BOXES = frozenset("boxes bbox bboxes box".split())
POINTS = frozenset("keypoints points landmarks".split())
MASKS = frozenset("mask masks segmentation semantic labels_map".split())
LEAST_SOUND = 65  # samples; a row of fewer numbers is no sound


def fields_of(batch: Any, names: Sequence[str] = ()) -> dict[str, Any]:
    """Name the parts of a batch, as a loader, a `collate_fn` or a user's loop has it.

    Args:
        batch: a tensor, or a tuple, list, dict, NamedTuple or dataclass of parts, which may hold more of these.
        names: the names of a tuple's parts; without them they have those of images and labels, or a number.
    """
    if isinstance(batch, (torch.Tensor, np.ndarray, Padded)):
        return {names[0] if names else "image": batch}
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        batch = {one.name: getattr(batch, one.name) for one in dataclasses.fields(batch)}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        batch = dict(zip(batch._fields, batch, strict=True))
    if isinstance(batch, (tuple, list)):
        usual = list(names) if len(names) == len(batch) else ["image", "label"] if len(batch) == 2 else []
        batch = {usual[k] if usual else f"field{k}": value for k, value in enumerate(batch)}
    if not isinstance(batch, Mapping):
        raise ValueError(f"a batch of tensors was expected, got {type(batch).__name__}")
    found: dict[str, Any] = {}
    for name, value in batch.items():
        if str(name).endswith("_sizes") and str(name).removesuffix("_sizes") in batch:
            continue
        sizes = batch.get(f"{name}_sizes") if isinstance(name, str) else None
        if isinstance(value, Mapping):
            found |= {f"{name}.{inner}": part for inner, part in fields_of(value).items()}
        else:
            padded = isinstance(sizes, torch.Tensor) and isinstance(value, torch.Tensor)
            found[str(name)] = Padded(value, sizes) if padded and sizes is not None else value
    return found


def split(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Take the samples of a batch apart.

    Raises:
        ValueError: its parts have no number of rows in common.
    """
    size = _size(fields)
    samples: list[dict[str, Any]] = [{} for _ in range(size)]
    for name, value in fields.items():
        for sample, own in zip(samples, _rows(value, size), strict=False):
            if isinstance(own, Mapping):  # a target of detection
                sample.update({f"{name}.{key}": part for key, part in own.items()})
            else:
                sample[name] = own
    return samples


def _size(fields: Mapping[str, Any]) -> int:
    """Find the number of samples: that which most parts have; lists of tensors may be views."""
    lengths = Counter(len(_tensor(v)) for v in fields.values() if _tensor(v) is not None and _tensor(v).ndim)
    if not lengths:
        lengths = Counter(len(value) for value in fields.values() if isinstance(value, (list, tuple)))
        inside = Counter(
            len(part)
            for value in fields.values()
            if isinstance(value, (list, tuple))
            for part in value
            if isinstance(part, torch.Tensor) and part.ndim >= 4
        )
        lengths = inside or lengths
    if not lengths:
        raise ValueError(f"a batch with samples was expected, got the parts {', '.join(fields) or 'of nothing'}")
    return lengths.most_common(1)[0][0]


def _tensor(value: Any) -> Any:
    value = value.data if isinstance(value, Padded) else value
    return value if isinstance(value, (torch.Tensor, np.ndarray)) else None


def _rows(value: Any, size: int) -> list[Any]:
    """Give a part's values of each sample; what is no part of the samples has none."""
    if isinstance(value, Padded):
        return value.unbind()
    if _tensor(value) is not None:
        if not value.ndim or len(value) != size:
            return []
        return list(value.tolist()) if value.ndim == 1 else list(value)
    if isinstance(value, (list, tuple)):
        views = [_tensor(part) is not None and part.ndim and len(part) == size for part in value]
        if len(value) > 1 and all(views) and not (len(value) == size and _unlike_views(value)):
            return [list(row) for row in zip(*value, strict=True)]
        return list(value) if len(value) == size else []
    return []


def _unlike_views(value: Sequence[Any]) -> bool:
    """Whether as many tensors as there are samples are one for each: pictures have three dimensions."""
    return all(part.ndim <= 3 for part in value)


def guess(name: str, value: Any, beside: Sequence[tuple[int, ...]] = ()) -> Kind:
    """Guess the kind of a sample's value from its type, its name and its shape.

    Args:
        name: the field's.
        value: of one sample.
        beside: the heights and widths of the images beside it.
    """
    known, last = typed(value), last_part(name).lower()
    if known is not None:
        return known
    if isinstance(value, (bool, int, float, np.number)):
        return NUMBER
    if not isinstance(value, (torch.Tensor, np.ndarray)):
        return OBJECT
    shape, floating = tuple(value.shape), "float" in str(value.dtype)
    if not shape:
        return NUMBER
    if last in BOXES and len(shape) == 2 and shape[1] == 4:
        return Boxes()
    if last in POINTS and shape[-1] in (2, 3):
        return Points()
    if len(shape) in (2, 3) and shape[-2:] in beside and (last in MASKS or len(shape) == 2):
        return MASK
    if len(shape) == 4 and (shape[1] in (1, 3) or shape[3] in (1, 3)):
        return Video(layout="FCHW" if shape[1] in (1, 3) else "FHWC")
    if len(shape) == 3 and shape[0] in (1, 3, 4):
        return IMAGE
    if len(shape) == 3 and shape[2] in (1, 3, 4):
        return Image(layout="HWC")
    if len(shape) == 2 and not floating and min(shape) > 8:
        return MASK
    if floating and len(shape) == 2 and shape[0] <= 2 and shape[1] >= LEAST_SOUND:
        return Audio()
    return ARRAY
