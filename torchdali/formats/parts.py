"""Tells the kinds of a sample's parts by their names: which bytes are images, and how others become values."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

from ..batch import Held
from ..kinds import AnyKind, Audio, Kind, Number, Object, Video, as_kind, tell
from ..storage import Bytes
from .npy import as_npy

IMAGES = frozenset(
    "apng bmp dib gif icns ico j2c j2k jfif jp2 jpc jpe jpeg jpf jpg jpx pbm pcx pgm png pnm ppm psd sgi tga tif tiff "
    "webp".split()
)
"""Endings of the image files that the loader decodes."""

Whole = tuple[Kind, Callable[[Bytes], Any]]
"""The kind of whole files, and the function that makes values of their bytes."""

AUDIO = frozenset("wav flac ogg oga opus mp3".split())
VIDEO = frozenset("mp4 m4v mov mkv webm avi mpg mpeg ogv".split())

_NAMES = frozenset("image img picture photo image/encoded image_bytes img_bytes image_data encoded_image".split())


class Component(NamedTuple):
    """Says how one part of a sample becomes a value.

    Attributes:
        kind: how a column holds its values.
        convert: makes the value from its bytes, uint8 [n]; raises ValueError for other bytes.
        whole: the kind of its field, where `kind` does not say it.
    """

    kind: Held
    convert: Callable[[Bytes], Any]
    whole: Kind | None = None

    @property
    def of_field(self) -> Kind:
        """The kind of its field."""
        return as_kind(self.kind) if self.whole is None else self.whole


def kind_of_bytes(field: str) -> Held:
    """Tell by its name whether a field of bytes holds image files ("encoded") or just bytes ("array")."""
    name = field.lower()
    if name in _NAMES or (name.startswith("image/") and name.endswith("/encoded")):
        return "encoded"
    return "encoded" if ending(name) in IMAGES else "array"


def ending(name: str) -> str:
    """Give the part of a name after the last dot, in lower case; the whole name where there is no dot."""
    return name.lower().rpartition(".")[2]


def component(ext: str) -> Component:
    """Give the component for an ending, as in WebDataset's own decoders, except that pickles stay bytes.

    Images, sound and video stay files, which the loader decodes.
    """
    last = ending(ext)
    if last in AUDIO | VIDEO:
        return Component("encoded", as_bytes, Audio(encoded=True) if last in AUDIO else Video(encoded=True))
    return Component("encoded", as_bytes) if last in IMAGES else _COMPONENTS.get(last, Component("array", as_bytes))


def default_field(ext: str) -> str:
    """Name the field for an ending: "image" for images, "label" for cls, else the ending itself."""
    if ext.lower() == "cls":
        return "label"
    return "image" if "." not in ext and ext.lower() in IMAGES else ext


def component_as(ext: str, told: AnyKind) -> Component:
    """Give the component of an ending with another kind than usual.

    Raises:
        ValueError: the ending can't have this kind.
    """
    natural = component(ext)
    kind = tell(told, natural.kind).held
    if kind == natural.kind:
        return natural
    ways: dict[Held, Callable[[Bytes], Any]] = {
        "encoded": as_bytes, "array": as_bytes, "number": as_integer, "object": as_python_bytes,
    }  # fmt: skip
    if kind not in ways:
        raise ValueError(f"the kind of {ext!r} must be one of {', '.join(ways)}, got {told!r}")
    return Component(kind, ways[kind])


def whole_file(ext: str, told: AnyKind | None = None) -> Whole:
    """Give the kind of files with an ending, and the function that makes values of their bytes.

    Args:
        ext: the ending.
        told: the kind that the user wrote.

    Raises:
        ValueError: the ending says nothing, and neither does the user; or files with this ending can't have the kind.
    """
    natural = component(ext)
    if told is None:
        if ext not in IMAGES | AUDIO | VIDEO and ext not in _COMPONENTS:
            raise ValueError(f"the ending {ext!r} does not say what a file holds")
        return natural.of_field, natural.convert
    kind = tell(told, "encoded" if natural.convert is as_bytes else natural.kind)
    if natural.convert is as_npy and not isinstance(kind, (Number, Object)):
        return replace(kind, encoded=False), as_npy
    if kind.held == natural.kind:
        return kind, natural.convert
    return kind, component_as(ext, kind.held).convert


def as_bytes(data: Bytes) -> Bytes:
    """Give the bytes as they are."""
    return data


def as_python_bytes(data: Bytes) -> bytes:
    """Copy the bytes into Python's."""
    return data.tobytes()


def as_integer(data: Bytes) -> int:
    """Parse an integer in text."""
    text = data.tobytes()
    try:
        number = int(text)  # Python refuses more than 4,300 digits, which would take long
    except ValueError:
        raise ValueError(f"an integer in text was expected, got {_excerpt(text)}") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise ValueError(f"an integer of 64 bits was expected, got {number}")
    return number


def as_text(data: Bytes) -> str:
    """Decode text in UTF-8."""
    raw = data.tobytes()
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"text in UTF-8 was expected, got {_excerpt(raw[error.start :])} at {error.start}") from None


def as_json(data: Bytes) -> Any:
    """Parse a JSON document."""
    try:
        return json.loads(data.tobytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"JSON was expected: {error}") from None


def _excerpt(raw: bytes) -> str:
    return repr(raw if len(raw) <= 40 else raw[:40] + b"...")


_COMPONENTS: dict[str, Component] = {
    **dict.fromkeys(["cls", "cls2", "index", "inx", "id"], Component("number", as_integer)),
    **dict.fromkeys(["txt", "text", "transcript"], Component("object", as_text)),
    **dict.fromkeys(["json", "jsn"], Component("object", as_json)),
    "npy": Component("array", as_npy),
}
