"""Makes columns of values that are in memory: labels, weights and whole datasets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .batch import Column, Held
from .kinds import AnyKind, Boxes, Image, Kind, Points, tell
from .signature import NUMERIC, check_arrays, is_number

_MOST_CHANNELS = 4  # of an array that is surely [H, W, C]


def columns_of(table: Any) -> dict[str, Any] | None:
    """Give the columns of a dict, or of a table of pandas, polars, pyarrow or Hugging Face, or of a structured array.

    None: it is none of these.
    """
    if isinstance(table, Mapping):
        return dict(table)
    names = table.dtype.names if isinstance(table, np.ndarray) else getattr(table, "column_names", None)
    if names is None and not isinstance(table, (np.ndarray, torch.Tensor)):
        names = getattr(table, "columns", None)
    if names is None or not hasattr(table, "__getitem__") or callable(names):
        return None
    return {str(name): table[name] for name in names}


def as_column(name: str, values: Any) -> tuple[Column, Held]:
    """Make a column of one value per sample, and tell its kind: numbers, arrays or objects.

    Raises:
        TypeError: the values have no order, or are a string.
        FieldTypeError: arrays that differ in dtype or number of dimensions, which DALI would convert silently.
    """
    if isinstance(values, torch.Tensor):
        values = _on_host(values)
    elif not isinstance(values, (np.ndarray, list, tuple)) and hasattr(values, "__array__"):
        # Of pandas, polars, pyarrow, xarray, h5py or zarr: at once, and not one by one.
        array = np.asarray(values)
        values = array if array.dtype.kind in NUMERIC and array.ndim else values
    if isinstance(values, (str, bytes, Mapping, Set)) or not isinstance(values, Iterable):
        raise TypeError(f"{name!r} must be a list or an array of one value per sample, got {type(values).__name__}")
    if isinstance(values, np.ndarray) and values.dtype.kind in NUMERIC:
        return native(values), "number" if values.ndim == 1 else "array"
    column = [_on_host(value) if isinstance(value, torch.Tensor) else value for value in values]
    if all(is_number(value) for value in column):
        numbers = native(np.asarray(column))
        return (numbers, "number") if numbers.dtype.kind in NUMERIC else (column, "object")
    if all(isinstance(value, np.ndarray) and value.dtype.kind in NUMERIC for value in column):
        check_arrays(name, column)
        return [np.ascontiguousarray(native(value)) for value in column], "array"
    return column, "object"


def as_rows(array: NDArray[Any], kind: Image, tensor: bool) -> NDArray[Any]:
    """Give images whose kind the user tells as rows of pixels: a view [..., H, W, C] of one image, or of several.

    Args:
        array: [H, W], [H, W, C] or [C, H, W]; or several of them.
        kind: its `layout` says where channels are.
        tensor: they were tensors, which are [C, H, W] unless the kind says otherwise.

    Raises:
        ValueError: they look like [C, H, W], and the kind does not say it.
    """
    first = tensor if kind.layout is None else kind.layout == "CHW"
    if kind.layout is None and not tensor and array.shape[-3] in (1, 3) and array.shape[-1] > _MOST_CHANNELS:
        shape = list(array.shape[-3:])
        raise ValueError(f"an array of an image is [H, W, C], got {shape}: write kinds.Image(layout='CHW')")
    return np.moveaxis(array, -3, -1) if first else array


def told_column(name: str, column: Column, held: Held, told: AnyKind, tensors: bool = False) -> tuple[Column, Kind]:
    """Give a column of a kind that the user tells, and that kind.

    Args:
        name: the column's name, for messages.
        column: its values.
        held: how it holds them.
        told: the kind.
        tensors: they were tensors, so images are [C, H, W].

    Raises:
        ValueError: its values can't be of this kind.
        FieldTypeError: lists of numbers that differ in dtype or number of dimensions.
    """
    kind = tell(told, held)
    if kind.held == held or (held in ("image", "encoded") and kind.held == "array"):
        return column, kind
    if held == "array" and isinstance(kind, Image) and np.ndim(column[0]) in (2, 3) and column[0].dtype.kind in "uif":
        return pictures(column, kind, tensors), kind
    if held == "encoded" and kind.held == "object":
        return [value.tobytes() for value in column], kind
    if held == "object" and kind.held == "array" and all(isinstance(value, (list, tuple)) for value in column):
        arrays = [np.asarray(value) for value in column]
        if isinstance(kind, (Boxes, Points)):  # an empty list has no shape
            end = next((array.shape[1:] for array in arrays if array.size), (4 if isinstance(kind, Boxes) else 2,))
            return [array.astype(np.float32).reshape(-1, *end) for array in arrays], kind
        check_arrays(name, arrays)
        return arrays, kind
    raise ValueError(
        f"kinds must fit the values, got {str(kind)!r} for {name!r}, which holds {type(column[0]).__name__}"
    )


def pictures(column: Column, kind: Image, tensors: bool = False) -> Column:
    """Give images whose kind the user tells as [H, W, C] each.

    Args:
        column: [H, W] of grey ones, [H, W, C] or [C, H, W].
        kind, tensors: see `as_rows`.

    Raises:
        ValueError: they look like [C, H, W], and the kind does not say it.
    """
    if isinstance(column, np.ndarray):
        return np.ascontiguousarray(column[..., None] if column.ndim == 3 else as_rows(column, kind, tensors))
    grey = np.ndim(column[0]) == 2
    return [np.ascontiguousarray(row[..., None] if grey else as_rows(row, kind, tensors)) for row in column]


def native(array: NDArray[Any]) -> NDArray[Any]:
    """Give an array in this machine's byte order, the only one that torch and DALI take.

    Files of astronomy, medicine and the weather (FITS, DICOM, netCDF 3) hold the other one.

    Raises:
        TypeError: it is of numpy's long doubles, which torch has no dtype for.
    """
    if array.dtype.char in "gG":
        plain = "float64" if array.dtype.kind == "f" else "complex128"
        raise TypeError(
            f"arrays must have a dtype that torch has, got {array.dtype} {list(array.shape)}: write .astype({plain!r})"
        )
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _on_host(tensor: torch.Tensor) -> NDArray[Any]:
    array: NDArray[Any] = tensor.detach().cpu().numpy()
    return array


def writable(column: Column) -> Column:
    """Give a column of arrays in memory that can be written, each in one piece.

    DALI copies what can't be written, and slowly, one by one; it refuses what isn't in one piece, as a flipped mask.
    """
    if isinstance(column, np.ndarray):
        return column if column.flags.writeable else column.copy()
    return [value if _plain(value) else value.copy() for value in column]


def _plain(value: Any) -> bool:
    return not isinstance(value, np.ndarray) or (value.flags.writeable and value.flags.c_contiguous)


def same_shape(column: Column, kind: Held) -> bool:
    """Tell whether all values of a column have one shape; image files have none before they are decoded."""
    if isinstance(column, np.ndarray):
        return True
    return kind in ("image", "array") and len({value.shape for value in column}) == 1
