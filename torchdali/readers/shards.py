"""The shards of a native reader: the order that they form, and a pass over them.

The order of an epoch over V shards takes one row of each in turn: position p is row p // V of shard p % V, up to the
rows that some shards have more than others, which come last.  Each of world_size ranks reads the positions of its rank
modulo world_size, which are whole shards wherever world_size divides V, but for these last rows.

In file order, the shards with one row more count first, so that the last rows are their readers' own.  With a window
of shuffling, the shards change their numbers from epoch to epoch, as a permutation of (seed, epoch) says, so that no
rank reads the same shard for ever; a rank may then take the last row of another one's shard.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import numpy as np
import torch

from .. import _dali
from ..batch import Column, Columns
from ..errors import ReaderError, leave_frame, let_through
from ..order import Epoch, Indices, Order, Rows, own_rows
from ..permutation import Permutation
from ..rand import Key, derive
from ..source import Pass, Reading
from ..state import Position
from .cursor import Cursor


class Sharded(Protocol):
    """The part of a native reader that a pass needs.

    Attributes:
        seed: the order's seed; None: the loader's.
        shuffle: "window": the shards change their ranks from epoch to epoch.
        name: the reader's name, for messages.
    """

    seed: int | None
    shuffle: Any

    @property
    def name(self) -> str: ...

    @property
    def where(self) -> str:
        """The reader's options, for messages."""
        ...

    def __len__(self) -> int: ...

    def num_shards(self, world_size: int) -> int:
        """Give the number of shards that the epoch is made of."""
        ...

    def rows_at_once(self, rows: int) -> int:
        """Give the number of rows to ask DALI for, where a batch takes `rows`."""
        ...

    def place(self, device: torch.device) -> torch.device:
        """Give where DALI reads for a loader on a device."""
        ...

    def numbers(self) -> Collection[int]:
        """Give the outputs, by their place, that hold one number per sample."""
        ...

    def make(self, shard: int, shards: int, generator: int, age: int, rows: int, device: torch.device) -> Any:
        """Make DALI's reader for one shard, after `age` rows of its epoch."""
        ...

    def columns(self, outputs: Sequence[Column]) -> Columns:
        """Make the columns of some rows from DALI's outputs."""
        ...


class ReaderOrder(Order):
    """The order of a native reader: positions of its epoch, which only the reader can turn into samples.

    Args:
        size: samples per epoch.
        name: gives the order's name for a number of ranks.
    """

    strided = in_order = True

    def __init__(self, size: int, name: Callable[[int], str]) -> None:
        self._size, self._name = size, name

    def __len__(self) -> int:
        return self._size

    def epoch(self, seed: int, at: Position) -> Epoch:
        return Epoch(self._size, own_rows, self.strided)

    def fingerprint(self, seed: int = 0, world_size: int = 1) -> str:
        return self._name(world_size)


