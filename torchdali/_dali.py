"""The only importer of `nvidia.dali`: versions, the two ops namespaces, contexts, and the way in and out of DALI.

Importing DALI's dynamic mode costs a second and asks for the GPUs, so everything here waits for its first use.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import math
import os
import re
import sys
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from numbers import Integral
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

OLDEST = (2, 4)
_used_by: list[int] = []  # the process that imported dynamic mode


@functools.cache
def dynamic() -> ModuleType:
    """`nvidia.dali.experimental.dynamic`, after a check of its version.

    Raises:
        ImportError: no DALI, or one that is too old.
    """
    try:
        import nvidia.dali as dali
    except ImportError as error:
        raise ImportError(
            "torchdali needs NVIDIA DALI: pip install nvidia-dali-cuda120 (or nvidia-dali-cuda130)"
        ) from error
    found = tuple(int(part) for part in re.findall(r"\d+", dali.__version__)[:2])
    if found < OLDEST:
        raise ImportError(f"torchdali needs DALI {'.'.join(map(str, OLDEST))} or newer, found {dali.__version__}")
    import nvidia.dali.experimental.dynamic as ndd

    _used_by.append(os.getpid())
    os.register_at_fork(after_in_child=_refuse_in_child)
    _refuse_selections(ndd)
    return ndd


def _refuse_selections(ndd: ModuleType) -> None:
    """In DALI 2.4.0, `batch.select(list)` and what `tensors[list]` gives hold all samples: let them raise instead."""

    def guard(cls: Any, what: str) -> None:
        select = cls.select

        @functools.wraps(select)
        def guarded(self: Any, selection: Any) -> Any:
            every = selection is ... or (isinstance(selection, slice) and selection == slice(None))
            if every or isinstance(selection, Integral):
                return select(self, selection)
            raise TypeError(
                f"{what} gives all samples unchanged in DALI {'.'.join(map(str, OLDEST))}, whatever is selected: write "
                "ndd.as_batch([batch.tensors[i] for i in order]), with Python's integers in `order`"
            )

        cls.select = guarded

    guard(ndd.Batch, "batch.select")
    tensors = getattr(sys.modules[ndd.Batch.__module__], "_TensorList", None)
    if tensors is not None:
        guard(tensors, "batch.tensors[...]")


def _refuse_in_child() -> None:
    """In a forked process every operator would wait for threads that did not come along: let it raise instead."""

    def current() -> Any:
        check_process()

    dynamic().EvalContext.current = staticmethod(current)
    gc.freeze()  # DALI's objects abort the process if they are destroyed here
    pipelines = sys.modules.get("nvidia.dali.pipeline")
    if pipelines is not None:
        pipelines.Pipeline._pipes.clear()  # at the exit DALI would wait for their threads


def check_process() -> None:
    """Raise in a process that was forked after DALI was used: its threads did not come along, and it would hang.

    Raises:
        RuntimeError: it was.
    """
    if _used_by and _used_by[0] != os.getpid():
        raise RuntimeError(
            f"this process was forked from {_used_by[0]} after DALI was used there, and DALI's threads did not come "
            "along: start it with spawn or forkserver, or use the loader only after the fork"
        )


class Ops:
    """DALI's operators by their names, the same for both executions: `ops.resize(image, size=...)`.

    `DynamicOps` runs them at once on batches, `TracedOps` puts them into a pipeline.  The few words that differ between
    DALI's dynamic mode and its pipeline functions are methods here.
    """

    def __init__(self, module: ModuleType, device: str, decoder_device: str) -> None:
        self._module = module
        self.device = device  # "cpu" or "gpu"
        self.decoder_device = decoder_device
        self.frames = False  # what is transformed are clips [F, H, W, C], not images
        self.alone = False  # no other rank is on this machine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def interpolation(self, name: str) -> Any:
        """DALI's constant for torch's "nearest", "nearest-exact", "bilinear" or "bicubic"."""
        from nvidia.dali import types

        return {"bilinear": types.INTERP_LINEAR, "bicubic": types.INTERP_CUBIC}.get(name, types.INTERP_NN)

    def beside(self, value: Any) -> Any:
        """Numbers of each sample, for arithmetic with images: DALI does not mix a GPU's batches with the CPU's."""
        return value.gpu() if self.device == "gpu" and hasattr(value, "gpu") else value

    @property
    def decoding(self) -> dict[str, Any]:
        """Arguments of image decoders.

        On a GPU, DALI ties a decoder's threads to the first CPU cores, each process to the same ones.
        """
        tied = {} if self.device == "cpu" else {"affine": self.alone}
        return {"device": self.decoder_device, **tied}

    def as_dtype(self, dtype: torch.dtype) -> Any:
        """DALI's word for a torch dtype."""
        raise NotImplementedError

    def dtype_of(self, data: Any) -> torch.dtype:
        """The element type of a value."""
        raise NotImplementedError

    def channels_of(self, data: Any) -> int:
        """The size of the last dimension, the same for all samples."""
        raise NotImplementedError

    def matrix(self, rows: Sequence[Sequence[float]]) -> Any:
        """A matrix, the same for all samples, as an argument such as `M` of `coord_transform`."""
        raise NotImplementedError


