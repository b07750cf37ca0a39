"""The real nodes of one instance: brought up, lost, rebuilt, added and taken away."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from modelcache_testbed.certificates import CertificateAuthority
from modelcache_testbed.cluster import Cluster
from modelcache_testbed.commands import run_quietly
from modelcache_testbed.control_plane_files import Layout
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.images.busybox import small_images
from modelcache_testbed.kubeconfig import write_certificate_kubeconfig
from modelcache_testbed.real_nodes import cgroups, container_runtime, kubelet, namespaces
from modelcache_testbed.real_nodes.layout import GATEWAY, LARGEST_INDEX, RealNode
from modelcache_testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from modelcache_testbed.certificates import KeyPair
    from modelcache_testbed.components import Component
    from modelcache_testbed.instance import Instance

_INDEXES, _LAST_INDEX, _STORE_BYTES = "nodes", "last_node_index", "node_store_bytes"
DEFAULT_STORE_BYTES = 4 << 30
_DETACH_SECONDS = 20


class Fleet:
    """All nodes of an instance. What is public here takes the instance's lock itself."""

    def __init__(self, instance: Instance) -> None:
        """Refer to the nodes; nothing is read yet."""
        self._instance = instance
        self._layout = Layout(instance.folder)
        self._supervisor = instance.supervisor

    @property
    def nodes(self) -> list[RealNode]:
        """Return the nodes that were added and not removed."""
        indexes = self._instance.read().settings.get(_INDEXES, {})
        return [RealNode(name, index, self._instance.folder) for name, index in indexes.items()]

    @property
    def names(self) -> list[str]:
        """Return the names of the nodes."""
        return [node.name for node in self.nodes]

    def node(self, name: str) -> RealNode:
        """Return one node; TestbedError lists those that exist."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise TestbedError(f"no real node {name!r}; there is: {', '.join(self.names) or 'none'}")

    def run(self, name: str, *argv: str) -> str:
        """Run a command on a node, in its network and with its files, and return its output."""
        return run_quietly(*namespaces.command_on_node(self.node(name), argv))

    def load_image(self, archive: Path, names: Sequence[str] = ()) -> None:
        """Bring the images of an archive into all nodes, or into those named."""
        for name in names or self.names:
            container_runtime.load_image(self.node(name), archive)

    def images(self, name: str) -> list[str]:
        """Return the names of the images that a node has."""
        return container_runtime.images(self.node(name))

    def power_off(self, name: str) -> None:
        """End everything on a node at once, as a cut of its power does; its disks stay."""
        node = self.node(name)
        with self._instance.exclusively():
            self.end(node)

    def power_on(self, name: str) -> None:
        """Start a node, with what its disks hold, and wait until it is Ready."""
        node = self.node(name)
        with self._instance.exclusively():
            self._start(node)

    def add(self, name: str) -> None:
        """Add a node with empty disks, as an autoscaler does, and wait until it is Ready."""
        with self._instance.exclusively():
            self.prepare([name])
            self._start(self.node(name))

    def remove(self, name: str) -> None:
        """Take a node away for good: its pods, its disks and its Node object."""
        node = self.node(name)
        with self._instance.exclusively():
            self.end(node)
            Cluster(self._layout.kubeconfig("admin")).remove_node(name)
            for cgroup in (node.cgroup, node.daemons_cgroup):
                cgroups.remove(cgroup)
            shutil.rmtree(node.folder)
            for pair in self._credentials(node):
                pair.certificate.unlink()  # it names the address, which is not used again
            record = self._instance.read()
            del record.settings[_INDEXES][name]
            self._instance.write(record)

    def rebuild(self, name: str) -> None:
        """Replace a node by an empty one of the same name."""
        self.remove(name)
        self.add(name)

    def prepare(self, more_names: Sequence[str]) -> None:
        """Write what all nodes read, those of new names included. Call it under the lock."""
        self._register(more_names)
        store_bytes = int(self._instance.read().settings.get(_STORE_BYTES, DEFAULT_STORE_BYTES))
        for node in self.nodes:
            for cgroup in (node.cgroup, node.daemons_cgroup):
                cgroups.create(cgroup)
            namespaces.prepare_node(node, store_bytes=store_bytes)
            container_runtime.write_settings(node)
            self._write_credentials(node)

    def end(self, node: RealNode) -> None:
        """End everything that runs on a node. Call it under the lock."""
        for cgroup in (node.daemons_cgroup, node.cgroup):
            cgroups.end_members(cgroup)
        for name in (kubelet.name(node), container_runtime.name(node), node.holder):
            self._supervisor.stop(name)
        wait_until(
            lambda: not namespaces.attached_loops(node.folder),
            seconds=_DETACH_SECONDS,
            what=f"release of the disk of {node.name}",
        )

    def stages(self) -> list[list[Component]]:
        """Return the components of all nodes; each stage is ready before the next starts."""
        per_node = [self._stages(node) for node in self.nodes]
        return [list(stage) for stage in zip(*per_node, strict=True)]

    def _stages(self, node: RealNode) -> list[Component]:
        return [
            namespaces.node_holder(self._supervisor, node),
            container_runtime.component(node),
            kubelet.component(
                node,
                self._kubeconfig(node),
                self._layout.kubeconfig("admin"),
                before_start=lambda: self._load_small_images(node),
            ),
        ]

    def _start(self, node: RealNode) -> None:
        for component in self._stages(node):
            self._supervisor.start([component])

    def _register(self, names: Sequence[str]) -> None:
        record = self._instance.read()
        indexes = record.settings.setdefault(_INDEXES, {})
        for name in names:
            if name in indexes:
                continue
            index = record.settings.get(_LAST_INDEX, 0) + 1
            if index > LARGEST_INDEX:
                raise TestbedError(
                    f"an instance has addresses for {LARGEST_INDEX} nodes in its life"
                )
            indexes[name] = record.settings[_LAST_INDEX] = index
        self._instance.write(record)

    def _kubeconfig(self, node: RealNode) -> Path:
        return node.settings / "kubelet.kubeconfig"

    def _credentials(self, node: RealNode) -> tuple[KeyPair, KeyPair]:
        """Return the pairs that the node's kubelet asks with, and answers with."""
        return self._layout.pair(f"node-{node.name}"), self._layout.pair(f"kubelet-{node.name}")

    def _write_credentials(self, node: RealNode) -> None:
        keys = self._layout.keys
        client, serving = self._credentials(node)
        authority = CertificateAuthority.load(keys, "ca")
        if not client.certificate.exists():
            user = f"system:node:{node.name}"
            authority.issue(f"node-{node.name}", user, organizations=["system:nodes"])
        if not serving.certificate.exists():
            authority.issue(f"kubelet-{node.name}", node.name, serves=[node.address, node.name])
        port = self._instance.read().ports["kube-apiserver"]
        certificate = authority.files.certificate
        server = f"https://{GATEWAY}:{port}"
        write_certificate_kubeconfig(self._kubeconfig(node), server, certificate, client)
        kubelet.write_settings(node, certificate, serving)

    def _load_small_images(self, node: RealNode) -> None:
        present = set(container_runtime.images(node))
        for image in small_images():
            if image.reference not in present:
                archive = node.folder / "image.tar"
                image.write(archive)
                container_runtime.load_image(node, archive)
                archive.unlink()
