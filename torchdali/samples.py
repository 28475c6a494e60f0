"""Takes batches apart: the samples of a batch, in their own form, and a batch as lists of its samples' parts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from . import _dali
from .batch import Padded, unpadded
from .containers import is_list, remade


def samples_of(
    batch: Mapping[str, Any], rebuild: Callable[[dict[str, Any]], Any], objects: Collection[str] = ()
) -> list[Any]:
    """Take a batch apart into its samples.

    Args:
        batch: the batch's fields.
        rebuild: puts the fields of one sample into the form of the source's samples.
        objects: the fields that are lists of one object for each sample; another list is one of views.

    Returns:
        the samples: tensors are views of the batch, cut to the sample's true sizes; numbers are Python's; objects are
        what they were.
    """
    columns = {name: value if name in objects or _plain(value) else _values(value) for name, value in batch.items()}
    size = min(map(len, columns.values()), default=0)
    return [rebuild({name: column[i] for name, column in columns.items()}) for i in range(size)]


def _plain(value: Any) -> bool:
    """Whether a value is a list of strings and the like, which a function has added: no list of views."""
    return isinstance(value, list) and not any(isinstance(part, (torch.Tensor, Padded, list, dict)) for part in value)


def _values(value: Any) -> list[Any]:
    if isinstance(value, Padded):
        return unpadded(value.data, _on_host(value.sizes))
    if isinstance(value, torch.Tensor):
        return list(_on_host(value) if value.ndim == 1 else value)
    if isinstance(value, dict):
        columns = {key: _values(part) for key, part in value.items()}
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return [list(row) for row in zip(*map(_values, value), strict=True)]


def _on_host(tensor: torch.Tensor) -> list[Any]:
    """Get numbers from a GPU without a wait for what the caller's stream has to do: a loader's batches are complete."""
    if tensor.is_cuda:
        with torch.cuda.stream(_side_stream(tensor.device)):
            tensor = tensor.cpu()
    return tensor.tolist()


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """Lease one stream for good: PyTorch has 32, and would give a new one of each batch to the training, too."""
    stream = _dali.lease_stream(samples_of, device)
    assert stream is not None
    return stream


def as_lists(samples: list[Any]) -> Any:
    """Put samples together without stacking: each of their parts is a list, as in `tuple(zip(*samples))`.

    The parts of a dict, NamedTuple or dataclass keep their names; samples without parts are one list.
    """
    first = samples[0]
    if isinstance(first, Mapping):
        return remade(first, {key: [sample[key] for sample in samples] for key in first})
    if isinstance(first, tuple) or is_list(first):
        return remade(first, dict(enumerate(list(part) for part in zip(*samples, strict=True))))
    if is_dataclass(first) and not isinstance(first, type):
        made: Any = object.__new__(type(first))
        for field in fields(first):
            object.__setattr__(made, field.name, [getattr(sample, field.name) for sample in samples])
        return made
    return samples
