"""A crop that leaves enough of an object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..moves import Sizes
from ..ragged import Ragged
from ..rand import Rand
from .arguments import is_integer, is_number, number_pair
from .base import Params
from .geometry import Window, window_params

_ROUNDS = 100


@dataclass(frozen=True)
class RandomIoUCrop(Window):
    """A window that overlaps with a box at least as much as an option says, drawn anew until one does.

    Liu et al., "SSD: Single Shot MultiBox Detector", 2016, drawn as torchvision does: an option, then `trials` windows,
    and from the start while none will do.  Boxes whose centres lie outside of the window become zeros:
    `SanitizeBoundingBoxes` after it drops them.

    A sample without boxes stays as it is, and so does one for which 100 options found no window; torchvision looks for
    ever.

    Args:
        min_scale, max_scale: range of the window's width, and of its height, in those of the image.
        min_aspect_ratio, max_aspect_ratio: range of the window's width / height.
        sampler_options: the smallest intersections over unions that are asked for; 1 or more leaves the image as it is;
            None: 0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.
        trials: windows per option.

    Raises:
        ValueError: an invalid argument.
    """

    min_scale: float = 0.3
    max_scale: float = 1.0
    min_aspect_ratio: float = 0.5
    max_aspect_ratio: float = 2.0
    sampler_options: Sequence[float] | None = None
    trials: int = 40

    needs_boxes = True
    fixes_size = False
    varies_size = True

    def __post_init__(self) -> None:
        number_pair((self.min_scale, self.max_scale), "min_scale and max_scale", (0, 1))
        number_pair((self.min_aspect_ratio, self.max_aspect_ratio), "min_aspect_ratio and max_aspect_ratio")
        options = self._options
        if not isinstance(options, Sequence) or not options or not all(is_number(option) for option in options):
            raise ValueError(f"sampler_options must be None or a list of numbers, got {options!r}")
        if not is_integer(self.trials, 1):
            raise ValueError(f"trials must be a positive int, got {self.trials!r}")

    @property
    def _options(self) -> Sequence[float]:
        return (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0) if self.sampler_options is None else self.sampler_options

    def dali_params(self, params: Params) -> Params:
        return {name: params[name] for name in ("start", "shape")}

    def make_params(self, rand: Rand, sizes: Sizes | None, boxes: Ragged | None = None) -> tuple[Params, Sizes | None]:
        """Draw the windows.

        Raises:
            ValueError: without boxes.
        """
        if boxes is None:
            raise ValueError("RandomIoUCrop needs boxes: declare them, such as kinds={'boxes': 'boxes'}")
        assert sizes is not None
        start, shape = np.zeros_like(sizes), sizes.copy()
        options = np.asarray(self._options, np.float64)
        cropped = np.zeros(len(sizes), bool)
        looking = boxes.counts > 0
        for number in range(_ROUNDS):
            if not looking.any():
                break
            # Each round has numbers of its own, for all samples: how many rounds the others need changes nothing.
            numbers = rand.child(number)
            option = options[numbers.integers(len(options))]
            tried = self._windows(sizes, numbers.uniform(shape=(self.trials, 4)))
            looking &= option < 1  # the others stay as they are
            good = tried.good & looking[:, None]
            good &= _best_overlap(tried, boxes, looking) >= option[:, None].astype(boxes.data.dtype)
            found, first = good.any(axis=1), good.argmax(axis=1)
            rows = np.flatnonzero(found)
            start[rows], shape[rows] = tried.start[rows, first[rows]], tried.shape[rows, first[rows]]
            cropped |= found
            looking &= ~found
        params, ends = window_params(start, shape)
        return {**params, "cropped": cropped}, ends

    def _windows(self, sizes: Sizes, numbers: NDArray[np.float32]) -> _Windows:
        """Make windows of numbers [N, trials, 4] for width, height, left, top, as torchvision does, in float32."""
        whole = sizes[:, None]
        scale = np.float32(self.min_scale) + np.float32(self.max_scale - self.min_scale) * numbers[..., 1::-1]
        shape = (whole.astype(np.float32) * scale).astype(np.int64)
        good = (shape > 0).all(axis=2)
        ratio = shape[..., 1] / np.maximum(shape[..., 0], 1)
        good &= (self.min_aspect_ratio <= ratio) & (ratio <= self.max_aspect_ratio)
        start = ((whole - shape).astype(np.float32) * numbers[..., :1:-1]).astype(np.int64)
        return _Windows(start, shape, good)

    def emptied(self, params: Params, boxes: Ragged) -> NDArray[np.bool_]:
        """Say which boxes become zeros, bool [T]: those whose centres are outside of the window."""
        owner, centre = boxes.owner, _centres(boxes.data)
        low = params["start"][owner, ::-1]
        high = low + params["shape"][owner, ::-1]
        return params["cropped"][owner] & ~((low < centre) & (centre < high)).all(axis=1)


class _Windows(NamedTuple):
    """start and shape [N, trials, 2] int64, good [N, trials] bool."""

    start: NDArray[np.int64]
    shape: NDArray[np.int64]
    good: NDArray[np.bool_]


def _centres(boxes: NDArray[Any]) -> NDArray[Any]:
    """[..., 2], x and y."""
    centres: NDArray[Any] = boxes.dtype.type(0.5) * (boxes[..., :2] + boxes[..., 2:])
    return centres


def _best_overlap(tried: _Windows, boxes: Ragged, looking: NDArray[np.bool_]) -> NDArray[Any]:
    """Give the largest intersection over union of each window with a box whose centre is inside; -1 without one.

    Returns:
        [N, trials], of the boxes' dtype; right for the samples that are still looking.
    """
    owner = boxes.owner
    rows = np.flatnonzero(looking[owner])
    owner, box = owner[rows], boxes.data[rows, None]  # [t, 1, 4]
    low = tried.start[owner][..., ::-1].astype(box.dtype)  # [t, trials, 2], left and top
    high = (tried.start + tried.shape)[owner][..., ::-1].astype(box.dtype)
    centre = _centres(box)
    inside = ((low < centre) & (centre < high)).all(axis=2)
    shared = np.maximum(np.minimum(high, box[..., 2:]) - np.maximum(low, box[..., :2]), 0).prod(axis=2)
    union = (box[..., 2:] - box[..., :2]).prod(axis=2) + (high - low).prod(axis=2) - shared
    overlap = np.divide(shared, union, out=np.zeros_like(shared), where=union != 0)
    best = np.full(tried.good.shape, -1, box.dtype)
    np.maximum.at(best, owner, np.where(inside, overlap, -1))
    return best
