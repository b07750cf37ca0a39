"""What the operator promises over the life of versions, caches, nodes and agents."""

from __future__ import annotations

import asyncio

import pytest

from modelcache_kube import MODEL_CACHES, NODES

pytestmark = pytest.mark.cluster


async def test_a_version_is_resolved_placed_and_reported(stage):
    await stage.apply_version()
    await stage.apply_cache(copies=2)
    await stage.until_cached(copies="2/2")
    version = (await stage.version())["status"]
    assert version["files"] == 3
    assert version["nodes"] == {"disk": 2, "host": 0, "gpu": 0}
    cache = (await stage.cache())["status"]
    assert cache["tracks"][0]["nodeLabelKey"] == version["nodeLabelKey"]
    assert set(await stage.labels()) == await stage.holders()
    assert stage.fleet.errors == []


async def test_C34_no_label_stays_after_deletion_whether_the_agent_lives_or_not(stage):
    await stage.apply_version()
    await stage.apply_cache(copies=3)
    await stage.until_cached(copies="3/3")
    await stage.until(stage.labels, lambda found: len(found) == 3)
    dead = stage.nodes[0]
    stage.fleet.kill(dead)
    await stage.delete_cache()
    await stage.until(stage.labels, lambda found: set(found) == {dead})
    await stage.until(stage.labels, {}, seconds=40)


async def test_C34_a_cache_that_is_created_again_is_cached_again(stage):
    await stage.apply_version()
    for _ in range(3):
        await stage.apply_cache(copies=3)
        await stage.until_cached(copies="3/3")
        await stage.delete_cache()
        await stage.until(stage.labels, {})


@pytest.mark.parametrize("cascade", ["foreground", "orphan"])
async def test_C42_no_way_of_deleting_starts_anything_anew(stage, cascade):
    await stage.apply_version()
    await stage.apply_cache(copies=2)
    await stage.until_cached(copies="2/2")
    begun = len(stage.fleet.downloads)
    # The garbage collector learns of new kinds every half minute.
    where = (f"--namespace={stage.namespace}", f"--cascade={cascade}", "--timeout=60s")
    for kind, name in (("modelcache", "c1"), ("modelversion", "m1")):
        await asyncio.to_thread(stage.cluster.kubectl, "delete", kind, name, *where)
    await stage.until(stage.labels, {})
    await stage.until(stage.holders, set())
    assert len(stage.fleet.downloads) == begun
    assert (await stage.cache(), await stage.version()) == ({}, {})


async def test_C36_a_node_that_is_removed_is_replaced_and_leaves_nothing(stage):
    await stage.apply_version()
    await stage.apply_cache(copies=2)
    await stage.until_cached(copies="2/2")
    gone = min(await stage.holders())
    await stage.remove_node(gone)
    await stage.until(lambda: stage.cache_node(gone), None)
    await stage.until(stage.holders, set(stage.nodes) - {gone})
    await stage.until_cached(copies="2/2")
    await stage.until(stage.metrics, lambda text: gone not in text)


async def test_C36_without_a_replacement_it_is_degraded_and_never_stalled(stage):
    await stage.apply_version()
    await stage.apply_cache(copies=3)
    await stage.until_cached(copies="3/3")
    await stage.remove_node(stage.nodes[0])
    await stage.until(stage.ready, ("True", "Degraded"))
    assert await stage.stalled() == "False"
    await stage.add_nodes(1)
    await stage.until_cached(copies="3/3")


async def test_C41_three_nodes_in_three_states_are_counted_as_they_are(stage):
    first, second, _third = stage.nodes
    failed = ("Failed", "NotAModel", "an HTML page in place of weights")
    stage.fleet.nodes[first].default_verdict = failed
    stage.fleet.nodes[second].default_verdict = ("Downloading", "Downloading", "")
    await stage.apply_version()
    await stage.apply_cache(copies=3)
    await stage.until(stage.ready, ("True", "Degraded"))
    status = (await stage.cache())["status"]
    assert status["copies"] == {
        "wanted": 3,
        "placed": 3,
        "ready": 1,
        "inTier": 1,
        "failed": 1,
        "demanded": 0,
    }
    assert status["failures"][0]["node"] == first
    assert status["observedGeneration"] == 1


async def test_C41_when_all_agents_die_nothing_is_ready_and_no_label_stays(stage):
    await stage.apply_version()
    await stage.apply_cache(copies=3)
    await stage.until_cached(copies="3/3")
    for name in stage.nodes:
        stage.fleet.kill(name)
    await stage.until(lambda: stage.node_ready(stage.nodes[0]), ("False", "NodeLost"), seconds=40)
    await stage.until(stage.labels, {}, seconds=20)
    await stage.until(stage.copies, "0/3", seconds=20)
    assert (await stage.ready())[0] == "False"
    for name in stage.nodes:
        await stage.fleet.revive(name)
    await stage.until_cached(copies="3/3")


