"""Shared memory in which the answers of jobs travel.

A worker owns its slots.  It writes an answer into a free slot, or makes a new one where none is free or large enough,
and sends the file descriptor along.  The pool maps the slot, and says with a later task that it is free again.
"""

from __future__ import annotations

import io
import mmap
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ..batch import Columns, Objects
from .job import Answer
from .memory import allocate
from .protocol import Codec, Foreign

_ALIGN = 64  # bytes; a cache line, and what vector instructions like
_GRAIN = 1 << 16
_SMALL = 1 << 14  # bytes of an array that is copied once more rather than sent on its own


class Written(NamedTuple):
    """A slot with an answer in it.

    Attributes:
        slot: the slot's number.
        spans: the number of arrays.
        table: the offset of their (offset, size).
        stream: the offset and size of the pickled rest.
        replaced: a slot that was deleted for this one, or None.
    """

    slot: int
    spans: int
    table: int
    stream: tuple[int, int]
    replaced: int | None = None


class _Pickler(pickle.Pickler):
    """Takes arrays out of the stream, tensors as arrays, so that each is copied once."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, torch.Tensor):
            try:
                obj = _as_array(obj)
            except TypeError:  # bfloat16 and others that numpy has not
                return _by_bytes(obj)
        if type(obj) is np.ndarray and not obj.dtype.hasobject:
            return np.ascontiguousarray(obj).reshape(obj.shape).__reduce_ex__(5)
        return NotImplemented


class _OwnPickler(pickle.Pickler):
    """Leaves arrays in the stream, so that they own their memory when they come out."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is torch.Tensor:  # much cheaper than torch's own way
            try:
                return torch.from_numpy, (np.array(_as_array(obj)),)
            except TypeError:
                return _by_bytes(obj)
        return NotImplemented


def _by_bytes(tensor: torch.Tensor) -> Any:
    """Reduce a tensor of a dtype that numpy has not, if its values lie in memory as they are."""
    try:
        data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    except (RuntimeError, TypeError, NotImplementedError):  # sparse and quantized ones, as torch does it
        return NotImplemented
    return _of_bytes, (np.array(data), tensor.dtype, tuple(tensor.shape))


