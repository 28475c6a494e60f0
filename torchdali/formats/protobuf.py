"""Makes and parses protobuf messages at run time: generated files would fit only one version of protobuf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..storage import Bytes

Message = Any  # protobuf's classes are made at run time
Parts = Mapping[str, tuple[int, str]]
"""The fields of a message: the number, and "[repeated ]TYPE", where a type is a scalar's name or another message's."""


def message_classes(messages: Mapping[str, Parts], one_of: Mapping[str, str] | None = None) -> dict[str, Message]:
    """Make classes of messages.

    Args:
        messages: the fields of each message, by its name.  "map TYPE" is a map from strings.
        one_of: the name of the `oneof` that a message's fields belong to, by the message's name.

    Raises:
        ImportError: protobuf is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise ImportError("these records need a package: pip install torchdali[records]") from error
    kinds: Any = descriptor_pb2.FieldDescriptorProto
    # In proto2, strings may be any bytes, and some writers don't check them.
    file: Any = descriptor_pb2.FileDescriptorProto(name="records.proto", package="torchdali", syntax="proto2")

    def add(descriptor: Any, name: str, number: int, what: str) -> Any:
        *label, kind = what.split()
        field = descriptor.field.add(name=name, number=number)
        field.label = kinds.LABEL_REPEATED if label else kinds.LABEL_OPTIONAL
        if kind in messages or label == ["map"]:
            field.type, field.type_name = kinds.TYPE_MESSAGE, f".torchdali.{kind}"
        else:
            field.type = getattr(kinds, f"TYPE_{kind.upper()}")
        return field

    for message, parts in messages.items():
        descriptor = file.message_type.add(name=message)
        if choice := (one_of or {}).get(message):
            descriptor.oneof_decl.add(name=choice)
        for name, (number, what) in parts.items():
            field = add(descriptor, name, number, what)
            if choice:
                field.oneof_index = 0
            if what.startswith("map "):
                entry = descriptor.nested_type.add(name=f"{name.capitalize()}Entry")
                entry.options.map_entry = True
                add(entry, "key", 1, "string")
                add(entry, "value", 2, what.removeprefix("map "))
                field.type_name = f".torchdali.{message}.{entry.name}"
    pool: Any = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"torchdali.{message}"))
        for message in messages
    }


def parse(message: Message, name: str, data: Bytes) -> Message:
    """Parse a message.

    Args:
        message: its class.
        name: the message's name, for errors.
        data: uint8 [n].

    Raises:
        ValueError: it is malformed.
    """
    from google.protobuf.message import DecodeError

    try:
        return message.FromString(data.data)
    except DecodeError as error:
        raise ValueError(f"a protobuf message {name} was expected: {error}") from None
