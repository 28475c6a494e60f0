"""The few parts of protobuf's wire format that record files need, and their messages.

Messages are read in place: positions are those in the whole buffer, so that an error names the byte of its record.
The format: https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..storage import Bytes

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LARGEST_VARINT = 10  # bytes, for 64 bits


class Field(NamedTuple):
    """One field of a message.

    Attributes:
        number: which field.
        wire: how it is stored, such as VARINT.
        begin, end: where its value's bytes are in the buffer; of a varint, the varint's own.
    """

    number: int
    wire: int
    begin: int
    end: int


def message(data: memoryview, begin: int = 0, end: int | None = None) -> Iterator[Field]:
    """The fields of a message in their order; one field may come several times.

    Args:
        data: a buffer of bytes.
        begin, end: where the message is in it.

    Raises:
        ValueError: it is malformed, with the offset in the buffer.
    """
    stop = len(data) if end is None else end
    at = begin
    while at < stop:
        key = data[at]
        start = at + 1
        if key >= 0x80:
            key, start = varint(data, at, stop)
        number, wire = key >> 3, key & 7
        if not 0 < number < 1 << 29:
            raise ValueError(f"a protobuf field from 1 to {(1 << 29) - 1} was expected at byte {at}, got {number}")
        if wire == BYTES:
            if start < stop and data[start] < 0x80:
                size, start = data[start], start + 1
            else:
                size, start = varint(data, start, stop)
            at = start + size
        elif wire == VARINT:
            _, at = varint(data, start, stop)
        elif wire == FIXED32:
            at = start + 4
        elif wire == FIXED64:
            at = start + 8
        else:
            raise ValueError(f"a protobuf field of type 0, 1, 2 or 5 was expected at byte {at}, got type {wire}")
        if at > stop:
            raise ValueError(
                f"{at - start} bytes of protobuf field {number} were expected at byte {start}, got {stop - start}"
            )
        yield Field(number, wire, start, at)


def varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """An unsigned number of 64 bits, and where it ends; a negative int64 is 2^64 larger here.

    Raises:
        ValueError: it does not end before `end`, or has more than 10 bytes.
    """
    value = 0
    for i in range(at, min(end, at + LARGEST_VARINT)):
        byte = data[i]
        value |= (byte & 0x7F) << (7 * (i - at))
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, i + 1
    raise ValueError(f"a protobuf number was expected at byte {at}, and it does not end")


def signed(data: memoryview, field: Field) -> int:
    """The int32 or int64 of a field that is not repeated; ValueError if it is none."""
    _expect(field, VARINT)
    value, _ = varint(data, field.begin, field.end)
    return value - (1 << 64) if value >> 63 else value


def span(field: Field) -> tuple[int, int]:
    """Where the bytes of a field of bytes, of text or of a message are; ValueError if it is none."""
    _expect(field, BYTES)
    return field.begin, field.end


def integers(data: memoryview, fields: Sequence[Field]) -> NDArray[np.int64]:
    """A repeated int32 or int64, [n], from all its fields, packed or not.

    Raises:
        ValueError: it is malformed or of another type.
    """
    for field in fields:
        _expect(field, VARINT, BYTES)
        if field.end > field.begin and data[field.end - 1] >= 0x80:
            raise ValueError(f"protobuf numbers were expected to end before byte {field.end}")
    if len(fields) == 1 and fields[0].end - fields[0].begin <= 8:  # mostly one number
        at, end = fields[0].begin, fields[0].end
        few = []
        while at < end:
            value, at = varint(data, at, end)
            few.append(value - (1 << 64) if value >> 63 else value)
        return np.array(few, np.int64)
    joined = np.frombuffer(b"".join([data[field.begin : field.end] for field in fields]), np.uint8)
    (ends,) = np.nonzero(joined < 0x80)
    begins = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - begins + 1
    longest = int(lengths.max(initial=1))
    if longest > LARGEST_VARINT:
        raise ValueError(f"a protobuf number of at most {LARGEST_VARINT} bytes was expected, got {longest} bytes")
    if longest == 1:
        return joined.astype(np.int64)
    values = (joined[begins] & 0x7F).astype(np.uint64)
    for i in range(1, longest):
        (rows,) = np.nonzero(lengths > i)
        values[rows] |= (joined[begins[rows] + i] & 0x7F).astype(np.uint64) << np.uint64(7 * i)
    result: NDArray[np.int64] = values.view(np.int64)
    return result


def floats(data: memoryview, fields: Sequence[Field]) -> NDArray[np.float32]:
    """A repeated float, [n], from all its fields, packed or not; errors as `integers`."""
    for field in fields:
        _expect(field, FIXED32, BYTES)
        if (field.end - field.begin) % 4:
            raise ValueError(
                f"protobuf floats of 4 bytes were expected at byte {field.begin}, got {field.end - field.begin}"
            )
    joined = b"".join([data[field.begin : field.end] for field in fields])
    return np.frombuffer(joined, "<f4").astype(np.float32)


def _expect(field: Field, *wires: int) -> None:
    if field.wire not in wires:
        raise ValueError(
            f"protobuf field {field.number} was expected to be of type {' or '.join(map(str, wires))}, "
            f"got {field.wire} at byte {field.begin}"
        )


FeatureList = tuple[int, list[Field]]
"""Which of an example's lists a feature has (1 bytes, 2 float, 3 int64, 0 none), and its values."""


