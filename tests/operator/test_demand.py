"""What pods read where nothing is placed is held for their lives, and for nothing longer."""

from __future__ import annotations

import asyncio

import pytest

from fakes.tenant import Tenant

pytestmark = pytest.mark.cluster


@pytest.fixture
def tenant(stage) -> Tenant:
    return Tenant(stage)


async def place_one_copy(stage) -> tuple[str, list[str]]:
    """A cached ModelCache with one copy; its node, and the cold ones."""
    await stage.apply_version()
    await stage.apply_cache(copies=1)
    await stage.until_cached(copies="1/1")
    (warm,) = await stage.holders()
    await stage.until(stage.labels, lambda found: set(found) == {warm})
    return warm, [name for name in stage.nodes if name != warm]


async def test_C30_a_pod_on_a_cold_node_brings_its_model_there_and_takes_it_along(stage, tenant):
    warm, (cold, other) = await place_one_copy(stage)
    await tenant.run_pod("reader", on=cold)
    await stage.until(lambda: tenant.node_of("reader"), cold)
    await stage.until(lambda: tenant.origins_on(cold), ["Demand"])
    await stage.until(stage.labels, lambda found: set(found) == {warm, cold})
    await stage.until(tenant.demanded, 1)
    assert await stage.copies() == "1/1"
    assert await tenant.origins_on(warm) == ["Placement"]
    assert await tenant.origins_on(other) == []
    await tenant.delete_pod("reader")
    await stage.until(lambda: tenant.origins_on(cold), [])
    await stage.until(stage.labels, lambda found: set(found) == {warm})
    await stage.until(tenant.demanded, 0)


async def test_two_pods_share_one_demand_and_the_last_one_ends_it(stage, tenant):
    _, (cold, _) = await place_one_copy(stage)
    await tenant.run_pod("first", on=cold)
    await tenant.run_pod("second", on=cold)
    await stage.until(lambda: tenant.origins_on(cold), ["Demand"])
    await tenant.delete_pod("first")
    await stage.until(lambda: tenant.pod("first"), {})
    await asyncio.sleep(1.5)
    assert await tenant.origins_on(cold) == ["Demand"]
    await tenant.finish_pod("second")
    await stage.until(lambda: tenant.origins_on(cold), [])


async def test_a_pod_on_a_warm_node_or_without_the_label_demands_nothing(stage, tenant):
    warm, (cold, _) = await place_one_copy(stage)
    await tenant.run_pod("near", on=warm)
    await tenant.run_pod("plain", cache=None, on=cold)
    await stage.until(lambda: tenant.node_of("plain"), cold)
    await stage.until(lambda: tenant.node_of("near"), warm)
    await asyncio.sleep(1.5)
    assert await tenant.origins_on(warm) == ["Placement"]
    assert await tenant.origins_on(cold) == []


async def test_a_model_cache_that_comes_after_its_pod_is_brought_to_it(stage, tenant):
    node = stage.nodes[0]
    await tenant.run_pod("early", on=node)
    await stage.until(lambda: tenant.node_of("early"), node)
    await stage.until(
        lambda: tenant.events_of("early"),
        lambda found: [reason for reason, _ in found] == ["ModelCacheNotFound"],
    )
    await stage.apply_version()
    await stage.apply_cache(copies=1, nodeSelector={"there-is": "no-such-node"})
    await stage.until(lambda: tenant.origins_on(node), ["Demand"])
    # The only copy there is tells the content.
    await stage.until(stage.labels, lambda found: set(found) == {node})
    assert (await stage.version())["status"]["contentDigest"]
    await stage.until(tenant.demanded, 1)


async def test_demand_takes_no_room_that_placement_wants(stage, tenant):
    _, (cold, _) = await place_one_copy(stage)
    stage.fleet.change(cold, capacity_bytes=10)
    await stage.until(
        lambda: stage.cache_node(cold),
        lambda found: found["status"]["tiers"][0]["capacityBytes"] == 10,
    )
    await tenant.run_pod("big", on=cold)
    await stage.until(lambda: tenant.node_of("big"), cold)
    await asyncio.sleep(1.5)
    assert await tenant.origins_on(cold) == []
    stage.fleet.change(cold, capacity_bytes=2**30)
    await stage.until(lambda: tenant.origins_on(cold), ["Demand"])


async def test_placement_takes_over_a_demanded_copy(stage, tenant):
    warm, (cold, _) = await place_one_copy(stage)
    await tenant.run_pod("reader", on=cold)
    await stage.until(lambda: tenant.origins_on(cold), ["Demand"])
    await stage.until(stage.labels, lambda found: set(found) == {warm, cold})
    await stage.apply_cache(copies=2)
    await stage.until_cached(copies="2/2")
    # Where it is already, no byte has to be read.
    assert await stage.holders() == {warm, cold}
    assert await tenant.origins_on(cold) == ["Placement"]
    await tenant.delete_pod("reader")
    await stage.until(lambda: tenant.pod("reader"), {})
    await asyncio.sleep(1.5)
    assert await tenant.origins_on(cold) == ["Placement"]


async def test_a_new_leader_knows_demand_from_placement(stage, tenant, system):
    warm, (cold, _) = await place_one_copy(stage)
    await tenant.run_pod("reader", on=cold)
    await stage.until(lambda: tenant.origins_on(cold), ["Demand"])
    operator = system.operators["operator-0"]
    await asyncio.to_thread(operator.kill)
    start = stage.cluster.audit.position()
    await asyncio.to_thread(operator.start)
    await stage.until(lambda: probe(stage), 200, seconds=60)
    await stage.until(lambda: led_again(stage, start), True, seconds=60)
    assert await tenant.origins_on(cold) == ["Demand"]
    assert await tenant.origins_on(warm) == ["Placement"]
    assert await stage.copies() == "1/1"
    await tenant.delete_pod("reader")
    await stage.until(lambda: tenant.origins_on(cold), [])


async def probe(stage) -> int:
    try:
        return (await stage.probe("/readyz"))[0]
    except OSError:
        return 0


async def led_again(stage, start) -> bool:
    """A leader's first act is a list of the agents' Leases."""
    return any(
        event.resource == "leases" and event.verb == "list" and "modelcache-operator" in event.user
        for event in stage.cluster.audit.events(start)
    )
