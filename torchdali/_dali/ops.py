"""DALI's operators by their names, the same for both executions."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from .importing import dynamic
from .output import shapes

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
        from nvidia.dali import types

        return getattr(types, {"float32": "FLOAT"}.get(name := str(dtype).removeprefix("torch."), name.upper()))

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
