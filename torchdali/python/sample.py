"""What a sample of somebody's Python code is made of, and samples as columns.

A sample may be a tuple, a list, a dict, a NamedTuple or a dataclass, with such ones in it (but for lists), or a single
value.  Its values become fields, and a batch comes out in the same form:

    bytes, and 1-d uint8 arrays of an image file's bytes    encoded
    PIL images; uint8 arrays [H, W, C]; uint8 tensors [C, H, W] (C: 1 or 3)    image
    PIL images of the modes 1, P, I and F, [H, W] as they are; masks of torchvision    array
    other arrays and tensors                                array
    numbers, bool, tensors and arrays without dimensions    number
    strings, None, lists in a sample and anything else      object

Transforms act on every image, also on a mask that is one: give masks as arrays [H, W].
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import Column, Columns, Kind, Objects
from ..pillow import is_image_file

Path = tuple[Any, ...]  # keys, indices and attribute names from the sample to a value


class Leaf(NamedTuple):
    """One value of a sample.

    Attributes:
        name: the field.
        path: where it is in the sample.
        kind: what it holds.
        form: the dtype and number of dimensions of an array, the channels of an image; of others, nothing.
    """

    name: str
    path: Path
    kind: Kind
    form: str = ""


class Structure:
    """The values of a sample and the form around them; it goes to the workers and back.

    Args:
        leaves: the values.
        frame: the sample with the leaves' names in place of the values.
    """

    def __init__(self, leaves: Sequence[Leaf], frame: Any) -> None:
        self.leaves, self.frame = list(leaves), frame

    @classmethod
    def of(cls, sample: Any, fields: Sequence[str] | None = None) -> Structure:
        """The structure of a sample.

        Args:
            sample: the first one; all others must be like it.
            fields: names for its values in their order, instead of keys and the like.

        Raises:
            ValueError: another number of fields than values, or names that are not different.
            TypeError: a value that has no column.
        """
        paths: list[Path] = []
        _walk(sample, (), paths.append)
        values = [_at(sample, path) for path in paths]
        if not paths:
            raise TypeError(f"a sample must hold at least one value, got {sample!r:.100}")
        names = _names(paths, values) if fields is None else list(fields)
        if len(names) != len(paths) or len(set(names)) < len(names):
            raise ValueError(f"fields must be {len(paths)} different names for the values of a sample, got {names}")
        leaves = []
        for name, path, value in zip(names, paths, values, strict=True):
            kind = _kind(value)
            leaves.append(Leaf(name, path, kind, _form(kind, value)))
        by_path = dict(zip(paths, names, strict=True))
        return cls(leaves, _walk(sample, (), by_path.__getitem__))

    @property
    def kinds(self) -> dict[str, Kind]:
        """What each field holds."""
        return {leaf.name: leaf.kind for leaf in self.leaves}

    def values(self, sample: Any) -> list[Any]:
        """The values of a sample as they go into columns, in the order of the leaves.

        Raises:
            TypeError: the sample is not like the first one; it says where.
        """
        _check_form(self.frame, sample)
        return [_convert(leaf, _find(sample, leaf)) for leaf in self.leaves]

    def columns(self, rows: Sequence[list[Any]]) -> Columns:
        """Columns of what `values` gave for some samples."""
        return {leaf.name: _column(leaf.kind, [row[number] for row in rows]) for number, leaf in enumerate(self.leaves)}

    def rebuild(self, fields: Mapping[str, Any]) -> Any:
        """A batch in the samples' form, of the fields' values; a tuple where a transform has changed the fields."""
        if set(fields) != {leaf.name for leaf in self.leaves}:
            return tuple(fields.values())
        return _walk(self.frame, (), None, fields)


class Description(NamedTuple):
    """The description of a source's samples, taken from the first one.

    Attributes:
        structure: the structure of a sample.
        restarts: for an iterable: `iter` begins at the start by itself, as long as no state is loaded.
    """

    structure: Structure
    restarts: bool = True


class _Built(NamedTuple):
    """A dataclass of a frame: it may check its values, and names are none."""

    cls: type
    parts: dict[str, Any]


def _check_form(frame: Any, sample: Any) -> None:
    """Raise where a tuple or list has other parts than the first sample's: a key that is missing is found later."""
    if isinstance(frame, (tuple, list)) and not isinstance(frame, _Built):
        if not isinstance(sample, (tuple, list)) or len(sample) != len(frame):
            raise TypeError(f"the sample must have {len(frame)} parts, as the first one has: got {sample!r:.200}")


