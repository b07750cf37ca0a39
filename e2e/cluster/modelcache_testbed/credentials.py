"""Credentials as a pod would hold them: tokens bound to a Pod object, never an administrator's."""

from __future__ import annotations

import http.client
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from modelcache_testbed.certificates import write_private
from modelcache_testbed.errors import ApiError, TestbedError
from modelcache_testbed.kubeconfig import write_token_kubeconfig
from modelcache_testbed.nodes import timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from modelcache_testbed.kube_api import Document, KubeApi

GRANT_AUDIENCE = "modelcache-grant"
STAND_IN_LABEL = "testbed.modelcache.io/stand-in"


@dataclass(frozen=True)
class PodCredentials:
    """The files of one pod identity; ``refresh`` mints new tokens into the same files."""

    namespace: str
    service_account: str
    pod_name: str
    pod_uid: str
    node: str | None
    folder: Path
    kubeconfig: Path
    token_file: Path
    grant_token_file: Path
    authority_file: Path
    _api: KubeApi
    _audience: str
    _lifetime_seconds: int

    def refresh(self) -> None:
        """Mint new tokens, as the kubelet does in time before they expire."""
        write_private(self.token_file, self._mint([]).encode())
        write_private(self.grant_token_file, self._mint([self._audience]).encode())

    def _mint(self, audiences: list[str]) -> str:
        bound = {"apiVersion": "v1", "kind": "Pod", "name": self.pod_name, "uid": self.pod_uid}
        request = {
            "audiences": audiences,
            "expirationSeconds": self._lifetime_seconds,
            "boundObjectRef": bound,
        }
        account = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/{self.service_account}"
        answer = self._api.create(f"{account}/token", {"spec": request})
        return str(answer["status"]["token"])


@dataclass(frozen=True)
class PodIdentity:
    """Whose credentials are wanted. ``node=None`` takes any pod of the account."""

    namespace: str
    service_account: str
    node: str | None
    app: str


def pod_credentials(
    api: KubeApi,
    identity: PodIdentity,
    folder: Path,
    *,
    audience: str = GRANT_AUDIENCE,
    lifetime_seconds: int = 3600,
    mark_running: bool = True,
) -> PodCredentials:
    """Write kubeconfig and tokens of a pod into ``folder``.

    A pod of that node and service account is used where there is one (as a DaemonSet makes it),
    else one is created. ``mark_running`` writes the status that a kubelet would.
    """
    pod = _find_pod(api, identity) or _create_pod(api, identity)
    if mark_running:
        _mark_running(api, pod)
    folder.mkdir(parents=True, exist_ok=True)
    credentials = PodCredentials(
        namespace=identity.namespace,
        service_account=identity.service_account,
        pod_name=pod["metadata"]["name"],
        pod_uid=pod["metadata"]["uid"],
        node=pod["spec"].get("nodeName"),
        folder=folder,
        kubeconfig=folder / "kubeconfig",
        token_file=folder / "token",
        grant_token_file=folder / "grant-token",
        authority_file=folder / "ca.crt",
        _api=api,
        _audience=audience,
        _lifetime_seconds=lifetime_seconds,
    )
    credentials.authority_file.write_text(api.authority)
    credentials.refresh()
    write_token_kubeconfig(
        credentials.kubeconfig, api.server, credentials.authority_file, credentials.token_file
    )
    return credentials


def _pods(identity: PodIdentity) -> str:
    return f"/api/v1/namespaces/{identity.namespace}/pods"


def _find_pod(api: KubeApi, identity: PodIdentity) -> Document | None:
    selector = f"spec.serviceAccountName={identity.service_account}"
    if identity.node:
        selector += f",spec.nodeName={identity.node}"
    for pod in api.get(_pods(identity), fieldSelector=selector)["items"]:
        if "deletionTimestamp" not in pod["metadata"]:
            found: Document = pod
            return found
    return None


def _create_pod(api: KubeApi, identity: PodIdentity) -> Document:
    spec: dict[str, Any] = {
        "serviceAccountName": identity.service_account,
        "containers": [{"name": "stand-in", "image": "stand-in"}],
        "tolerations": [{"operator": "Exists"}],
        "terminationGracePeriodSeconds": 0,
    }
    if identity.node:
        spec["nodeName"] = identity.node
    else:
        # Bound to no node, it outlives every node that a test removes.
        spec["schedulingGates"] = [{"name": STAND_IN_LABEL}]
    labels = {"app": identity.app, STAND_IN_LABEL: "true"}
    metadata = {"generateName": f"{identity.app}-", "labels": labels}
    try:
        return api.create(_pods(identity), {"metadata": metadata, "spec": spec})
    except ApiError as error:
        if error.status == http.client.FORBIDDEN and "serviceaccount" in str(error):
            account = f"{identity.namespace}/{identity.service_account}"
            message = f"service account {account} does not exist: apply its manifests first"
            raise TestbedError(message) from error
        raise


def _mark_running(api: KubeApi, pod: Mapping[str, Any]) -> None:
    now = timestamp()
    kinds = ("Initialized", "ContainersReady", "Ready", "PodScheduled")
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds]
    metadata = pod["metadata"]
    api.patch(
        f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status",
        {
            "status": {
                "phase": "Running",
                "conditions": conditions,
                "startTime": now,
                "hostIP": "127.0.0.1",
                "podIP": "127.0.0.1",
                "podIPs": [{"ip": "127.0.0.1"}],
            }
        },
    )
