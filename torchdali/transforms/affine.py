"""Rotations and other linear maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..moves import Affine, Fill, Move, Sizes, check_fill
from ..rand import Rand
from .arguments import is_number, mode_name, number_pair, number_range
from .base import Mover, Params


class Mapped(Mover):
    """Base of the transforms that look up each pixel of the result where a matrix says."""

    interpolation: Any
    fill: Fill

    needs_sizes = True
    _matrix = np.eye(2, 3)  # of any sample, where values do not matter

    def check_mapped(self) -> None:
        """Raise unless interpolation and fill are values that torchvision takes.

        Raises:
            ValueError: one isn't.
        """
        check_interpolation(self.interpolation)
        check_fill(self.fill)

    def moves(self, params: dict[str, Any]) -> list[Move]:
        matrix = self._matrix if params["matrix"] is None else params["matrix"]
        return [Affine(matrix, params["size"], mode_name(self.interpolation), self.fill)]


def check_interpolation(interpolation: Any) -> None:
    """Raise unless it is one that torchvision's kernels and DALI's know where pixels are looked up.

    Raises:
        ValueError: it isn't.
    """
    if mode_name(interpolation) not in ("nearest", "bilinear"):
        raise ValueError(f"interpolation must be nearest or bilinear, got {interpolation!r}")


def forward_matrix(
    center: NDArray[np.float64],
    angle: NDArray[np.float64],
    translate: NDArray[np.float64],
    scale: NDArray[np.float64],
    shear: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Give matrices [N, 2, 3] that rotate, scale and shear about a centre and then translate.

    As torchvision's `_get_inverse_affine_matrix(..., inverted=False)`, in its order of operations.

    Args:
        center: [N, 2], (x, y).
        angle: [N], in degrees, clockwise.
        translate: [N, 2], (x, y).
        scale: [N].
        shear: [N, 2], in degrees, along x and y.
    """
    turn, (x, y) = np.radians(angle), np.radians(shear.T)
    a = np.cos(turn - y) / np.cos(y)
    b = -np.cos(turn - y) * np.tan(x) / np.cos(y) - np.sin(turn)
    c = np.sin(turn - y) / np.cos(y)
    d = -np.sin(turn - y) * np.tan(x) / np.cos(y) + np.cos(turn)
    linear = np.stack([a, b, c, d], 1).reshape(-1, 2, 2) * scale[:, None, None]
    shift = linear[..., 0] * -center[:, :1] + linear[..., 1] * -center[:, 1:]
    return np.concatenate([linear, (shift + (center + translate))[..., None]], 2)


def _check_center(center: Any) -> None:
    if center is not None and (
        not isinstance(center, Sequence) or len(center) != 2 or not all(is_number(value) for value in center)
    ):
        raise ValueError(f"center must be (x, y) in pixels or None, got {center!r}")


def _degrees(value: Any, name: str) -> tuple[float, float]:
    """Make (low, high) of a pair, or of a number x that stands for [-x, x]."""
    return number_range(value, name, 0.0, (-np.inf, np.inf))


def _middle(sizes: Sizes, center: Sequence[float] | None) -> NDArray[np.float64]:
    """[N, 2], (x, y)."""
    if center is None:
        return sizes[:, ::-1].astype(np.float64) * 0.5
    return np.broadcast_to(np.array(center, np.float64), sizes.shape)


@dataclass(frozen=True)
class RandomRotation(Mapped):
    """Turned about a centre by a random angle, anticlockwise.

    Drawn as torchvision does, and on the CPU with its pixels; quarter turns are looked up like other angles.  DALI's
    form differs in rounding.

    Args:
        degrees: range of the angle; a number x is (-x, x).
        interpolation: "nearest" or "bilinear", or torchvision's InterpolationMode.
        expand: the result is large enough for the whole turned image; boxes and points lie where its pixels do, up to
            half a pixel from where torchvision has them.
        center: (x, y) in pixels from the upper left corner; None: the image's middle.
        fill: of what lies outside: a number or one for each channel, in the image's own units, or a dict of them by
            kind, such as {"image": 127, "mask": 255}.

    Raises:
        ValueError: an invalid argument.
    """

    degrees: float | Sequence[float]
    interpolation: Any = "nearest"
    expand: bool = False
    center: Sequence[float] | None = None
    fill: Fill = 0

    def __post_init__(self) -> None:
        _degrees(self.degrees, "degrees")
        if not isinstance(self.expand, bool):
            raise ValueError(f"expand must be True or False, got {self.expand!r}")
        _check_center(self.center)
        self.check_mapped()

    @property
    def varies_size(self) -> bool:
        return self.expand

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        angle = rand.uniform(*_degrees(self.degrees, "degrees")).astype(np.float64) % 360
        nothing = np.zeros((len(rand), 2))
        matrix = forward_matrix(_middle(sizes, self.center), -angle, nothing, np.ones(len(rand)), nothing)
        if self.expand:
            whole = _expanded(matrix, sizes)
            if self.center is None:  # torchvision turns by quarters without looking up
                whole = np.where((angle % 180 == 0)[:, None], sizes, whole)
                whole = np.where((angle % 180 == 90)[:, None], sizes[:, ::-1], whole)
            matrix[..., 2] += (whole - sizes)[:, ::-1] / 2
            sizes = whole
        return {"matrix": matrix, "size": sizes.astype(np.float32)}, sizes


