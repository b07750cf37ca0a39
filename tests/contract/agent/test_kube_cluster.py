"""The agent's requests against a real API server, under the agent's own role."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time

import pytest

from modelcache_agent.adapters.kube_cluster import KubeCluster
from modelcache_agent.ports.cluster import ClusterError
from modelcache_api.names import EntryState, Reason
from modelcache_api.v1alpha1.cache_node import CacheNodeStatus, CanaryPod, EntryStatus
from modelcache_kube import ConnectConfig, connect
from modelcache_testbed.system import System

pytestmark = pytest.mark.cluster

NAMESPACE = "modelcache-system"
PREFIX = "cache.modelcache.io/"
UID = "00000000-0000-0000-0000-000000000000"


def keys(*names):
    return frozenset(f"{PREFIX}{name}-0123456789abcdef" for name in names)


@pytest.fixture(scope="module")
def installed(cluster, tmp_path_factory):
    System(cluster, tmp_path_factory.mktemp("system")).install()
    return cluster


@pytest.fixture
def node(installed):
    name = f"contract-{secrets.token_hex(3)}"
    yield installed.add_node(name)["metadata"]
    installed.remove_node(name)


@pytest.fixture
def credentials(installed, node, tmp_path):
    return installed.agent_credentials(node["name"], NAMESPACE, "modelcache-agent", tmp_path)


@pytest.fixture
async def kube(credentials):
    async with connect(ConnectConfig(credentials.kubeconfig)) as kube:
        yield kube


def make(kube, node, **changes):
    known = {"node_name": node["name"], "node_uid": node["uid"], "lease_seconds": 60.0}
    return KubeCluster(kube, namespace=NAMESPACE, **{**known, **changes})


@pytest.fixture
def agent(kube, node):
    return make(kube, node)


def read(cluster, node):
    return cluster.api.get(f"/api/v1/nodes/{node['name']}")["metadata"]


def ours(cluster, node):
    return {key for key in read(cluster, node)["labels"] if key.startswith(PREFIX)}


@pytest.fixture
def cache_node(installed, node):
    path = f"/apis/modelcache.io/v1alpha1/cachenodes/{node['name']}"
    spec = {"nodeUid": node["uid"]}
    manifest = {
        "apiVersion": "modelcache.io/v1alpha1",
        "kind": "CacheNode",
        "metadata": {"name": node["name"]},
        "spec": spec,
    }
    installed.apply([manifest])
    yield path
    installed.api.delete(path)


async def test_labels_are_set_and_removed_and_foreign_ones_stay(installed, node, agent):
    before = read(installed, node)["labels"]
    assert await agent.apply_labels(keys("a", "b")) == keys("a", "b")
    assert await agent.apply_labels(keys("b", "c")) == keys("b", "c")
    assert ours(installed, node) == keys("b", "c")
    assert await agent.apply_labels(frozenset()) == frozenset()
    assert read(installed, node)["labels"] == before


async def test_a_label_says_host_for_what_is_locked_and_falls_back_to_disk(installed, node, agent):
    def values():
        labels = read(installed, node)["labels"]
        return {key: labels[key] for key in labels.keys() & keys("a", "b")}

    (a,), (b,) = keys("a"), keys("b")
    await agent.apply_labels(keys("a", "b"), keys("a"))
    assert values() == {a: "host", b: "disk"}
    await agent.apply_labels(keys("a", "b"), keys("a", "b"), keys("b"))
    assert values() == {a: "host", b: "gpu"}
    assert await agent.apply_labels(keys("a", "b")) == keys("a", "b")
    assert values() == {a: "disk", b: "disk"}


async def test_an_apply_that_changes_nothing_is_no_write(installed, node, agent):
    await agent.apply_labels(keys("a"))
    before = read(installed, node)["resourceVersion"]
    await agent.apply_labels(keys("a"))
    assert read(installed, node)["resourceVersion"] == before


async def test_C37_a_label_removed_by_hand_comes_back_with_the_next_apply(installed, node, agent):
    await agent.apply_labels(keys("a"))
    (key,) = keys("a")
    installed.api.patch(f"/api/v1/nodes/{node['name']}", {"metadata": {"labels": {key: None}}})
    assert await agent.apply_labels(keys("a")) == keys("a")


async def test_a_label_that_somebody_else_set_in_our_name_goes(installed, node, agent):
    (key,) = keys("fake")
    installed.api.patch(f"/api/v1/nodes/{node['name']}", {"metadata": {"labels": {key: "disk"}}})
    assert await agent.apply_labels(keys("a")) == keys("a")
    assert ours(installed, node) == keys("a")


async def test_a_rebuilt_node_is_not_labelled(installed, kube, node):
    with pytest.raises(ClusterError):
        await make(kube, node, node_uid=UID).apply_labels(keys("a"))
    assert ours(installed, node) == set()


async def test_C36_a_node_that_is_gone_is_not_created(installed, kube, node):
    with pytest.raises(ClusterError):
        await make(kube, node, node_name=f"{node['name']}-gone").apply_labels(keys("a"))
    assert installed.api.find(f"/api/v1/nodes/{node['name']}-gone") is None


async def test_C35_many_writers_on_one_node(installed, node, agent):
    """Four others write labels and status while we add and remove thirty keys."""
    path, stop = f"/api/v1/nodes/{node['name']}", threading.Event()

    def write(number):
        count = 0
        while not stop.is_set():
            count += 1
            installed.api.patch(path, {"metadata": {"labels": {f"other-{number}": str(count)}}})
            time.sleep(0.05)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    try:
        wanted = []
        for number in range(30):
            wanted.append(f"m{number}")
            assert await agent.apply_labels(keys(*wanted)) == keys(*wanted)
        while wanted:
            wanted.pop()
            assert await agent.apply_labels(keys(*wanted)) == keys(*wanted)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    labels = read(installed, node)["labels"]
    assert {f"other-{number}" for number in range(4)} <= labels.keys()
    assert ours(installed, node) == set()


async def test_status_leaves_the_operators_condition_alone(installed, agent, cache_node):
    uid = installed.api.get(cache_node)["metadata"]["uid"]
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "AgentAlive",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    installed.api.patch(f"{cache_node}/status", {"status": {"conditions": [condition]}})
    entry = EntryStatus(uid="v1", state=EntryState.CACHED, reason=Reason.CACHED)
    await agent.apply_status(uid, CacheNodeStatus(agent_version="1", entries=(entry,), models=1))
    await agent.apply_status(uid, CacheNodeStatus(agent_version="1", models=0))
    status = installed.api.get(cache_node)["status"]
    assert status["conditions"][0]["status"] == "True"
    assert status["models"] == 0
    assert status["entries"] == []


async def test_canary_pods_come_and_go_and_are_named_only_where_there_are_some(
    installed, agent, cache_node
):
    uid = installed.api.get(cache_node)["metadata"]["uid"]
    pod = CanaryPod(uid="p1", version="v2")
    await agent.apply_status(uid, CacheNodeStatus(models=1, canary_pods=(pod,)))
    assert installed.api.get(cache_node)["status"]["canaryPods"] == [{"uid": "p1", "version": "v2"}]
    await agent.apply_status(uid, CacheNodeStatus(models=1))
    assert "canaryPods" not in installed.api.get(cache_node)["status"]


async def test_status_for_a_cache_node_that_was_replaced_is_an_error(agent, cache_node):
    with pytest.raises(ClusterError, match="replaced"):
        await agent.apply_status(UID, CacheNodeStatus(models=1))


async def test_status_never_creates_a_cache_node(installed, kube, node, cache_node):
    other = make(kube, node, node_name=f"{node['name']}-gone")
    with pytest.raises(ClusterError):
        await other.apply_status(UID, CacheNodeStatus(models=1))
    assert installed.api.find(f"{cache_node}-gone") is None


async def test_the_lease_says_whose_it_is_and_goes_with_its_node(installed, node, agent):
    await agent.renew_lease()
    path = (
        f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/"
        f"modelcache-agent-{node['name']}"
    )
    lease = installed.api.get(path)
    assert "modelcache.io/agent" in lease["metadata"]["labels"]
    assert lease["metadata"]["ownerReferences"][0]["uid"] == node["uid"]
    assert lease["spec"]["holderIdentity"] == node["name"]
    await asyncio.sleep(0.01)
    await agent.renew_lease()
    assert installed.api.get(path)["spec"]["renewTime"] > lease["spec"]["renewTime"]


async def test_the_watch_tells_absence_existence_change_and_deletion(installed, node, agent):
    path = f"/apis/modelcache.io/v1alpha1/cachenodes/{node['name']}"
    manifest = {
        "apiVersion": "modelcache.io/v1alpha1",
        "kind": "CacheNode",
        "metadata": {"name": node["name"]},
        "spec": {"nodeUid": node["uid"]},
    }
    entry = {"uid": "v1", "sourceDigest": f"sha256:{'0' * 64}", "sizeBytes": 5}
    async with asyncio.timeout(30), agent.watch() as views:
        assert await anext(views) is None
        installed.apply([manifest])
        first = await anext(views)
        assert first.spec.node_uid == node["uid"]
        assert first.spec.entries == ()
        installed.apply([{**manifest, "spec": {"nodeUid": node["uid"], "entries": [entry]}}])
        second = await anext(views)
        assert [entry.uid for entry in second.spec.entries] == ["v1"]
        installed.api.delete(path)
        assert await anext(views) is None