def example(data: memoryview, wanted: Set[bytes]) -> dict[bytes, FeatureList]:
    """The wanted features of a tf.train.Example, or of a SequenceExample's context.

    Raises:
        ValueError: it is malformed, with the offset in it.
    """
    found: dict[bytes, FeatureList] = {}
    for features in message(data):
        if features.number != 1:
            continue
        for entry in message(data, *span(features)):
            if entry.number != 1:
                continue
            key, parts = b"", []
            for part in message(data, *span(entry)):
                if part.number == 1:
                    key = bytes(data[slice(*span(part))])
                elif part.number == 2:
                    parts.append(part)
            if key in wanted:
                found[key] = _feature_list(data, parts)
    return found


def _feature_list(data: memoryview, parts: Sequence[Field]) -> FeatureList:
    number: int = 0
    values: list[Field] = []
    for part in parts:
        for one in message(data, *span(part)):
            if one.number in (1, 2, 3):
                if one.number != number:  # of several lists, the last one counts
                    number, values = one.number, []
                values += [value for value in message(data, *span(one)) if value.number == 1]
    return number, values


class Datum(NamedTuple):
    """Caffe's message of an image.

    Attributes:
        data: where its bytes are, None where it has none.
        label: None where it has none.
        encoded: whether the bytes are an image file; None: it does not say so.
        shape: channels, height and width; 0 where it does not say so.
    """

    data: tuple[int, int] | None
    label: int | None
    encoded: bool | None
    shape: tuple[int, int, int]


def datum(data: memoryview) -> Datum:
    """From a message of Caffe's caffe.proto; ValueError if it is malformed."""
    numbers: dict[int, int] = {}
    pixels = None
    for field in message(data):
        if field.number == 4:
            pixels = span(field)
        elif field.number in (1, 2, 3, 5, 7):
            numbers[field.number] = signed(data, field)
    if any(not -(1 << 31) <= number < 1 << 31 for number in numbers.values()):
        raise ValueError(f"a Datum's numbers of 32 bits were expected, got {max(numbers.values(), key=abs)}")
    channels, height, width = (numbers.get(number, 0) for number in (1, 2, 3))
    encoded = numbers.get(7)
    return Datum(pixels, numbers.get(5), None if encoded is None else bool(encoded), (channels, height, width))


class Tensor(NamedTuple):
    """Caffe2's message of a tensor.

    Attributes:
        dims: its shape.
        type: 1 float, 2 int32, 3 bytes, 4 strings; others see caffe2.proto.
        values: the fields that hold values, by their number.
    """

    dims: list[int]
    type: int
    values: dict[int, list[Field]]


def tensors(data: memoryview) -> list[Tensor]:
    """The parts of a message TensorProtos of Caffe2's caffe2.proto; ValueError if it is malformed."""
    found = []
    for proto in message(data):
        if proto.number != 1:
            continue
        dims: list[Field] = []
        kind, values = 1, dict[int, list[Field]]()
        for field in message(data, *span(proto)):
            if field.number == 1:
                dims.append(field)
            elif field.number == 2:
                kind = signed(data, field)
            else:
                values.setdefault(field.number, []).append(field)
        found.append(Tensor(integers(data, dims).tolist(), kind, values))
    return found


# Samples of Caffe and Caffe2, as DALI's readers give them.


