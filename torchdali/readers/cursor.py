"""A native reader at one row of its shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch

from .. import _dali
from ..batch import Column
from ..errors import ReaderError, first_line, let_through


class MakeReader(Protocol):
    """Makes a reader of dynamic mode that begins after `age` rows of its shard and gives `rows` rows at a time."""

    def __call__(self, age: int, rows: int) -> Any: ...


class Cursor:
    """Reads a shard from some row on, any number of rows at a time.

    A native reader gives batches of one size only, so rows that were not asked for yet wait here.  The first read makes
    the reader, in the reading thread.

    Args:
        make: makes the reader.
        context: DALI's context of this thread.
        device: the loader's device; outputs on a GPU are copied to torch's memory there.
        size: the number of rows in the shard.
        age: the number of rows to leave out.
        rows: the number of rows to read at a time.
    """

    def __init__(self, make: MakeReader, context: Any, device: torch.device, size: int, age: int, rows: int) -> None:
        self._make, self._context, self._device = make, context, device
        self._size, self._rows = size, rows
        self.age = age
        self._reader: Any = None
        self._waiting: list[Column] = []  # by output

    def read(self, n: int) -> list[Column]:
        """Read the next n rows, by output.

        Raises:
            ReaderError: DALI's reader failed, with its reason.
        """
        assert self.age + n <= self._size
        parts: list[list[Column]] = []
        missing = n
        while missing:
            waiting = self._waiting or self._next()
            parts.append([values[:missing] for values in waiting])
            self._waiting = [values[missing:] for values in waiting] if len(waiting[0]) > missing else []
            missing -= len(parts[-1][0])
        self.age += n
        return parts[0] if len(parts) == 1 else [_join(values) for values in zip(*parts, strict=True)]

    def _next(self) -> list[Column]:
        try:
            with self._context, _dali.dynamic().EvalMode.sync_cpu:
                if self._reader is None:
                    self._reader = self._make(self.age, self._rows)
                outputs = self._reader(batch_size=self._rows)
                return [self._values(_dali.Output(batch)) for batch in _in_order(outputs)]
        except ReaderError:
            raise
        except Exception as error:
            let_through(error)
            raise ReaderError(_reason(error)) from error

    def _values(self, output: _dali.Output) -> Column:
        if output.on_device:
            return [view.clone() for view in output.on_gpu(self._device)]
        return output.copied()


def _in_order(outputs: Any) -> Sequence[Any]:
    """List the outputs in order: a reader gives a tuple of batches, a dict, or a single batch."""
    if isinstance(outputs, dict):
        return list(outputs.values())
    return outputs if isinstance(outputs, (tuple, list)) else [outputs]


def _join(parts: Sequence[Any]) -> Column:
    if all(isinstance(part, np.ndarray) for part in parts) and len({part.shape[1:] for part in parts}) == 1:
        return np.concatenate(parts)
    return [value for part in parts for value in part]


def _reason(error: BaseException) -> str:
    """Extract DALI's own sentence; dynamic mode puts a general one before it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)
