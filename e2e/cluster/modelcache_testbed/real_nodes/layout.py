"""Where the things of real nodes lie, and which names and addresses they have.

Addresses live inside the instance's own network namespace, so two instances may use the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from modelcache_testbed.processes import ProcessIdentity, read_pid_file

BRIDGE = "mc0"
GATEWAY = "10.88.0.1"
DNS_ADDRESS = "10.96.0.10"
CLUSTER_DOMAIN = "cluster.local"
POD_RANGE = "10.244.0.0/16"
LARGEST_INDEX = 200
_FIRST_HOST_PART = 10


@dataclass(frozen=True)
class RealNode:
    """One node of one instance. ``index`` decides its addresses and is never used again."""

    name: str
    index: int
    instance_folder: Path

    @property
    def folder(self) -> Path:
        """Everything the node keeps; deleting it is losing its disks."""
        return self.instance_folder / "nodes" / self.name

    @property
    def settings(self) -> Path:
        """What the tool writes and the node's programs read."""
        return self.folder / "etc"

    @property
    def store_image(self) -> Path:
        """The file behind the small disk of the node's own."""
        return self.folder / "store.ext4"

    @property
    def address(self) -> str:
        """The node's InternalIP."""
        return f"10.88.0.{_FIRST_HOST_PART + self.index}"

    @property
    def pod_subnet(self) -> str:
        """The addresses of its pods."""
        return f"10.244.{self.index}.0/24"

    @property
    def pod_bridge(self) -> str:
        """The bridge that its pods hang on."""
        return f"cni{self.index}"

    @property
    def holder(self) -> str:
        """The component that holds the node's mount namespace."""
        return f"node-{self.name}"

    @property
    def cgroup(self) -> str:
        """The cgroup below which the kubelet puts pods."""
        return f"{instance_cgroup(self.instance_folder)}/{self.name}"

    @property
    def daemons_cgroup(self) -> str:
        """The cgroup of containerd, the kubelet and all shims, so that none can be lost."""
        return f"{self.cgroup}.daemons"

    @property
    def runtime_socket(self) -> Path | None:
        """The socket of containerd as seen from the host, None while the node is down."""
        holder = self.holder_identity
        if holder is None:
            return None
        return Path(f"/proc/{holder.pid}/root/run/containerd/containerd.sock")

    @property
    def holder_identity(self) -> ProcessIdentity | None:
        """The living holder of the node's namespaces."""
        return living(self.instance_folder, self.holder)


def instance_cgroup(instance_folder: Path) -> str:
    """Return the one cgroup that holds all of an instance; unique on the machine."""
    digest = hashlib.sha256(str(instance_folder).encode()).hexdigest()
    return f"/modelcache-{digest[:8]}"


def pid_file(instance_folder: Path, component: str) -> Path:
    """Return the file in which the supervisor keeps a component's identity."""
    return instance_folder / "run" / f"{component}.pid"


def living(instance_folder: Path, component: str) -> ProcessIdentity | None:
    """Return the identity of a component that runs, else None."""
    identity = read_pid_file(pid_file(instance_folder, component))
    return identity if identity is not None and identity.is_alive() else None