class ShardedReading(Reading):
    """Reads a native reader's rows for one pass.

    Args:
        reader: the reader.
        pass_: the pass.
    """

    def __init__(self, reader: Sharded, pass_: Pass) -> None:
        self._reader, self._pass = reader, pass_
        self._n = len(reader)
        self._shards = reader.num_shards(pass_.shard.world_size)
        seed = pass_.seed if reader.seed is None else reader.seed
        self._generator = 1 + derive(seed, Key.READER, pass_.key) % (2**31 - 2)
        self._order = shard_order(self._n, self._shards)
        if reader.shuffle == "window":
            key = derive(seed, Key.READER_SHARDS, pass_.key)
            self._order = Permutation(self._shards, key)(np.arange(self._shards))
        self._sizes = shard_sizes(self._n, self._shards)[self._order]
        self._last = last_rows(self._sizes)

    def stream(self, rows: Iterable[Rows]) -> Iterator[Columns | Exception]:
        with self._session() as session:
            yield from self._stream(rows, session)

    def _stream(self, rows: Iterable[Rows], session: _dali.Session) -> Iterator[Columns | Exception]:
        cursors: dict[int, Cursor] = {}
        # Each of the rank's shards gives its part of a batch.
        part = -(-self._pass.batch_size * self._pass.shard.world_size // self._shards)
        chunk = self._reader.rows_at_once(part)
        for indices, _ in rows:
            try:
                try:
                    columns = self._columns(indices, cursors, session, chunk)
                except ReaderError:
                    if chunk == part:
                        raise
                    # The fault may lie in rows after this batch.
                    cursors.clear()
                    chunk = part
                    columns = self._columns(indices, cursors, session, chunk)
            except Exception as error:
                let_through(error)
                cursors.clear()  # a reader is dead after an error
                yield leave_frame(self._explain(error, indices) if isinstance(error, ReaderError) else error)
                continue
            yield columns

    def read(self, rows: Rows) -> Columns:
        try:
            with self._session() as session:
                return self._columns(rows.indices, {}, session, 1)
        except ReaderError as error:
            raise self._explain(error, rows.indices) from error.__cause__

    def _columns(self, positions: Indices, cursors: dict[int, Cursor], session: _dali.Session, chunk: int) -> Columns:
        """Read the columns of some positions; cursors that stand elsewhere are made anew."""
        shards, ordinals = positions % self._shards, positions // self._shards
        last = ordinals == self._n // self._shards
        shards[last] = self._last[shards[last]]
        n = len(positions)
        if np.all(shards == shards[0]) and ordinals[-1] - ordinals[0] == n - 1:
            # By far the most common case: one shard, and the rows after those that were read last.
            cursor = self._at(int(shards[0]), int(ordinals[0]), cursors, session, chunk)
            return self._reader.columns(cursor.read(n))
        outputs: list[list[Any]] = []
        for shard in sorted(set(shards.tolist())):
            (mine,) = np.nonzero(shards == shard)
            # Repeated rows fill up a batch.
            wanted, back = np.unique(ordinals[mine], return_inverse=True)
            first, n = int(wanted[0]), int(wanted[-1] - wanted[0]) + 1
            got = self._at(shard, first, cursors, session, chunk).read(n)
            outputs = outputs or [[None] * len(positions) for _ in got]
            for output, values in zip(outputs, got, strict=True):
                for row, ordinal in zip(mine, wanted[back], strict=True):
                    output[row] = values[ordinal - first]
        return self._reader.columns([_stack(output) for output in outputs])

    def _at(self, shard: int, age: int, cursors: dict[int, Cursor], session: _dali.Session, chunk: int) -> Cursor:
        """Give the shard's cursor, made anew where it stands elsewhere."""
        cursor = cursors.get(shard)
        if cursor is None or cursor.age != age:
            cursor = cursors[shard] = self._cursor(shard, age, session, chunk)
        return cursor

    def _cursor(self, shard: int, age: int, session: _dali.Session, chunk: int) -> Cursor:
        pass_, number = self._pass, int(self._order[shard])

        def make(age: int, rows: int) -> Any:
            made = self._reader.make(number, self._shards, self._generator, age, rows, pass_.device)
            if (found := made.get_metadata()["epoch_size"]) != self._n:  # DALI reads folders and lists anew
                raise ReaderError(f"there are {found} samples now, and were {self._n} before: make the reader again")
            return made

        size = int(self._sizes[shard])
        return Cursor(make, session, size, age, min(chunk, max(size - age, 1)), self._reader.numbers())

    def _session(self) -> AbstractContextManager[_dali.Session]:
        """Lend the session in which DALI reads; the loader's shelf keeps it from one pass for the next."""
        pass_, place = self._pass, self._reader.place(self._pass.device)

        def make() -> _dali.Session:
            return _dali.Session(pass_.num_threads, place, stream=pass_.stream if place.type == "cuda" else None)

        return nullcontext(make()) if pass_.shelf is None else pass_.shelf.lend(f"reading on {place}", make)

    def _explain(self, error: ReaderError, positions: Indices) -> ReaderError:
        where = f"epoch {self._pass.epoch}, positions {positions[0]} to {positions[-1]}"
        explained = ReaderError(
            f"{self._reader.name} failed at {where}, or while it read ahead: {error} ({self._reader.where})"
        )
        explained.__cause__ = error.__cause__
        return explained


def shard_order(n: int, shards: int) -> Indices:
    """Give DALI's numbers of the shards in file order: those with one row more first."""
    return np.argsort(-shard_sizes(n, shards), kind="stable")


def shard_sizes(n: int, shards: int) -> Indices:
    """Count the rows of each shard: DALI gives shard s those from floor(s n / shards) to floor((s + 1) n / shards)."""
    return np.diff(np.arange(shards + 1, dtype=np.int64) * n // shards)


def last_rows(sizes: Indices) -> Indices:
    """Give the shards with one row more than others, in the order in which these rows come.

    At the place of its own number where that is possible: then its rank reads it on.
    """
    larger = np.flatnonzero(sizes > sizes.min())
    found = np.full(len(larger), -1, np.int64)
    own = larger[larger < len(larger)]
    found[own] = own
    found[found < 0] = larger[larger >= len(larger)]
    return found


def _stack(values: list[Any]) -> Column:
    same = len({(getattr(value, "shape", None), getattr(value, "dtype", None)) for value in values}) == 1
    return np.stack(values) if same and isinstance(values[0], np.ndarray) else values
