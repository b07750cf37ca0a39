"""containerd, one per node, and bringing images into it."""

from __future__ import annotations

import json
import os
import shutil
import socket
from typing import TYPE_CHECKING

from modelcache_testbed.commands import run_quietly
from modelcache_testbed.components import Component
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.programs import CONTAINERD, CONTAINERD_SHIM, CTR
from modelcache_testbed.real_nodes.layout import RealNode
from modelcache_testbed.real_nodes.namespaces import on_node

if TYPE_CHECKING:
    from pathlib import Path

PAUSE_IMAGE = "modelcache.io/testbed/pause:1"
CNI_PROGRAMS = "/usr/lib/cni"
_NAMESPACE = "k8s.io"  # where the kubelet looks for images

_CONFIGURATION = """\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]

[grpc]
address = "/run/containerd/containerd.sock"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{pause_image}"

[plugins.'io.containerd.cri.v1.runtime']
# Negative scores are refused to processes without CAP_SYS_RESOURCE on the machine itself.
restrict_oom_score_adj = true
enable_cdi = false

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["{cni_programs}"]
conf_dir = "{cni_settings}"

[plugins.'io.containerd.cri.v1.runtime'.containerd]
default_runtime_name = "runc"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
BinaryName = "{runc}"
SystemdCgroup = false
"""


def component(node: RealNode) -> Component:
    """Return the node's containerd."""
    argv = (str(CONTAINERD.path), f"--config={_configuration_file(node)}")
    # containerd finds the shim by PATH.
    path = os.pathsep.join([str(CONTAINERD_SHIM.path.parent), os.environ.get("PATH", os.defpath)])
    runtime = Component(
        name(node), argv, lambda: _accepts(node.runtime_socket), environment={"PATH": path}
    )
    return on_node(node, runtime)


def name(node: RealNode) -> str:
    """Return the component's name."""
    return f"containerd-{node.name}"


def write_settings(node: RealNode) -> None:
    """Write what containerd and its network plug-ins read."""
    network_settings = node.settings / "cni"
    network_settings.mkdir(parents=True, exist_ok=True)
    (network_settings / "10-pods.conflist").write_text(json.dumps(_pod_network(node), indent=1))
    _configuration_file(node).write_text(
        _CONFIGURATION.format(
            pause_image=PAUSE_IMAGE,
            cni_programs=CNI_PROGRAMS,
            cni_settings=network_settings,
            runc=shutil.which("runc") or "runc",
        )
    )


def load_image(node: RealNode, archive: Path) -> None:
    """Bring the images of an archive (docker save, or OCI) into a node."""
    socket_file = node.runtime_socket
    if socket_file is None:
        raise TestbedError(f"node {node.name} is down")
    _ctr(socket_file, "images", "import", "--local", "--digests=false", str(archive))


def images(node: RealNode) -> list[str]:
    """Return the names of the images that a node has."""
    socket_file = node.runtime_socket
    return _ctr(socket_file, "images", "ls", "-q").split() if socket_file else []


def _ctr(socket_file: Path, *arguments: str) -> str:
    return run_quietly(str(CTR.path), f"--address={socket_file}", f"-n={_NAMESPACE}", *arguments)


def _configuration_file(node: RealNode) -> Path:
    return node.settings / "containerd.toml"


def _pod_network(node: RealNode) -> dict[str, object]:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": node.pod_subnet}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {
        "type": "bridge",
        "bridge": node.pod_bridge,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": addresses,
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]}


def _accepts(socket_file: Path | None) -> bool:
    if socket_file is None:
        return False
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(socket_file))
        except OSError:
            return False
    return True
