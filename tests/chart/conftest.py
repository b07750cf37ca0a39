"""A cluster for the chart alone: installing it beside the common objects would clash."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fakes.chart_system import PodReaper
from fakes.helm import NAMESPACE, Release
from modelcache_testbed.local_cluster import LocalCluster
from modelcache_testbed.waiting import wait_until

NODES = {
    "plain": [],
    "gpu": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
    "team": [{"key": "dedicated", "value": "ml", "effect": "NoSchedule"}],
    "foreign": [{"key": "someone.example/else", "effect": "NoSchedule"}],
    "fresh": [{"key": "modelcache.io/agent-not-ready", "effect": "NoSchedule"}],
}


@pytest.fixture(scope="session")
def own_cluster() -> Iterator[LocalCluster]:
    LocalCluster.reap()
    own = LocalCluster.ephemeral()
    try:
        own.up(ephemeral=True)
        for name, taints in NODES.items():
            own.add_node(name, taints=taints, wait=False)
        own.add_node("cordoned", wait=False)
        own.kubectl("cordon", "cordoned")
        with PodReaper(own):
            yield own
    finally:
        own.down()


@pytest.fixture
def release(own_cluster) -> Iterator[Release]:
    """Nothing is installed before or after; the namespace and the definitions go as well."""
    release = Release(own_cluster.kubeconfig)
    try:
        yield release
    finally:
        if own_cluster.api.find(f"/api/v1/namespaces/{NAMESPACE}") is not None:
            if release.is_installed():
                release.uninstall("--no-hooks")
            remove_namespace(own_cluster)
        own_cluster.kubectl("delete", "crd", "--all", "--timeout=60s")


def remove_namespace(cluster: LocalCluster, name: str = NAMESPACE) -> None:
    cluster.delete_namespace(name)
    wait_until(
        lambda: cluster.api.find(f"/api/v1/namespaces/{name}") is None,
        seconds=60,
        what=f"the end of namespace {name}",
    )
