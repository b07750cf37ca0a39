"""Played nodes: Node objects that look alive, with no machine behind them."""

from __future__ import annotations

import datetime as dt
import http.client
from typing import TYPE_CHECKING, Any

from modelcache_testbed.errors import ApiError
from modelcache_testbed.kube_api import Document, KubeApi
from modelcache_testbed.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PLAYED_LABEL = "testbed.modelcache.io/played"
KEPT, LOST = "kept", "lost"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
LEASE_SECONDS = 40

# Put there by the API server and the node lifecycle controller around a node's first heartbeat.
_ARRIVAL_TAINTS = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
_CAPACITY = {"cpu": "32", "memory": "256Gi", "ephemeral-storage": "3500Gi", "pods": "110"}
_RESERVED = {"cpu": "31", "memory": "250Gi", "ephemeral-storage": "3300Gi"}
_HEALTHY = {
    "MemoryPressure": ("False", "KubeletHasSufficientMemory", "enough memory"),
    "DiskPressure": ("False", "KubeletHasNoDiskPressure", "enough disk"),
    "PIDPressure": ("False", "KubeletHasSufficientPID", "enough process ids"),
    "Ready": ("True", "KubeletReady", "played by the test bed"),
}


def timestamp() -> str:
    """Return now as Kubernetes writes it in seconds."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp() -> str:
    """Return now as Kubernetes writes it in microseconds."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def ready_conditions(*, ready: bool) -> list[Document]:
    """Return the conditions of a healthy node, or of one that went silent."""
    now = timestamp()
    conditions = []
    for kind, (status, reason, message) in _HEALTHY.items():
        told = (status, reason, message)
        if not ready:
            told = ("Unknown", "NodeStatusUnknown", "the test bed plays a lost node")
        conditions.append(
            {
                "type": kind,
                "status": told[0],
                "reason": told[1],
                "message": told[2],
                "lastHeartbeatTime": now,
                "lastTransitionTime": now,
            }
        )
    return conditions


def build_node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    capacity: Mapping[str, str] | None = None,
) -> Document:
    """Build a Node as a kubelet would register it; ``capacity`` overrides single resources."""
    given = dict(capacity or {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                PLAYED_LABEL: KEPT,
                **(labels or {}),
            },
        },
        "spec": {"taints": [dict(taint) for taint in taints]},
        "status": {
            "capacity": {**_CAPACITY, **given},
            "allocatable": {**_CAPACITY, **_RESERVED, **given},
            "conditions": ready_conditions(ready=True),
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": name},
            ],
            "nodeInfo": _node_info(name),
        },
    }


def _node_info(name: str) -> dict[str, str]:
    names = ("machineID", "systemUUID", "bootID")
    versions = {
        "kernelVersion": "6.1.0",
        "osImage": "played by the test bed",
        "containerRuntimeVersion": "containerd://2.2.9",
        "kubeletVersion": "v1.36.3",
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": "amd64",
    }
    return {**dict.fromkeys(names, name), **versions}


def create_node(api: KubeApi, node: Document) -> Document:
    """Create a node, or return the one of that name that is there already."""
    name = node["metadata"]["name"]
    existing = api.find(f"/api/v1/nodes/{name}")
    created = existing or api.create("/api/v1/nodes", node)
    renew_lease(api, name)
    return created


def await_schedulable(api: KubeApi, name: str) -> Document:
    """Wait until the taints of a node's arrival are gone; return the node."""
    seen: Document = {}

    def has_arrived() -> bool:
        seen.update(api.get(f"/api/v1/nodes/{name}"))
        taints: list[dict[str, Any]] = seen["spec"].get("taints", [])
        return not any(taint["key"] in _ARRIVAL_TAINTS for taint in taints)

    wait_until(has_arrived, seconds=30, what=f"node {name} accepting pods")
    return seen


def remove_node(api: KubeApi, name: str) -> None:
    """Delete a node and its Lease; none being there is fine."""
    api.delete(f"/api/v1/nodes/{name}")
    api.delete(f"{LEASES}/{name}")


def mark_node(api: KubeApi, name: str, *, ready: bool) -> None:
    """Play the loss of a node, or its return. A lost one is no longer kept fresh."""
    state = KEPT if ready else LOST
    api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {PLAYED_LABEL: state}}})
    refresh_status(api, name, ready=ready)
    if ready:
        renew_lease(api, name)


def refresh_status(api: KubeApi, name: str, *, ready: bool = True) -> None:
    """Write a node's conditions as a kubelet does."""
    conditions = ready_conditions(ready=ready)
    api.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": conditions}})


def renew_lease(api: KubeApi, name: str) -> None:
    """Renew a node's Lease, creating it where it is missing."""
    spec = {
        "holderIdentity": name,
        "leaseDurationSeconds": LEASE_SECONDS,
        "renewTime": micro_timestamp(),
    }
    if api.find(f"{LEASES}/{name}") is None:
        try:
            api.create(LEASES, {"metadata": {"name": name}, "spec": spec})
        except ApiError as error:
            # A keeper of nodes may have been quicker.
            if error.status != http.client.CONFLICT:
                raise
        else:
            return
    api.patch(f"{LEASES}/{name}", {"spec": spec})
