"""The kind and the form of a value, and the one error for a value that differs from its field's others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from .batch import Column, Held
from .errors import FieldTypeError

NUMERIC = "biuf"
"""The kinds of numpy dtypes that become tensors."""


def is_number(value: Any) -> bool:
    """Whether a value is one number or bool, of Python, of numpy, or an array or tensor without dimensions."""
    if isinstance(value, (bool, int, float)):
        return True
    if isinstance(value, torch.Tensor):
        return not value.ndim
    return isinstance(value, (np.generic, np.ndarray)) and not value.ndim and value.dtype.kind in NUMERIC


def is_pixels(value: Any) -> bool:
    """Whether a value is a decoded image: a numpy array, uint8 [H, W, 1 or 3]."""
    return isinstance(value, np.ndarray) and value.dtype == np.uint8 and value.ndim == 3 and value.shape[2] in (1, 3)


def kind_of(value: Any) -> Held:
    """The kind of a value on the host, as far as its type and shape tell it.

    Returns:
        "number", "image" (see `is_pixels`), "array" (also of a file's bytes: whether they are an image's, the field's
        name or the bytes themselves say), or "object".
    """
    if is_number(value):
        return "number"
    if is_pixels(value):
        return "image"
    return "array" if isinstance(value, np.ndarray) and value.dtype.kind in NUMERIC else "object"


class Form(NamedTuple):
    """The properties that all values of a field share.  It is plain data, and may go to other processes.

    Attributes:
        kind: the field's kind.
        dtype: of numbers and arrays, numpy's or torch's, where None is any; of images, where None is uint8.
        ndim: of arrays, their number of dimensions.
        shape: of arrays, where all must have one.
        channels: of decoded images.
    """

    kind: Held
    dtype: Any = None
    ndim: int | None = None
    shape: tuple[int, ...] | None = None
    channels: int | None = None

    @classmethod
    def of(cls, kind: Held, value: Any, fixed_shape: bool = False) -> Form:
        """The form of a value that is of this kind.

        Args:
            kind: the field's kind.
            value: a number; an array or a tensor; [H, W, C] of an image.
            fixed_shape: arrays must agree in their shapes too.
        """
        if kind == "image":
            return cls(kind, None if value.dtype == np.uint8 else value.dtype, channels=value.shape[-1])
        if kind == "array":
            return cls(kind, value.dtype, value.ndim, tuple(value.shape) if fixed_shape else None)
        return cls(kind, np.asarray(value).dtype) if kind == "number" else cls(kind)

    def check(self, field: str, value: Any, first: str = "the first sample", sample: str = "") -> None:
        """Raise unless a value has this form.

        Args:
            field: the field's name.
            value: the value.
            first: the sample that this form was taken from, such as its path.
            sample: the value's own sample, where the error's reader learns it from nowhere else.

        Raises:
            FieldTypeError: it has another.
        """
        if not self.fits(value):
            raise self.error(field, value, first, sample)

    def fits(self, value: Any) -> bool:
        """Whether a value has this form; of encoded files and objects, any has."""
        if self.kind == "array":
            if not isinstance(value, (np.ndarray, torch.Tensor)):
                return False
            return value.dtype == self.dtype and value.ndim == self.ndim and self.shape in (None, tuple(value.shape))
        if self.kind == "image":
            if not isinstance(value, np.ndarray) or value.ndim != 3 or value.shape[2] != self.channels:
                return False
            return bool(value.dtype == (np.uint8 if self.dtype is None else self.dtype))
        if self.kind == "number":
            return is_number(value) and self.dtype in (None, np.asarray(value).dtype)
        return True

    def error(
        self, field: str, got: Any, first: str = "the first sample", sample: str = "", remedy: str = ""
    ) -> FieldTypeError:
        """The error for a value, or the form, that was met instead; arguments as for `check`, and the advice."""
        kind = "array" if self.kind == "array" and isinstance(got, np.ndarray | torch.Tensor) else kind_of(got)
        form = got if isinstance(got, Form) else Form.of(kind, got, self.shape is not None)
        words = f"{got!r:.100}" if form.kind == "object" else str(form)
        return FieldTypeError(field, str(self), words, first, sample, remedy or _REMEDIES[self.kind])

    def __str__(self) -> str:
        dtype = str(self.dtype).removeprefix("torch.")
        if self.kind == "image":
            return "an image" if self.channels is None else f"an image with {_count(self.channels, 'channel')}"
        if self.kind == "number":
            return "a number" if self.dtype is None else f"a number of {dtype}"
        if self.shape is not None:
            return f"{dtype} {list(self.shape)}"
        if self.ndim is not None:
            return f"{dtype} with {_count(self.ndim, 'dimension')}"
        return {"encoded": "the bytes of an image file", "array": "an array", "object": "an object"}[self.kind]


_REMEDIES: dict[Held, str] = {
    "image": "convert all images to one mode, such as RGB, or write kinds.Image(mode='RGB') for Pillow's",
    "array": "give all samples one dtype and number of dimensions",
    "number": "give a number for every sample",
    "encoded": "give the file's bytes for every sample",
    "object": "",
}


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def check_arrays(field: str, values: Column, samples: Sequence[int] | None = None) -> None:
    """Raise unless all arrays or tensors of a column have one dtype and number of dimensions.

    numpy and DALI would convert silently, this batch to one dtype and that to another.

    Args:
        field: the field's name.
        values: its column.
        samples: the samples' indices, for the message; None: the values' numbers.

    Raises:
        FieldTypeError: two differ.
    """
    if isinstance(values, np.ndarray) or len({(value.dtype, value.ndim) for value in values}) < 2:
        return
    numbers = range(len(values)) if samples is None else samples
    form = Form.of("array", values[0])
    for number, value in zip(numbers, values, strict=True):
        form.check(field, value, f"sample {numbers[0]}", f"sample {number}")
