"""A cluster as tests see it: any cluster by its kubeconfig."""

from __future__ import annotations

import json
import subprocess
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelcache_testbed import nodes
from modelcache_testbed.credentials import (
    GRANT_AUDIENCE,
    PodCredentials,
    PodIdentity,
    pod_credentials,
)
from modelcache_testbed.errors import TestbedError
from modelcache_testbed.kube_api import Document, KubeApi
from modelcache_testbed.programs import kubectl
from modelcache_testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FIELD_MANAGER = "modelcache-testbed"


class Cluster:
    """A running cluster, reached with administrator's rights through ``kubeconfig``."""

    def __init__(self, kubeconfig: Path) -> None:
        """Refer to a cluster; nothing is contacted yet."""
        self.kubeconfig = kubeconfig.absolute()

    @cached_property
    def api(self) -> KubeApi:
        """Return the administrator's connection, for the test's own errands."""
        return KubeApi(self.kubeconfig)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as administrator and return what it prints; TestbedError if it fails."""
        result = subprocess.run(
            [str(kubectl()), f"--kubeconfig={self.kubeconfig}", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        if result.returncode:
            message = f"kubectl {' '.join(arguments)}: {result.stderr.strip()}"
            raise TestbedError(message)
        return result.stdout

    def apply(
        self, manifests: Path | Iterable[Mapping[str, Any]], *, namespace: str | None = None
    ) -> str:
        """Apply a file, the files right in a folder, or documents by server-side apply."""
        flags = ["--server-side", "--force-conflicts", f"--field-manager={FIELD_MANAGER}"]
        if namespace:
            flags.append(f"--namespace={namespace}")
        if isinstance(manifests, Path):
            return self.kubectl("apply", *flags, "-f", str(manifests))
        items = [dict(document) for document in manifests]
        bundle = {"apiVersion": "v1", "kind": "List", "items": items}
        return self.kubectl("apply", *flags, "-f", "-", stdin=json.dumps(bundle))

    def add_node(
        self,
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        capacity: Mapping[str, str] | None = None,
        wait: bool = True,
    ) -> Document:
        """Register a played node that is Ready and return it.

        ``wait`` returns only when pods can be scheduled there.
        """
        node = nodes.build_node(name, labels=labels, taints=taints, capacity=capacity)
        created = nodes.create_node(self.api, node)
        return nodes.await_schedulable(self.api, name) if wait else created

    def remove_node(self, name: str) -> None:
        """Delete a node; none being there is fine."""
        nodes.remove_node(self.api, name)

    def lose_node(self, name: str) -> None:
        """Play a node that went silent: not Ready, not kept fresh, tainted as unreachable."""
        nodes.mark_node(self.api, name, ready=False)

    def recover_node(self, name: str) -> None:
        """Bring a lost node back."""
        nodes.mark_node(self.api, name, ready=True)

    def agent_credentials(  # noqa: PLR0913 - what a test may want to say of an agent
        self,
        node: str,
        namespace: str,
        service_account: str,
        folder: Path,
        *,
        app: str = "modelcache-agent",
        audience: str = GRANT_AUDIENCE,
        lifetime_seconds: int = 3600,
        mark_running: bool = True,
    ) -> PodCredentials:
        """Write the credentials of an agent's pod on ``node`` into ``folder``.

        The pod of that node and service account is used if there is one, else it is created.
        """
        return pod_credentials(
            self.api,
            PodIdentity(namespace, service_account, node, app),
            folder,
            audience=audience,
            lifetime_seconds=lifetime_seconds,
            mark_running=mark_running,
        )

    def service_account_kubeconfig(
        self,
        namespace: str,
        service_account: str,
        folder: Path,
        *,
        app: str = "modelcache-operator",
        lifetime_seconds: int = 3600,
        mark_running: bool = False,
    ) -> PodCredentials:
        """Write the credentials of a pod of this service account that is bound to no node."""
        return pod_credentials(
            self.api,
            PodIdentity(namespace, service_account, None, app),
            folder,
            lifetime_seconds=lifetime_seconds,
            mark_running=mark_running,
        )

    def create_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> None:
        """Create a namespace and wait until pods can be created in it."""
        metadata = {"name": name, "labels": dict(labels or {})}
        self.api.create("/api/v1/namespaces", {"metadata": metadata})
        account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
        wait_until(
            lambda: self.api.find(account) is not None,
            seconds=30,
            what=f"a default service account in namespace {name}",
        )

    def delete_namespace(self, name: str) -> None:
        """Delete a namespace. Its contents follow in the background."""
        self.api.delete(f"/api/v1/namespaces/{name}")
