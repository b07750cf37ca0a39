"""A cluster of its own with the chart's rights and guards, and people who try to get round them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fakes.helm import NAMESPACE, pick_all, render
from modelcache_testbed.errors import ApiError
from modelcache_testbed.kube_api import KubeApi
from modelcache_testbed.local_cluster import LocalCluster
from modelcache_testbed.models import build_namespace
from modelcache_testbed.waiting import wait_until

POLICY = "ValidatingAdmissionPolicy"
KINDS = {
    *("CustomResourceDefinition", "ServiceAccount", "Role", "RoleBinding"),
    *("ClusterRole", "ClusterRoleBinding", POLICY, f"{POLICY}Binding"),
}
KEY = "cache.modelcache.io/m-0123456789abcdef"
NODES = ("g1", "g2")
API = "/apis/modelcache.io/v1alpha1"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
TENANT = "tenant"


@dataclass(frozen=True)
class Guarded:
    """The cluster, and one connection for each account."""

    cluster: LocalCluster
    admin: KubeApi
    agent: KubeApi
    operator: KubeApi
    cleanup: KubeApi
    tenant: KubeApi
    agent_kubeconfig: Path

    def connect(self, *, bound: bool = False, **headers: str) -> KubeApi:
        """Another connection, as the administrator or with the agent's trust, in other words."""
        api = KubeApi(self.agent_kubeconfig if bound else self.cluster.kubeconfig)
        api._headers |= headers
        return api

    def node(self, name: str) -> dict[str, Any]:
        return self.admin.get(f"/api/v1/nodes/{name}")

    def labels(self, name: str) -> dict[str, str]:
        return dict(self.node(name)["metadata"]["labels"])


@pytest.fixture(scope="session")
def guarded(request, tmp_path_factory) -> Iterator[Guarded]:
    """Never the common cluster: the guards would refuse what other tests play."""
    LocalCluster.reap()
    own = LocalCluster.ephemeral()
    try:
        own.up(ephemeral=True)
        yield _install(own, tmp_path_factory.mktemp("guards"))
    finally:
        own.down()


def _install(cluster: LocalCluster, folder) -> Guarded:
    cluster.apply([build_namespace(NAMESPACE), build_namespace(TENANT)])
    documents = [item for item in render() if item["kind"] in KINDS]
    # The tenant may do anything that RBAC can grant: what is refused, the guards refuse.
    documents.append(_cluster_admin(TENANT, "default"))
    cluster.apply(pick_all(documents, "CustomResourceDefinition"))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd", "--all")
    cluster.apply([item for item in documents if item["kind"] != "CustomResourceDefinition"])
    for name in NODES:
        cluster.add_node(name, labels={"pool": "gpu"}, wait=False)
    accounts = {
        account: KubeApi(
            cluster.service_account_kubeconfig(namespace, account, folder / account).kubeconfig
        )
        for namespace, account in (
            (NAMESPACE, "modelcache-operator"),
            (NAMESPACE, "modelcache-cleanup"),
            (TENANT, "default"),
        )
    }
    bound = cluster.agent_credentials("g1", NAMESPACE, "modelcache-agent", folder / "agent")
    guarded = Guarded(
        cluster,
        cluster.api,
        KubeApi(bound.kubeconfig),
        accounts["modelcache-operator"],
        accounts["modelcache-cleanup"],
        accounts["default"],
        bound.kubeconfig,
    )
    _create_cache_nodes(guarded)
    _await_guards(guarded)
    return guarded


def _cluster_admin(namespace: str, account: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{namespace}-may-do-anything"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


def _create_cache_nodes(guarded: Guarded) -> None:
    for name in NODES:
        uid = guarded.node(name)["metadata"]["uid"]
        body = {
            "apiVersion": "modelcache.io/v1alpha1",
            "kind": "CacheNode",
            "metadata": {"name": name},
            "spec": {"nodeUid": uid},
        }
        guarded.operator.create(f"{API}/cachenodes", body)


def _await_guards(guarded: Guarded) -> None:
    """A policy is in force some moments after it was made; each must refuse something once."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe"},
        "spec": {"containers": [{"name": "c", "image": "c"}]},
    }
    guarded.admin.create(f"/api/v1/namespaces/{TENANT}/pods", pod)
    wait_until(lambda: all(map(is_refused, _probes(guarded))), seconds=30, what="the guards")
    node = guarded.node("g1")["metadata"]["labels"]
    probes = {key: None for key in node if "probe" in key}
    guarded.admin.patch("/api/v1/nodes/g1", labelled(**probes))
    for found in guarded.admin.get(LEASES)["items"]:
        if found["metadata"]["name"].startswith("probe"):
            guarded.admin.delete(f"{LEASES}/{found['metadata']['name']}")


def _probes(guarded: Guarded) -> list[Callable[[], object]]:
    # Something new each time: what was let through before is no change any more.
    word, number = secrets.token_hex(4), secrets.randbelow(200)
    node, other = "/api/v1/nodes/g1", f"{API}/cachenodes/g2/status"
    pod = f"/api/v1/namespaces/{TENANT}/pods/probe"
    return [
        lambda: guarded.tenant.patch(node, labelled(**{f"cache.modelcache.io/probe-{word}": "x"})),
        lambda: guarded.operator.patch(node, labelled(**{f"probe-{word}": "x"})),
        lambda: guarded.agent.patch(node, labelled(**{f"probe-{word}": "x"})),
        lambda: guarded.agent.create(LEASES, lease(f"probe-{word}")),
        lambda: guarded.agent.patch(other, {"status": {"models": number}}),
        lambda: guarded.tenant.patch(other, {"status": {"models": number + 1}}),
        lambda: guarded.operator.patch(pod, labelled(probe=word)),
    ]


def is_refused(act) -> bool:
    try:
        act()
    except ApiError as error:
        if error.status != 403:
            raise
        return True
    return False


def labelled(**labels: str | None) -> dict[str, Any]:
    return {"metadata": {"labels": labels}}


def lease(name: str, holder: str = "g1") -> dict[str, Any]:
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 300},
    }


@pytest.fixture
def fresh_name() -> str:
    return f"x-{secrets.token_hex(4)}"
