"""A disk that changes bytes in silence, seen from outside: label, status, Event, repair."""

from __future__ import annotations

import pytest

from fakes.store_world import flip_bits
from fakes.world import World
from modelcache_testbed.kube_api import find_condition

pytestmark = pytest.mark.cluster
# Slow enough that everybody sees the damage before it is repaired.
SCRUB = ("--scrub-interval=1s", "--scrub-bandwidth=8Mi")


def ready_of(world: World, node: str) -> tuple[str, str]:
    found = find_condition((world.cache_node(node) or {}).get("status", {}), "Ready")
    return found.get("status", ""), found.get("reason", "")


def events_of(world: World, node: str) -> list[tuple[str, str]]:
    items = world.cluster.api.get("/apis/events.k8s.io/v1/events")["items"]
    return [(i["type"], i["reason"]) for i in items if i["regarding"].get("name") == node]


def test_C22_silent_damage_shows_once_and_heals(world: World) -> None:
    sick, _ = world.nodes
    namespace = world.add_namespace("team")
    world.put_model("m/v1", size_bytes=20_000_000)
    world.apply_version(namespace, "m-v1", "m/v1")
    world.apply_cache(namespace, "m", "m-v1", copies=2)
    world.wait_ready(namespace, "m", copies=2)
    world.wait(lambda: len(world.warm_nodes(namespace, "m-v1")) == 2, "labels on both")
    trees = world.trees(sick)
    world.system.agents[sick].kill()
    blobs = (world.system.store_of(sick) / "blobs" / "sha256").iterdir()
    flip_bits(max(blobs, key=lambda path: path.stat().st_size), 9_000_000)
    world.system.add_agent(sick, capacity="1Gi", extra=SCRUB)
    world.wait(lambda: ready_of(world, sick) == ("True", "Damaged"), "the damage to be told")
    assert world.labels(sick) == {}
    table = world.cluster.kubectl("get", "cachenode", sick).splitlines()
    column = table[0].split().index("STATUS")
    assert table[1].split()[column] == "Damaged"
    world.wait(lambda: ready_of(world, sick) == ("True", "AgentAlive"), "the repair")
    world.wait(lambda: len(world.warm_nodes(namespace, "m-v1")) == 2, "the label to be back")
    assert world.trees(sick) == trees
    assert [event for event in events_of(world, sick) if event[1] == "Damaged"] == [
        ("Warning", "Damaged")
    ]
