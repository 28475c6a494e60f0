"""Sessions: blocks in which eager operators run, on a stream and a device of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from .importing import dynamic
from .streams import lease_stream, on_device


class Session:
    """Eager operators run in its blocks, `with session: ...`, in one thread at a time.

    It has one context for its whole life, made in its first block, and on a GPU one stream, which is PyTorch's current
    one and DALI's in a block.  At a block's end, in an error too, the stream is waited for on the host: DALI's memory
    is idle before the next decode may write to it, and what was copied out is complete on whatever stream it will be
    used.  A stream that others use is waited for at a block's begin too: their operators may have left memory that it
    still uses.

    Args:
        num_threads: of DALI's pool.
        device: where operators run.
        sync: evaluate each operator to its end before the next (for debugging).
        stream: a GPU's, which others use too; None: one of its own.

    Attributes:
        stream: the GPU's; None on the CPU.
    """

    MOST_OPERATORS = 512
    """The number of operators that a session may keep for another pass.

    DALI keeps each operator of a context, one for each value of an argument that is the same for a whole batch.
    """

    def __init__(
        self, num_threads: int, device: torch.device, sync: bool = False, stream: torch.cuda.Stream | None = None
    ) -> None:
        self.device = device
        self.stream, self._shared = stream or lease_stream(self, device), stream is not None
        self._num_threads, self._sync = num_threads, sync
        self._context: Any = None
        self._block = ExitStack()
        self._failed = False

    def __enter__(self) -> None:
        modes = dynamic().EvalMode
        if self._context is None:
            self._context = _context(self._num_threads, self.device, self.stream)
        with ExitStack() as block:
            block.enter_context(_without_gpu() if self.stream is None else _both_streams(self.stream))
            block.enter_context(self._context)
            block.enter_context(modes.sync_full if self._sync else modes.sync_cpu)
            if self.stream is not None:
                if self._shared:
                    self.stream.synchronize()
                block.enter_context(_waited_for(self.stream))
            self._block = block.pop_all()

    def __exit__(self, *exc_info: Any) -> None:
        self._failed = self._failed or exc_info[0] is not None
        self._block.__exit__(*exc_info)

    def rest(self) -> bool:
        """Keep the context with its decoders for another pass; False after an error in a block."""
        return not self._failed and len(getattr(self._context, "_instance_cache", ())) <= self.MOST_OPERATORS


def _context(num_threads: int, device: torch.device, stream: torch.cuda.Stream | None) -> Any:
    """Make an `EvalContext`; not to be shared between threads."""
    ndd = dynamic()
    if stream is None:
        with _without_gpu():  # by default DALI would make a stream on the current GPU
            return ndd.EvalContext(
                num_threads=num_threads, cuda_stream=ndd.EvalContext._default_context_stream_sentinel
            )
    with on_device(device):
        return ndd.EvalContext(num_threads=num_threads, device_id=device.index, cuda_stream=stream)


@contextmanager
def _without_gpu() -> Iterator[None]:
    """Run a block in which DALI touches no GPU.

    Where DALI leaves its CPU device, it makes the GPU that was current before current again, which makes a CUDA context
    there.  So a second CPU device lies below that one, and is taken away without leaving it.
    """
    device = dynamic().Device
    device("cpu").__enter__()
    try:
        yield
    finally:
        device._thread_local.devices.pop()


_open_session = threading.local()


def open_stream() -> torch.cuda.Stream | None:
    """Give the stream of the session whose block this thread is in; None: it is in none of a GPU's."""
    return getattr(_open_session, "stream", None)


@contextmanager
def _waited_for(stream: torch.cuda.Stream) -> Iterator[None]:
    _open_session.stream = stream
    try:
        yield
    finally:
        _open_session.stream = None
        stream.synchronize()


@contextmanager
def _both_streams(stream: torch.cuda.Stream) -> Iterator[None]:
    ndd = dynamic()
    with torch.cuda.device(stream.device), torch.cuda.stream(stream):
        # Not `get_current_stream`: where none was chosen, None is what has to be put back.
        before = ndd.EvalContext.default()._cuda_stream
        ndd.set_current_stream(stream)
        try:
            yield
        finally:
            ndd.set_current_stream(before)


@contextmanager
def default_rng(seed: int) -> Iterator[None]:
    """The thread's default random state of dynamic mode, set for a block and put back."""
    random = dynamic().random
    local = getattr(random, "_thread_local", None)
    if local is not None and not hasattr(local, "default_rng"):
        # DALI would make it from a draw of Python's global generator, which is the caller's.
        local.default_rng = random.RNG(seed=seed)
        try:
            yield
        finally:
            del local.default_rng
        return
    rng = random.get_default_rng()
    before = rng.get_state()
    random.set_seed(seed)
    try:
        yield
    finally:
        rng.set_state(before)
