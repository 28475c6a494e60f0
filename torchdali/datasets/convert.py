"""The user's functions that turn a field's values into others, such as a string into token ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..batch import Column
from ..signature import Form, is_number, kind_of

Convert = Mapping[str, Callable[[Any], Any]]
"""Functions by field.  Each gets a value, runs in the threads that read, and gives a number, an array, or an object."""


@dataclass(frozen=True)
class Conversion:
    """A user's function of the values of a field.

    Args:
        field: the field.
        function: makes a value of a value.
        form: of its results; all have the first one's.
    """

    field: str
    function: Callable[[Any], Any]
    form: Form

    @classmethod
    def of(cls, field: str, function: Callable[[Any], Any], first: Any) -> Conversion:
        """Learn the form of the results from the first value."""
        result = _plain(function(first), None)
        kind = "array" if isinstance(result, np.ndarray) and result.ndim else kind_of(result)
        return cls(field, function, Form.of(kind, result))

    def __call__(self, values: Column) -> Column:
        """Convert a column.

        Raises:
            FieldTypeError: a result has another form than the first sample's.
            ValueError: the function raised an error.
        """
        results = [_plain(self._call(value), self.form.dtype) for value in values]
        for result in results:
            self.form.check(self.field, result)
        return np.array(results) if self.form.kind == "number" else results

    def _call(self, value: Any) -> Any:
        try:
            return self.function(value)
        except Exception as error:
            name = getattr(self.function, "__name__", self.function)
            raise ValueError(f"{name} of convert={{{self.field!r}: ...}}: {type(error).__name__}: {error}") from error


def _plain(value: Any, dtype: Any) -> Any:
    """Give tensors as arrays, and lists of numbers as torch does: integers as int64, others as float32."""
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) and all(is_number(one) for one in value):
        array = np.array(value, (dtype or np.int64) if len(value) == 0 else None)
        return array.astype(np.float32) if array.dtype == np.float64 else array
    return value
