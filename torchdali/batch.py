"""The parts of a batch: fields, their kinds, columns, and padded tensors."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .containers import remade
from .summary import Summary, never_raises

Held = Literal["encoded", "image", "array", "number", "object"]
"""How a column holds a field's values; what they mean is the field's kind (`kinds.Kind`).

    encoded   bytes of a file, uint8 [n] each
    image     uint8 [H, W, C] each
    array     any numeric array each, of one dtype and number of dimensions; ragged ones leave padded
    number    one number per sample; leaves as a tensor [N]
    object    anything else, such as strings; leaves as a list
"""

Column = Sequence[Any] | NDArray[Any]  # one value per sample
Columns = dict[str, Column]


class Objects(list[Any]):
    """A column of the kind "object": its values reach the caller as they are."""


class Collated(Sequence[Any]):
    """A column that is a whole batch, as the user's `collate_fn` made it.

    Args:
        value: the batch, of any type.
        size: the number of samples in it.
    """

    def __init__(self, value: Any, size: int) -> None:
        self.value, self._size = value, size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: Any) -> Any:
        raise TypeError("the samples of a batch that collate_fn made can't be told apart")

    def map(self, function: Callable[[Any], Any]) -> Collated:
        """Apply a function to every value inside the containers of the batch."""
        return Collated(map_leaves(self.value, function), self._size)

    def to(self, device: torch.device) -> Collated:
        """Move every tensor, and every object with a method `to`, to a device."""

        def moved(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor):
                return leaf.to(device, non_blocking=True)
            return leaf.to(device) if callable(getattr(leaf, "to", None)) else leaf

        return self.map(moved)


def map_leaves(value: Any, function: Callable[[Any], Any], whole: tuple[type, ...] = ()) -> Any:
    """Apply a function to what dicts, lists, tuples and dataclasses hold; they keep their types.

    Args:
        value: the container.
        function: is applied to everything else in it.
        whole: containers that it is applied to as they are.
    """
    if isinstance(value, (torch.Tensor, *whole)) or callable(getattr(value, "to", None)):
        return function(value)
    if isinstance(value, tuple):
        parts = [map_leaves(part, function, whole) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, (list, Mapping)):
        items = value.items() if isinstance(value, Mapping) else enumerate(value)
        return remade(value, {key: map_leaves(part, function, whole) for key, part in items})
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        out: Any = copy.copy(value)
        for field in dataclasses.fields(value):
            object.__setattr__(out, field.name, map_leaves(getattr(value, field.name), function, whole))
        return out
    return function(value)


def unpadded(data: torch.Tensor, sizes: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    """Cut the samples out of padded data: views of it.

    Args:
        data: [N, *largest].
        sizes: for each sample, the true sizes of the padded dimensions.
    """
    before = (slice(None),) * (padded_dims(data.ndim, len(sizes[0]))[0] - 1) if len(sizes) else ()
    return [row[(*before, *map(slice, size))] for row, size in zip(data, sizes, strict=True)]


def padded_dims(ndim: int, count: int) -> range:
    """Tell which dimensions of a batch are padded: one is the first of the samples', several are the last ones."""
    return range(1, 2) if count == 1 else range(ndim - count, ndim)


class Padded(NamedTuple):
    """A ragged field as one tensor.

    Attributes:
        data: [N, *largest], filled up after each sample's end.
        sizes: [N, d] int64, the true sizes of the d dimensions that are padded: (height, width) for images, which are
            [N, C, H, W], and videos; the number of rows for boxes and what else has a row per object; all dimensions
            for other arrays.
    """

    data: torch.Tensor
    sizes: torch.Tensor

    def unbind(self) -> list[torch.Tensor]:
        """Give the samples, each of its true size: views of `data`."""
        return unpadded(self.data, self.sizes.tolist())

    @never_raises
    def __repr__(self) -> str:
        if not isinstance(self.data, torch.Tensor):  # such as the specs of a tree of tensors
            return f"Padded(data={self.data!r}, sizes={self.sizes!r})"
        facts = self._facts()
        return f"Padded({facts['shape']} {facts['dtype']} on {facts['device']}, sizes {facts['sizes']})"

    @never_raises
    def _repr_html_(self) -> str:
        return Summary("Padded", self._facts()).html()

    def _facts(self) -> dict[str, str]:
        low, high = ([f(column) for column in zip(*self.sizes.tolist(), strict=True)] for f in (min, max))
        return {
            "shape": str(list(self.data.shape)),
            "dtype": str(self.data.dtype).removeprefix("torch."),
            "device": str(self.data.device),
            "sizes": f"{low} to {high}" if low != high else f"all {low}",
        }

    @property
    def mask(self) -> torch.Tensor:
        """bool [N, *padded dimensions]: True where `data` is a sample's, False where it is padding."""
        dims = self.sizes.shape[1]
        extents = [self.data.shape[dim] for dim in padded_dims(self.data.ndim, dims)]
        mask = torch.ones((len(self.sizes), *extents), dtype=torch.bool, device=self.data.device)
        for dim, extent in enumerate(extents):
            shape = [1] * (dims + 1)
            shape[dim + 1] = extent
            inside = torch.arange(extent, device=self.data.device).view(shape) < self.sizes[:, dim].view(
                -1, *[1] * dims
            )
            mask &= inside
        return mask


_PADDED = (
    "a batch of samples of several sizes is Padded(data, sizes), two tensors: write images.data, or for images of one "
    "size put Resize((height, width)) or a crop into transform=, or write output='list'"
)


def _no_attribute(padded: Padded, name: str) -> Any:
    hint = f": {_PADDED}" if hasattr(torch.Tensor, name) and not name.startswith("_") else ""
    raise AttributeError(f"{type(padded).__name__!r} object has no attribute {name!r}{hint}")


def _no_operand(_: type[Padded], function: Any, *__: Any) -> Any:
    """Refuse what torch's functions and modules would call an invalid combination of arguments."""
    raise TypeError(f"{getattr(function, '__name__', function)} takes a tensor: {_PADDED}")


# Not in the class, where type checkers would take any attribute for known.
Padded.__getattr__ = _no_attribute  # type: ignore[attr-defined]
Padded.__torch_function__ = classmethod(_no_operand)  # type: ignore[attr-defined]


class BadSample(NamedTuple):
    """A sample that failed, and its substitute, if it has one: an entry of `DataLoader.bad_samples`."""

    index: int  # type: ignore[assignment]  # hides tuple's method of this name
    path: str | None
    stage: str
    reason: str
    substitute: int | None  # the index that took its place; None: it was left out, or its error was raised


def take(columns: Columns, rows: Sequence[int] | NDArray[np.int64]) -> Columns:
    """Take some rows of all columns."""
    return {
        name: column[np.asarray(rows)] if isinstance(column, np.ndarray) else [column[i] for i in rows]
        for name, column in columns.items()
    }


def join(parts: Sequence[Columns]) -> Columns:
    """Join columns end to end; the counterpart of `take`."""
    return parts[0] if len(parts) == 1 else {name: _join([part[name] for part in parts]) for name in parts[0]}


def _join(columns: list[Column]) -> Column:
    if all(isinstance(column, np.ndarray) for column in columns):
        arrays = [np.asarray(column) for column in columns]
        if len({(array.dtype, array.shape[1:]) for array in arrays}) == 1:
            return np.concatenate(arrays)
    return [value for column in columns for value in column]
