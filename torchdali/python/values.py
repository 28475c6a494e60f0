"""Values of Python samples: their kinds, their forms, and what they become in columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..batch import Column, Held, Objects
from ..collate import is_of_own_type
from ..columns import as_rows, native
from ..kinds import Array, Boxes, Image, Kind, Mask, Points, Video
from ..pillow import is_image_file
from ..signature import Form, kind_of

BYTES = Form("array", np.dtype(np.uint8), 1)
"""The form of bytes that are no image file."""

_TORCH_ONLY = frozenset(
    getattr(torch, name)
    for name in ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
)
"""Dtypes that numpy has not: their tensors stay tensors."""

_PLAIN_NUMBERS = frozenset([bool, int, float, complex, np.int64, np.float64, np.float32, np.bool_])

_NUMBERS = ("1", "P", "I", "F", "I;16", "I;16L", "I;16B", "I;16N")
"""Modes of PIL images whose pixels are numbers, or look up colours: a conversion to RGB would lose them."""


def form_of(value: Any, transformed: bool = True) -> Form:
    """Tell the kind and the form of a value.

    Args:
        value: the value.
        transformed: samples go through transforms, which need pixels: images of a type of the user's are plain ones.
    """
    kind = natural_kind(value)
    if is_of_own_type(value) and not (kind == "image" and transformed):
        return Form("object")
    if kind == "array":
        return Form.of(kind, _as_array(value))
    pixels = _as_pixels(value, grey=True) if kind == "image" else None
    return Form(kind) if pixels is None else Form.of(kind, pixels)


TAKES_LISTS = (Mask, Boxes, Points, Array)
"""Kinds of arrays that samples may hold as lists of numbers, once it is told."""


def form_as(name: str, told: Kind, value: Any) -> Form:
    """Tell the form of a value that is to have a kind.

    Raises:
        FieldTypeError: it can't have it.
    """
    kind = told.held
    pixels = _as_pixels(value, grey=True, told=told) if kind == "image" else None
    if pixels is not None:
        return Form.of(kind, pixels)
    if kind == "array" and (isinstance(value, (bytes, bytearray, memoryview, np.ndarray)) or torch.is_tensor(value)):
        return Form.of(kind, _as_array(value))
    if kind == "array" and (_is_picture(value) or (isinstance(value, (list, tuple)) and isinstance(told, TAKES_LISTS))):
        return Form.of(kind, _as_array(value, told))
    if kind in ("image", "array"):
        raise Form(kind).error(name, value)
    form = Form(kind)
    convert(name, form, value)
    return form


def convert(name: str, form: Form, value: Any, told: Kind | None = None) -> Any:
    """Convert a value for its column.

    Args:
        name: the field.
        form: the form of the first sample's value.
        value: the value.
        told: the kind of the field, of which some take lists of numbers for arrays.

    Returns:
        Numbers and objects as they are, other values as numpy arrays, images as [H, W, C].

    Raises:
        FieldTypeError: the value has another kind or form.
    """
    kind = form.kind
    if kind == "object":
        return value
    if kind == "number":
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            plain = value.dtype in (torch.bool, torch.int64, torch.float64)
            return value.item() if plain else _as_array(value).reshape(())[()]
        if isinstance(value, (bool, int, float, complex, np.generic)) or (
            isinstance(value, np.ndarray) and not value.ndim
        ):
            return value
    elif kind == "image":
        pixels = _as_pixels(value, form.channels != 3, told)
        if pixels is not None:
            if form.fits(pixels):
                return pixels
            raise form.error(name, Form.of("image", pixels))
    elif isinstance(value, (bytes, bytearray, memoryview, np.ndarray, torch.Tensor)) or _is_picture(value):
        array = _as_frames(value, told) if isinstance(told, Video) else _as_array(value)
        found = Form.of("array", array)
        if found == (BYTES if kind == "encoded" else form):
            return array
        raise form.error(name, found)
    elif isinstance(value, (list, tuple)) and isinstance(told, TAKES_LISTS):
        array = _as_array(value, told).astype(form.dtype, copy=False)
        if not array.size:
            array = array.reshape(0, *([4] if isinstance(told, Boxes) else [0] * ((form.ndim or 1) - 1)))
        if (found := Form.of("array", array)) == form:
            return array
        raise form.error(name, found)
    if form.kind == "number":
        remedy = (
            f"give a number for every sample, float('nan') for none, or write kinds={{{name!r}: 'object'}} for a list"
        )
        raise form.error(name, value, remedy=remedy)
    raise form.error(name, value)


def converter(name: str, form: Form, told: Kind | None = None) -> Callable[[Any], Any]:
    """Make the function of a value that does what `convert` does, with no look at what the usual values are not."""

    def other(value: Any) -> Any:
        return convert(name, form, value, told)

    if form.kind == "object":
        return lambda value: value
    if form.kind == "number":
        return lambda value: value if type(value) in _PLAIN_NUMBERS else other(value)
    if form.kind == "image":
        return _image_converter(form, told, other)
    return other if isinstance(told, Video) else _array_converter(form, other)


def _image_converter(form: Form, told: Kind | None, other: Callable[[Any], Any]) -> Callable[[Any], Any]:
    dtype: Any = np.dtype(np.uint8) if form.dtype is None else form.dtype
    channels, as_it_is = form.channels, not isinstance(told, Image) or told.layout != "CHW"

    def convert_image(value: Any) -> Any:
        if type(value) is np.ndarray and value.dtype == dtype and value.ndim == 3 and as_it_is:
            flags = value.flags
            if flags.c_contiguous and flags.writeable and value.shape[2] == channels:
                return value
        return other(value)

    return convert_image


def _array_converter(form: Form, other: Callable[[Any], Any]) -> Callable[[Any], Any]:
    expected = BYTES if form.kind == "encoded" else form
    dtype, ndim = expected.dtype, expected.ndim

    def convert_array(value: Any) -> Any:
        array = value
        if type(value) is bytes:
            array = np.frombuffer(value, np.uint8)
        elif type(value) is torch.Tensor or _is_tv_tensor(value):
            try:
                array = _plain(value).numpy()
            except (TypeError, RuntimeError):  # it has a gradient or no dtype of numpy, is conjugated or on a GPU
                return other(value)
        if type(array) is np.ndarray and array.dtype == dtype and array.ndim == ndim and expected.shape is None:
            return array
        return other(value)

    return convert_array


def column_of(kind: Held, values: list[Any]) -> Column:
    """Make a column of converted values.

    Raises:
        OverflowError: integers that no dtype of torch holds together.
    """
    if kind != "number":
        return Objects(values) if kind == "object" else values
    numbers = native(np.array(values))
    if not values:
        return numbers
    # numpy makes floats of integers beyond int64, and objects of larger ones.
    large = numbers.dtype.kind == "u" and any(type(value) is int for value in values)  # beyond int64, all of them
    if large or (
        numbers.dtype.kind in "fO"
        and (numbers.dtype.hasobject or all(isinstance(value, (int, np.integer)) for value in values))
    ):
        raise OverflowError(
            f"integers must fit int64 to become a tensor, got {max(values, key=abs)}: give strings instead"
        )
    return numbers


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor is plain memory, and not sparse, nested, quantised or without data."""
    return tensor.layout == torch.strided and not (tensor.is_nested or tensor.is_quantized or tensor.is_meta)


