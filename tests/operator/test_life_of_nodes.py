"""Nodes come, go, come back as others, are cordoned, drained, tainted, and wait to be ready."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest

from fakes.tenant import Tenant
from modelcache_kube import NODES
from modelcache_testbed import nodes
from modelcache_testbed.system import System

pytestmark = pytest.mark.cluster

TAINT = "modelcache.io/agent-not-ready"
READY_SECONDS = 8


@pytest.fixture(scope="module")
def system(cluster, seaweed, tmp_path_factory) -> Iterator[System]:
    """An operator that waits eight seconds for a fresh node's models."""
    system = System(cluster, tmp_path_factory.mktemp("life"))
    system.install()
    system.add_operator(
        extra=(
            "--lease-list-interval=1s",
            "--agent-lost-after=12s",
            f"--node-ready-timeout={READY_SECONDS}s",
        )
    )
    try:
        yield system
    finally:
        system.remove()


@pytest.fixture
def tenant(stage) -> Tenant:
    return Tenant(stage)


async def cache_all(stage) -> None:
    await stage.apply_version()
    await stage.apply_cache(copies="All")
    count = len(stage.nodes)
    await stage.until_cached(copies=f"{count}/{count}")
    await stage.until(stage.labels, lambda found: len(found) == count)


async def add_tainted_node(stage, effect: str = "NoSchedule") -> str:
    """A node as an autoscaler registers it: with the taint, and its agent not there yet."""
    name = f"{stage.name}-n{len(stage.nodes):03}"
    stage.nodes.append(name)
    taint = {"key": TAINT, "effect": effect}
    body = nodes.build_node(name, labels={"stage": stage.name}, taints=[taint])
    await asyncio.to_thread(nodes.create_node, stage.cluster.api, body)
    # Without those of arrival, which the node controller takes off in its own time.
    path, only_ours = f"/api/v1/nodes/{name}", {"spec": {"taints": [taint]}}
    await asyncio.to_thread(stage.cluster.api.patch, path, only_ours)
    return name


async def test_a_fresh_node_is_given_what_it_should_hold(stage):
    await cache_all(stage)
    (fresh,) = await stage.add_nodes(1)
    await stage.until(stage.copies, "4/4")
    await stage.until(stage.labels, lambda found: fresh in found)


async def test_a_deleted_node_leaves_nothing_and_is_not_missed(stage):
    await cache_all(stage)
    gone = stage.nodes[0]
    await stage.remove_node(gone)
    await stage.until(lambda: stage.cache_node(gone), None)
    await stage.until_cached(copies="2/2")
    assert gone not in await stage.holders()


async def test_a_node_rebuilt_under_its_name_starts_clean(stage):
    await cache_all(stage)
    name = stage.nodes[0]
    before = await stage.cache_node(name)
    await stage.remove_node(name)
    await stage._add_node(name)
    node = await stage.kube.get(NODES, name)
    assert node["metadata"]["uid"] != before["spec"]["nodeUid"]
    assert not any(key.startswith("cache.modelcache.io/") for key in node["metadata"]["labels"])
    await stage.fleet.add(name)

    def is_reborn(found):
        return found is not None and found["spec"]["nodeUid"] == node["metadata"]["uid"]

    await stage.until(lambda: stage.cache_node(name), is_reborn)
    after = await stage.cache_node(name)
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    (owner,) = after["metadata"]["ownerReferences"]
    assert owner["uid"] == node["metadata"]["uid"]
    await stage.until_cached(copies="3/3")
    await stage.until(stage.labels, lambda found: name in found)


async def test_a_cordon_and_a_drain_take_no_bytes_and_bring_none(stage, tenant):
    await stage.apply_version()
    await stage.apply_cache(copies=2)
    await stage.until_cached(copies="2/2")
    held = sorted(await stage.holders())
    cold = next(name for name in stage.nodes if name not in held)
    await tenant.run_pod("reader", on=held[0])
    await stage.until(lambda: tenant.node_of("reader"), held[0])
    await tenant.patch_node(held[0], {"unschedulable": True})
    await tenant.patch_node(cold, {"unschedulable": True})
    await tenant.delete_pod("reader")
    await stage.apply_cache(copies=3)
    await stage.until(stage.copies, "2/3")
    await stage.until(stage.ready, ("True", "Degraded"))
    assert await stage.holders() == set(held)
    assert set(await stage.labels()) == set(held)
    await tenant.patch_node(cold, {"unschedulable": None})
    await stage.until_cached(copies="3/3")


