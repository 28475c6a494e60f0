"""The kinds of fields: what a field's values are, and so what transforms do to them and how they leave.

A kind is a small frozen object.  Its word is short for the kind with its defaults: `kinds={"mask": "mask"}` is
`kinds={"mask": kinds.Mask()}`.

    word        class               a value                                                     leaves
    "encoded"   Image(encoded=True) bytes of an image file, uint8 [n]                           as an image
    "image"     Image()             uint8 (or a float dtype) [H, W, C]; tensors [C, H, W]       [N, C, H, W]
    "mask"      Mask()              ids [H, W], or one mask per object [K, H, W]                [N, H, W], [N, K, H, W]
    "boxes"     Boxes()             [m, 4]                                                      Padded [N, M, 4]
    "points"    Points()            [m, 2], [m, k, 2], or [m, k, 3] with visibility             Padded [N, M, ...]
    "polygons"  Polygons()          per object a list of [v, 2], or COCO's run lengths          as masks [N, K, H, W]
    "video"     Video()             uint8 [F, H, W, C]; tensors [F, C, H, W]                    [N, F, C, H, W]
    "volume"    Volume()            any number [D, H, W] or [C, D, H, W]                        [N, ...]
    "audio"     Audio()             float32 [C, samples]                                        [N, C, samples]
    "array"     Array()             any numeric array, of one dtype and number of dimensions    [N, ...]
    "number"    Number()            one number                                                  [N]
    "object"    Object()            anything else, such as strings                              a list
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from .batch import Held
from .checks import integer, nearest

BOX_FORMATS = ("xyxy", "xywh", "cxcywh")


def _one_of(name: str, value: Any, known: tuple[Any, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """Base of the kinds.

    Args:
        encoded: the values are bytes of files, which the loader decodes.
        ragged: samples differ in shape, so the field leaves as `Padded`; None: the source and the transform say it.
        pad_value: fills up a ragged field, unless the loader's `pad_value` names the field; None: the loader's.
        group: the name of a list of objects; the fields of a group have one row per object, and are filtered together.
        scene: fields of one scene show the same place: they have one size and move together.
    """

    encoded: bool = False
    ragged: bool | None = None
    pad_value: float | None = None
    group: str | None = None
    scene: str = ""

    spatial: ClassVar[bool] = False
    """Movers move it."""
    pixels: ClassVar[bool] = False
    """Transforms of values, such as ColorJitter, change it."""

    holds: ClassVar[Held] = "array"

    shape: ClassVar[str] = "..."
    """The dimensions of a sample's tensor, as they leave."""

    @property
    def held(self) -> Held:
        """How a column holds the values."""
        return "encoded" if self.encoded else self.holds

    @property
    def word(self) -> str:
        """The short word."""
        return type(self).__name__.lower()

    def __str__(self) -> str:
        return self.word


@dataclass(frozen=True)
class Image(Kind):
    """A picture.

    Args:
        layout: of the values: "CHW" or "HWC"; None: tensors are CHW, and arrays HWC.
        mode: of files and Pillow's images: "RGB", "L", or "unchanged", which keeps 16 bits, grey and alpha.  None:
            "RGB", but Pillow's images stay grey where the first sample's is.
        exif: turn files upright by their EXIF orientation; None: yes, but a file that has one beside annotations is a
            bad sample, since annotations count the file's own rows and columns.
    """

    layout: Literal["CHW", "HWC"] | None = None
    mode: Literal["RGB", "L", "unchanged"] | None = None
    exif: bool | None = None

    holds: ClassVar[Held] = "image"
    spatial: ClassVar[bool] = True
    pixels: ClassVar[bool] = True
    shape: ClassVar[str] = "C, H, W"

    def __post_init__(self) -> None:
        _one_of("layout", self.layout, (None, "CHW", "HWC"))
        _one_of("mode", self.mode, (None, "RGB", "L", "unchanged"))

    @property
    def word(self) -> str:
        return "encoded" if self.encoded else "image"


@dataclass(frozen=True)
class Mask(Kind):
    """Ids per pixel [H, W], or a mask for each object of a group [K, H, W].  Files are decoded to ids by Pillow.

    Args:
        fill: what comes in from outside of the picture.
    """

    fill: int = 0

    spatial: ClassVar[bool] = True
    shape: ClassVar[str] = "H, W"


@dataclass(frozen=True)
class Boxes(Kind):
    """Upright boxes in pixels of the image beside them.

    Args:
        format: "xyxy", "xywh" or "cxcywh".
        normalized: they count in the image's width and height, from 0 to 1.
    """

    format: Literal["xyxy", "xywh", "cxcywh"] = "xyxy"
    normalized: bool = False

    spatial: ClassVar[bool] = True
    shape: ClassVar[str] = "M, 4"

    def __post_init__(self) -> None:
        object.__setattr__(self, "format", str(getattr(self.format, "value", self.format)).lower())
        if self.format in ("xywhr", "cxcywhr", "xyxyxyxy"):
            raise ValueError(
                f"format must be one of {', '.join(map(repr, BOX_FORMATS))}, got {self.format!r}: rotated boxes move "
                "as their corners, so write them as [m, 4, 2], which "
                'convert_bounding_box_format(boxes, new_format="XYXYXYXY").reshape(-1, 4, 2) gives, with kinds.Points()'
            )
        _one_of("format", self.format, BOX_FORMATS)


