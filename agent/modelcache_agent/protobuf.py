"""Messages of gRPC interfaces, built at run time from tables, so that nothing generated is kept.

Fields that are not listed are skipped on reading, as protobuf does.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

# (name, number, type). A type is a scalar, another message's name, or one of both in a list;
# "map" is a map of strings.
Fields = tuple[tuple[str, int, str], ...]
_SCALARS: Final = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
}


def make_classes(package: str, table: dict[str, Fields]) -> dict[str, Any]:
    """The messages of a package by name."""
    file = FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    for name, fields in table.items():
        message = file.message_type.add(name=name)
        for field_name, number, kind in fields:
            _add_field(message, f".{package}", field_name, number, kind)
    pool = DescriptorPool()
    pool.Add(file)
    found = (pool.FindMessageTypeByName(f"{package}.{name}") for name in table)
    return {descriptor.name: GetMessageClass(descriptor) for descriptor in found}


def _add_field(message: DescriptorProto, scope: str, name: str, number: int, kind: str) -> None:
    is_repeated = kind == "map" or kind.startswith("[")
    label = FieldDescriptorProto.LABEL_REPEATED if is_repeated else None
    field = message.field.add(
        name=name, number=number, label=label or FieldDescriptorProto.LABEL_OPTIONAL
    )
    if kind == "map":
        entry = message.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
        entry.options.map_entry = True
        _add_field(entry, scope, "key", 1, "string")
        _add_field(entry, scope, "value", 2, "string")
        kind = f"{message.name}.{entry.name}"
    kind = kind.strip("[]")
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f"{scope}.{kind}"