def _of_bytes(data: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.from_numpy(data).view(dtype).view(shape)


def _as_array(tensor: torch.Tensor) -> Any:
    return tensor.detach().cpu().resolve_conj().resolve_neg().numpy()


class _Own:
    """A value that owns its memory when it is unpickled: the caller keeps it, so it may hold no view of the slot."""

    def __init__(self, value: Any) -> None:
        stream = io.BytesIO()
        _OwnPickler(stream, 5).dump(value)
        self._data = stream.getvalue()

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return pickle.loads, (self._data,)


def _holds_arrays(column: Any) -> bool:
    """Whether a column is an array, or a list of arrays: those are copied when a batch is put together."""
    if isinstance(column, np.ndarray):
        return not column.dtype.hasobject
    return not isinstance(column, Objects) and all(
        isinstance(value, torch.Tensor) or (isinstance(value, np.ndarray) and not value.dtype.hasobject)
        for value in column
    )


def _together(column: Any) -> Any:
    """Make one array of small arrays of one form: it travels, and is put into a batch, at the cost of one."""
    if not isinstance(column, list) or len(column) < 2:
        return column
    first = column[0]
    if type(first) is not np.ndarray or not 0 < first.nbytes <= _SMALL:
        return column
    shape, dtype = first.shape, first.dtype
    one = all(type(value) is np.ndarray and value.dtype == dtype and value.shape == shape for value in column)
    return np.stack(column) if one else column


def _pickle(columns: Columns, note: Any = None) -> tuple[memoryview, list[memoryview]]:
    stream, buffers = io.BytesIO(), []  # type: ignore[var-annotated]
    whole = {name: _together(column) if _holds_arrays(column) else _Own(column) for name, column in columns.items()}
    _Pickler(stream, 5, buffer_callback=buffers.append).dump((whole, _Own(note)))
    return stream.getbuffer(), [buffer.raw() for buffer in buffers]


def _picklable(columns: Columns, codec: Codec) -> Columns:
    """Leave the values that plain pickle refuses to the pool's pickler."""
    out: Columns = {}
    for name, column in columns.items():
        try:
            _pickle({name: column})
            out[name] = column
        except Exception:
            out[name] = [_picklable_value(f"row {row} of {name!r}", value, codec) for row, value in enumerate(column)]
    return out


def _picklable_value(what: str, value: Any, codec: Codec) -> Any:
    try:
        _Own(value)
        return value
    except Exception:
        try:
            return Foreign.of(value, codec)
        except Exception as error:
            raise TypeError(
                f"values must be picklable to leave a worker process, and {what}, a {type(value).__name__}, "
                f"is not: {error}"
            ) from error


class Slots:
    """A worker's slots."""

    def __init__(self) -> None:
        self._memory: dict[int, mmap.mmap] = {}
        self._free: set[int] = set()
        self._next = 0

    def free(self, slots: Sequence[int]) -> None:
        """Note that slots may be written again."""
        self._free.update(slots)

    def write(self, columns: Columns, note: Any, codec: Codec) -> tuple[Written, list[int]]:
        """Write an answer into a slot.

        Returns:
            What the pool needs to read it, and the file descriptor of a new slot, to be sent along and closed.

        Raises:
            SharedMemoryError: there is too little memory.
            TypeError: a value can't be pickled.
        """
        try:
            stream, buffers = _pickle(columns, note)
        except Exception:
            stream, buffers = _pickle(_picklable(columns, codec), _picklable_value("the dataset's state", note, codec))
        spans, end = [], 0
        for buffer in buffers:
            spans.append((end, buffer.nbytes))
            end += -(-buffer.nbytes // _ALIGN) * _ALIGN
        table, stream_at = end, end + 16 * len(spans)
        size = stream_at + len(stream)
        slot, fds, replaced = self._take(size)
        view = memoryview(self._memory[slot])
        for (at, length), buffer in zip(spans, buffers, strict=True):
            view[at : at + length] = buffer
        view[table:stream_at] = np.array(spans, np.int64).tobytes()
        view[stream_at:size] = stream
        return Written(slot, len(spans), table, (stream_at, len(stream)), replaced), fds

    def _take(self, size: int) -> tuple[int, list[int], int | None]:
        fitting = [slot for slot in self._free if len(self._memory[slot]) >= size]
        if fitting:
            slot = min(fitting, key=lambda slot: len(self._memory[slot]))
            self._free.remove(slot)
            return slot, [], None
        replaced = max(self._free, key=lambda slot: len(self._memory[slot]), default=None)
        if replaced is not None:
            self._free.remove(replaced)
            del self._memory[replaced]
        # Some room, so that slots soon fit all.
        fd = allocate("torchdali-slot", -(-(size + size // 4) // _GRAIN) * _GRAIN)
        slot, self._next = self._next, self._next + 1
        self._memory[slot] = mmap.mmap(fd, 0)
        return slot, [fd], replaced


class MappedSlots:
    """A worker's slots, seen from the pool."""

    def __init__(self) -> None:
        self._memory: dict[int, mmap.mmap] = {}

    def map(self, written: Written, fds: Sequence[int]) -> None:
        """Map the slot that came along with an answer.  The memory lives as long as arrays in it."""
        if written.replaced is not None:
            self._memory.pop(written.replaced, None)
        for fd in fds:
            self._memory[written.slot] = mmap.mmap(fd, 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)

    def read(self, written: Written) -> Answer:
        """Read an answer; the arrays in its columns are views of the slot."""
        view = memoryview(self._memory[written.slot])
        table = np.frombuffer(view, np.int64, 2 * written.spans, written.table).reshape(-1, 2).tolist()
        at, size = written.stream
        return Answer(*pickle.loads(view[at : at + size], buffers=[view[a : a + n] for a, n in table]))
