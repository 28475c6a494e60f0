"""MixUp and CutMix: functions of whole batches, for `DataLoader(batch_transform=...)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import one_hot

from ..batch import Padded, map_leaves
from ..checks import integer, number
from ..rand import BatchRand


class _Mix:
    """Base of the functions that mix each sample of a batch with a partner."""

    def __init__(
        self,
        alpha: float = 1.0,
        num_classes: int | None = None,
        *,
        group: int | None = None,
        label: Any = None,
    ) -> None:
        self.alpha = float(number("alpha", alpha, "greater than 0", smallest=0))
        if not self.alpha:
            raise ValueError(f"alpha must be a number greater than 0, got {alpha!r}")
        self.num_classes = None if num_classes is None else integer("num_classes", num_classes, 1)
        self.group = None if group is None else integer("group", group, 2)
        self.label = label

    def __call__(self, batch: Any, rand: BatchRand) -> Any:
        """Mix a batch.

        Raises:
            TypeError: there is nothing that can be mixed, or no label, or one of another type.
            ValueError: labels are class numbers, and num_classes is not given.
        """
        name = type(self).__name__
        if not isinstance(rand, BatchRand):  # of a function in a transform
            raise TypeError(f"{name} acts on whole batches: write batch_transform={name}(...), not transform=")
        labels, size = self._labels(batch), len(rand)
        found: list[torch.Tensor] = []

        def look(value: Any) -> Any:
            if isinstance(value, Padded):
                raise TypeError(f"{name} needs tensors of one shape, got {value}: put a transform of one size first")
            if value is not labels and self._is_input(value):
                found.append(value)
            return value

        map_leaves(batch, look, whole=(Padded,))
        if not found or any(len(value) != size for value in (*found, *([] if labels is None else [labels]))):
            raise TypeError(f"{name} mixes {self._inputs}, one row for each of {size} samples, got {_described(batch)}")
        partners = torch.from_numpy(partners_of(rand.positions, self.group))
        weights, mix = self._drawn(found[0], rand)

        def mixed(value: Any) -> Any:
            if labels is not None and value is labels:
                return self._mixed_labels(labels, weights, partners.to(labels.device, non_blocking=True))
            return mix(value, partners.to(value.device, non_blocking=True)) if self._is_input(value) else value

        return map_leaves(batch, mixed)

    # Subclasses define

    _inputs: str

    def _is_input(self, value: Any) -> bool:
        raise NotImplementedError

    def _drawn(
        self, first: torch.Tensor, rand: BatchRand
    ) -> tuple[torch.Tensor, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
        """Draw what is mixed: each sample's own weight [N], and the function of a batch and its partners' rows."""
        raise NotImplementedError

    # Labels

    def _labels(self, batch: Any) -> torch.Tensor | None:
        if self.label is False:
            return None
        key = self.label
        if key is None:
            key = _label_key(batch)
        try:
            labels = batch[key]
        except (KeyError, IndexError, TypeError):
            labels = None
        if not isinstance(labels, torch.Tensor):
            raise TypeError(
                f"{type(self).__name__} finds no tensor of labels in the batch, {_described(batch)}: write label= with "
                "its key or number, or label=False where there is none"
            )
        return labels

    def _mixed_labels(self, labels: torch.Tensor, weights: torch.Tensor, partners: torch.Tensor) -> torch.Tensor:
        if labels.ndim == 1 and not labels.is_floating_point():
            if self.num_classes is None:
                raise ValueError(f"labels are class numbers: write {type(self).__name__}(num_classes=...)")
            labels = one_hot(labels.long(), self.num_classes)
        if not labels.is_floating_point():
            labels = labels.float()
        return _weighted(labels, weights, partners)

    def __repr__(self) -> str:
        given = f"alpha={self.alpha:g}, num_classes={self.num_classes}"
        return f"{type(self).__name__}({given}{f', group={self.group}' if self.group else ''})"


class MixUp(_Mix):
    """Mixes each sample of a batch with another one: w * sample + (1 - w) * partner, labels alike.

    After Zhang et al., "mixup: Beyond Empirical Risk Minimization" (2018), by torchvision's formula, but each sample
    has a weight of its own, drawn from Beta(alpha, alpha) by (seed, epoch, sample), as timm's mode "elem" has it.

    A sample's partner is the one before it in its batch, and the last one for the first, as in torchvision.  So it
    depends on the batch: on the batch size and the number of ranks.  With `group=k`, partners are of the same group of
    k consecutive samples in the order of the epoch, and the stream is the same for all numbers of ranks and batch sizes
    that are multiples of k, but for the end of an epoch, where a group may be split over ranks (not with drop_last).

    Args:
        alpha: of the Beta distribution; 1: uniform.
        num_classes: makes class numbers [N] one-hot, [N, num_classes] float32.
        group: see above; at least 2.
        label: the key of the labels in a batch that is a dict, or their number in a tuple; None: "label" or "labels",
            and 1; False: there are none.  They are class numbers [N], or numbers and weights of any shape [N, ...].

    All floating tensors of two or more dimensions [N, ...] are mixed, on their device; everything else stays.

    Raises:
        ValueError, TypeError: an invalid argument.
    """

    _inputs = "floating tensors of two or more dimensions"

    def _is_input(self, value: Any) -> bool:
        if not isinstance(value, torch.Tensor) or value.ndim < 2:
            return False
        if value.dtype == torch.uint8 and value.ndim >= 4:
            raise TypeError(
                "MixUp needs floating images, got uint8: put Normalize(...) or ToDtype(torch.float32, scale=True) into "
                "the transform"
            )
        return value.is_floating_point()

    def _drawn(self, first: torch.Tensor, rand: BatchRand) -> Any:
        weights = torch.from_numpy(rand.beta(self.alpha, self.alpha))
        return weights, lambda value, partners: _weighted(value, weights, partners)


class CutMix(_Mix):
    """Puts a rectangle of another image into each image of a batch; labels are mixed by the areas.

    After Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features" (2019), by
    torchvision's formula, but each sample has a rectangle of its own, drawn by (seed, epoch, sample).

    Partners, `group` and the arguments are those of `MixUp`.  Images of any dtype [N, C, H, W] are cut, and videos
    [N, F, C, H, W], all frames alike, on their device.
    """

    _inputs = "images [N, C, H, W]"

    def _is_input(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) and value.ndim >= 4

    def _drawn(self, first: torch.Tensor, rand: BatchRand) -> Any:
        kept = rand.beta(self.alpha, self.alpha).astype(np.float64)
        centre, reach = rand.uniform(shape=2).astype(np.float64), 0.5 * np.sqrt(1 - kept)

        def box(extent: int, axis: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
            at, half = (centre[:, axis] * extent).astype(np.int64), (reach * extent).astype(np.int64)
            return np.maximum(at - half, 0), np.minimum(at + half, extent)

        height, width = first.shape[-2:]
        (top, bottom), (left, right) = box(height, 0), box(width, 1)
        weights = torch.from_numpy(1 - (bottom - top) * (right - left) / (height * width))

        def inside(extent: int, axis: int, device: torch.device) -> torch.Tensor:
            low, high = (torch.from_numpy(end)[:, None].to(device, non_blocking=True) for end in box(extent, axis))
            places = torch.arange(extent, device=device)
            return (places >= low) & (places < high)

        def mix(value: torch.Tensor, partners: torch.Tensor) -> torch.Tensor:
            rows, columns = (inside(value.shape[axis - 2], axis, value.device) for axis in (0, 1))
            cut = rows[:, :, None] & columns[:, None, :]
            cut = cut.view(len(value), *[1] * (value.ndim - 3), *cut.shape[1:])
            return torch.where(cut, _taken(value, partners), value)

        return weights, mix


def partners_of(positions: NDArray[np.int64], group: int | None = None) -> NDArray[np.int64]:
    """Give the row of each sample's partner: the one before it, and for the first one the last.

    Args:
        positions: [N] the samples' places in the order.
        group: partners are among the samples of a group of that many consecutive places, as far as they are here; None:
            among all rows.
    """
    if group is None:
        return np.roll(np.arange(len(positions)), 1)
    # A row that is repeated to fill the batch has the partner of the row that it repeats.
    distinct, rows, places = np.unique(positions, return_index=True, return_inverse=True)
    groups = distinct // group
    first = np.searchsorted(groups, groups, "left")
    before = np.arange(len(distinct)) - 1
    before = np.where(before < first, np.searchsorted(groups, groups, "right") - 1, before)
    found: NDArray[np.int64] = rows[before][places]
    return found


def _taken(value: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Take rows; they keep the memory format."""
    return torch.index_select(value, 0, rows, out=torch.empty_like(value))


def _weighted(value: torch.Tensor, weights: torch.Tensor, partners: torch.Tensor) -> torch.Tensor:
    own = weights.to(value.device, value.dtype, non_blocking=True).view(-1, *[1] * (value.ndim - 1))
    return _taken(value, partners).mul_(1 - own).add_(value.mul(own))


def _label_key(batch: Any) -> Any:
    if not isinstance(batch, Mapping):
        return 1
    return next((key for key in batch if str(key).lower() in ("label", "labels")), "label")


def _described(batch: Any) -> str:
    if isinstance(batch, Mapping):
        return f"a dict of {', '.join(map(str, batch))}"
    if isinstance(batch, (tuple, list)) and not isinstance(batch, Padded):
        return f"a {type(batch).__name__} of {', '.join(type(part).__name__ for part in batch)}"
    return f"a {type(batch).__name__}"
