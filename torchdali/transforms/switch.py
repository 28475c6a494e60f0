"""A switch: each sample of a batch through one of several branches, in DALI's operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from .. import _dali

Branch = Callable[..., Any]
"""branch(ops, image, **params) gives an image of the same element type and channels."""


class _Inside(_dali.Ops):
    """The operators in a branch, which a trace can't try out beforehand: a sample of the data may take another one.

    So element type and channels are those at the switch, or what the branch says of its steps.
    """

    def __init__(self, ops: _dali.Ops, dtype: torch.dtype, channels: int) -> None:
        super().__init__(ops._module, ops.device, ops.decoder_device)
        self._ops, self._dtype, self._channels = ops, dtype, channels
        self.frames = ops.frames
        self.eager = isinstance(ops, _dali.DynamicOps)

    @property
    def math(self) -> Any:
        return self._ops.math

    def as_dtype(self, dtype: torch.dtype) -> Any:
        return self._ops.as_dtype(dtype)

    def matrix(self, rows: Sequence[Sequence[float]]) -> Any:
        return self._ops.matrix(rows)

    def dtype_of(self, data: Any) -> torch.dtype:
        return self._dtype

    def channels_of(self, data: Any) -> int:
        return self._channels


def inside(ops: _dali.Ops, dtype: torch.dtype, channels: int) -> _dali.Ops:
    """The operators for a step inside a branch, whose image has this element type and these channels."""
    return _Inside(ops._ops if isinstance(ops, _Inside) else ops, dtype, channels)


def switch(
    ops: _dali.Ops, which: Any, branches: Sequence[Branch], image: Any, params: Sequence[Mapping[str, Any]]
) -> Any:
    """Put each sample through a branch.

    Args:
        ops: DALI's operators.
        which: a batch of integers on the CPU: 0 for unchanged, k for branches[k - 1].
        branches: they keep the element type and the number of channels.
        image: a batch of images.
        params: the params of each branch, as batches of one row for each sample, whichever branch it takes.
    """
    within = inside(ops, ops.dtype_of(image), ops.channels_of(image))
    assert isinstance(within, _Inside)
    if within.eager:
        return _grouped(within, which, branches, image, params)
    return _split(within, which, branches, image, params, 0)


def _grouped(
    ops: _Inside, which: Any, branches: Sequence[Branch], image: Any, params: Sequence[Mapping[str, Any]]
) -> Any:
    """Eagerly: split, and put together by hand, since dynamic mode's merge does not work in DALI 2.4.0."""
    # Behind another split, a batch is not one tensor.
    chosen = np.array([np.asarray(row) for row in _dali.Output(which).arrays()]).reshape(-1)
    parts: list[tuple[list[int], Any]] = []
    for k in range(len(branches) + 1):
        rows = np.flatnonzero(chosen == k)
        if not len(rows):
            continue
        if len(rows) == len(chosen):
            return branches[k - 1](ops, image, **params[k - 1]) if k else image
        taken = _dali.as_batch(chosen == k)
        part = ops._conditional.split(image, predicate=taken)[0]
        if k:
            some = {key: ops._conditional.split(values, predicate=taken)[0] for key, values in params[k - 1].items()}
            part = branches[k - 1](ops, part, **some)
        parts.append((rows.tolist(), part))
    return _dali.joined(parts)


def _split(
    ops: _Inside, which: Any, branches: Sequence[Branch], image: Any, params: Sequence[Mapping[str, Any]], first: int
) -> Any:
    """In a pipeline: a binary tree of splits and merges over branches first - 1, first, ...

    A branch without samples costs nothing.
    """
    left = len(branches) + 1 - first
    if left == 1:
        return branches[first - 1](ops, image, **params[first - 1]) if first else image
    middle = first + left // 2
    low = which < middle

    def parts(node: Any) -> tuple[Any, Any]:
        both = ops._conditional.split(node, predicate=low)
        return both[0], both[1]

    below, above = parts(image)
    below_which, above_which = parts(which)

    def side(numbers: range, number: int) -> list[dict[str, Any]]:
        """The params of the branches of one side; the others are not used there."""
        return [
            {key: parts(node)[number] for key, node in each.items()} if k in numbers else {}
            for k, each in enumerate(params, start=1)
        ]

    below = _split(ops, below_which, branches[: middle - 1], below, side(range(first, middle), 0), first)
    above = _split(ops, above_which, branches, above, side(range(middle, len(branches) + 1), 1), middle)
    return ops._conditional.merge(below, above, predicate=low)
