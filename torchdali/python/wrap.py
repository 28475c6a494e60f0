"""Any dataset as a source."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch.utils.data import IterableDataset

from ..datasets import as_columns
from ..source import Source
from .iterable import IterableSource
from .mapped import PythonDataset

_TABLES = frozenset([("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "Table")])


def _as_table(dataset: Any) -> str | None:
    """Say what to write for a table whose rows have no index, or an archive of columns."""
    kind = type(dataset)
    if (kind.__module__.partition(".")[0], kind.__name__) in _TABLES:
        return "torchdali.InMemoryDataset(table)"
    if kind.__module__.startswith(("h5py.", "xarray.")) and kind.__name__ in ("File", "Group", "Dataset"):
        return None if hasattr(dataset, "dtype") else "torchdali.InMemoryDataset({name: data[name] for name in [...]})"
    if kind.__module__.startswith("numpy.") and kind.__name__ == "NpzFile":
        return "torchdali.NumpyDataset(dict(data))"
    return None


def as_source(dataset: Any) -> Source:
    """Return the source that reads a dataset.

    Raises:
        TypeError: nothing can be read from it.
    """
    dataset = as_columns(dataset)
    if isinstance(dataset, type):
        raise TypeError(f"dataset must be an object, got the class: write {dataset.__name__}(...)")
    if isinstance(dataset, Source):
        return dataset
    if isinstance(dataset, IterableDataset):
        return IterableSource(dataset)
    table = _as_table(dataset)
    if table is not None:
        raise TypeError(
            f"dataset must give its samples by index, and {type(dataset).__name__} gives its columns: write {table}"
        )
    if hasattr(dataset, "__getitem__") and not isinstance(dataset, (str, bytes)):
        return PythonDataset(dataset)
    if hasattr(dataset, "next_epoch"):  # of DALI's dynamic mode
        name = type(dataset).__name__
        raise TypeError(
            f"dataset must be one of torchdali.readers, got DALI's reader {name}: write torchdali.readers.{name}(...) "
            "with the same arguments, and the loader iterates its epochs"
        )
    if callable(dataset) or (isinstance(dataset, Iterable) and not isinstance(dataset, (str, bytes))):
        raise TypeError(
            f"dataset must have samples by index, or be an IterableDataset, got {type(dataset).__name__}: write "
            "torchdali.IterableSource(f), where each call of f, such as a generator function, gives a new iterator"
        )
    raise TypeError(
        f"dataset must have samples by index, or be an IterableDataset, got {type(dataset).__name__}: write "
        "ImageFolder(root), FileDataset(paths, labels), a dataset of torch, or one of torchdali.readers"
    )