class DynamicOps(Ops):
    """Operators that run when they are called."""

    def __init__(self, device: str) -> None:
        super().__init__(dynamic(), device, device)
        self.seen: list[torch.dtype | int] = []  # every answer of dtype_of and channels_of, for a trace of this code

    def as_dtype(self, dtype: torch.dtype) -> Any:
        return getattr(self._module, str(dtype).removeprefix("torch."))

    def dtype_of(self, data: Any) -> torch.dtype:
        self.seen.append(dtype := torch_dtype(str(data.dtype)))
        return dtype

    def channels_of(self, data: Any) -> int:
        found = {shape[-1] for shape in shapes(data)}
        if len(found) > 1:
            raise ValueError(f"the images of a batch must have one number of channels, got {sorted(found)}")
        self.seen.append(channels := found.pop())
        return channels

    def matrix(self, rows: Sequence[Sequence[float]]) -> Any:
        return [list(row) for row in rows]


class TracedOps(Ops):
    """Operators that become nodes of a pipeline; types and channels are those that an eager run has seen."""

    def __init__(self, device: str, seen: Sequence[torch.dtype | int]) -> None:
        from nvidia.dali import fn

        super().__init__(fn, device, "mixed" if device == "gpu" else "cpu")
        self._seen = iter(seen)

    @property
    def math(self) -> ModuleType:
        import nvidia.dali.math as math

        module: ModuleType = math
        return module

    def as_dtype(self, dtype: torch.dtype) -> Any:
        return getattr(dynamic(), str(dtype).removeprefix("torch.")).type_id

    def dtype_of(self, data: Any) -> torch.dtype:
        dtype = next(self._seen)
        assert isinstance(dtype, torch.dtype)
        return dtype

    def channels_of(self, data: Any) -> int:
        channels = next(self._seen)
        assert isinstance(channels, int)
        return channels

    def matrix(self, rows: Sequence[Sequence[float]]) -> Any:
        return [number for row in rows for number in row]


_KINDS = {"u": "uint", "i": "int", "f": "float", "b": "bool"}


def torch_dtype(name: str) -> torch.dtype:
    """torch's dtype for DALI's short name, such as "u8", "f32" or "bool".

    Raises:
        TypeError: torch has none.
    """
    kind, bits = name[0], name[1:]
    full = "bool" if name == "bool" else "bfloat16" if name == "bf16" else f"{_KINDS.get(kind, '?')}{bits}"
    dtype = getattr(torch, full, None)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"torch has no counterpart of DALI's type {name}")
    return dtype


def tfrecord_feature(kind: str, shape: Sequence[int | None]) -> Any:
    """DALI's description of a feature of tf.train.Example.

    Args:
        kind: "bytes", "int" or "float".
        shape: of its values; None at its start: any number.
    """
    from nvidia.dali import tfrecord

    dtype = {"bytes": tfrecord.string, "int": tfrecord.int64, "float": tfrecord.float32}[kind]
    default: Any = {"bytes": "", "int": 0, "float": 0.0}[kind]
    sizes: list[Any] = list(shape)
    if None not in sizes:
        return tfrecord.FixedLenFeature(sizes, dtype, default)
    return tfrecord.VarLenFeature(sizes[1:], dtype, default) if sizes[1:] else tfrecord.VarLenFeature(dtype, default)


