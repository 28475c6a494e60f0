"""What the parts of a sample are, by their names: which bytes are images, and how others become values."""

from __future__ import annotations

import functools
import io
import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..batch import Kind

Bytes = NDArray[np.uint8]

IMAGES = frozenset(
    "apng bmp dib gif icns ico j2c j2k jfif jp2 jpc jpe jpeg jpf jpg jpx pbm pcx pgm png pnm ppm psd sgi tga tif tiff "
    "webp".split()
)
"""Endings of the image files that the loader decodes."""

_NAMES = frozenset("image img picture photo image/encoded image_bytes img_bytes image_data encoded_image".split())


class Component(NamedTuple):
    """What one part of a sample is.

    Attributes:
        kind: what its field holds.
        convert: makes the value from its bytes, uint8 [n]; raises ValueError where it can't.
    """

    kind: Kind
    convert: Callable[[Bytes], Any]


def kind_of_bytes(field: str) -> Kind:
    """Whether a field of bytes holds image files, by its name ("encoded"), or just bytes ("array")."""
    name = field.lower()
    if name in _NAMES or (name.startswith("image/") and name.endswith("/encoded")):
        return "encoded"
    return "encoded" if ending(name) in IMAGES else "array"


def ending(name: str) -> str:
    """What is behind the last dot, in lower case; the name itself where there is none."""
    return name.lower().rpartition(".")[2]


def component(ext: str) -> Component:
    """What a file of this ending is in a WebDataset, as its own decoders have it; pickles stay bytes."""
    last = ending(ext)
    return Component("encoded", as_bytes) if last in IMAGES else _COMPONENTS.get(last, Component("array", as_bytes))


def default_field(ext: str) -> str:
    """The name of the field for an ending: "image" for images, "label" for cls, else the ending itself."""
    if ext.lower() == "cls":
        return "label"
    return "image" if "." not in ext and ext.lower() in IMAGES else ext


def as_kind(ext: str, kind: Kind) -> Component:
    """The component with another kind than its ending says.

    Raises:
        ValueError: it can't be of this kind.
    """
    natural = component(ext)
    if kind == natural.kind:
        return natural
    ways: dict[Kind, Callable[[Bytes], Any]] = {
        "encoded": as_bytes, "array": as_bytes, "number": as_integer, "object": as_python_bytes,
    }  # fmt: skip
    if kind not in ways:
        raise ValueError(f"the kind of {ext!r} must be one of {', '.join(ways)}, got {kind!r}")
    return Component(kind, ways[kind])


def as_bytes(data: Bytes) -> Bytes:
    """The bytes as they are."""
    return data


def as_python_bytes(data: Bytes) -> bytes:
    """The bytes as Python's."""
    return data.tobytes()


def as_integer(data: Bytes) -> int:
    """A number in text."""
    text = data.tobytes()
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"an integer in text was expected, got {_excerpt(text)}") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"an integer of 64 bits was expected, got {number}")
    return number


def as_text(data: Bytes) -> str:
    """Text in UTF-8."""
    raw = data.tobytes()
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"text in UTF-8 was expected, got {_excerpt(raw[error.start :])} at {error.start}") from None


def as_json(data: Bytes) -> Any:
    """A JSON document."""
    try:
        return json.loads(data.tobytes())
    except ValueError as error:
        raise ValueError(f"JSON was expected: {error}") from None


def as_npy(data: Bytes) -> NDArray[Any]:
    """The array of a .npy file, in this machine's byte order and in C order.

    Raises:
        ValueError: no such file, a dtype that has no tensor, or too few bytes.
    """
    start = data[:12].tobytes()
    if len(start) < 12 or start[:6] != b"\x93NUMPY":
        raise ValueError(f"a .npy file was expected, got {_excerpt(start)}")
    size = 10 + int.from_bytes(start[8:10], "little") if start[6] == 1 else 12 + int.from_bytes(start[8:12], "little")
    if size > len(data):
        raise ValueError(f"a .npy header of {size} bytes was expected, got {len(data)} bytes")
    shape, fortran, dtype = _npy_header(data[:size].tobytes())
    count = math.prod(shape)
    if len(data) - size < count * dtype.itemsize:
        raise ValueError(
            f"{count * dtype.itemsize} bytes of {dtype} {list(shape)} were expected at offset {size}, "
            f"got {len(data) - size}"
        )
    array = np.frombuffer(data, dtype, count, size).reshape(shape, order="F" if fortran else "C")
    return np.require(array, dtype.newbyteorder("="), ["C", "A"])


@functools.lru_cache(64)
def _npy_header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """(shape, Fortran order, dtype); files of a dataset mostly have equal headers."""
    file = io.BytesIO(header)
    version = np.lib.format.read_magic(file)
    try:
        if version == (1, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
        else:
            raise ValueError(f"version {version[0]}.{version[1]} is only for dtypes with named fields")
    except Exception as error:  # numpy takes it for Python's own text: any error of Python's parser may rise
        raise ValueError(f"a .npy header of numbers was expected: {error}") from None
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise ValueError(f"an array of bools, integers or floats was expected, got {dtype}")
    if any(extent < 0 for extent in shape):
        raise ValueError(f"extents of at least 0 were expected, got the shape {list(shape)}")
    return shape, fortran, dtype


def _excerpt(raw: bytes) -> str:
    return repr(raw if len(raw) <= 40 else raw[:40] + b"...")


_COMPONENTS: dict[str, Component] = {
    **dict.fromkeys(["cls", "cls2", "index", "inx", "id"], Component("number", as_integer)),
    **dict.fromkeys(["txt", "text", "transcript"], Component("object", as_text)),
    **dict.fromkeys(["json", "jsn"], Component("object", as_json)),
    "npy": Component("array", as_npy),
}
