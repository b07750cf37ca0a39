"""Tiers in the leader's core: what entries say, what follows a change, what a new leader reads."""

from __future__ import annotations

from dataclasses import replace

from builders import GIB, make_cache, make_pod_view
from fakes.memory_core import MemoryCore, MemoryWorld
from modelcache_api.names import Condition, EntryOrigin, Reason, Tier
from modelcache_api.v1alpha1.rollout import CanarySpec
from modelcache_operator.decide.world import NodeName, ObjectKey

C1 = ObjectKey("search", "c1")


def begin(
    *, host: dict[str, int], gpu: dict[str, int] | None = None, nodes: int = 3, **cache
) -> tuple[MemoryWorld, MemoryCore]:
    """A settled ModelCache; `host` is what these nodes' agents give in memory, `gpu` on cards."""
    world = MemoryWorld()
    world.host, world.gpu = host, gpu or {}
    for number in range(nodes):
        world.add_node(f"n{number}")
    world.add_version()
    world.add_cache(**cache)
    core = MemoryCore(world)
    core.begin()
    core.settle()
    return world, core


def entries(world: MemoryWorld, uid: str = "uid-m1") -> dict[str, Tier]:
    """In which tier each node is to hold the version."""
    found = {node.name: node.spec.find_entry(uid) for node in world.cache.cache_nodes()}
    return {name: entry.tier for name, entry in found.items() if entry}


def told(world: MemoryWorld, kind: Condition = Condition.READY):
    conditions = world.cache.model_cache(C1).status.conditions
    found = next(item for item in conditions if item.type == kind)
    return found.status, found.reason, found.message


def test_a_model_cache_in_host_comes_to_the_nodes_that_have_the_tier():
    world, _ = begin(host={"n1": 2 * GIB, "n2": 2 * GIB}, tier=Tier.HOST, copies=2)
    assert entries(world) == {"n1": Tier.HOST, "n2": Tier.HOST}
    copies = world.cache.model_cache(C1).status.copies
    assert (copies.ready, copies.in_tier) == (2, 2)
    assert told(world) == ("True", Reason.CACHED, "2 verified copies in tier Host")
    nodes = world.cache.model_version_named(ObjectKey("search", "m1")).status.nodes
    assert (nodes.disk, nodes.host) == (2, 2)


def test_a_node_that_cannot_lock_and_one_that_can_again_say_so_at_once():
    world, core = begin(host={}, nodes=1)

    def report(unfit):
        node = world.cache.cache_node(NodeName("n0"))
        status = node.status.model_copy(update={"host_unfit": unfit})
        world.show(replace(node, status=status))
        core.settle()
        conditions = world.cache.cache_node(NodeName("n0")).status.conditions
        return [item.message for item in conditions if item.type == Condition.HOST_TIER_UNFIT]

    assert report("overlay cannot be locked") == ["overlay cannot be locked"]
    assert report(None) == []


def test_a_copy_that_is_not_in_memory_yet_is_ready_and_on_its_way():
    world, core = begin(host={}, tier=Tier.DISK, copies=1, nodes=1)
    world.slow.add(("n0", "uid-m1"))
    world.host["n0"] = GIB
    world.show(make_cache(tier=Tier.HOST, copies=1, generation=2))
    core.settle()
    core.router.look_at_everything()
    core.settle()
    assert entries(world) == {"n0": Tier.HOST}
    expected = "1 of 1 copies are verified, 0 of 1 in tier Host"
    assert told(world) == ("True", Reason.LOADING, expected)
    assert told(world, Condition.RECONCILING)[0] == "True"
    world.slow.clear()
    core.settle()
    assert told(world)[1] == Reason.CACHED
    nodes = world.cache.model_version_named(ObjectKey("search", "m1")).status.nodes
    assert (nodes.disk, nodes.host) == (1, 1)


def test_a_wish_for_memory_that_no_node_has_costs_no_copy_and_is_told():
    world, core = begin(host={"n0": 0}, copies=2)
    before = entries(world)
    world.show(make_cache(tier=Tier.HOST, copies=2, generation=2))
    core.settle()
    assert entries(world) == before
    assert set(before.values()) == {Tier.DISK}
    status, reason, message = told(world)
    assert (status, reason) == ("True", Reason.DEGRADED)
    assert message.startswith("2 of 2 copies are verified, 0 of 2 in tier Host; NoEligibleNode: ")
    assert "needed 1Gi in tier Host" in message


def test_a_node_that_gains_the_tier_takes_the_copies_of_those_that_lack_it():
    world, core = begin(host={}, copies=1)
    (before,) = entries(world)
    world.show(make_cache(tier=Tier.HOST, copies=1, generation=2))
    core.settle()
    gains = next(name for name in ("n0", "n1", "n2") if name != before)
    world.host[gains] = GIB
    core.settle()
    core.router.look_at_everything()
    core.settle()
    assert entries(world) == {gains: Tier.HOST}
    assert told(world)[1] == Reason.CACHED