def as_batch(values: Sequence[Any] | NDArray[Any], layout: str = "") -> Any:
    """One batch of dynamic mode from one value a sample."""
    ndd = dynamic()
    if isinstance(values, np.ndarray):
        values = np.ascontiguousarray(values)  # DALI takes nothing else
    return ndd.as_batch(values, layout=layout) if layout else ndd.as_batch(values)


def joined(parts: Sequence[tuple[Sequence[int], Any]]) -> Any:
    """One batch of the samples of several, without a copy.

    Not by `batch.tensors`: a batch and its tensors hold each other, so a GPU's memory would wait for Python's garbage
    collection.

    Args:
        parts: batches, and the row of each of their samples in the result.
    """
    samples: dict[int, Any] = {}
    kind, layout = None, ""
    for rows, batch in parts:
        output = Output(batch)
        kind, layout = type(output.storage), output.layout
        samples |= {row: output.storage[i] for i, row in enumerate(rows)}
    assert kind is not None
    return dynamic().as_batch(kind([samples[row] for row in range(len(samples))], layout, contiguous=False))


def shapes(batch: Any) -> list[tuple[int, ...]]:
    """Each sample's shape; known on the host once the operator was launched."""
    return [tuple(shape) for shape in batch.shape]


class Output:
    """A computed output of DALI, of dynamic mode or of a pipeline, on the CPU or a GPU.

    The memory is DALI's, and lives as long as this object and the views that were made of it.
    """

    def __init__(self, output: Any) -> None:
        if hasattr(output, "evaluate"):
            output = output.evaluate()
            # The storage of a batch that only wraps arrays is made on demand.
            self.storage = output._storage if output._storage is not None else output.slice[:]._storage
        else:
            self.storage = output
        self.layout: str = self.storage.layout()

    def __len__(self) -> int:
        return len(self.storage)

    @property
    def on_device(self) -> bool:
        """On a GPU."""
        return "GPU" in type(self.storage).__name__

    def shapes(self) -> list[tuple[int, ...]]:
        return [tuple(shape) for shape in self.storage.shape()]

    def uniform(self) -> bool:
        return bool(self.storage.is_dense_tensor())

    def arrays(self) -> list[NDArray[Any]]:
        """Views of DALI's host memory, one array per sample."""
        return [np.asarray(self.storage[i]) for i in range(len(self.storage))]

    def as_arrays(self) -> list[NDArray[Any]]:
        """Give the samples on the host: views of host memory, or copies of a GPU's within a session."""
        return [tensor.cpu().numpy() for tensor in self.tensors()] if self.on_device else self.arrays()

    def tensors(self) -> torch.Tensor | list[torch.Tensor]:
        """Give views of DALI's memory: one tensor where the samples are uniform, else one per sample.

        On a GPU by `__cuda_array_interface__`, which neither waits nor synchronises: valid on DALI's own stream only,
        and so within a session only.  Never by DLPack: its deleter synchronises the whole device.
        """
        if not self.on_device:
            if self.uniform():
                return torch.from_numpy(np.asarray(self.storage.as_tensor()))
            return [torch.from_numpy(array) for array in self.arrays()]
        stream = getattr(_open_session, "stream", None)
        assert stream is not None, "DALI's GPU memory is looked at outside of a session"
        if self.uniform():
            return torch.as_tensor(self.storage.as_tensor(), device=stream.device)
        return [torch.as_tensor(self.storage[i], device=stream.device) for i in range(len(self.storage))]

    def copied(self) -> NDArray[Any] | list[NDArray[Any]]:
        """Copies in host memory: one array where the samples are uniform, else one per sample, side by side."""
        shapes = self.shapes()
        flat_already = len(shapes[0]) == 1
        sizes = [shape[0] for shape in shapes] if flat_already else [math.prod(shape) for shape in shapes]
        flat = np.empty(sum(sizes), np.asarray(self.storage[0]).dtype)
        # One call for all; `storage[i]` takes longer for each sample than copying it.
        self.storage.copy_to_external(ctypes.c_void_p(flat.ctypes.data))
        if len(set(shapes)) == 1:
            return flat.reshape(len(shapes), *shapes[0])
        ends = np.cumsum(sizes).tolist()
        parts = [flat[end - size : end] for end, size in zip(ends, sizes)]
        if not flat_already:
            parts = [part.reshape(shape) for part, shape in zip(parts, shapes)]
        return parts

    def owned(self) -> torch.Tensor | list[torch.Tensor]:
        """Copy DALI's GPU memory to torch's, within a session."""
        views = self.tensors()
        return [view.clone() for view in views] if isinstance(views, list) else views.clone()

    def on_host(self) -> NDArray[Any]:
        """Copy uniform samples from a GPU, within a session: the array is complete after it, and not before."""
        views = self.tensors()
        assert isinstance(views, torch.Tensor)
        pinned = torch.empty(views.shape, dtype=views.dtype, pin_memory=True)  # else each copy would be waited for
        array: NDArray[Any] = pinned.copy_(views, non_blocking=True).numpy()
        return array


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


