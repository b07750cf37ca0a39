"""Profile ``nodes``: three real nodes on one machine, containers included. Needs root.

All of it lives in one network namespace of the instance's own, each node in a mount namespace of
its own. Nothing of the machine itself is changed: neither its network, nor its mounts, nor its
kernel settings.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.certificates import CertificateAuthority
from modelcache_testbed.cluster import Cluster
from modelcache_testbed.components import Component
from modelcache_testbed.control_plane_files import Layout, write_settings
from modelcache_testbed.folders import cache_folder
from modelcache_testbed.kubeconfig import write_certificate_kubeconfig
from modelcache_testbed.profiles import control_plane
from modelcache_testbed.profiles.control_plane import Exposure, kubeconfig
from modelcache_testbed.programs import (
    CONTAINERD,
    CONTAINERD_SHIM,
    COREDNS,
    CTR,
    KUBE_PROXY,
    KUBELET,
    Program,
)
from modelcache_testbed.real_nodes import cgroups, machine, services
from modelcache_testbed.real_nodes.fleet import Fleet
from modelcache_testbed.real_nodes.layout import GATEWAY, instance_cgroup, living
from modelcache_testbed.real_nodes.namespaces import (
    NETWORK,
    in_network,
    network_holder,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modelcache_testbed.instance import Instance

__all__ = [
    "DEFAULT_NODE_GRACE_SECONDS",
    "add_nodes",
    "check_machine",
    "clean_up",
    "kubeconfig",
    "load_image",
    "port_names",
    "prepare",
    "programs",
    "stages",
]

DEFAULT_NODE_GRACE_SECONDS = 50  # as Kubernetes has it: what happens to silent nodes is real here
DEFAULT_NODES = ("n1", "n2", "n3")
_FORWARDER = "forwarder"
_API_CLIENT = "kubelet-client"
_SERVICE_USERS = {services.PROXY: "system:kube-proxy", services.DNS: services.DNS_USER}


def check_machine(instance: Instance) -> None:
    """Raise TestbedError unless real nodes can run here; install what apt can add."""
    machine.require_machine([instance.folder, cache_folder()])
    machine.ensure_packages(machine.NODE_PACKAGES)


def programs() -> Sequence[Program]:
    """Return the programs that must be built first."""
    own = (KUBELET, KUBE_PROXY, CONTAINERD, CONTAINERD_SHIM, CTR, COREDNS)
    return (*control_plane.programs(), *own)


def port_names() -> Sequence[str]:
    """Return a name for each port; the host reaches all of them through the forwarder."""
    return (*control_plane.port_names(), services.PROXY, services.DNS)


def prepare(instance: Instance, node_names: Sequence[str]) -> None:
    """Write what everything reads, and end what lost the namespaces it ran in."""
    write_settings(instance, also_serves=[GATEWAY])
    fleet = Fleet(instance)
    fleet.prepare(node_names or (() if fleet.names else DEFAULT_NODES))
    _write_credentials(instance, fleet.names[0])
    if living(instance.folder, NETWORK) is None:
        _end_everything(instance)
    for node in fleet.nodes:
        if node.holder_identity is None:
            fleet.end(node)


def _write_credentials(instance: Instance, any_node: str) -> None:
    layout = Layout(instance.folder)
    authority = CertificateAuthority.load(layout.keys, "ca")
    clients = {**_SERVICE_USERS, _API_CLIENT: "kube-apiserver-kubelet-client"}
    for name, user in clients.items():
        if not layout.pair(name).certificate.exists():
            groups = ["system:masters"] if name == _API_CLIENT else []
            authority.issue(name, user, organizations=groups)
    ports = instance.read().ports
    server = f"https://{GATEWAY}:{ports['kube-apiserver']}"
    files = {name: layout.kubeconfig(name) for name in _SERVICE_USERS}
    for name, file in files.items():
        certificate = authority.files.certificate
        write_certificate_kubeconfig(file, server, certificate, layout.pair(name))
    services.write_settings(instance.folder, ports, files, any_node)


def stages(instance: Instance) -> Sequence[Sequence[Component]]:
    """Return the components; each stage is ready before the next starts."""
    folder, ports = instance.folder, instance.read().ports
    control = [
        [in_network(folder, component) for component in stage]
        for stage in control_plane.control_plane(instance, _exposure(instance))
    ]
    proxy, name_server = services.components(folder, ports)
    return (
        [network_holder(instance.supervisor, folder)],
        [_forwarder(instance)],
        *control,
        *Fleet(instance).stages(),
        [replace(name_server, before_start=lambda: _apply_dns(instance)), proxy],
    )


def _exposure(instance: Instance) -> Exposure:
    layout = Layout(instance.folder)
    client = layout.pair(_API_CLIENT)
    flags = {
        "kubelet_client_certificate": client.certificate,
        "kubelet_client_key": client.key,
        "kubelet_certificate_authority": layout.pair("ca").certificate,
        "kubelet_preferred_address_types": "InternalIP",
    }
    return Exposure("0.0.0.0", GATEWAY, "lease", flags)


def _apply_dns(instance: Instance) -> None:
    Cluster(kubeconfig(instance)).apply(services.build_dns_objects())


def _forwarder(instance: Instance) -> Component:
    ready_file = instance.folder / f"{_FORWARDER}.ready"
    package_root = Path(__file__).resolve().parents[2]
    ports = [str(port) for port in instance.read().ports.values()]
    module = "modelcache_testbed.forwarder"
    argv = (sys.executable, "-m", module, str(instance.folder), str(ready_file), *ports)

    def is_ready() -> bool:
        said = ready_file.read_text() if ready_file.exists() else ""
        return said == str(instance.supervisor.pid_of(_FORWARDER))

    return Component(_FORWARDER, argv, is_ready, environment={"PYTHONPATH": str(package_root)})


def add_nodes(_cluster: Cluster, _names: Sequence[str]) -> None:
    """Nodes come with the components."""


def load_image(instance: Instance, archive: Path) -> None:
    """Bring the images of an archive into all nodes."""
    Fleet(instance).load_image(archive)


def clean_up(instance: Instance) -> None:
    """End everything that runs in the instance's namespaces and remove its cgroups.

    With the last process of a namespace its mounts, disks, bridges and rules are gone, so there
    is nothing to unmount and no order to keep but one: nobody may start pods while they are ended.
    """
    _end_everything(instance)
    cgroups.remove(instance_cgroup(instance.folder))


def _end_everything(instance: Instance) -> None:
    fleet = Fleet(instance)
    for node in fleet.nodes:
        fleet.end(node)
    cgroups.end_members(instance_cgroup(instance.folder))
    instance.supervisor.stop_all()