def _children(value: Any, path: Path = ("",)) -> dict[Any, Any] | None:
    """The parts of a container by key; None for a value.  A list is one where it is the sample."""
    if isinstance(value, list) and not path:
        return dict(enumerate(value))
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple) and not isinstance(value, torch.Size):
        return dict(zip(value._fields, value, strict=True)) if hasattr(value, "_fields") else dict(enumerate(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _walk(value: Any, path: Path, leaf: Callable[[Path], Any] | None, fields: Mapping[str, Any] | None = None) -> Any:
    """The same containers around what `leaf` gives for each path, or around the fields that the leaves name."""
    if isinstance(value, _Built):
        return _make(value.cls, {key: _walk(child, (), leaf, fields) for key, child in value.parts.items()})
    children = _children(value, path)
    if children is None:
        return fields[value] if fields is not None else leaf(path) if leaf is not None else None
    parts = {key: _walk(child, (*path, key), leaf, fields) for key, child in children.items()}
    if isinstance(value, tuple):
        return type(value)(*parts.values()) if hasattr(value, "_fields") else tuple(parts.values())
    if isinstance(value, list):
        return list(parts.values())
    if isinstance(value, Mapping):
        return parts
    return _Built(type(value), parts)


def _make(cls: type, parts: dict[str, Any]) -> Any:
    made: Any = object.__new__(cls)
    for name, part in parts.items():
        object.__setattr__(made, name, part)
    return made


def _at(sample: Any, path: Path) -> Any:
    for key in path:
        if isinstance(sample, Mapping) or (isinstance(sample, (tuple, list)) and isinstance(key, int)):
            sample = sample[key]
        else:
            sample = getattr(sample, key)
    return sample


def _find(sample: Any, leaf: Leaf) -> Any:
    try:
        return _at(sample, leaf.path)
    except (KeyError, IndexError, AttributeError, TypeError):
        raise TypeError(f"the sample has no {_spell(leaf.path)}, as the first one has: got {sample!r:.200}") from None


def _spell(path: Path) -> str:
    return ".".join(str(key) for key in path) or "value"


def _names(paths: Sequence[Path], values: Sequence[Any]) -> list[str]:
    """Keys and attributes by their names; places of a tuple by what is there."""
    names: list[str] = []
    for path, value in zip(paths, values, strict=True):
        name = _spell(path)
        if (path and isinstance(path[-1], int)) or not path:
            guess = {"encoded": "image", "image": "image", "number": "label"}.get(_kind(value), "")
            head = ".".join(str(key) for key in path[:-1])
            better = f"{head}.{guess}" if head else guess
            name = better if guess and better not in names else f"field{name}" if path else "value"
        names.append(f"{name}_" if name == "valid" else name)  # the loader's own word for rows that only fill up
    return names


def _kind(value: Any) -> Kind:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "encoded" if is_image_file(np.frombuffer(value, np.uint8)) else "array"
    if isinstance(value, (bool, int, float, np.bool_)) or (isinstance(value, np.number) and value.dtype.kind in "biuf"):
        return "number"
    if isinstance(value, torch.Tensor):
        if not value.ndim:
            return "number"
        image = value.dtype == torch.uint8 and value.ndim == 3 and value.shape[0] in (1, 3)
        return "image" if image and type(value).__name__ != "Mask" else "array"
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        if not value.ndim:
            return "number"
        if value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] in (1, 3):
            return "image"
        return "encoded" if value.dtype == np.uint8 and value.ndim == 1 and is_image_file(value) else "array"
    if _is_picture(value):
        return "array" if value.mode in _VALUES else "image"
    return "object"


_VALUES = ("1", "P", "I", "F", "I;16", "I;16L", "I;16B", "I;16N")
"""Modes of PIL images whose pixels are numbers, or look up colours: a conversion to RGB would lose them."""


def _is_picture(value: Any) -> bool:
    """A PIL image; without importing Pillow."""
    return any(cls.__module__ == "PIL.Image" and cls.__name__ == "Image" for cls in type(value).__mro__)


def _form(kind: Kind, value: Any) -> str:
    if kind == "image":
        pixels = _pixels(value)
        return "" if pixels is None else f"{pixels.shape[2]} channels"
    if kind != "array":
        return ""
    array = _array(value)
    return f"{array.dtype}, {array.ndim} dimensions"


def _array(value: Any) -> NDArray[Any]:
    if isinstance(value, torch.Tensor):
        if value.dtype == torch.bfloat16:
            raise TypeError("a tensor of bfloat16 cannot travel: give float32, and convert the batch")
        array: NDArray[Any] = value.detach().cpu().numpy()
        return array
    if _is_picture(value):
        return np.array(value, np.int32) if value.mode.startswith("I") else np.array(value)
    return np.frombuffer(value, np.uint8) if isinstance(value, (bytes, bytearray, memoryview)) else np.asarray(value)


def _convert(leaf: Leaf, value: Any) -> Any:
    """The value for the leaf's column; TypeError if it is of another kind than the first sample's."""
    kind = leaf.kind
    if kind == "object":
        return value
    if kind == "number":
        if isinstance(value, torch.Tensor):
            plain = value.dtype in (torch.bool, torch.int64, torch.float64)
            value = value.item() if plain else _array(value)[()]
        if isinstance(value, (bool, int, float, np.generic)) or (isinstance(value, np.ndarray) and not value.ndim):
            return value
    elif kind == "image" and (pixels := _pixels(value, leaf.form)) is not None:
        if f"{pixels.shape[2]} channels" == leaf.form:
            return pixels
        raise TypeError(
            f"{leaf.name!r} must be like the first sample's, an image of {leaf.form}, got {pixels.shape[2]}: "
            "convert all images to one mode, such as RGB"
        )
    elif kind in ("encoded", "array") and (
        isinstance(value, (bytes, bytearray, memoryview, np.ndarray, torch.Tensor)) or _is_picture(value)
    ):
        array = _array(value)
        if kind == "encoded" and array.dtype == np.uint8 and array.ndim == 1:
            return array
        if kind == "array" and _form(kind, array) == leaf.form:
            return array
        raise TypeError(
            f"{leaf.name!r} must be like the first sample's ({leaf.form or 'an image file'}), "
            f"got {array.dtype}, {array.ndim} dimensions"
        )
    raise TypeError(f"{leaf.name!r} must be like the first sample's, which holds {kind}, got {value!r:.100}")


def _pixels(value: Any, form: str = "") -> NDArray[np.uint8] | None:
    """uint8 [H, W, C] of an image; a grey PIL image as RGB where `form` says so."""
    if _is_picture(value):
        if value.mode in _VALUES:
            return None
        grey = value.mode == "L" and form != "3 channels"
        return np.array(value if grey or value.mode == "RGB" else value.convert("RGB")).reshape(
            value.height, value.width, -1
        )
    if isinstance(value, torch.Tensor) and value.dtype == torch.uint8 and value.ndim == 3:
        array: NDArray[np.uint8] = value.permute(1, 2, 0).contiguous().cpu().numpy()
        return array
    if isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3:
        # torch warns of memory that is not writable.
        return np.ascontiguousarray(value) if value.flags.writeable else value.copy()
    return None


def _column(kind: Kind, values: list[Any]) -> Column:
    return np.array(values) if kind == "number" else Objects(values) if kind == "object" else values
