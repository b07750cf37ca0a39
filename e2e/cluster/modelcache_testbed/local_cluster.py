"""A cluster that the test bed itself runs on this machine."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import TYPE_CHECKING

from modelcache_testbed.audit import AuditLog
from modelcache_testbed.cluster import Cluster
from modelcache_testbed.console import say
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.folders import clusters_folder
from modelcache_testbed.gobuild import ensure_built
from modelcache_testbed.instance import (
    Instance,
    InstanceRecord,
    current_owner,
    reap_abandoned,
)
from modelcache_testbed.profiles import DEFAULT_PROFILE, find_profile
from modelcache_testbed.profiles.control_plane import NODE_GRACE_SETTING, audit_log
from modelcache_testbed.real_nodes.fleet import Fleet

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from modelcache_testbed.components import Component

DEFAULT_NAME = "default"


class LocalCluster(Cluster):
    """One instance: a folder, a few processes, a kubeconfig.

    Every method may be called again, by another process too, and after a kill of anything.
    """

    def __init__(self, folder: Path, *, profile: str = DEFAULT_PROFILE) -> None:
        """Refer to the instance in ``folder``; nothing is created yet."""
        self._instance = Instance(folder)
        self.profile_name = self._instance.read().profile if self._instance.exists else profile
        self._profile = find_profile(self.profile_name)
        super().__init__(self._profile.kubeconfig(self._instance))
        self.folder = self._instance.folder
        self.audit = AuditLog(audit_log(self._instance))

    @classmethod
    def named(cls, name: str = DEFAULT_NAME, *, profile: str = DEFAULT_PROFILE) -> LocalCluster:
        """Refer to the instance of that name of this user."""
        return cls(clusters_folder() / name, profile=profile)

    @classmethod
    def ephemeral(cls, *, profile: str = DEFAULT_PROFILE) -> LocalCluster:
        """Refer to an instance of one's own; see ``up(ephemeral=True)``."""
        return cls.named(f"ephemeral-{secrets.token_hex(4)}", profile=profile)

    def up(
        self,
        *,
        ephemeral: bool = False,
        node_grace_seconds: int | None = None,
        node_names: Sequence[str] = (),
    ) -> None:
        """Bring everything up; what already runs stays as it is.

        An ephemeral instance belongs to this process and is removed by a later run if this
        process dies without ``down``. How long a silent node counts as Ready is the profile's
        choice unless it is given.
        """
        self._profile.check_machine(self._instance)
        ensure_built(self._profile.programs())
        started = time.monotonic()
        with self._instance.exclusively():
            if not self._instance.exists:
                owner = current_owner() if ephemeral else None
                grace = node_grace_seconds or self._profile.DEFAULT_NODE_GRACE_SECONDS
                settings = {NODE_GRACE_SETTING: grace}
                record = InstanceRecord(self.profile_name, owner, settings=settings)
                self._instance.create(record)
            self._instance.settle_ports(self._profile.port_names())
            self._profile.prepare(self._instance, node_names)
            for stage in self._profile.stages(self._instance):
                self._instance.supervisor.start(stage)
        self._profile.add_nodes(self, node_names)
        say(f"{self.profile_name} is ready after {time.monotonic() - started:.1f} s")

    def down(self) -> None:
        """End all processes and delete the folder; nothing being there is fine."""
        with self._instance.exclusively():
            _remove(self._instance)

    @staticmethod
    def reap() -> list[str]:
        """Remove ephemeral clusters whose owner died; return their names."""
        return reap_abandoned(clusters_folder(), _remove)

    @property
    def exists(self) -> bool:
        """Say whether the cluster was brought up and not taken down."""
        return self._instance.exists

    @property
    def fleet(self) -> Fleet:
        """Return the real nodes of the profile ``nodes``."""
        return Fleet(self._instance)

    def load_image(self, archive: Path) -> None:
        """Bring the images of an archive (docker save, or OCI) into all nodes."""
        self._profile.load_image(self._instance, archive)

    def status(self) -> Mapping[str, int | None]:
        """Return the pid of each component, None for those that do not run."""
        if not self._instance.exists:
            return {}
        return {c.name: self._instance.supervisor.pid_of(c.name) for c in self._components()}

    def start(self, *names: str) -> None:
        """Start single components on their earlier ports and wait until they are ready."""
        wanted = [self._component(name) for name in names]
        with self._instance.exclusively():
            self._instance.supervisor.start(wanted)

    def stop(self, *names: str) -> None:
        """End single components and wait until they are gone."""
        wanted = [self._component(name) for name in names]
        with self._instance.exclusively():
            for component in wanted:
                self._instance.supervisor.stop(component.name, grace_seconds=component.stop_seconds)

    def restart(self, *names: str) -> None:
        """End single components and start them again."""
        self.stop(*names)
        self.start(*names)

    def log_file(self, name: str) -> Path:
        """Return where a component writes its log."""
        return self._instance.supervisor.log_file(name)

    def _components(self) -> list[Component]:
        return [c for stage in self._profile.stages(self._instance) for c in stage]

    def _component(self, name: str) -> Component:
        known = {component.name: component for component in self._components()}
        if name not in known:
            message = f"no component {name!r}; there is: {', '.join(sorted(known))}"
            raise TestbedError(message)
        return known[name]


def _remove(instance: Instance) -> None:
    if instance.exists:
        find_profile(instance.read().profile).clean_up(instance)
        instance.remove()
