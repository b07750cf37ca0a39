"""The kinds of cluster. A profile is a module with the functions of ``Profile``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from modelcache_testbed.errors import UnknownProfileError
from modelcache_testbed.profiles import control_plane, kind, nodes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from modelcache_testbed.cluster import Cluster
    from modelcache_testbed.components import Component
    from modelcache_testbed.instance import Instance
    from modelcache_testbed.programs import Program


class Profile(Protocol):
    """What a profile's module offers; all of it may be called again at any time."""

    DEFAULT_NODE_GRACE_SECONDS: int

    def check_machine(self, instance: Instance) -> None:
        """Raise TestbedError that says what is missing here and how to get it."""

    def programs(self) -> Sequence[Program]:
        """Return the programs that must be built first."""

    def port_names(self) -> Sequence[str]:
        """Return a name for each port that is needed."""

    def prepare(self, instance: Instance, node_names: Sequence[str]) -> None:
        """Write what the components read: keys, kubeconfigs, policies."""

    def stages(self, instance: Instance) -> Sequence[Sequence[Component]]:
        """Return the components; each stage is ready before the next starts."""

    def add_nodes(self, cluster: Cluster, names: Sequence[str]) -> None:
        """Add nodes once the components run, as far as ``prepare`` has not."""

    def load_image(self, instance: Instance, archive: Path) -> None:
        """Bring the images of an archive into all nodes."""

    def kubeconfig(self, instance: Instance) -> Path:
        """Return the administrator's kubeconfig."""

    def clean_up(self, instance: Instance) -> None:
        """End and remove what the instance's folder does not hold."""


DEFAULT_PROFILE = "control-plane"
PROFILES: Mapping[str, Profile] = {DEFAULT_PROFILE: control_plane, "kind": kind, "nodes": nodes}


def find_profile(name: str) -> Profile:
    """Return a profile; UnknownProfileError lists those that exist."""
    if name not in PROFILES:
        message = f"unknown profile {name!r}; there is: {', '.join(sorted(PROFILES))}"
        raise UnknownProfileError(message)
    return PROFILES[name]
