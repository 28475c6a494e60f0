"""DALI's reader classes: their options, and the state that puts a reader at a position."""

from __future__ import annotations

import ast
import base64
from typing import Any

from .. import _dali


def native_reader(name: str) -> Any:
    """Get a reader class of dynamic mode, such as "File" or "experimental.Video"."""
    module, _, name = name.rpartition(".")
    return getattr(_dali.dynamic().experimental.readers if module else _dali.dynamic().readers, name)


def reader_arguments(reader: Any) -> set[str]:
    """Give the names of a native reader's options.

    Raises:
        TypeError: `reader` is not a reader of dynamic mode.
    """
    schema = getattr(reader, "_schema", None)
    if schema is None or not hasattr(reader, "set_state"):
        raise TypeError(f"a reader of dynamic mode was expected, such as ndd.readers.File, got {reader!r}")
    return set(schema.GetArgumentNames())


def reader_default(reader: Any, option: str) -> Any:
    """Give the default of a native reader's option, if it is a plain value."""
    return ast.literal_eval(reader._schema.GetArgumentDefaultValueString(option))


def reader_devices(reader: Any) -> set[str]:
    """Give the devices of a native reader's outputs: "cpu", "gpu"."""
    return set(reader._supported_backends)


def reader_state(generator: int, epoch: int, age: int) -> str:
    """Make the state, for `set_state`, of a native reader that has read `age` rows of an epoch.

    It is DALI 2.4's checkpoint of a loader: a protobuf message with the text of a minstd_rand generator, the epoch and
    the rows delivered, padding included.  DALI loops for ever on a generator out of range, and takes any other number.

    Raises:
        ValueError: a number that DALI can't take.
    """
    if not (0 < generator < 2**31 - 1 and 0 <= epoch < 2**31 and 0 <= age < 2**31):
        raise ValueError(f"not a state of a reader: generator {generator}, epoch {epoch}, age {age}")
    text = str(generator).encode()
    inner = b"\x0a" + bytes([len(text)]) + text + b"\x10" + _varint(epoch) + b"\x18" + _varint(age)
    return base64.b64encode(b"\x0a" + bytes([len(inner)]) + inner).decode()


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])