_free_streams: dict[torch.device, list[torch.cuda.Stream]] = {}


def lease_stream(owner: object, device: torch.device) -> torch.cuda.Stream | None:
    """Lease a CUDA stream for as long as `owner` lives; None on the CPU.

    Leased again and again, and not made for each pass: PyTorch has 32 streams and then hands out the same ones, also to
    the training, and its allocator keeps memory for each.
    """
    if device.type == "cpu":
        return None
    free = _free_streams.setdefault(device, [])
    try:
        stream = free.pop()  # atomic: passes may begin in several threads
    except IndexError:
        stream = _new_stream(device)
    weakref.finalize(owner, free.append, stream).atexit = False
    return stream


def _new_stream(device: torch.device) -> torch.cuda.Stream:
    stream: torch.cuda.Stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    return stream


def on_device(device: torch.device) -> Any:
    """Make a GPU the thread's current one in a block; nothing for the CPU."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def stay_on_device(device: torch.device) -> None:
    """Make a GPU this thread's current one for good.

    A new thread stands at GPU 0, and DALI goes back to where it found the thread, which makes a CUDA context there.
    """
    if device.type == "cuda":
        torch.cuda.set_device(device)


class Session:
    """Eager operators run in its blocks, `with session: ...`, in one thread at a time.

    It has one context for its whole life, and on a GPU one stream, which is PyTorch's current one and DALI's in a
    block.  At a block's end, in an error too, the stream is waited for on the host: DALI's memory is idle before the
    next decode may write to it, and what was copied out is complete on whatever stream it will be used.  A stream that
    others use is waited for at a block's begin too: their operators may have left memory that it still uses.

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
        modes = dynamic().EvalMode
        self.device = device
        self.stream, self._shared = stream or lease_stream(self, device), stream is not None
        self._context = _context(num_threads, device, self.stream)
        self._mode = modes.sync_full if sync else modes.sync_cpu
        self._block = ExitStack()
        self._failed = False

    def __enter__(self) -> None:
        with ExitStack() as block:
            block.enter_context(_without_gpu() if self.stream is None else _both_streams(self.stream))
            block.enter_context(self._context)
            block.enter_context(self._mode)
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


def pipeline_mode() -> tuple[Any, Any]:
    """DALI's `fn` and `types`, for comparisons with its pipelines as users write them."""
    from nvidia.dali import fn, types

    return fn, types


def pipeline(batch_size: int, num_threads: int, device: torch.device) -> Any:
    """An empty pipeline with the dynamic executor, whose outputs are never recycled."""
    from nvidia.dali import Pipeline

    return Pipeline(
        batch_size=batch_size,
        num_threads=num_threads,
        device_id=None if device.type == "cpu" else device.index,
        prefetch_queue_depth=2,
        exec_dynamic=True,
    )


def external_source(source: Any, layouts: list[str], device: torch.device) -> list[Any]:
    """Nodes of a pipeline that are fed by `source()`: one list or array for each layout.

    On the CPU the data is not copied: the source keeps it until the outputs are there.
    """
    from nvidia.dali import fn

    no_copy = device.type == "cpu"
    return list(fn.external_source(source, num_outputs=len(layouts), layout=layouts, batch=True, no_copy=no_copy))
