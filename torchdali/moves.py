"""The moves: what a mover drew, in words that every kind of field understands.

A transform that moves pixels only draws params; its `moves` says which moves they are.  What a move does to a kind is a
form (`forms/`), so transforms need no forms of their own.

The values of a move are what the caller has: arrays with one row per sample, batches or nodes of DALI, or the plain
numbers and lists of one sample.  They are in pixels, (height, width) or (top, left).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Sizes = NDArray[np.int64]
"""[N, 2]: height and width of each image."""

Fill: TypeAlias = "float | Sequence[float] | Mapping[Any, float | Sequence[float] | None] | None"
"""A number, or one for each channel: for images; or a dict of them by the kinds' words, such as {"image": 127}.

torchvision's types are words too, {tv_tensors.Image: 127}, and "others" are those that the dict doesn't name.
"""

_FILLED = ("image", "video", "mask", "volume", "others")


def fill_of(fill: Fill, word: str, default: Any = 0) -> Any:
    """Give the fill of a kind: masks and the like have their own unless the dict names them.

    Images and videos have one fill, by whichever of the two words.
    """
    words = ("image", "video") if word in ("image", "video") else (word,)
    if isinstance(fill, Mapping):
        named = {_word(key): value for key, value in fill.items()}
        value = next((named[key] for key in (*words, "others") if key in named), None)
        if value is None and isinstance(fill, defaultdict) and fill.default_factory:
            value = fill.default_factory()
        return default if value is None else value
    return default if fill is None or word not in ("image", "video") else fill


def _word(key: Any) -> str:
    """The word of a kind that a word or a type names, such as tv_tensors.Image."""
    return key if isinstance(key, str) else getattr(key, "__name__", repr(key)).lower()


@dataclass(frozen=True)
class Crop:
    """A window; parts of it may lie outside, so padding is a crop too.

    A sample whose window is its whole image is not touched at all, as by a transform that was not applied.

    Attributes:
        start: [N, 2] top and left.
        shape: [N, 2] height and width.
        fill: of what lies outside.
        padding_mode: "constant", or "edge", "reflect", "symmetric" as torchvision pads.
    """

    start: Any
    shape: Any
    fill: Fill = 0
    padding_mode: str = "constant"

    def sizes(self, sizes: Sizes) -> Sizes:
        """The sizes after the move."""
        return np.asarray(self.shape, np.int64)


@dataclass(frozen=True)
class Crop3d:
    """A window in a volume; parts of it may lie outside.

    Attributes:
        start: [N, 3] front, top and left.
        shape: [N, 3] depth, height and width.
        fill: of what lies outside.
    """

    start: Any
    shape: Any
    fill: Fill = 0

    def sizes(self, sizes: Sizes) -> Sizes:
        """The sizes after the move: with the depths, [N, 3], if `sizes` has them."""
        return np.asarray(self.shape, np.int64)[:, -sizes.shape[1] :]


@dataclass(frozen=True)
class Resize:
    """A new size.

    Attributes:
        size: [N, 2].
        interpolation: "bilinear", "bicubic", "nearest" or "nearest-exact"; masks take "nearest" for the first two.
        antialias: low-pass filter when shrinking.
    """

    size: Any
    interpolation: str = "bilinear"
    antialias: bool | None = True

    def sizes(self, sizes: Sizes) -> Sizes:
        """The sizes after the move."""
        return np.asarray(self.size, np.int64)


@dataclass(frozen=True)
class Flip:
    """Mirrored, where `on` is true.

    Attributes:
        axis: 0: upside down, 1: left and right; -1: the depth of a volume, front to back.
        on: [N].
    """

    axis: int
    on: Any

    def sizes(self, sizes: Sizes) -> Sizes:
        """The sizes after the move."""
        return sizes


@dataclass(frozen=True)
class Affine:
    """A linear map, such as a rotation, or a perspective.

    A sample with the identity, of its own size, is not touched at all.

    Attributes:
        matrix: [N, 2, 3] float64, from (x, y) of the image to (x, y) of the result, in pixels about the corner of the
            first pixel; [N, 3, 3] is a perspective.
        size: [N, 2] of the result.
        interpolation: "nearest", "bilinear" or "bicubic"; masks take "nearest" in any case.
        fill: of what lies outside.
    """

    matrix: Any
    size: Any
    interpolation: str = "nearest"
    fill: Fill = 0

    def sizes(self, sizes: Sizes) -> Sizes:
        """The sizes after the move."""
        return np.asarray(self.size, np.int64)


@dataclass(frozen=True)
class Warp:
    """A field of displacements, such as an elastic one.

    Attributes:
        displacement: of each sample float32 [H, W, 2]: how far from a pixel of the result (x, y) its source is, in
            halves of the image's width and height, as torchvision's `elastic` has it; None: the sample is not touched.
        interpolation: "nearest", "bilinear" or "bicubic"; masks take "nearest" in any case.
        fill: of what lies outside.
    """

    displacement: Any
    interpolation: str = "bilinear"
    fill: Fill = 0

    def sizes(self, sizes: Sizes) -> Sizes:
        """The sizes after the move."""
        return sizes


Move: TypeAlias = "Crop | Crop3d | Resize | Flip | Affine | Warp"


def check_flat(move: Move, word: str) -> None:
    """Raise if a move goes into depths, which volumes alone have.

    Raises:
        ValueError: it does.
    """
    if isinstance(move, Crop3d) or (isinstance(move, Flip) and move.axis == -1):
        raise ValueError(
            f"a {word} has no depth, and {type(move).__name__} moves it: write kinds.Volume() for labels [D, H, W], "
            'and scene="other" in the kind of what shows another place'
        )


_ROWS = ("start", "shape", "size", "on", "matrix", "displacement")


def row_of(move: Move, i: int) -> Move:
    """Give one sample's move, of a move with arrays of one row per sample."""
    return replace(move, **{name: getattr(move, name)[i] for name in _ROWS if hasattr(move, name)})


