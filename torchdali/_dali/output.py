"""The way into DALI and out of it: batches of values, and views and copies of what was computed."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .importing import dynamic
from .session import open_stream


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
        stream = open_stream()
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
