"""Pickle what workers are set up with, as arguments of processes are: what can be shared is shared, and not copied.

Locks, queues and values of multiprocessing, and large tensors, are sent as file descriptors, beside the pickled rest.
So are large arrays, and other buffers: see `arrays`.
"""

from __future__ import annotations

import functools
import importlib
import io
import os
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Sequence
from multiprocessing import context, reduction
from types import MethodType, ModuleType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch.multiprocessing import reductions

from ..errors import let_through
from . import arrays
from .protocol import Codec

SHARED_FROM = 1 << 20  # bytes of a tensor's storage; smaller ones are copied
MOST_TENSORS = 100  # that are shared: the system sends about 250 descriptors at a time
_OWN_WAYS: tuple[type, ...] = (
    functools.partial,
    MethodType,
    type([].append),
    type(list.append),
)  # cloudpickle pickles them better

_received: Sequence[int] = ()


def dumps(value: Any, codec: Codec | None) -> tuple[bytes, list[int]]:
    """Pickle a value for workers.

    Args:
        value: what goes to them.
        codec: the user's pickler; None: cloudpickle, with tensors shared.

    Returns:
        The data, and file descriptors that go with it, which are the caller's.
    """
    outer, collector = context.get_spawning_popen(), _Collector()
    context.set_spawning_popen(collector)  # type: ignore[arg-type]  # as for a process that starts: locks and queues refuse otherwise
    try:
        if codec is not None:
            return codec.dumps(value), collector.fds
        block = arrays.Block()
        data = _dumps_sharing(value, block)
        if not block.sizes:
            return data, collector.fds
        collector.fds.append(block.write())
        return pickle.dumps(_Shared(data, block.sizes, len(collector.fds) - 1)), collector.fds
    except BaseException:
        for fd in collector.fds:
            os.close(fd)
        raise
    finally:
        context.set_spawning_popen(outer)


def refuses(value: Any, codec: Codec | None) -> bool:
    """Whether a value can't be pickled for workers."""
    outer, collector = context.get_spawning_popen(), _Collector()
    context.set_spawning_popen(collector)  # type: ignore[arg-type]  # as in `dumps`
    try:
        _dumps_sharing(value, arrays.Block()) if codec is None else codec.dumps(value)
    except Exception as error:
        let_through(error)
        return True
    finally:
        context.set_spawning_popen(outer)
        for fd in collector.fds:
            os.close(fd)
    return False


def loads(data: bytes, fds: Sequence[int], codec: Codec) -> Any:
    """Unpickle a value in a worker, with the file descriptors that came along; they are closed."""
    global _received
    _received = fds
    try:
        value = codec.loads(data)
        if isinstance(value, _Shared):
            value = pickle.loads(value.data, buffers=arrays.read(fds[value.number], value.sizes))
        return value
    finally:
        _received = ()
        for fd in fds:
            os.close(fd)


class _Shared(NamedTuple):
    """A pickled value whose large buffers lie in shared memory.

    Attributes:
        data: the rest.
        sizes: the buffers' sizes.
        number: the memory, among the file descriptors that are sent.
    """

    data: bytes
    sizes: list[int]
    number: int


class _Collector:
    """The process that starts, as multiprocessing's reductions see it: it takes file descriptors."""

    def __init__(self) -> None:
        self.fds: list[int] = []

    def duplicate_for_child(self, fd: int) -> int:
        self.fds.append(os.dup(fd))
        return len(self.fds) - 1

    def DupFd(self, number: int) -> _SentFd:  # multiprocessing's name
        return _SentFd(number)


class _SentFd:
    """A file descriptor on its way: its number among those that are sent."""

    def __init__(self, number: int) -> None:
        self.number = number

    def detach(self) -> int:
        """Give it in the worker; it is the caller's."""
        return os.dup(_received[self.number])


def _dumps_sharing(value: Any, block: arrays.Block) -> bytes:
    import cloudpickle

    known = reduction.ForkingPickler(io.BytesIO()).dispatch_table
    own = {
        kind: reduce
        for kind, reduce in known.items()
        if getattr(reduce, "__module__", "").startswith("multiprocessing") and kind not in _OWN_WAYS
    }
    shared: set[int] = set()

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        dispatch_table: ClassVar[Any] = ChainMap(own, cloudpickle.Pickler.dispatch_table)

        def reducer_override(self, obj: Any) -> Any:
            if type(obj) is torch.Tensor and _shareable(obj):
                storage = obj.untyped_storage()
                if len(shared | {storage.data_ptr()}) <= MOST_TENSORS:
                    try:
                        reduced = _reduce_shared(obj)
                        shared.add(storage.data_ptr())
                        return reduced
                    except (RuntimeError, OSError):
                        pass  # there is no room for it, or torch.from_file has closed it: copied as other values are
            if isinstance(obj, np.ndarray) and (array := arrays.reduced(obj)) is not None:
                return array
            if isinstance(obj, ModuleType) and _of_own_type(obj):
                return importlib.import_module, (obj.__name__,)
            return super().reducer_override(obj)

    file = io.BytesIO()
    Pickler(file, pickle.HIGHEST_PROTOCOL, buffer_callback=block.take).dump(value)
    return file.getvalue()


def _of_own_type(module: ModuleType) -> bool:
    """Whether a module is of a subclass, such as torch.ops, torch.classes or torch.backends.cudnn, and can be imported.

    cloudpickle can't pickle it, but takes it along with each function of a script that says `torch` and `.classes`.
    """
    own_way = type(module).__reduce__ is not object.__reduce__ or type(module).__reduce_ex__ is not object.__reduce_ex__
    return type(module) is not ModuleType and not own_way and sys.modules.get(module.__name__) is module


def _shareable(tensor: torch.Tensor) -> bool:
    plain = tensor.device.type == "cpu" and tensor.layout == torch.strided and not tensor.is_quantized
    if not plain or tensor.is_conj() or tensor.is_neg() or (tensor.requires_grad and not tensor.is_leaf):
        return False
    storage = tensor.untyped_storage()
    return storage.is_shared() or storage.nbytes() >= SHARED_FROM


def _reduce_shared(tensor: torch.Tensor) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
    """Move a tensor's storage to shared memory, if it is not there yet, and tell how to find it."""
    storage = tensor.untyped_storage()
    if storage.filename is not None:  # of torch.from_file(shared=True): its descriptor is closed
        rebuild, arguments = _open_file, (storage.filename, storage.nbytes())
    else:
        rebuild, arguments = reductions.reduce_storage(storage)  # type: ignore[no-untyped-call]
    form = tensor.dtype, tensor.storage_offset(), tensor.size(), tensor.stride(), tensor.requires_grad
    return _rebuild, (rebuild, arguments, *form)


def _open_file(name: str, size: int) -> torch.UntypedStorage:
    storage: Any = torch.UntypedStorage.from_file(name, True, size)
    opened: torch.UntypedStorage = storage
    return opened


def _rebuild(
    rebuild: Callable[..., torch.UntypedStorage],
    arguments: tuple[Any, ...],
    dtype: torch.dtype,
    offset: int,
    size: torch.Size,
    stride: tuple[int, ...],
    requires_grad: bool,
) -> torch.Tensor:
    tensor = torch.empty(0, dtype=dtype).set_(rebuild(*arguments), offset, size, stride)
    return tensor.requires_grad_(requires_grad)