async def test_a_lost_node_is_replaced_and_taken_in_again_when_it_comes_back(stage):
    await stage.apply_version()
    await stage.apply_cache(copies=2)
    await stage.until_cached(copies="2/2")
    lost = min(await stage.holders())
    stage.fleet.kill(lost)
    await stage.until(stage.holders, lambda found: len(found) == 3, seconds=40)
    await stage.until_cached(copies="2/2")
    assert lost not in await stage.labels()
    await stage.fleet.revive(lost)
    await stage.until(stage.holders, lambda found: len(found) == 2)
    await stage.until_cached(copies="2/2")


async def test_C43_what_never_worked_can_be_deleted_at_once(stage):
    await stage.apply_version(endpoint="http://127.0.0.1:1", secret="missing")
    await stage.apply_cache(copies=2, nodeSelector={"there-is": "no-such-node"})
    await stage.delete_cache()
    await stage.delete_version()
    assert await stage.cache() == {}
    assert await stage.version() == {}


async def test_C43_reasons_name_what_is_missing_and_deletion_needs_no_agent(stage):
    await stage.apply_version(secret="missing")
    await stage.apply_cache(copies=1)
    await stage.until(stage.version_ready, ("False", "SecretNotFound"))
    await stage.until(stage.ready, ("False", "ModelVersionNotReady"))
    await stage.until(stage.stalled, "True")
    for name in stage.nodes:
        stage.fleet.kill(name)
    await stage.delete_cache()
    await stage.delete_version()
    assert (await stage.cache(), await stage.version()) == ({}, {})


async def test_a_missing_version_is_named_and_waited_for(stage):
    await stage.apply_cache(version="later", copies=1)
    await stage.until(stage.ready, ("False", "ModelVersionNotFound"))
    await stage.apply_version("later")
    await stage.until_cached(copies="1/1")


async def test_C50_specs_are_never_touched_and_applying_again_changes_nothing(stage):
    documents = {
        "minimal": {"stable": {"modelVersion": "m1"}},
        "full": {
            "stable": {"modelVersion": "m1"},
            "tier": "Disk",
            "priority": "Normal",
            "retention": "Cached",
            "placement": {
                "copies": 2,
                "minReady": 1,
                "nodeSelector": {"stage": stage.name},
                "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            },
        },
    }
    await stage.apply_version()
    read = {}
    for name, spec in documents.items():
        body = {"metadata": {"name": name, "namespace": stage.namespace}, "spec": spec}
        first = await stage.kube.apply(MODEL_CACHES, body, field_manager="gitops", force=False)
        await stage.until(lambda name=name: stage.ready(name), lambda found: found[0] != "")
        await asyncio.sleep(2)
        again = await stage.kube.apply(MODEL_CACHES, body, field_manager="gitops", force=False)
        assert again["spec"] == first["spec"]
        assert again["metadata"]["generation"] == 1
        assert "finalizers" not in again["metadata"]
        assert "annotations" not in again["metadata"]
        owners = {
            entry["manager"]
            for entry in again["metadata"]["managedFields"]
            if entry.get("subresource") != "status"
        }
        assert owners == {"gitops"}
        read[name] = again["spec"]
    assert read["full"] == documents["full"]


async def test_heartbeats_cause_no_writes_and_idleness_costs_little(stage):
    await stage.apply_version()
    await stage.apply_cache(copies=2)
    await stage.until_cached(copies="2/2")
    await asyncio.sleep(3)
    start = stage.cluster.audit.position()
    for _ in range(5):
        for name in stage.nodes:
            patch = {"status": {"nodeInfo": {"bootID": str(asyncio.get_running_loop().time())}}}
            await stage.kube.merge_patch(NODES, name, patch, subresource="status")
        await asyncio.sleep(1)
    mine = [
        event
        for event in stage.cluster.audit.events(start)
        if "modelcache-operator" in event.user and event.resource != "leases"
    ]
    writes = [event for event in mine if event.verb not in {"get", "list", "watch"}]
    assert writes == []
    assert len(mine) < 5


async def test_a_status_that_somebody_forges_is_ours_again_and_then_left_alone(stage):
    await stage.apply_version()
    await stage.apply_cache(copies=2)
    await stage.until_cached(copies="2/2")
    true = (await stage.cache())["status"]
    lure = {"name": "canary", "modelVersion": "m1", "nodeLabelKey": "cache.modelcache.io/lure"}
    forged = {"tracks": [*true["tracks"], lure], "copies": {"demanded": 9}, "progress": "3%"}
    await stage.kube.merge_patch(
        MODEL_CACHES, "c1", {"status": forged}, namespace=stage.namespace, subresource="status"
    )
    await stage.until(lambda: _status(stage.cache), true)
    start = stage.cluster.audit.position()
    await asyncio.sleep(3)
    written = {event.name for event in stage.cluster.audit.events(start) if event.verb == "patch"}
    assert "c1" not in written


async def _status(ask):
    return (await ask())["status"]
