"""Packets between the pool and a worker.

A message is one packet, which arrives whole or not at all: no side waits for the rest when the other one dies.  Large
messages travel in shared memory, and so do results (`slots`).
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

from .memory import allocate

_LARGEST = 1 << 14  # bytes in a packet: many of them fit into a socket's buffer
_MOST_FDS = 253  # in a packet, by the kernel
_INLINE, _BESIDE = b"i", b"b"


class Codec(NamedTuple):
    """A pickler's two functions; they pickle by reference."""

    dumps: Callable[[Any], bytes]
    loads: Callable[[bytes], Any]


def codec_of(pickler: Any) -> Codec:
    """Give the codec of a user's pickler: a module, or (module, keywords of dumps, keywords of loads).

    Raises:
        TypeError: it is neither.
    """
    module, dumps, loads = pickler if isinstance(pickler, tuple) and len(pickler) == 3 else (pickler, {}, {})
    if not all(callable(getattr(module, name, None)) for name in ("dumps", "loads")) or not (
        isinstance(dumps, Mapping) and isinstance(loads, Mapping)
    ):
        raise TypeError(
            "pickler must be a module with dumps and loads, or (module, keywords of dumps, keywords of loads), "
            f"got {pickler!r:.80}"
        )
    return Codec(
        partial(module.dumps, **dumps) if dumps else module.dumps,
        partial(module.loads, **loads) if loads else module.loads,
    )


@cache
def default_codec() -> Codec:
    """Give cloudpickle's."""
    import cloudpickle

    return Codec(cloudpickle.dumps, cloudpickle.loads)


class Foreign:
    """A value that is pickled by a codec; unpickled, it is the value itself."""

    def __init__(self, loads: Callable[[bytes], Any], data: bytes) -> None:
        self._reduced = loads, (data,)

    @classmethod
    def of(cls, value: Any, codec: Codec) -> Foreign:
        return cls(codec.loads, codec.dumps(value))

    def __reduce__(self) -> tuple[Callable[[bytes], Any], tuple[bytes]]:
        return self._reduced


class Packet:
    """A message on its way; `send` it, then `close` it.

    Args:
        message: anything that pickles.
        fds: file descriptors to go along; the packet closes those in `owned`.
    """

    def __init__(self, message: object, fds: Sequence[int] = (), owned: Sequence[int] = ()) -> None:
        data = pickle.dumps(message, 5)
        self._fds, self._owned = [*fds, *owned], list(owned)
        if len(data) > _LARGEST:
            fd = _memory_of(data)
            self._fds.append(fd)
            self._owned.append(fd)
            data = b""
        self._data = (_INLINE + data) if data else _BESIDE

    def send(self, sock: socket.socket) -> None:
        """Send the message; errors of the socket rise."""
        socket.send_fds(sock, [self._data], self._fds)

    def close(self) -> None:
        """Close the file descriptors that were only for the receiver."""
        while self._owned:
            os.close(self._owned.pop())


def _memory_of(data: bytes) -> int:
    fd = allocate("torchdali-message", len(data))
    with mmap.mmap(fd, 0) as memory:
        memory[:] = data
    return fd


def receive(sock: socket.socket) -> tuple[Any, list[int]]:
    """Receive a message and the file descriptors that came with it, which are the caller's.

    Raises:
        EOFError: the other side is gone.
        BlockingIOError: there is none now, on a socket that does not block.
    """
    try:
        data, fds, _, _ = socket.recv_fds(sock, _LARGEST + 1, _MOST_FDS, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError as error:
        raise EOFError from error
    if not data:
        raise EOFError
    if data[:1] == _INLINE:
        return pickle.loads(memoryview(data)[1:]), fds
    fd = fds.pop()
    try:
        with mmap.mmap(fd, 0, access=mmap.ACCESS_READ) as memory:
            return pickle.loads(memory), fds
    finally:
        os.close(fd)
