"""DALI's backend on a pretended GPU: its operators run in their CPU form."""

from __future__ import annotations

import numpy as np

from .as_torch import CudaTensor, FakeStream
from .machine import MACHINE, Buffer, Queue


def install_dali() -> None:
    from nvidia.dali import backend, backend_impl

    both = (backend, backend_impl)
    real = {name: getattr(backend_impl, name) for name in dir(backend_impl)}
    cpu_only = real["types"].CPU_ONLY_DEVICE_ID

    def put(name: str, value: object) -> None:
        for module in both:
            setattr(module, name, value)

    put("GetCUDADeviceCount", lambda: MACHINE.gpus)
    put("GetCUDACurrentDevice", lambda: MACHINE.device)
    put("SetCUDACurrentDevice", lambda i: MACHINE.set_device(i, "cudaSetDevice by DALI", eager=True))

    class Stream:
        def __init__(self, device_id: int | None) -> None:
            self.device_id = MACHINE.device if device_id is None else device_id
            MACHINE.touch(self.device_id, "a stream of DALI's")
            self.queue = MACHINE.own_stream(f"dali{len(MACHINE.handles)}-", self.device_id)
            self.handle = MACHINE.handle(self.queue)

    def queue_of(stream) -> Queue | None:
        if stream is None:
            return None
        handle = stream.queue if isinstance(stream, (Stream, FakeStream)) else getattr(stream, "handle", stream)
        return handle if isinstance(handle, Queue) else MACHINE.handles.get(handle) or MACHINE.default[MACHINE.device]

    put("Stream", Stream)
    put("CUDAStreamSynchronize", lambda s: MACHINE.synchronize(queue_of(s), "wait: DALI's stream"))
    put("GetCUDAStreamDevice", lambda s: queue_of(s).device)

    class NewThreadPool(real["_NewThreadPool"]):
        def __init__(self, num_threads, device_id=None, set_affinity=False, name=""):
            if device_id is not None:
                MACHINE.touch(device_id, "DALI's thread pool")
            MACHINE.made_objects["thread pools"] += 1
            super().__init__(num_threads, None, set_affinity, name)

    put("_NewThreadPool", NewThreadPool)

    class OpSpec(real["OpSpec"]):
        """To C++ everything is on the CPU; Python's graph keeps its devices."""

        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.op, self.outputs, self.inputs = name, [], []
            self.calls: list = []

        def _call(self, method, *args, **kwargs):
            self.calls.append((method, args, kwargs))
            getattr(super(), method)(*args, **kwargs)
            return self

        def AddArg(self, name, value):
            return self._call("AddArg", name, {"device": "cpu", "device_id": cpu_only}.get(name, value))

        def AddArgEmptyList(self, *args, **kwargs):
            return self._call("AddArgEmptyList", *args, **kwargs)

        def AddArgumentInput(self, *args, **kwargs):
            return self._call("AddArgumentInput", *args, **kwargs)

        def AddInput(self, name, device, *rest, **kwargs):
            self.inputs.append(device)
            return self._call("AddInput", name, "cpu", *rest, **kwargs)

        def AddOutput(self, name, device):
            self.outputs.append(device)
            return self._call("AddOutput", name, "cpu")

        def copy(self) -> OpSpec:
            other = OpSpec(self.op)
            for method, args, kwargs in self.calls:
                other._call(method, *args, **kwargs)
            other.inputs, other.outputs = [*self.inputs], [*self.outputs]
            return other

    put("OpSpec", OpSpec)

    class TensorGPU:
        """One sample on the GPU; `pretended_gpu` is it on the CPU."""

        def __init__(self, data, layout=None, stream=None, *, owner=None):
            if isinstance(data, CudaTensor):
                real_tensor = real["TensorCPU"](np.ascontiguousarray(data.host.numpy()), layout or "")
                self.pretended_gpu, self.buffers, self.index = real_tensor, data.buffers, data.device.index
            else:
                self.pretended_gpu, self.buffers, self.index = data, owner.buffers, owner.index

        def device_id(self) -> int:
            return self.index

        def shape(self):
            return self.pretended_gpu.shape()

        @property
        def __cuda_array_interface__(self):
            return self.pretended_gpu.__array_interface__

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return getattr(self.pretended_gpu, name)

        def __dlpack__(self, *_, **__):
            raise AssertionError("a DLPack tensor of DALI's: its deleter synchronises the device")

    class TensorListGPU:
        """A batch on the GPU."""

        def __init__(self, data, layout=None, contiguous=True, *, buffers=None, index=None):
            if isinstance(data, real["TensorListCPU"]):
                self.pretended_gpu, self.buffers, self.index = data, buffers, index
            else:
                tensors = data if isinstance(data, list) else None
                source = [t.pretended_gpu for t in tensors] if tensors is not None else data.pretended_gpu
                if tensors is None:
                    self.pretended_gpu = real["TensorListCPU"](source, layout or "")
                else:
                    self.pretended_gpu = real["TensorListCPU"](source, layout, contiguous=contiguous)
                first = tensors[0] if tensors else data
                self.buffers = list({id(b): b for t in (tensors or [data]) for b in t.buffers}.values())
                self.index = first.index

        @staticmethod
        def from_dlpack_list(tensors, layout=None, stream=None, contiguous=False):
            """torch's __dlpack__ makes the stream wait for torch's current one."""
            queue = queue_of(stream)
            for tensor in tensors:
                if not isinstance(tensor, CudaTensor):
                    raise TypeError("no tensor on a GPU")
                MACHINE.wait(queue, MACHINE.mark(MACHINE.current(tensor.device.index)))
            return TensorListGPU([TensorGPU(t, layout) for t in tensors], layout, contiguous)

        @staticmethod
        def broadcast(sample, n):
            return TensorListGPU(
                real["TensorListCPU"].broadcast(sample.pretended_gpu, n), buffers=sample.buffers, index=sample.index
            )

        def device_id(self) -> int:
            return self.index

        def __len__(self) -> int:
            return len(self.pretended_gpu)

        def __getitem__(self, i):
            return TensorGPU(self.pretended_gpu[i], owner=self)

        def at(self, i):
            return self[i]

        def as_tensor(self):
            return TensorGPU(self.pretended_gpu.as_tensor(), owner=self)

        def as_cpu(self):
            MACHINE.count("wait: as_cpu")
            return self.pretended_gpu

        def copy_to_external(self, *_, **__):
            raise AssertionError("a GPU batch copied to host memory by its address")

        @property
        def dtype(self):
            return self.pretended_gpu.dtype

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return getattr(self.pretended_gpu, name)

    put("TensorGPU", TensorGPU)
    put("TensorListGPU", TensorListGPU)

    def on_gpu(storage, stream: Queue, what: str):
        buffer = Buffer("DALI", stream, 0, what)
        return TensorListGPU(storage, buffers=[buffer], index=stream.device), buffer

    class Workspace:
        def __init__(self, thread_pool=None, stream=None) -> None:
            self.real = real["_Workspace"](thread_pool, None)
            self.stream = queue_of(stream)
            self.read: list[Buffer] = []
            self.outputs: tuple = ()

        def AddInput(self, storage):
            if isinstance(storage, TensorListGPU):
                self.read += storage.buffers
                storage = storage.pretended_gpu
            self.real.AddInput(storage)

        def AddArgumentInput(self, name, storage):
            if isinstance(storage, TensorListGPU):
                raise TypeError(f"the argument {name!r} must be on the CPU")
            self.real.AddArgumentInput(name, storage)

        def GetOutputs(self):
            return self.outputs

    class Operator:
        def __init__(self, spec: OpSpec) -> None:
            self.spec, self.real = spec, real["_Operator"](spec)
            if "gpu" in spec.outputs and spec.op.startswith("decoders"):
                MACHINE.made_objects["eager GPU decoders"] += 1

        def SetupAndRun(self, workspace: Workspace, batch_size=None) -> None:
            self.real.SetupAndRun(workspace.real, batch_size)
            name = self.spec.op.replace("__", ".")
            outputs, fresh = [], []
            for storage, device in zip(workspace.real.GetOutputs(), self.spec.outputs, strict=True):
                if device == "gpu":
                    storage, buffer = on_gpu(storage, workspace.stream, name)
                    fresh.append(buffer)
                    if "cpu" in self.spec.inputs[:1] and self.spec.op == "Copy":
                        MACHINE.count("H2D copy")
                outputs.append(storage)
            workspace.outputs = tuple(outputs)
            if fresh or workspace.read:
                MACHINE.launch(workspace.stream, workspace.read, fresh, name)
                if not fresh:  # a copy to the CPU, in host order: DALI waits
                    MACHINE.synchronize(workspace.stream, "wait: DALI's copy to the CPU")

        def __getattr__(self, name):
            return getattr(self.real, name)

    put("_Workspace", Workspace)
    put("_Operator", Operator)

    class Params(real["_PipelineParams"]):
        def __init__(self, **kwargs) -> None:
            self.fake_device = kwargs["device_id"]
            super().__init__(**{**kwargs, "device_id": None})

    put("_PipelineParams", Params)

    class Pipeline:
        def __init__(self, params: Params) -> None:
            self.real, self.device, self.names = real["Pipeline"](params), params.fake_device, []
            self.stream: Queue | None = None

        def Build(self, arguments):
            MACHINE.made_objects["pipelines"] += 1
            self.devices = [each[1] for each in arguments]
            if "gpu" in self.devices:
                device = MACHINE.device if self.device in (None, cpu_only) else self.device
                MACHINE.touch(device, "a pipeline")
                self.stream = MACHINE.own_stream(f"pipeline{len(MACHINE.handles)}-", device)
            self.real.Build([(each[0], "cpu", *each[2:]) for each in arguments])

        def Outputs(self, stream=None):
            outputs = []
            for storage, device in zip(self.real.Outputs(None), self.devices, strict=True):
                if device == "gpu":
                    storage, buffer = on_gpu(storage, self.stream, "pipeline's output")
                    MACHINE.launch(self.stream, [], [buffer], "pipeline")
                outputs.append(storage)
            if stream is None and self.stream is not None:
                MACHINE.synchronize(self.stream, "wait: pipeline.run")
            return tuple(outputs)

        def device_id(self):
            return cpu_only if self.device is None else self.device

        def __getattr__(self, name):
            return getattr(self.real, name)

    put("Pipeline", Pipeline)
    import nvidia.dali.experimental.dynamic as ndd  # noqa: F401  # with what was put in place
    from nvidia.dali.experimental.dynamic import _device

    assert _device.Device._default_device_type() == "gpu", "DALI was imported before the pretended GPU"
