"""Messages of tf.train.Example, which hold a list of values for each feature.

The format: tensorflow/core/example/example.proto and feature.proto.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..storage import Bytes
from .protobuf import Message, message_classes, parse

LISTS = {"bytes": "bytes_list", "float": "float_list", "int": "int64_list"}
"""The lists that a feature may have, by type."""


@functools.cache
def _example() -> Message:
    return message_classes(
        {
            "Example": {"features": (1, "Features")},
            "Features": {"feature": (1, "map Feature")},
            "Feature": {
                "bytes_list": (1, "BytesList"),
                "float_list": (2, "FloatList"),
                "int64_list": (3, "Int64List"),
            },
            "BytesList": {"value": (1, "repeated bytes")},
            "FloatList": {"value": (1, "repeated float")},
            "Int64List": {"value": (1, "repeated int64")},
        },
        one_of={"Feature": "kind"},
    )["Example"]


def check_protobuf() -> None:
    """Check that examples can be parsed.

    Raises:
        ImportError: protobuf is not installed.
    """
    _example()


def parse_example(data: Bytes) -> Mapping[str, Message]:
    """Parse an Example, or the context of a SequenceExample: its features by name.

    Raises:
        ValueError: it is malformed.
    """
    features: Mapping[str, Message] = parse(_example(), "tf.train.Example", data).features.feature
    return features


def type_of(feature: Message) -> str | None:
    """Give the type of a feature's list: "bytes", "float" or "int"; None: it has none."""
    found = feature.WhichOneof("kind")
    return next((kind for kind, name in LISTS.items() if name == found), None)


def values_of(feature: Message) -> list[Bytes] | NDArray[Any]:
    """Give a feature's values: uint8 [n] each, or float32 or int64 [n]; none where it has no list."""
    found = feature.WhichOneof("kind")
    if found == "bytes_list":
        return [np.frombuffer(bytearray(value), np.uint8) for value in feature.bytes_list.value]
    if found == "float_list":
        return np.array(feature.float_list.value, np.float32)
    return np.array(feature.int64_list.value, np.int64)
