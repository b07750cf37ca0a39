"""C49: after the uninstall nothing is left but the definitions. Last: it ends all."""

from __future__ import annotations

import json

import pytest

from modelcache_testbed.errors import TestbedError
from modelcache_testbed.product import LABEL_PREFIX, SYSTEM

pytestmark = pytest.mark.nodes

KINDS = (
    "clusterroles,clusterrolebindings,priorityclasses,csidrivers,csinodes,"
    "mutatingadmissionpolicies,mutatingadmissionpolicybindings,"
    "validatingadmissionpolicies,validatingadmissionpolicybindings,"
    "mutatingwebhookconfigurations,validatingwebhookconfigurations,namespaces,cachenodes"
)
DEFINITIONS = ["cachenodes", "modelcachequotas", "modelcaches", "modelversions"]


def test_C49_an_uninstall_under_running_pods_is_refused_and_changes_nothing(product):
    labels = product.labels()
    with pytest.raises(TestbedError):
        product.helm("uninstall", "modelcache", f"--namespace={SYSTEM}", "--timeout=60s")
    assert product.labels() == labels
    product.await_agents()


@pytest.fixture(scope="module")
def gone(product):
    product.follow("Take it away")
    return product


def test_C49_nodes_carry_no_label_of_ours(gone):
    assert all(labels == {} for labels in gone.labels().values())
    assert LABEL_PREFIX not in gone.said["Take it away"]


def test_C49_nothing_of_ours_is_left_in_the_cluster_but_the_definitions(gone):
    listed = json.loads(gone.cluster.kubectl("get", KINDS, "--output=json"))["items"]
    left = [
        f"{item['kind']}/{item['metadata']['name']}"
        for item in listed
        if "modelcache" in item["metadata"]["name"]
    ]
    drivers = [
        driver["name"]
        for item in listed
        if item["kind"] == "CSINode"
        for driver in item["spec"]["drivers"] or []
    ]
    assert left == []
    assert drivers == []
    definitions = gone.cluster.kubectl("get", "crds", "--output=name").split()
    assert [d.partition("/")[2].partition(".")[0] for d in definitions] == DEFINITIONS


def test_C49_no_mount_and_no_socket_is_left_on_a_node(gone):
    for node in gone.cluster.fleet.names:
        mounts = gone.cluster.fleet.run(node, "cat", "/proc/self/mountinfo")
        assert "csi.modelcache.io" not in mounts
        assert "kubernetes.io~csi" not in mounts
        registry = gone.cluster.fleet.run(node, "ls", "/var/lib/kubelet/plugins_registry")
        assert "modelcache" not in registry