@dataclass(frozen=True)
class Points(Kind):
    """Points (x, y) in pixels, a third number is their visibility.

    Args:
        normalized: they count in the image's width and height, from 0 to 1.
        swap: pairs of points (of k) that a horizontal flip exchanges, such as left and right eye.
    """

    normalized: bool = False
    swap: tuple[tuple[int, int], ...] = ()

    spatial: ClassVar[bool] = True
    shape: ClassVar[str] = "M, ..."


@dataclass(frozen=True)
class Polygons(Kind):
    """Outlines of objects: lists of polygons [v, 2] (or flat [2 v]), or COCO's run lengths; they leave as masks."""

    holds: ClassVar[Held] = "object"
    spatial: ClassVar[bool] = True
    shape: ClassVar[str] = "K, H, W"


@dataclass(frozen=True)
class Video(Kind):
    """A clip.

    Args:
        layout: of the values: "FCHW" or "FHWC"; None: tensors are FCHW, and arrays FHWC.
        frames: of video files: the number of frames to decode, from the first one on; None: all.  A file that has
            fewer is a bad sample.
        stride: of video files: every stride-th frame.
    """

    layout: Literal["FCHW", "FHWC"] | None = None
    frames: int | None = None
    stride: int = 1

    spatial: ClassVar[bool] = True
    pixels: ClassVar[bool] = True
    shape: ClassVar[str] = "F, C, H, W"

    def __post_init__(self) -> None:
        _one_of("layout", self.layout, (None, "FCHW", "FHWC"))
        if self.frames is not None:
            integer("frames", self.frames, 1)
        integer("stride", self.stride, 1)


@dataclass(frozen=True)
class Volume(Kind):
    """A picture in three dimensions, or ids per voxel.

    Args:
        layout: of the values: "DHW" or "CDHW".
        fill: what comes in from outside of it.
    """

    layout: Literal["DHW", "CDHW"] = "DHW"
    fill: float = 0

    spatial: ClassVar[bool] = True
    shape: ClassVar[str] = "D, H, W"

    def __post_init__(self) -> None:
        _one_of("layout", self.layout, ("DHW", "CDHW"))


@dataclass(frozen=True)
class Audio(Kind):
    """Sound.

    Args:
        rate: samples per second; None: files keep theirs.
        channels: 1 mixes files down; None: files keep theirs.
    """

    rate: int | None = None
    channels: int | None = None

    shape: ClassVar[str] = "C, samples"

    def __post_init__(self) -> None:
        for name, value in {"rate": self.rate, "channels": self.channels}.items():
            if value is not None:
                integer(name, value, 1)


@dataclass(frozen=True)
class Array(Kind):
    """Any numeric array: no transform touches it."""


@dataclass(frozen=True)
class Number(Kind):
    """One number."""

    holds: ClassVar[Held] = "number"
    shape: ClassVar[str] = ""


@dataclass(frozen=True)
class Object(Kind):
    """Anything else: it reaches the caller as it is."""

    holds: ClassVar[Held] = "object"
    shape: ClassVar[str] = ""


class Doubt(NamedTuple):
    """A guess that may be wrong.

    Attributes:
        why: what was seen, and what it may be.
        matters: the transforms for which it matters: all that act on pictures ("values"), those that move them
            ("moves"), or those that drop objects ("filters").
        say: the words to write; "": a kind.
    """

    why: str
    matters: Literal["values", "moves", "filters"] = "moves"
    say: str = ""


ENCODED, IMAGE, MASK, ARRAY, NUMBER, OBJECT = Image(encoded=True), Image(), Mask(), Array(), Number(), Object()

WORDS: dict[str, Kind] = {
    str(kind): kind
    for kind in (ENCODED, IMAGE, MASK, Boxes(), Points(), Polygons(), Video(), Volume(), Audio(), ARRAY, NUMBER, OBJECT)
}
"""The kinds by their words."""

AnyKind: TypeAlias = "Kind | type[Kind] | str"
"""A kind as a user writes it: an object, a class, or a word."""


def as_kind(value: Any, name: str = "kinds") -> Kind:
    """Make a kind of an object, a class or a word.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(value, Kind) and type(value) is not Kind:
        return value
    if isinstance(value, type) and issubclass(value, Kind) and value is not Kind:
        return value()
    if isinstance(value, str) and value in WORDS:
        return WORDS[value]
    hint = nearest(value, list(WORDS)) if isinstance(value, str) else ""
    raise ValueError(f"{name} must hold kinds ({', '.join(WORDS)}, or one of torchdali.kinds), got {value!r}{hint}")


def tell(told: AnyKind, natural: Held) -> Kind:
    """Make the kind that a user tells for values that a column holds in a natural way: files stay files.

    `tell("mask", "encoded")` is `Mask(encoded=True)`, and `tell("mask", "array")` is `Mask()`.
    """
    kind = as_kind(told)
    files = natural == "encoded" and isinstance(kind, (Mask, Video, Audio, Image, Volume))
    return replace(kind, encoded=True) if files else kind


def as_kinds(told: Any) -> dict[str, AnyKind]:
    """Check that the argument `kinds` is a dict of kinds by field; None is an empty one.

    Raises:
        TypeError: it is no dict.
        ValueError: it holds something else than kinds.
    """
    if told is None:
        return {}
    if not isinstance(told, Mapping):
        raise TypeError(f"kinds must be a dict of kinds by field, such as {{'mask': 'mask'}}, got {told!r:.80}")
    for kind in told.values():
        as_kind(kind)
    return dict(told)
