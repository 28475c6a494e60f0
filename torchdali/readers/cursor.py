"""A native reader at one row of its shard."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

import numpy as np

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
        session: in which DALI reads; what comes on a GPU is copied to torch's memory before its end.
        size: rows of the shard.
        age: rows to leave out.
        rows: to read at a time.
        numbers: the outputs, by their place, that hold one number per sample: they come to the host.
    """

    def __init__(
        self,
        make: MakeReader,
        session: _dali.Session,
        size: int,
        age: int,
        rows: int,
        numbers: Collection[int] = (),
    ) -> None:
        self._make, self._session, self._numbers = make, session, numbers
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
            with self._session:
                if self._reader is None:
                    self._reader = self._make(self.age, self._rows)
                outputs = _in_order(self._reader(batch_size=self._rows))
                columns = [self._values(_dali.Output(batch), i in self._numbers) for i, batch in enumerate(outputs)]
            return columns  # complete now, and DALI's memory is idle when `outputs` goes
        except ReaderError:
            raise
        except Exception as error:
            let_through(error)
            raise ReaderError(_reason(error)) from error

    def _values(self, output: _dali.Output, number: bool) -> Column:
        if not output.on_device:
            return output.copied()
        if number and output.uniform():
            return output.on_host()
        return list(output.owned())


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
