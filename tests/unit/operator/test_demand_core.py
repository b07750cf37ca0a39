"""Demand in the leader's core: what a pod brings, what takes it away, what a new leader reads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import digest, make_pod_view
from fakes.memory_core import MemoryCore, MemoryWorld
from modelcache_api.names import EntryOrigin
from modelcache_operator.adapters.parsing import ObservedKind
from modelcache_operator.decide.world import NodeName, ObjectKey


def begin(copies: int = 1, nodes: int = 3) -> tuple[MemoryWorld, MemoryCore, str, str]:
    """A settled ModelCache; a node that holds it, and one that does not."""
    world = MemoryWorld()
    for number in range(nodes):
        world.add_node(f"n{number}")
    world.add_version()
    world.add_cache(copies=copies)
    core = MemoryCore(world)
    core.begin()
    core.settle()
    key = ObjectKey("search", "c1")
    held = core.memory.assignments.of(key).nodes
    cold = next(f"n{number}" for number in range(nodes) if f"n{number}" not in held)
    return world, core, min(held), cold


def origins(world: MemoryWorld, node: str) -> list[EntryOrigin]:
    return [entry.origin for entry in world.cache.cache_node(NodeName(node)).spec.entries]


def demanded(world: MemoryWorld) -> int:
    return world.cache.model_cache(ObjectKey("search", "c1")).status.copies.demanded


def test_it_lives_as_long_as_the_pod():
    world, core, _, cold = begin()
    pod = make_pod_view(node=NodeName(cold))
    world.show(pod)
    core.settle()
    assert origins(world, cold) == [EntryOrigin.DEMAND]
    assert demanded(world) == 1
    world.hide(pod)
    core.settle()
    assert origins(world, cold) == []
    assert demanded(world) == 0


def test_a_placed_copy_is_nobodys_demand():
    world, core, warm, _ = begin()
    world.show(make_pod_view(node=NodeName(warm)))
    core.settle()
    assert origins(world, warm) == [EntryOrigin.PLACEMENT]
    assert demanded(world) == 0


def test_a_new_leader_tells_demand_from_placement_and_writes_nothing():
    world, core, warm, cold = begin()
    world.show(make_pod_view(node=NodeName(cold)))
    core.settle()
    core.end()
    before = dict(world.writes)
    successor = MemoryCore(world)
    successor.begin()
    successor.settle()
    assert dict(world.writes) == before
    assert successor.memory.assignments.of(ObjectKey("search", "c1")).nodes == {warm}
    assert successor.memory.demands.nodes_of(ObjectKey("search", "c1")) == {cold}


def test_a_node_that_goes_takes_its_demand_along():
    world, core, _, cold = begin()
    world.show(make_pod_view(node=NodeName(cold)))
    core.settle()
    world.remove_node(cold)
    core.settle()
    assert demanded(world) == 0
    assert not core.memory.demands.on(NodeName(cold))


def test_a_deleted_model_cache_ends_the_demand_of_living_pods():
    world, core, _, cold = begin()
    world.show(make_pod_view(node=NodeName(cold)))
    core.settle()
    world.hide(world.cache.model_cache(ObjectKey("search", "c1")))
    core.settle()
    assert origins(world, cold) == []


@pytest.fixture
def reading():
    """A pod that reads on a cold node; (world, core, cold)."""
    world, core, _, cold = begin()
    world.show(make_pod_view(node=NodeName(cold)))
    core.settle()
    return world, core, cold


def succeed(world: MemoryWorld, core: MemoryCore) -> MemoryCore:
    core.end()
    successor = MemoryCore(world)
    successor.begin()
    successor.settle()
    return successor


def test_bytes_that_contradict_the_pin_are_withdrawn_from_pods_too(reading):
    world, core, cold = reading
    version = world.cache.model_version_named(ObjectKey("search", "m1"))
    pinned = version.spec.model_copy(update={"digest": digest("e")})
    world.show(replace(version, spec=pinned, generation=2))
    core.settle()
    assert origins(world, cold) == []


@pytest.mark.parametrize("kind", [ObservedKind.MODEL_VERSIONS, ObservedKind.MODEL_CACHES])
def test_what_cannot_be_read_keeps_its_demand(reading, kind):
    world, core, cold = reading
    before = world.cache.cache_node(NodeName(cold)).spec
    seen = {
        ObservedKind.MODEL_VERSIONS: world.cache.model_version_named(ObjectKey("search", "m1")),
        ObservedKind.MODEL_CACHES: world.cache.model_cache(ObjectKey("search", "c1")),
    }
    world.obscure(kind, seen[kind])
    core.settle()
    succeed(world, core)
    assert world.cache.cache_node(NodeName(cold)).spec == before
    assert not [note for note in world.events if note.reason == "ModelCacheNotFound"]


def test_a_cache_node_that_can_be_read_again_tells_its_demand(reading):
    world, core, cold = reading
    before = world.cache.cache_node(NodeName(cold))
    world.obscure(ObservedKind.CACHE_NODES, before)
    successor = succeed(world, core)
    assert demanded(world) == 0
    world.show(before)
    successor.settle()
    assert origins(world, cold) == [EntryOrigin.DEMAND]
    assert demanded(world) == 1


def test_a_gated_pod_is_let_through_once_and_its_sight_forgotten():
    world, core, _, _ = begin()
    pod = make_pod_view("gated", is_gated=True)
    world.show(pod)
    core.settle()
    assert world.lifted == {"gated": None}
    assert world.writes["gate"] == 1
    assert core.reconciler.pods._seen_at == {}


def test_a_pod_whose_model_cache_is_missing_is_told_so():
    world, core, _, cold = begin()
    world.show(make_pod_view("lost", cache="none", node=NodeName(cold)))
    core.settle()
    (note,) = [note for note in world.events if note.reason == "ModelCacheNotFound"]
    assert note.regarding.name == "lost"
    assert "there is no ModelCache none in namespace search" in note.note
    world.events.clear()
    world.show(make_pod_view("over", cache="none", node=NodeName(cold), is_over=True))
    core.settle()
    assert world.events == []