def natural_kind(value: Any) -> Held:
    """Tell the kind that a value shows, as if its type were a plain one."""
    if isinstance(value, torch.Tensor) and not _is_dense(value):
        return "object"
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "encoded" if is_image_file(np.frombuffer(value, np.uint8)) else "array"
    if _is_picture(value):
        return "array" if value.mode in _NUMBERS else "image"
    if isinstance(value, torch.Tensor) and value.dtype in _TORCH_ONLY:
        return "array"
    if isinstance(value, (complex, np.complexfloating)):
        return "number"
    if isinstance(value, np.ndarray) and value.dtype.kind == "c":
        return "array" if value.ndim else "number"
    if isinstance(value, torch.Tensor) and value.ndim:
        image = value.dtype == torch.uint8 and value.ndim == 3 and value.shape[0] in (1, 3)
        return "image" if image and type(value).__name__ != "Mask" else "array"
    kind = kind_of(value)
    if kind == "array" and value.dtype == np.uint8 and value.ndim == 1 and is_image_file(value):
        return "encoded"
    return kind


def _is_picture(value: Any) -> bool:
    """Whether a value is a PIL image; without importing Pillow."""
    kind: Any = type(value)
    return _is_picture_type(kind)


@lru_cache(64)
def _is_picture_type(kind: Any) -> bool:
    return any(cls.__module__ == "PIL.Image" and cls.__name__ == "Image" for cls in kind.__mro__)