def test_two_model_caches_of_one_version_share_the_faster_tier_and_its_room():
    world, core = begin(host={"n0": GIB}, tier=Tier.HOST, copies=1, nodes=1)
    world.add_cache("c2", copies=1)
    core.settle()
    assert entries(world) == {"n0": Tier.HOST}
    world.show(make_cache(tier=Tier.DISK, copies=1, generation=2))
    core.settle()
    assert entries(world) == {"n0": Tier.DISK}


def test_a_model_cache_that_leaves_the_tier_makes_room_for_one_that_waits():
    world, core = begin(host={"n0": GIB}, tier=Tier.HOST, copies=1, nodes=1)
    world.add_version("m2")
    world.add_cache("c2", version="m2", tier=Tier.HOST, copies=1)
    core.settle()
    assert entries(world, "uid-m2") == {}
    world.show(make_cache(tier=Tier.DISK, copies=1, generation=2))
    core.settle()
    assert entries(world, "uid-m2") == {"n0": Tier.HOST}


def test_a_new_leader_reads_the_tiers_back_and_writes_nothing():
    world, core = begin(host={"n1": GIB}, copies=2)
    world.show(make_cache(tier=Tier.HOST, copies=2, generation=2))
    core.settle()
    assert Tier.HOST in entries(world).values()
    core.end()
    before = dict(world.writes)
    successor = MemoryCore(world)
    successor.begin()
    successor.settle()
    assert dict(world.writes) == before
    placed, former = (one.memory.assignments.of(C1) for one in (successor, core))
    assert (placed.tier, placed.slower) == (former.tier, former.slower)


def test_what_a_pod_reads_elsewhere_is_held_in_the_tier_of_its_model_cache():
    world, core = begin(host={"n0": GIB, "n1": GIB}, tier=Tier.HOST, copies=1, nodes=2)
    (held,) = entries(world)
    cold = next(name for name in ("n0", "n1") if name != held)
    world.show(make_pod_view(node=NodeName(cold)))
    core.settle()
    entry = world.cache.cache_node(NodeName(cold)).spec.entries[0]
    assert (entry.origin, entry.tier) == (EntryOrigin.DEMAND, Tier.HOST)
    cache = world.cache.model_cache(C1)
    on_disk = cache.spec.model_copy(update={"tier": Tier.DISK})
    world.show(replace(cache, spec=on_disk, generation=2))
    core.settle()
    assert set(entries(world).values()) == {Tier.DISK}


def test_a_change_of_the_tier_during_a_rollout_takes_no_new_node():
    world, core = begin(host={}, copies=2)
    world.add_version("m2")
    before = set(entries(world))
    found = world.cache.model_cache(C1)
    canary = CanarySpec(model_version="m2", weight=5)
    spec = found.spec.model_copy(update={"canary": canary})
    world.show(replace(found, spec=spec, generation=2))
    core.settle()
    assert set(entries(world, "uid-m2")) == before
    fresh = next(name for name in ("n0", "n1", "n2") if name not in before)
    world.host[fresh] = 4 * GIB
    found = world.cache.model_cache(C1)
    spec = found.spec.model_copy(update={"tier": Tier.HOST})
    world.show(replace(found, spec=spec, generation=3))
    core.settle()
    core.router.look_at_everything()
    core.settle()
    assert set(entries(world)) == set(entries(world, "uid-m2")) == before
    status, reason, message = told(world)
    assert (status, reason) == ("True", Reason.DEGRADED)
    assert "RolloutUnderWay: 0 of 2 copies have a node in tier Host" in message


def test_a_canary_that_memory_lacks_room_for_is_not_fetched():
    world, core = begin(host={"n0": GIB}, tier=Tier.HOST, copies=1, nodes=1)
    world.add_version("m2")
    found = world.cache.model_cache(C1)
    canary = CanarySpec(model_version="m2", weight=5)
    world.show(replace(found, spec=found.spec.model_copy(update={"canary": canary}), generation=2))
    core.settle()
    assert entries(world, "uid-m2") == {}
    status, reason, message = told(world, Condition.ROLLOUT_PROGRESSING)
    assert (status, reason) == ("False", Reason.CANARY_DOES_NOT_FIT)
    assert "in tier Host" in message
    world.host["n0"] = 2 * GIB
    core.settle()
    core.router.look_at_everything()
    core.settle()
    assert entries(world, "uid-m2") == {"n0": Tier.HOST}
    assert world.cache.model_cache(C1).status.traffic.canary == 5


def test_a_card_that_is_lost_costs_the_tier_and_no_copy_and_comes_back():
    world, core = begin(host={}, tier=Tier.GPU, copies=1, nodes=1, gpu={"n0": GIB})
    assert entries(world) == {"n0": Tier.GPU}
    assert told(world) == ("True", Reason.CACHED, "1 verified copies in tier GPU")
    nodes = world.cache.model_version_named(ObjectKey("search", "m1")).status.nodes
    assert (nodes.disk, nodes.host, nodes.gpu) == (1, 1, 1)
    for gpu, tier, reason in (
        ({}, Tier.DISK, Reason.DEGRADED),
        ({"n0": GIB}, Tier.GPU, Reason.CACHED),
    ):
        world.gpu = gpu
        core.settle()
        core.router.look_at_everything()
        core.settle()
        assert entries(world) == {"n0": tier}
        assert told(world)[:2] == ("True", reason)
