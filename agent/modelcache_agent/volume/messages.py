"""The messages of the CSI and of the kubelet's plug-in registration that this driver uses.

Built at run time from the tables below, so that nothing generated lies in the tree. Numbers and
types are those of the public specifications (csi.v1, pluginregistration.v1); fields that are not
listed are skipped on reading, as protobuf does.
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
_Fields = tuple[tuple[str, int, str], ...]
_SCALARS: Final = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "int64": FieldDescriptorProto.TYPE_INT64,
    "string": FieldDescriptorProto.TYPE_STRING,
}

_CSI: Final[dict[str, _Fields]] = {
    "GetPluginInfoRequest": (),
    "GetPluginInfoResponse": (("name", 1, "string"), ("vendor_version", 2, "string")),
    "GetPluginCapabilitiesRequest": (),
    "GetPluginCapabilitiesResponse": (),
    "ProbeRequest": (),
    # google.protobuf.BoolValue on the wire.
    "Flag": (("value", 1, "bool"),),
    "ProbeResponse": (("ready", 1, "Flag"),),
    "BlockVolume": (),
    "VolumeCapability": (("block", 1, "BlockVolume"),),
    "NodePublishVolumeRequest": (
        ("volume_id", 1, "string"),
        ("target_path", 4, "string"),
        ("volume_capability", 5, "VolumeCapability"),
        ("readonly", 6, "bool"),
        ("volume_context", 8, "map"),
    ),
    "NodePublishVolumeResponse": (),
    "NodeUnpublishVolumeRequest": (("volume_id", 1, "string"), ("target_path", 2, "string")),
    "NodeUnpublishVolumeResponse": (),
    "NodeGetCapabilitiesRequest": (),
    "NodeGetCapabilitiesResponse": (),
    "NodeGetInfoRequest": (),
    "NodeGetInfoResponse": (("node_id", 1, "string"), ("max_volumes_per_node", 2, "int64")),
}
_REGISTRATION: Final[dict[str, _Fields]] = {
    "InfoRequest": (),
    "PluginInfo": (
        ("type", 1, "string"),
        ("name", 2, "string"),
        ("endpoint", 3, "string"),
        ("supported_versions", 4, "[string]"),
    ),
    "RegistrationStatus": (("plugin_registered", 1, "bool"), ("error", 2, "string")),
    "RegistrationStatusResponse": (),
}


def _make_classes(package: str, table: dict[str, _Fields]) -> dict[str, Any]:
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


CSI: Final = _make_classes("csi.v1", _CSI)
REGISTRATION: Final = _make_classes("pluginregistration", _REGISTRATION)