def _is_tv_tensor(value: Any) -> bool:
    kind: Any = type(value)
    return kind is not torch.Tensor and _is_tv_type(kind)


@lru_cache(64)
def _is_tv_type(kind: Any) -> bool:
    return issubclass(kind, torch.Tensor) and kind.__module__.startswith("torchvision.tv_tensors")


def _plain(value: Any) -> Any:
    """Give torchvision's tensors as plain ones: each call of a method of theirs costs as much as a conversion."""
    if not _is_tv_tensor(value):
        return value
    with torch._C.DisableTorchFunctionSubclass():
        return value.as_subclass(torch.Tensor)


def _as_array(value: Any, told: Kind | None = None) -> Any:
    if isinstance(value, (list, tuple)):
        numbers: NDArray[Any] = np.asarray(value)
        floats = isinstance(told, (Boxes, Points)) or numbers.dtype == np.float64
        return numbers.astype(np.float32) if floats else numbers
    if isinstance(value, torch.Tensor):
        value = _plain(value)
        if value.dtype in _TORCH_ONLY:
            return value.detach().cpu()
        array: NDArray[Any] = value.detach().cpu().resolve_conj().resolve_neg().numpy()
        return array
    if _is_picture(value):
        return np.array(value, np.int32) if value.mode.startswith("I") else np.array(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return np.frombuffer(value, np.uint8)
    return native(np.asarray(value))


def _as_pixels(value: Any, grey: bool, told: Kind | None = None) -> NDArray[Any] | None:
    """Convert an image to [H, W, C]; None for other values.

    Args:
        value: a PIL image, an array [H, W, C], or a tensor [C, H, W]; of uint8, or any real dtype where it is told.
        grey: a grey PIL image stays grey; otherwise it becomes RGB.
        told: the kind of the field.
    """
    image = told if isinstance(told, Image) else None
    if _is_picture(value):
        if image is not None and image.mode is not None:
            pixels = np.array(value if image.mode in ("unchanged", value.mode) else value.convert(image.mode))
            return pixels.reshape(value.height, value.width, -1)
        if value.mode in _NUMBERS:
            return None
        keep = value.mode == "RGB" or (value.mode == "L" and grey)
        return np.array(value if keep else value.convert("RGB")).reshape(value.height, value.width, -1)
    value = _plain(value)
    if not isinstance(value, (torch.Tensor, np.ndarray)) or value.ndim not in ((3,) if image is None else (2, 3)):
        return None
    tensor = isinstance(value, torch.Tensor)
    array: NDArray[Any] = _as_array(value)
    if array.dtype != np.uint8 and (image is None or array.dtype.kind not in "uif"):
        return None
    if image is not None:
        array = array[..., None] if array.ndim == 2 else as_rows(array, image, tensor)
    elif tensor:
        array = array.transpose(1, 2, 0)
    # torch warns of memory that is not writable.
    return np.ascontiguousarray(array) if array.flags.writeable else array.copy()


def _as_frames(value: Any, told: Video) -> Any:
    """Convert a clip to [F, H, W, C]."""
    array = _as_array(value)
    if np.ndim(array) != 4:
        return array
    first = isinstance(value, torch.Tensor) if told.layout is None else told.layout == "FCHW"
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1)) if first else array