def spread(move: Move, rows: NDArray[np.int64], sizes: Sizes) -> Move:
    """Make a move of some samples one of all: the others stay as they are.

    Args:
        move: with a row for each of `rows`.
        rows: their numbers.
        sizes: [N, 2] of all images before it.
    """

    def put(still: NDArray[Any], values: Any) -> NDArray[Any]:
        whole = still.copy()
        whole[rows] = values
        return whole

    n = len(sizes)
    if isinstance(move, Flip):
        return replace(move, on=put(np.zeros(n, bool), move.on))
    if isinstance(move, Warp):
        return replace(move, displacement=put(np.full(n, None), move.displacement))
    if isinstance(move, (Crop, Crop3d)):
        return replace(move, start=put(np.zeros_like(sizes), move.start), shape=put(sizes, move.shape))
    if isinstance(move, Resize):
        return replace(move, size=put(sizes, move.size))
    matrix = np.asarray(move.matrix)
    still = np.tile(np.eye(3)[: matrix.shape[1]], (n, 1, 1))
    return replace(move, matrix=put(still, matrix), size=put(sizes, move.size))


def check_fill(fill: Fill) -> None:
    """Raise unless it is a fill.

    Raises:
        ValueError: it isn't.
    """
    values = (list(fill.values()) or [()]) if isinstance(fill, Mapping) else [fill]
    for key in fill if isinstance(fill, Mapping) else ():
        if _word(key) not in _FILLED:
            raise ValueError(f"fill must name kinds, which are {', '.join(_FILLED)}, got {key!r}")
    for value in values:
        numbers = value if isinstance(value, (list, tuple)) else [0 if value is None else value]
        if not numbers or not all(isinstance(number, Real) and not isinstance(number, bool) for number in numbers):
            raise ValueError(
                f'fill must be a number or one for each channel, or a dict of them by kind, such as {{"image": 127}}, '
                f"got {fill!r}"
            )
