"""Puts samples together to tensors: numbers, arrays of one shape, and ragged ones with padding."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data._utils.collate import default_collate, default_collate_fn_map

from .batch import Collated, Column, Padded
from .checks import last_part, resolve
from .errors import FieldTypeError, PadValueError
from .signature import check_arrays


@dataclass(frozen=True)
class Padding:
    """The way in which ragged fields become tensors.

    Args:
        value: the number that fills each sample up to the batch's extent; or a dict of numbers by field, or by the last
            part of its name, 0 elsewhere.
        multiple: extents are rounded up to a multiple of it.
        of_kinds: numbers by field that the fields' kinds say; a dict's number for the field comes before them.

    Raises:
        TypeError: `value` is no number, and no dict of numbers.
    """

    value: float | Mapping[str, float] = 0
    multiple: int = 1
    of_kinds: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        by_field = isinstance(self.value, Mapping)
        for value in self.value.values() if isinstance(self.value, Mapping) else [self.value]:
            if isinstance(value, bool) or not isinstance(value, Real):
                what = "a number, or a dict of numbers by field"
                raise TypeError(f"pad_value must be {what}, got {value!r}{' in the dict' if by_field else ''}")

    def check_fields(self, fields: Iterable[str]) -> None:
        """Raise unless the dict's fields are among these.

        Raises:
            PadValueError: one is not, or it is the last part of several names.
        """
        if isinstance(self.value, Mapping):
            try:
                resolve(self.value, list(fields), "pad_value")
            except ValueError as error:
                raise PadValueError(str(error)) from None

    def value_for(self, field: str, dtype: np.dtype[Any] | torch.dtype) -> float:
        """The number that fills up a ragged field.

        Raises:
            PadValueError: the field's dtype can't hold it.
        """
        by_field = dict(self.value) if isinstance(self.value, Mapping) else {}
        named = next((name for name in (field, last_part(field)) if name in by_field), None)
        if named is None and field in self.of_kinds:
            named, by_field = field, dict(self.of_kinds)
        value = by_field[named] if named is not None else 0 if isinstance(self.value, Mapping) else self.value
        if value and not _holds(dtype, value):
            name = str(dtype).removeprefix("torch.")
            if named is not None:
                raise PadValueError(f"pad_value of {field!r} must fit its dtype, {name}, got {value!r}")
            other = "label" if field != "label" else "mask"
            raise PadValueError(
                f"pad_value must fit the dtypes of all ragged fields, got {value!r} for {field!r}, which is {name}: "
                f"name the fields that it is meant for, as in pad_value={{{other!r}: {value!r}}}; 0 fills others"
            )
        return value

    def extent(self, sizes: NDArray[np.int64]) -> tuple[int, ...]:
        """The smallest extent that holds all sizes [N, d], rounded up to the multiple."""
        return tuple(int(-(-size // self.multiple) * self.multiple) for size in sizes.max(axis=0))

    def pad(
        self, field: str, rows: Column, empty: Callable[[tuple[int, ...]], Any], dims: slice = slice(None)
    ) -> tuple[Any, NDArray[np.int64]]:
        """Rows of any sizes in one array, filled up after the end of each.

        Args:
            field: the field's name.
            rows: numpy arrays or tensors of one dtype and number of dimensions, at least one.
            empty: makes the result's memory from its shape, of the rows' dtype.
            dims: the dimensions that may differ.

        Returns:
            what `empty` gave, [N, *extent]; and the true sizes of those dimensions, [N, d].

        Raises:
            PadValueError: the rows' dtype can't hold the pad value.
        """
        value = self.value_for(field, rows[0].dtype)
        sizes = np.array([row.shape[dims] for row in rows], np.int64)
        shape, extent = list(rows[0].shape), self.extent(sizes)
        shape[dims] = extent
        out = empty((len(rows), *shape))
        if (sizes != extent).any():
            out[...] = value
        for i, row in enumerate(rows):
            out[(i, *map(slice, row.shape))] = row
        return out, sizes


def _holds(dtype: np.dtype[Any] | torch.dtype, value: float) -> bool:
    """Whether a dtype has a number: integers exactly, floats by their range."""
    if isinstance(dtype, torch.dtype):
        kind = "f" if dtype.is_floating_point else "b" if dtype == torch.bool else "i"
        limits: Any = torch.finfo if kind == "f" else torch.iinfo
    else:
        kind, limits = dtype.kind, np.finfo if dtype.kind == "f" else np.iinfo
    if kind == "b":
        return value in (0, 1)
    if kind == "f":
        return abs(value) <= float(limits(dtype).max) or value != value or abs(value) == float("inf")
    return bool(limits(dtype).min <= value <= limits(dtype).max) and value == int(value)


def collate_numbers(column: Column, device: torch.device) -> torch.Tensor:
    """A column of numbers as a tensor [N]."""
    return torch.from_numpy(np.array(column)).to(device, non_blocking=True)


def collate_arrays(
    field: str,
    column: Column,
    uniform: bool | None,
    padding: Padding,
    device: torch.device,
    samples: Sequence[int] | None = None,
) -> torch.Tensor | Padded:
    """A column of arrays as a tensor [N, ...] where they are uniform, else with all their dimensions padded.

    Args:
        field: the field's name.
        column: numpy arrays; or tensors, which a reader made on a GPU.
        uniform: whether all samples of the field have one shape; None: where these have.
        padding: for ragged ones.
        device: the result's.
        samples: the samples' indices, for messages.

    Raises:
        FieldTypeError: two differ in dtype or number of dimensions.
        PadValueError: the field may be ragged, and its dtype can't hold the pad value.
    """
    check_arrays(field, column, samples)
    tensors = len(column) and isinstance(column[0], torch.Tensor)
    if tensors or uniform is None:
        uniform = len({row.shape for row in column}) == 1
        if not tensors and len(column):
            padding.value_for(field, column[0].dtype)  # a later batch may need it
    if uniform:
        data = torch.stack(list(column)) if tensors else torch.from_numpy(np.array(column))
        return data.to(device, non_blocking=True)
    if tensors:
        data, sizes = padding.pad(field, column, column[0].new_empty)
    else:
        array, sizes = padding.pad(field, column, lambda shape: np.empty(shape, column[0].dtype))
        data = torch.from_numpy(array)
    return Padded(data.to(device, non_blocking=True), torch.from_numpy(sizes).to(device, non_blocking=True))


def collate_objects(field: str, values: Any, device: torch.device) -> Any:
    """Put objects together as torch does it, where it has a way.

    There is one for types that the user registered in `default_collate_fn_map`, and for tensors of a type of the
    user's, which `torch.stack` keeps.

    Args:
        field: the field's name.
        values: its objects, one per sample; where there is no way, they are given back.
        device: where the result arrives.

    Raises:
        FieldTypeError: tensors of a type of the user's have several shapes.
    """
    made = values
    own = bool(values) and all(is_of_own_type(value) for value in values)
    function = own_collate(values[0]) if values else None
    if function is not None:
        try:
            made = function(list(values), collate_fn_map=default_collate_fn_map)
        except RuntimeError as error:  # such as MONAI's, which stacks too
            if own:
                _check_shapes(field, values, error)
            raise
    elif own:
        _check_shapes(field, values)
        made = torch.stack(list(values))
    return made if made is values or device.type == "cpu" else Collated(made, len(values)).to(device).value


def _check_shapes(field: str, values: Sequence[torch.Tensor], cause: Exception | None = None) -> None:
    shapes = sorted({tuple(value.shape) for value in values})
    if len(shapes) > 1:
        raise FieldTypeError(
            f"{field}: tensors of the type {type(values[0]).__name__} must have one shape in a batch, got "
            f"{shapes[0]} and {shapes[1]}: write kinds={{{field!r}: 'array'}} for plain ones that are padded, "
            "or collate_fn="
        ) from cause


def own_collate(value: Any) -> Callable[..., Any] | None:
    """Give the function that a user or a library registered in `default_collate_fn_map` for values of this type.

    tensordict does it for TensorDict, which is a mapping, too.  None: there is none.
    """
    for cls, function in default_collate_fn_map.items():
        if function.__module__ != default_collate.__module__ and isinstance(value, cls):
            return function
    return None


def is_of_own_type(value: Any) -> bool:
    """Whether a value is a tensor of a type of the user's or a library's, which keeps its type in torch's functions.

    MONAI's MetaTensor is one.  Neither torchvision's tv_tensors nor parameters are, which torch stacks to plain
    tensors, nor tensors that are not plain memory.
    """
    kind: Any = type(value)
    own = kind is not torch.Tensor and isinstance(value, torch.Tensor) and _keeps_its_type(kind)
    return own and value.layout == torch.strided and not value.is_nested


@functools.lru_cache(64)
def _keeps_its_type(kind: Any) -> bool:
    tv_tensor = kind.__module__.startswith("torchvision.tv_tensors")
    return not tv_tensor and kind.__torch_function__ is not torch._C._disabled_torch_function_impl


def as_dict(fields: dict[str, Any]) -> dict[str, Any]:
    """The batch as plain values: a padded field `x` becomes `x` and `x_sizes`, also where `x` has several views."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Padded):
            flat[name], flat[f"{name}_sizes"] = value
        elif isinstance(value, dict) and any(isinstance(view, Padded) for view in value.values()):
            flat[name] = {key: view.data for key, view in value.items()}  # of views
            flat[f"{name}_sizes"] = {key: view.sizes for key, view in value.items()}
        elif type(value) is list and any(isinstance(view, Padded) for view in value):
            flat[name], flat[f"{name}_sizes"] = [view.data for view in value], [view.sizes for view in value]
        else:
            flat[name] = value
    return flat
