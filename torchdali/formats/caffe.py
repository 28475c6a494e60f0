"""Messages of Caffe and Caffe2, and the samples in them, as DALI's readers give them.

The formats: caffe.proto (Datum) and caffe2.proto (TensorProtos).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..storage import Bytes
from .protobuf import Message, message_classes, parse

LABEL_TYPES = ("single", "sparse", "dense", "weighted", "none")
"""DALI's label types of Caffe2, in the order of its numbers."""

_FLOAT, _INT32, _BYTES, _STRING = 1, 2, 3, 4  # data types in caffe2.proto


@functools.cache
def _messages() -> dict[str, Message]:
    numbers = ("channels", 1), ("height", 2), ("width", 3), ("label", 5)
    return message_classes(
        {
            # In caffe.proto these numbers have 32 bits; read with 64 bits, one out of range is found, and not cut off.
            "Datum": {
                **{name: (number, "int64") for name, number in numbers},
                "data": (4, "bytes"),
                "encoded": (7, "bool"),
            },
            "Tensor": {
                "dims": (1, "repeated int64"),
                "data_type": (2, "int32"),
                "float_data": (3, "repeated float"),
                "int32_data": (4, "repeated int32"),
                "byte_data": (5, "bytes"),
                "string_data": (6, "repeated bytes"),
            },
            "TensorProtos": {"protos": (1, "repeated Tensor")},
        }
    )


def check_protobuf() -> None:
    """Check that messages can be parsed.

    Raises:
        ImportError: protobuf is not installed.
    """
    _messages()


def caffe_sample(data: Bytes, names: Sequence[str], layout: str) -> dict[str, Any]:
    """Read a sample from a Datum: image, uint8 [n] or [H, W, C], and label, int64.

    Args:
        data: the message.
        names: the fields to read.
        layout: the layout of pixels: "HWC", or "CHW" for planes in the order blue, green, red.

    Raises:
        ValueError: the message is malformed, or lacks a field.
    """
    found = parse(_messages()["Datum"], "Datum", data)
    numbers = [found.channels, found.height, found.width, found.label]
    if any(not -(1 << 31) <= number < 1 << 31 for number in numbers):
        raise ValueError(f"a Datum's numbers of 32 bits were expected, got {max(numbers, key=abs)}")
    sample: dict[str, Any] = {}
    if "image" in names:
        if not found.HasField("data"):
            raise ValueError("a Datum with data was expected: float_data is not read")
        sample["image"] = _caffe_image(found, layout)
    if "label" in names:
        if not found.HasField("label"):
            raise ValueError("a Datum with a label was expected: write fields=('image',) for those without")
        sample["label"] = np.int64(found.label)
    return sample


def _caffe_image(datum: Message, layout: str) -> Bytes:
    image = _array(datum.data)
    channels, height, width = datum.channels, datum.height, datum.width
    size = channels * height * width
    if datum.encoded or (not datum.HasField("encoded") and (size != len(image) or size <= 0)):
        return image
    if size != len(image):
        raise ValueError(f"{height} x {width} pixels of {channels} bytes were expected, got {len(image)} bytes")
    if layout == "HWC":
        return image.reshape(height, width, channels)
    return np.ascontiguousarray(image.reshape(channels, height, width)[::-1].transpose(1, 2, 0))


def caffe2_sample(data: Bytes, names: Sequence[str], label_type: str, num_labels: int) -> dict[str, Any]:
    """Read a sample from TensorProtos: image, uint8 [n] or [H, W, C], label by its type, and bbox, int32 [4].

    Raises:
        ValueError: the message is malformed, or lacks a field.
    """
    found = parse(_messages()["TensorProtos"], "TensorProtos", data).protos
    labels = {"none": 0, "weighted": 2}.get(label_type, 1)
    if len(found) < 1 + labels + ("bbox" in names):
        raise ValueError(f"at least {1 + labels + ('bbox' in names)} parts were expected, got {len(found)}")
    sample: dict[str, Any] = {}
    if "image" in names:
        sample["image"] = _caffe2_image(found[0])
    if "label" in names:
        if label_type in ("single", "dense"):
            values = _caffe2_numbers(found[1])
            if label_type == "single" and len(values) != 1:
                raise ValueError(f"one label was expected, got {len(values)}")
            if label_type == "single" and values.dtype == np.int32:
                values = values.astype(np.int64)  # as all datasets have them
            sample["label"] = values if label_type == "dense" else values[0]
        else:
            indices = _caffe2_numbers(found[1])
            weights = _caffe2_numbers(found[2]) if label_type == "weighted" else np.ones(len(indices), indices.dtype)
            if len(weights) != len(indices) or (label_type == "weighted" and weights.dtype != np.float32):
                raise ValueError(f"{len(indices)} float weights were expected, got {len(weights)} of {weights.dtype}")
            if len(indices) and not 0 <= indices.min() <= indices.max() < num_labels:
                raise ValueError(
                    f"labels in [0, {num_labels}) were expected, got {indices.tolist()}: write num_labels="
                )
            sample["label"] = np.zeros(num_labels, weights.dtype)
            sample["label"][indices.astype(np.int64)] = weights
    if "bbox" in names:
        box = _caffe2_numbers(found[-1])
        if box.dtype != np.int32 or len(box) != 4:
            raise ValueError(f"a box of 4 int32 was expected in the last part, got {len(box)} of {box.dtype}")
        sample["bbox"] = box
    return sample


def _caffe2_image(tensor: Message) -> Bytes:
    kind = _type(tensor)
    if kind == _STRING and len(tensor.string_data) == 1:
        return _array(tensor.string_data[0])
    if kind == _BYTES and tensor.HasField("byte_data"):
        dims, pixels = list(tensor.dims), _array(tensor.byte_data)
        shape = dims if len(dims) == 3 else [*dims, 1]
        if len(shape) != 3 or min(shape) < 1 or math.prod(shape) != len(pixels):
            raise ValueError(f"pixels of the shape {dims} were expected, got {len(pixels)} bytes")
        return pixels.reshape(shape)
    raise ValueError(f"an image as one string or as bytes was expected in the first part, got type {kind}")


def _caffe2_numbers(tensor: Message) -> NDArray[Any]:
    kind = _type(tensor)
    if kind == _FLOAT:
        return np.array(tensor.float_data, np.float32)
    if kind == _INT32:
        return np.array(tensor.int32_data, np.int32)
    raise ValueError(f"a part of floats or int32 was expected, got type {kind}")


def _type(tensor: Message) -> int:
    return int(tensor.data_type) if tensor.HasField("data_type") else _FLOAT


def _array(data: bytes) -> Bytes:
    """Copy bytes into a writable array, as DALI needs it."""
    return np.frombuffer(bytearray(data), np.uint8)
