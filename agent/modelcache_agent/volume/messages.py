"""The messages of the CSI and of the kubelet's plug-in registration that this driver uses.

Numbers and types are those of the public specifications (csi.v1, pluginregistration.v1).
"""

from __future__ import annotations

from typing import Final

from modelcache_agent.protobuf import Fields, make_classes

_CSI: Final[dict[str, Fields]] = {
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
_REGISTRATION: Final[dict[str, Fields]] = {
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


CSI: Final = make_classes("csi.v1", _CSI)
REGISTRATION: Final = make_classes("pluginregistration", _REGISTRATION)