def caffe_sample(data: Bytes, names: Sequence[str], layout: str) -> dict[str, Any]:
    """Of a Datum: image, uint8 [n] or [H, W, C], and label, int64.

    Args:
        data: the message.
        names: which of these.
        layout: of pixels, "HWC", or "CHW" for planes in the order blue, green, red.

    Raises:
        ValueError: it is malformed, or lacks one of them.
    """
    found = datum(data.data)
    sample: dict[str, Any] = {}
    if "image" in names:
        if found.data is None:
            raise ValueError("a Datum with data was expected: float_data is not read")
        begin, end = found.data
        channels, height, width = found.shape
        size = channels * height * width
        pixels = found.encoded is False or (found.encoded is None and size == end - begin and size > 0)
        if pixels and size != end - begin:
            raise ValueError(f"{height} x {width} pixels of {channels} bytes were expected, got {end - begin} bytes")
        image = data[begin:end]
        if pixels and layout == "HWC":
            image = image.reshape(height, width, channels)
        elif pixels:
            image = np.ascontiguousarray(image.reshape(channels, height, width)[::-1].transpose(1, 2, 0))
        sample["image"] = image
    if "label" in names:
        if found.label is None:
            raise ValueError("a Datum with a label was expected: write fields=('image',) for those without")
        sample["label"] = np.int64(found.label)
    return sample


def caffe2_sample(data: Bytes, names: Sequence[str], label_type: str, num_labels: int) -> dict[str, Any]:
    """Of TensorProtos: image, uint8 [n] or [H, W, C], label, and bbox, int32 [4]; see `LMDBDataset`.

    Raises:
        ValueError: they are malformed, or lack one of them.
    """
    found = tensors(data.data)
    labels = {"none": 0, "weighted": 2}.get(label_type, 1)
    if len(found) < 1 + labels + ("bbox" in names):
        raise ValueError(f"at least {1 + labels + ('bbox' in names)} parts were expected, got {len(found)}")
    sample: dict[str, Any] = {}
    if "image" in names:
        sample["image"] = _caffe2_image(data, found[0])
    if "label" in names:
        if label_type in ("single", "dense"):
            values = _caffe2_numbers(data, found[1])
            if label_type == "single" and len(values) != 1:
                raise ValueError(f"one label was expected, got {len(values)}")
            if label_type == "single" and values.dtype == np.int32:
                values = values.astype(np.int64)  # as all datasets have them
            sample["label"] = values if label_type == "dense" else values[0]
        else:
            indices = _caffe2_numbers(data, found[1])
            weights = (
                _caffe2_numbers(data, found[2]) if label_type == "weighted" else np.ones(len(indices), indices.dtype)
            )
            if len(weights) != len(indices) or (label_type == "weighted" and weights.dtype != np.float32):
                raise ValueError(f"{len(indices)} float weights were expected, got {len(weights)} of {weights.dtype}")
            if len(indices) and not 0 <= indices.min() <= indices.max() < num_labels:
                raise ValueError(
                    f"labels in [0, {num_labels}) were expected, got {indices.tolist()}: write num_labels="
                )
            sample["label"] = np.zeros(num_labels, weights.dtype)
            sample["label"][indices.astype(np.int64)] = weights
    if "bbox" in names:
        box = _caffe2_numbers(data, found[-1])
        if box.dtype != np.int32 or len(box) != 4:
            raise ValueError(f"a box of 4 int32 was expected in the last part, got {len(box)} of {box.dtype}")
        sample["bbox"] = box
    return sample


def _caffe2_image(data: Bytes, tensor: Tensor) -> Bytes:
    if tensor.type == 4 and len(texts := tensor.values.get(6, [])) == 1:
        return data[slice(*span(texts[0]))]
    if tensor.type == 3 and len(raw := tensor.values.get(5, [])) == 1:
        shape = tensor.dims if len(tensor.dims) == 3 else [*tensor.dims, 1]
        pixels = data[slice(*span(raw[0]))]
        if len(shape) != 3 or min(shape) < 1 or math.prod(shape) != len(pixels):
            raise ValueError(f"pixels of the shape {tensor.dims} were expected, got {len(pixels)} bytes")
        return pixels.reshape(shape)
    raise ValueError(f"an image as one string or as bytes was expected in the first part, got type {tensor.type}")


def _caffe2_numbers(data: Bytes, tensor: Tensor) -> NDArray[Any]:
    if tensor.type == 1:
        return floats(data.data, tensor.values.get(3, []))
    if tensor.type == 2:
        return integers(data.data, tensor.values.get(4, [])).astype(np.int32)
    raise ValueError(f"a part of floats or int32 was expected, got type {tensor.type}")
