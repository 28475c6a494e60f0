"""Batches that Python code makes whole, as samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def rows_of(batch: Any) -> list[Any]:
    """Take a batch apart into samples: it is one array or list of samples for each field.

    Raises:
        ValueError: its fields have different lengths, or none.
    """
    named = isinstance(batch, Mapping)
    columns = list(batch.values()) if named else list(batch) if isinstance(batch, tuple) else [batch]
    sizes = [len(column) for column in columns]
    if not sizes or len(set(sizes)) > 1 or not sizes[0]:
        raise ValueError(
            "a batch must hold one array or list of samples for each field, all of one length above 0, got lengths "
            f"{sizes}; to end the epoch, a callback raises StopIteration"
        )
    if named:
        return [dict(zip(batch, values, strict=True)) for values in zip(*columns, strict=True)]
    return list(zip(*columns, strict=True)) if isinstance(batch, tuple) else list(batch)
