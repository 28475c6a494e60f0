"""What a transform is.

A transform is split as in torchvision v2: `make_params` draws what is random, on the host, for all samples of a batch
at once; the rest only computes.  It has up to two forms, which follow the same parameters:

    transform       on batches, in DALI's operators; written once, runs eagerly and inside a pipeline, on CPU and GPU
    transform_host  on one sample, in torch on the CPU, where that is faster or truer (torchvision's own kernels)

The engine runs the host form on the CPU for everything behind the last step that has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from ..random import Rand

if TYPE_CHECKING:
    from .._dali import Ops

Sizes = NDArray[np.int64]
"""[N, 2]: height and width of each image."""
Params = dict[str, NDArray[Any]]
"""Arrays of one row a sample."""

MODES = ("bilinear", "bicubic", "nearest", "nearest-exact")


class Transform:
    """Base of torchdali's transforms.  Subclasses are frozen dataclasses and act on all image fields of a sample.

    Attributes:
        on_host: there is a `transform_host`.
        on_dali: there is a `transform`.
        needs_sizes: `make_params` needs the images' sizes.
        windowed: the params hold `start` and `shape`, and nothing outside that window is looked at, so that a decoder
            may leave it out.
        fixes_size: images of any sizes come out with one size.
    """

    on_host: ClassVar[bool] = True
    on_dali: ClassVar[bool] = True
    needs_sizes: ClassVar[bool] = False
    windowed: ClassVar[bool] = False
    fixes_size: ClassVar[bool] = False

    def make_params(self, rand: Rand, sizes: Sizes | None) -> tuple[Params, Sizes | None]:
        """Parameters of every sample, and the images' sizes afterwards.

        Args:
            rand: random numbers, the same for each field of a sample.
            sizes: the images' sizes, or None where they can't be known.
        """
        return {}, sizes

    def transform(self, ops: Ops, image: Any, **params: Any) -> Any:
        """The DALI form.

        Args:
            ops: DALI's operators.
            image: a batch (or a pipeline's node) of images [H, W, C].
            **params: the params as batches (or nodes).
        """
        raise NotImplementedError

    def transform_host(self, image: torch.Tensor, out: torch.Tensor | None = None, **params: Any) -> torch.Tensor:
        """The host form.

        Args:
            image: [C, H, W], channels last in memory.
            out: where the result may be written, if the caller has a place for it.
            **params: the sample's rows of the params.

        Returns:
            `out`, or another tensor.
        """
        raise NotImplementedError

    def out_dtype(self, dtype: torch.dtype) -> torch.dtype:
        """The element type after this transform."""
        return dtype


class Compose:
    """Transforms one after the other.

    Args:
        transforms: torchdali's transforms, functions `f(sample, rand)`, and other Composes.

    Raises:
        TypeError: something else is among them.
    """

    def __init__(self, transforms: Sequence[Transform | Callable[..., Any] | Compose]) -> None:
        if not isinstance(transforms, (list, tuple)):
            raise TypeError(f"Compose takes a list of transforms, got {type(transforms).__name__}")
        self.transforms = list(transforms)

    def __repr__(self) -> str:
        return f"Compose({self.transforms})"


def size_pair(size: Any, name: str = "size") -> tuple[int, int]:
    """(height, width) from torchvision's int or sequence."""
    values = (size, size) if isinstance(size, int) else tuple(size) if isinstance(size, Sequence) else ()
    values = values * 2 if len(values) == 1 else values
    if len(values) != 2 or not all(isinstance(value, int) and value > 0 for value in values):
        raise ValueError(f"{name} must be a positive int or (height, width), got {size!r}")
    return values[0], values[1]


def mode_name(interpolation: Any) -> str:
    """The name of torchvision's InterpolationMode, or the name itself."""
    name = getattr(interpolation, "value", interpolation)
    if name not in MODES:
        raise ValueError(f"interpolation must be one of {', '.join(MODES)}, got {interpolation!r}")
    return str(name)


def probability(p: float) -> None:
    """Raise unless p is a probability."""
    if not isinstance(p, (int, float)) or not 0 <= p <= 1:
        raise ValueError(f"p must be in [0, 1], got {p!r}")


def number_range(
    value: Any, name: str, center: float | None = None, limits: tuple[float, float] = (0, np.inf)
) -> tuple[float, float]:
    """(low, high) from torchvision's number or pair; a number spreads around `center`.

    Raises:
        ValueError: no number or pair, or outside `limits`.
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if value < 0:
            raise ValueError(f"{name} must not be negative, got {value!r}")
        low, high = (value, value) if center is None else (max(center - value, limits[0]), center + value)
    elif isinstance(value, Sequence) and len(value) == 2 and all(isinstance(v, (int, float)) for v in value):
        low, high = value
    else:
        raise ValueError(f"{name} must be a number or (low, high), got {value!r}")
    if not limits[0] <= low <= high <= limits[1]:
        raise ValueError(f"{name} must be in {list(limits)} with low <= high, got {value!r}")
    return float(low), float(high)