def _expanded(matrix: NDArray[np.float64], sizes: Sizes) -> Sizes:
    """Give the sizes of whole turned images, as torchvision computes them: in float32, about the images' middles."""
    half = sizes[:, ::-1] * 0.5
    inverse = np.linalg.inv(matrix[..., :2])
    # Where the middle comes from; 0 where it stays.
    shift = (inverse @ (half - matrix[..., 2])[..., None])[..., 0] - half
    shift[np.abs(shift) < 1e-9] = 0
    corners = half[:, None] * np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]])
    x, y = corners.astype(np.float32)[:, :, None].transpose(3, 0, 1, 2)
    theta, shift = inverse.astype(np.float32)[:, None], shift.astype(np.float32)[:, None]
    there = x * theta[..., 0] + y * theta[..., 1] + shift
    # To four digits, so that 1e-15 is not one pixel more.
    low, high = (
        np.trunc((edge + half.astype(np.float32)) * np.float32(1e4)) * np.float32(1e-4)
        for edge in (there.min(1), there.max(1))
    )
    extent: Sizes = (np.ceil(high) - np.floor(low))[:, ::-1].astype(np.int64)
    return extent


@dataclass(frozen=True)
class RandomAffine(Mapped):
    """Turned, scaled and sheared about a centre, and then moved, at random.

    Drawn as torchvision does, and on the CPU with its pixels.  DALI's form differs in rounding.

    Args:
        degrees: range of the angle, clockwise; a number x is (-x, x).
        translate: the largest moves in widths and heights of the image, (horizontal, vertical), each in [0, 1].
        scale: range of the scale.
        shear: range of the angle of shearing along x; a number x is (-x, x); four numbers: ranges along x and y.
        interpolation: "nearest" or "bilinear", or torchvision's InterpolationMode.
        fill: of what lies outside: a number or one for each channel, in the image's own units, or a dict of them by
            kind.
        center: (x, y) in pixels from the upper left corner; None: the image's middle.

    Raises:
        ValueError: an invalid argument.
    """

    degrees: float | Sequence[float]
    translate: Sequence[float] | None = None
    scale: Sequence[float] | None = None
    shear: float | Sequence[float] | None = None
    interpolation: Any = "nearest"
    fill: Fill = 0
    center: Sequence[float] | None = None

    def __post_init__(self) -> None:
        _degrees(self.degrees, "degrees")
        given = self.translate
        if given is not None and (
            not isinstance(given, Sequence) or len(given) != 2 or not all(is_number(v) and 0 <= v <= 1 for v in given)
        ):
            raise ValueError(f"translate must be two numbers in [0, 1] or None, got {given!r}")
        if self.scale is not None and number_pair(self.scale, "scale")[0] == 0:
            raise ValueError(f"scale must be positive, got {self.scale!r}")
        self._shears()
        _check_center(self.center)
        self.check_mapped()

    def _shears(self) -> list[tuple[float, float]]:
        """The ranges along x and y."""
        if self.shear is None:
            return [(0.0, 0.0)] * 2
        if isinstance(self.shear, Sequence) and len(self.shear) == 4:
            return [_degrees(self.shear[:2], "shear"), _degrees(self.shear[2:], "shear")]
        return [_degrees(self.shear, "shear"), (0.0, 0.0)]

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        assert sizes is not None
        angle = rand.uniform(*_degrees(self.degrees, "degrees"))
        most = sizes[:, ::-1] * np.array((0.0, 0.0) if self.translate is None else self.translate, np.float64)
        translate = np.rint(rand.uniform(-most, most, shape=2))
        scale = rand.uniform(*((1.0, 1.0) if self.scale is None else number_pair(self.scale, "scale")))
        low, high = np.array(self._shears()).T[:, None]
        shear = rand.uniform(low, high, shape=2)
        real = [values.astype(np.float64) for values in (angle, translate, scale, shear)]
        return {
            "matrix": forward_matrix(_middle(sizes, self.center), *real),
            "size": sizes.astype(np.float32),
        }, sizes
