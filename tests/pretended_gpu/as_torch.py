"""torch.cuda and tensors on a pretended GPU."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import torch

from .machine import MACHINE, Buffer, Queue


class CudaTensor(torch.Tensor):
    """A tensor that says it is on a GPU; its numbers are those of `host`, a tensor on the CPU."""

    host: torch.Tensor
    buffers: list[Buffer]

    @staticmethod
    def __new__(cls, real: torch.Tensor, device: torch.device, buffers: list[Buffer]) -> CudaTensor:
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            real.shape,
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            device=device,
        )
        self.host, self.buffers = real, buffers
        return self

    def __repr__(self, **_: object) -> str:
        return f"CudaTensor({self.host!r}, device={str(self.device)!r})"

    def record_stream(self, stream: FakeStream) -> None:
        for buffer in self.buffers:
            if buffer.use.owner == "torch":  # of other memory, torch knows nothing
                buffer.use.recorded.add(stream.queue)
                buffer.use.reads[stream.queue] = stream.queue.seq + 1  # whatever the consumer does next
                MACHINE.launch(stream.queue, [buffer], [], "consumer")

    def data_ptr(self) -> int:
        return self.host.data_ptr()

    def cpu(self, *_: object, **__: object) -> torch.Tensor:
        stream = MACHINE.current(self.device.index)
        MACHINE.launch(stream, self.buffers, [], "copy to the host")
        MACHINE.synchronize(stream, "wait: value to the host")
        return self.host.clone(memory_format=torch.preserve_format)

    def tolist(self):
        return self.cpu().tolist()

    def item(self):
        return self.cpu().item()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __bool__(self) -> bool:
        return bool(self.item())

    def __invert__(self):
        return CudaTensor.__torch_dispatch__(torch.ops.aten.bitwise_not.default, (), (self,))

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    # Torch's own forms of these set a device.

    def __getitem__(self, index):
        result = self.host[_map(index, _real)]
        if result.untyped_storage()._cdata == self.host.untyped_storage()._cdata:
            return CudaTensor(result, self.device, self.buffers)
        buffer = _allocate(result, self.device.index, "getitem")
        others = [b for x in _flat([index]) if isinstance(x, CudaTensor) for b in x.buffers]
        stream = MACHINE.current(self.device.index)
        if others:
            masks = [x for x in _flat([index]) if isinstance(x, CudaTensor) and x.dtype in (torch.bool, torch.uint8)]
            if masks:  # how many there are is known on the GPU only
                MACHINE.launch(stream, [b for x in masks for b in x.buffers], [], "nonzero")
                MACHINE.synchronize(stream, "wait: index by a mask")
        MACHINE.launch(stream, [*self.buffers, *others], [buffer], "getitem")
        return CudaTensor(result, self.device, [buffer])

    def __setitem__(self, index, value) -> None:
        self.host[_map(index, _real)] = _real(value)
        reads = value.buffers if isinstance(value, CudaTensor) else []
        MACHINE.launch(MACHINE.current(self.device.index), reads, self.buffers, "setitem")

    def pin_memory(self, *_: object) -> CudaTensor:
        raise RuntimeError("cannot pin 'torch.cuda' only dense CPU tensors can be pinned")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device.index

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        name = func._schema.name.removeprefix("aten::")
        given = [x for x in _flat([args, kwargs]) if isinstance(x, CudaTensor)]
        device = given[0].device if given else None
        target = kwargs.get("device")
        to_host = target is not None and torch.device(target).type == "cpu"
        if target is not None:
            kwargs["device"] = torch.device("cpu")
            if not to_host:
                device = _indexed(target)
        index = device.index if device is not None else MACHINE.device
        stream = MACHINE.current(index)
        written: list[Buffer] = []
        for argument, value in zip(func._schema.arguments, args):
            if argument.alias_info is not None and argument.alias_info.is_write and isinstance(value, CudaTensor):
                written += value.buffers
        host_copy = name == "copy_" and not isinstance(args[0], CudaTensor)
        if name == "copy_" and isinstance(args[0], CudaTensor) and not isinstance(args[1], CudaTensor):
            MACHINE.count("H2D copy")
        result = func(*_map(args, _real), **_map(kwargs, _real))
        read = [b for x in given for b in x.buffers if b not in written or name not in ("copy_", "fill_", "zero_")]
        out_alias = any(r.alias_info is not None for r in func._schema.returns)
        view = out_alias and not written
        if to_host or host_copy or name in ("_local_scalar_dense", "equal", "item", "is_nonzero", "nonzero"):
            MACHINE.launch(stream, read, [], f"{name} to the host")
            MACHINE.synchronize(stream, "wait: value to the host")
            return result
        if written and out_alias:
            MACHINE.launch(stream, read, written, name)
            return args[0]

        def wrap(x):
            if not isinstance(x, torch.Tensor):
                return x
            if view or any(x.untyped_storage()._cdata == g.host.untyped_storage()._cdata for g in given):
                return CudaTensor(x, device, given[0].buffers)
            buffer = _allocate(x, index, name)
            fresh.append(buffer)
            return CudaTensor(x, device, [buffer])

        fresh: list[Buffer] = []
        wrapped = _map(result, wrap)
        if fresh:
            empty = name in ("empty_like", "new_empty", "empty", "new_empty_strided", "empty_strided")
            MACHINE.launch(stream, [] if empty else read, [] if empty else fresh, name)
        return wrapped


def _flat(value):
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _flat(each)
    elif isinstance(value, dict):
        yield from _flat(list(value.values()))
    else:
        yield value


def _map(value, change):
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return type(value)(_map(each, change) for each in value)
    if isinstance(value, dict):
        return {key: _map(each, change) for key, each in value.items()}
    return change(value)


def _real(value):
    return value.host if isinstance(value, CudaTensor) else value


def _indexed(device) -> torch.device:
    device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    return torch.device("cuda", MACHINE.device) if device.index is None else device


def _allocate(real: torch.Tensor, index: int, what: str) -> Buffer:
    MACHINE.touch(index, f"torch allocates ({what})")
    MACHINE.live[index] += real.nbytes
    return Buffer("torch", MACHINE.current(index), real.nbytes, what)


def _is_cuda(device) -> bool:
    if device is None or isinstance(device, bool):
        return False
    try:
        return isinstance(device, int) or torch.device(device).type == "cuda"
    except (RuntimeError, TypeError):
        return False


def _to_gpu(real: torch.Tensor, device, what: str, copied: bool = True) -> CudaTensor:
    device = _indexed(device)
    real = real.clone(memory_format=torch.preserve_format) if copied else real
    buffer = _allocate(real, device.index, what)
    MACHINE.count("H2D copy")
    MACHINE.count("H2D bytes", real.nbytes)
    MACHINE.launch(MACHINE.current(device.index), [], [buffer], what)
    return CudaTensor(real, device, [buffer])


class FakeStream:
    """torch.cuda.Stream."""

    def __init__(self, device=None, priority: int = 0, *, queue: Queue | None = None, **_: object) -> None:
        index = MACHINE.device if device is None else _indexed(device).index
        self.queue = queue or MACHINE.new_stream(index)

    device = property(lambda self: torch.device("cuda", self.queue.device))
    device_index = property(lambda self: self.queue.device)
    cuda_stream = stream_id = property(lambda self: MACHINE.handle(self.queue))

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.cuda_stream

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FakeStream) and other.queue is self.queue

    def __hash__(self) -> int:
        return hash(self.queue)

    def __repr__(self) -> str:
        return f"<FakeStream {self.queue}>"

    def synchronize(self) -> None:
        MACHINE.synchronize(self.queue, "wait: stream.synchronize")

    def query(self) -> bool:
        return MACHINE.done.get(self.queue, 0) >= self.queue.seq

    def wait_stream(self, other: FakeStream) -> None:
        MACHINE.wait(self.queue, MACHINE.mark(other.queue))

    def record_event(self, event: FakeEvent | None = None) -> FakeEvent:
        event = event or FakeEvent()
        event.record(self)
        return event

    def wait_event(self, event: FakeEvent) -> None:
        event.wait(self)


class FakeEvent:
    """torch.cuda.Event."""

    def __init__(self, *_: object, **__: object) -> None:
        self.at: dict[Queue, int] = {}

    def record(self, stream: FakeStream | None = None) -> None:
        self.at = MACHINE.mark(stream.queue if stream else MACHINE.current())

    def wait(self, stream: FakeStream | None = None) -> None:
        MACHINE.wait(stream.queue if stream else MACHINE.current(), self.at)

    def synchronize(self) -> None:
        MACHINE.count("wait: event.synchronize")
        for queue, seq in self.at.items():
            MACHINE.done[queue] = max(MACHINE.done.get(queue, 0), seq)

    def query(self) -> bool:
        return all(MACHINE.done.get(queue, 0) >= seq for queue, seq in self.at.items())

    def elapsed_time(self, _: FakeEvent) -> float:
        return 1.0


class FakeDevice:
    """torch.cuda.device."""

    def __init__(self, device) -> None:
        self.index = device if isinstance(device, int) else _indexed(device).index

    def __enter__(self) -> None:
        self.before = MACHINE.device
        MACHINE.set_device(self.index, "torch.cuda.device", eager=True)

    def __exit__(self, *_: object) -> None:
        MACHINE.set_device(self.before, "torch.cuda.device", eager=False)  # torch leaves devices without context alone


@contextmanager
def fake_stream(stream: FakeStream | None):
    """torch.cuda.stream."""
    if stream is None:
        yield
        return
    if not hasattr(MACHINE.here, "streams"):
        MACHINE.here.streams = {}
    device, before = stream.queue.device, dict(MACHINE.here.streams)
    with FakeDevice(device):
        MACHINE.here.streams[device] = stream.queue
        try:
            yield
        finally:
            MACHINE.here.streams = before


class _Properties:
    def __init__(self, index: int) -> None:
        self.uuid, self.name, self.total_memory = f"uuid-{index}", "Pretended GPU", 80 << 30
        self.major, self.minor, self.multi_processor_count = 9, 0, 132


def install_torch() -> None:
    cuda = torch.cuda

    def synchronize(device=None) -> None:
        index = MACHINE.device if device is None else _indexed(device).index
        MACHINE.count("wait: cuda.synchronize")
        for queue in [*MACHINE.handles.values(), *MACHINE.default]:
            if queue.device == index:
                MACHINE.done[queue] = queue.seq

    def index_of(device) -> int:
        return MACHINE.device if device is None else _indexed(device).index

    replaced = dict(
        is_available=lambda: True,
        is_initialized=lambda: True,
        device_count=lambda: MACHINE.gpus,
        current_device=lambda: MACHINE.device,
        set_device=lambda device: MACHINE.set_device(_indexed(device).index, "torch.cuda.set_device", eager=True),
        Stream=FakeStream,
        Event=FakeEvent,
        device=FakeDevice,
        stream=fake_stream,
        current_stream=lambda device=None: FakeStream(queue=MACHINE.current(index_of(device))),
        default_stream=lambda device=None: FakeStream(queue=MACHINE.default[index_of(device)]),
        synchronize=synchronize,
        _sleep=lambda cycles: MACHINE.launch(MACHINE.current(), [], [], "sleep"),
        get_device_name=lambda device=None: f"Pretended GPU {index_of(device)}",
        get_device_properties=lambda device=None: _Properties(index_of(device)),
        memory_allocated=lambda device=None: MACHINE.live[index_of(device)],
        memory_reserved=lambda device=None: MACHINE.live[index_of(device)],
        mem_get_info=lambda device=None: (80 << 30, 80 << 30),
        empty_cache=lambda: None,
        default_generators=tuple(torch.Generator() for _ in range(MACHINE.gpus)),
        manual_seed_all=lambda seed: None,
        manual_seed=lambda seed: None,
        is_current_stream_capturing=lambda: False,
    )
    for name, value in replaced.items():
        setattr(cuda, name, value)

    def factory(name: str):
        original = getattr(torch, name)

        def made(*args, device=None, **kwargs):
            kwargs.pop("pin_memory", None)
            if not _is_cuda(device):
                return original(*args, **kwargs) if device is None else original(*args, device=device, **kwargs)
            real, index = original(*args, **kwargs), _indexed(device).index
            buffer = _allocate(real, index, name)
            if name != "empty":
                MACHINE.launch(MACHINE.current(index), [], [buffer], name)
            if name == "tensor":  # copied from pageable memory
                MACHINE.count("H2D copy")
                MACHINE.synchronize(MACHINE.current(index), "wait: blocking copy to the GPU")
            return CudaTensor(real, _indexed(device), [buffer])

        setattr(torch, name, made)

    for name in ("empty", "zeros", "ones", "full", "arange", "linspace", "rand", "randn", "tensor"):
        factory(name)

    one_hot = torch.nn.functional.one_hot

    def fake_one_hot(tensor, num_classes=-1):  # allocates in C++, past the dispatcher
        if not isinstance(tensor, CudaTensor):
            return one_hot(tensor, num_classes)
        if num_classes < 0:
            tensor.max().item()
        real, index = one_hot(tensor.host, num_classes), tensor.device.index
        buffer = _allocate(real, index, "one_hot")
        MACHINE.launch(MACHINE.current(index), tensor.buffers, [buffer], "one_hot")
        return CudaTensor(real, tensor.device, [buffer])

    torch.nn.functional.one_hot = fake_one_hot
    as_tensor = torch.as_tensor

    def fake_as_tensor(data, dtype=None, device=None):
        if hasattr(data, "pretended_gpu"):  # a tensor of DALI's, by __cuda_array_interface__: a view, and no wait
            real = as_tensor(np.asarray(data.pretended_gpu))
            if device is not None and _indexed(device).index != data.device_id():
                raise RuntimeError(f"memory of GPU {data.device_id()} can't be viewed on {device}")
            return CudaTensor(real, torch.device("cuda", data.device_id()), data.buffers)
        if _is_cuda(device) and not isinstance(data, CudaTensor):
            return fake_to(as_tensor(data, dtype=dtype), device)
        return as_tensor(data, dtype=dtype, device=device)

    torch.as_tensor = fake_as_tensor
    to = torch.Tensor.to

    def fake_to(self, *args, **kwargs):
        place = next(
            (a for a in [*args[:1], kwargs.get("device")] if _is_cuda(a) and not isinstance(a, torch.dtype)), None
        )
        if place is None or isinstance(self, CudaTensor):
            if isinstance(self, CudaTensor) and place is not None and _indexed(place) != self.device:
                raise NotImplementedError("a copy between two GPUs")
            if isinstance(self, CudaTensor) and place is not None:
                args, kwargs = args[1:], {k: v for k, v in kwargs.items() if k not in ("device", "non_blocking")}
                return to(self, *args, **kwargs) if args or kwargs else self
            return to(self, *args, **kwargs)
        rest = {k: v for k, v in kwargs.items() if k not in ("device", "non_blocking")}
        real = to(self, *args[1:], **rest) if args[1:] or rest else self
        if not kwargs.get("non_blocking"):
            MACHINE.count("H2D blocking")
        result = _to_gpu(real, place, "to")
        if not kwargs.get("non_blocking"):  # from pageable memory, torch waits for the stream
            MACHINE.synchronize(MACHINE.current(result.device.index), "wait: blocking copy to the GPU")
        return result

    torch.Tensor.to = fake_to
    torch.Tensor.cuda = lambda self, device=None, **kwargs: fake_to(self, device if device is not None else "cuda")
    pin = torch.Tensor.pin_memory
    torch.Tensor.pin_memory = lambda self, *a: pin(self, *a) if isinstance(self, CudaTensor) else self
    copy_ = torch.Tensor.copy_

    def written(name: str, overload: object) -> None:
        original = getattr(torch.Tensor, name)

        def fake(self, *args):
            if isinstance(self, CudaTensor):
                return CudaTensor.__torch_dispatch__(overload, (), (self, *args))
            return original(self, *args)

        setattr(torch.Tensor, name, fake)

    written("fill_", torch.ops.aten.fill_.Scalar)
    written("zero_", torch.ops.aten.zero_.default)

    def fake_copy(self, source, *args, **kwargs):
        if isinstance(source, CudaTensor) and not isinstance(self, CudaTensor):
            if kwargs.pop("non_blocking", False):
                MACHINE.launch(MACHINE.current(source.device.index), source.buffers, [], "copy to the host")
                source = source.host
            else:
                source = source.cpu()
        if isinstance(self, CudaTensor):  # autograd's form of it would set a device
            blocking = not (isinstance(source, CudaTensor) or kwargs.get("non_blocking") or args[:1] == (True,))
            CudaTensor.__torch_dispatch__(torch.ops.aten.copy_.default, (), (self, source))
            if blocking:
                MACHINE.synchronize(MACHINE.current(self.device.index), "wait: blocking copy to the GPU")
            return self
        return copy_(self, source, *args, **kwargs)

    torch.Tensor.copy_ = fake_copy