async def set_disk_pressure(stage, name: str, status: str) -> None:
    """As the kubelet writes it; the node controller adds the taint that goes with it."""
    condition = {"type": "DiskPressure", "status": status, "reason": "Played", "message": "played"}
    await asyncio.to_thread(
        stage.cluster.kubectl,
        *("patch", "node", name, "--subresource=status", "--type=strategic"),
        *("-p", json.dumps({"status": {"conditions": [condition]}})),
    )


async def test_C54_a_node_under_the_kubelets_disk_pressure_gets_nothing_new_and_keeps_its_own(
    stage,
):
    await stage.apply_version()
    await stage.apply_cache(copies=2)
    await stage.until_cached(copies="2/2")
    held = sorted(await stage.holders())
    cold = next(name for name in stage.nodes if name not in held)
    for name in (held[0], cold):
        await set_disk_pressure(stage, name, "True")
    for name in (held[0], cold):
        await stage.until(lambda name=name: stage.disk_pressure(name), ("True", "DiskPressure"))
    # Whatever taint is tolerated, the condition is not.
    await stage.apply_cache(copies=3, tolerations=[{"operator": "Exists"}])
    await stage.until(stage.ready, ("True", "Degraded"))
    message = next(c for c in (await stage.cache())["status"]["conditions"] if c["type"] == "Ready")
    assert "DiskPressure: 2 of 3 copies have a node" in message["message"]
    assert await stage.holders() == set(held)
    assert set(await stage.labels()) == set(held)
    for name in (held[0], cold):
        await set_disk_pressure(stage, name, "False")
    await stage.until_cached(copies="3/3")
    await stage.until(lambda: stage.disk_pressure(cold), ("", ""))


async def test_no_execute_moves_copies_away_unless_it_is_tolerated(stage, tenant):
    await stage.apply_version()
    await stage.apply_cache(copies=2)
    tolerated = {"key": "work", "operator": "Exists"}
    await stage.apply_cache("tolerant", copies=3, tolerations=[tolerated])
    await stage.until_cached(copies="2/2")
    await stage.until_cached("tolerant", copies="3/3")
    tainted = min(await stage.holders())
    await tenant.patch_node(tainted, {"taints": [{"key": "work", "effect": "NoExecute"}]})
    await stage.until(stage.holders, lambda found: tainted not in found and len(found) == 2)
    await stage.until_cached(copies="2/2")
    assert tainted in await stage.holders("tolerant")


async def test_the_taint_of_a_fresh_node_is_lifted_when_its_models_are_there(stage, tenant):
    await cache_all(stage)
    fresh = await add_tainted_node(stage)
    await tenant.run_pod("waits", on=fresh)
    await stage.fleet.add(fresh, default_verdict=("Downloading", "Downloading", ""))
    # Our own taint keeps pods away, and not the copies for which it waits.
    await stage.until(stage.holders, lambda found: fresh in found)
    await asyncio.sleep(2)
    assert TAINT in await tenant.taints_of(fresh)
    stage.fleet.change(fresh, default_verdict=("Cached", "Cached", ""))
    await stage.until(lambda: tenant.taints_of(fresh), lambda found: TAINT not in found, seconds=6)
    await stage.until(lambda: tenant.node_of("waits"), fresh)


async def test_the_taint_is_lifted_after_the_time_out_too(stage, tenant):
    await cache_all(stage)
    fresh = await add_tainted_node(stage, "NoExecute")
    await stage.fleet.add(fresh, default_verdict=("Failed", "TransferFailed", "no luck"))
    await stage.until(stage.holders, lambda found: fresh in found)
    assert TAINT in await tenant.taints_of(fresh)
    await stage.until(
        lambda: tenant.taints_of(fresh), lambda found: TAINT not in found, seconds=3 * READY_SECONDS
    )


async def test_without_an_agent_the_taint_stays_and_other_taints_always_do(stage, tenant):
    fresh = await add_tainted_node(stage)
    other = {"key": "theirs", "value": "x", "effect": "NoSchedule"}
    taint = {"key": TAINT, "effect": "NoSchedule"}
    await tenant.patch_node(fresh, {"taints": [other, taint]})
    await asyncio.sleep(READY_SECONDS + 2)
    assert TAINT in await tenant.taints_of(fresh)
    await stage.fleet.add(fresh)
    await stage.until(lambda: tenant.taints_of(fresh), ["theirs"])
