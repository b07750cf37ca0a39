"""Quotas in the leader's core: who gets copies, what nodes and people are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from builders import GIB, make_cache, make_pod_view, make_quota
from fakes.memory_core import MemoryCore, MemoryWorld
from modelcache_api.names import Condition, EntryOrigin, EntryState, Priority, Reason, Retention
from modelcache_api.v1alpha1.model_cache import Placement
from modelcache_api.v1alpha1.rollout import CanarySpec
from modelcache_operator.adapters.parsing import ObservedKind
from modelcache_operator.decide.liveness import Liveness
from modelcache_operator.decide.quota import Item, Limits
from modelcache_operator.decide.world import NodeName, ObjectKey

C1, Q1 = ObjectKey("search", "c1"), ObjectKey("search", "q1")


@pytest.fixture
def world() -> MemoryWorld:
    """Three nodes, and versions m1 to m3 of 1 GiB each."""
    world = MemoryWorld()
    for number in range(3):
        world.add_node(f"n{number}")
    for number in range(1, 4):
        world.add_version(f"m{number}")
    return world


def lead(world: MemoryWorld) -> MemoryCore:
    core = MemoryCore(world)
    core.begin()
    look(core)
    return core


def look(core: MemoryCore) -> None:
    """Settle, and once more for keys that were asked for later."""
    core.settle()
    core.router.look_at_everything()
    core.settle()


def lose(core: MemoryCore, node: str) -> None:
    """The node's agent falls silent, for longer than is waited for it."""
    for _ in range(40):
        core.world.clock.seconds += 10
        core.world.renew_all(but=[node])
        core.list_leases()
    look(core)
    assert core.memory.agents.liveness(NodeName(node)) is Liveness.LOST


def told(world: MemoryWorld, name: str = "c1", kind: Condition = Condition.READY):
    conditions = world.cache.model_cache(ObjectKey("search", name)).status.conditions
    found = next(item for item in conditions if item.type == kind)
    return found.reason, found.message


def ready(world: MemoryWorld, name: str = "c1") -> int:
    return world.cache.model_cache(ObjectKey("search", name)).status.copies.ready


def entries(world: MemoryWorld, uid: str) -> dict[str, object]:
    found = {node.name: node.spec.find_entry(uid) for node in world.cache.cache_nodes()}
    return {name: entry for name, entry in found.items() if entry}


def quota_of(world: MemoryWorld):
    return world.cache.quota(Q1).status


def change(world: MemoryWorld, **spec) -> None:
    cache = world.cache.model_cache(C1)
    spec = cache.spec.model_copy(update=spec)
    world.show(replace(cache, spec=spec, generation=cache.generation + 1))


def test_no_more_copies_than_the_quota_pays_for_and_the_arithmetic_is_told(world):
    world.add_quota(disk="2Gi")
    world.add_cache(copies=3)
    core = lead(world)
    assert ready(world) == 2
    reason, message = told(world)
    assert reason == Reason.DEGRADED
    assert (
        "QuotaExceeded: 3 copies need 1Gi each, 3Gi in all; ModelCacheQuota q1 grants 2Gi of "
        "disk, and 0 are used beside them"
    ) in message
    status = quota_of(world)
    assert (status.disk, status.pinned, status.refused) == ("2Gi/2Gi", "0/0", 1)
    assert status.conditions[0].reason == Reason.WITHIN_QUOTA
    world.show(make_quota(disk="3Gi", generation=2))
    look(core)
    assert (ready(world), told(world)[0]) == (3, Reason.CACHED)
    assert (quota_of(world).disk, quota_of(world).refused) == ("3Gi/3Gi", 0)


def test_who_was_there_first_keeps_and_the_next_waits_until_something_goes(world):
    world.add_quota(disk="3Gi")
    world.add_cache(copies=2)
    core = lead(world)
    world.add_cache("c2", version="m2", copies=2)
    look(core)
    assert (ready(world), ready(world, "c2")) == (2, 1)
    world.hide(world.cache.model_cache(C1))
    look(core)
    assert (ready(world, "c2"), told(world, "c2")[0]) == (2, Reason.CACHED)


def test_among_those_that_wait_a_higher_priority_and_then_the_older_one_goes_first(world):
    world.add_quota(disk="1Gi", max_priority=Priority.HIGH)
    world.add_cache("a-young", version="m1", created_at="2026-01-02T00:00:00Z")
    world.add_cache("old", version="m2", created_at="2026-01-01T00:00:00Z")
    lead(world)
    assert told(world, "old")[0] == Reason.CACHED
    assert told(world, "a-young")[0] == Reason.QUOTA_EXCEEDED
    fresh = MemoryWorld()
    fresh.add_node("n0")
    for name, priority in (("old", Priority.NORMAL), ("urgent", Priority.HIGH)):
        fresh.add_version(name)
        fresh.add_cache(name, version=name, priority=priority, created_at=f"2026 {name}")
    fresh.add_quota(disk="1Gi", max_priority=Priority.HIGH)
    lead(fresh)
    assert told(fresh, "urgent")[0] == Reason.CACHED


def test_a_lowered_quota_takes_nothing_that_is_verified_and_says_so(world):
    world.add_quota(disk="3Gi")
    world.add_cache(copies=3)
    core = lead(world)
    world.show(make_quota(disk="1Gi", generation=2))
    look(core)
    assert ready(world) == 3
    assert quota_of(world).disk == "3Gi/1Gi"
    ready_condition = quota_of(world).conditions[0]
    assert (ready_condition.status, ready_condition.reason) == ("False", Reason.QUOTA_EXCEEDED)
    assert "what pods use or is verified stays" in ready_condition.message
    assert all(entry.over_quota for entry in entries(world, "uid-m1").values())
    event = next(note for note in world.events if note.regarding.kind == "ModelCacheQuota")
    assert (event.reason, event.is_warning) == (Reason.QUOTA_EXCEEDED, True)
    world.show(make_quota(disk="3Gi", generation=3))
    look(core)
    assert not any(entry.over_quota for entry in entries(world, "uid-m1").values())


def test_a_lowered_quota_ends_what_was_not_verified_yet(world):
    world.states = {(f"n{number}", "uid-m1"): EntryState.PENDING for number in (0, 1)}
    world.add_quota(disk="3Gi")
    world.add_cache(copies=3)
    core = lead(world)
    assert len(entries(world, "uid-m1")) == 3
    world.show(make_quota(disk="2Gi", generation=2))
    look(core)
    assert len(entries(world, "uid-m1")) == 2
    assert "n2" in entries(world, "uid-m1")


def test_the_extra_bytes_of_a_rollout_are_refused_before_they_start(world):
    world.add_quota(disk="3Gi")
    world.add_cache(copies=2)
    core = lead(world)
    change(world, canary=CanarySpec(model_version="m2", weight=50))
    look(core)
    assert entries(world, "uid-m2") == {}
    reason, message = told(world, kind=Condition.ROLLOUT_PROGRESSING)
    assert reason == Reason.QUOTA_EXCEEDED
    assert "2 copies need 1Gi each, 2Gi in all; ModelCacheQuota q1 grants 3Gi of disk" in message
    assert "and 2Gi are used" in message
    assert (told(world)[0], quota_of(world).refused) == (Reason.CACHED, 1)
    world.show(make_quota(disk="4Gi", generation=2))
    look(core)
    assert len(entries(world, "uid-m2")) == 2
    assert quota_of(world).disk == "4Gi/4Gi"


def test_a_canary_on_its_way_is_given_up_with_the_quota_and_what_is_whole_stays(world):
    world.add_quota(disk="4Gi")
    world.add_cache(copies=2)
    core = lead(world)
    whole, coming = sorted(entries(world, "uid-m1"))
    world.states[coming, "uid-m2"] = EntryState.DOWNLOADING
    change(world, canary=CanarySpec(model_version="m2", weight=50))
    look(core)
    assert set(entries(world, "uid-m2")) == {whole, coming}
    world.show(make_quota(disk="3Gi", generation=2))
    look(core)
    assert set(entries(world, "uid-m2")) == {whole}
    assert told(world, kind=Condition.ROLLOUT_PROGRESSING)[0] == Reason.QUOTA_EXCEEDED
    assert set(entries(world, "uid-m1")) == {whole, coming}
    assert (told(world)[0], quota_of(world).disk) == (Reason.CACHED, "3Gi/3Gi")
    world.states[whole, "uid-m2"] = EntryState.VERIFYING
    world.show(make_quota(disk="2Gi", generation=3))
    look(core)
    assert set(entries(world, "uid-m2")) == {whole}, "an agent that has begun anew hashes it again"
    world.states[whole, "uid-m2"] = EntryState.PENDING
    world.reasons[whole, "uid-m2"] = Reason.DAMAGED
    look(core)
    assert set(entries(world, "uid-m2")) == {whole}, "it is repaired in its place"
    world.show(make_quota(disk="4Gi", generation=4))
    world.states.clear()
    look(core)
    assert set(entries(world, "uid-m2")) == {whole, coming}
    assert told(world, kind=Condition.ROLLOUT_PROGRESSING)[0] == Reason.WEIGHT_REACHED


def test_a_lost_copy_of_the_canary_is_not_charged_to_those_on_their_way(world):
    world.states["n2", "uid-m2"] = EntryState.DOWNLOADING
    world.add_quota(disk="6Gi")
    world.add_cache(copies=3)
    core = lead(world)
    change(world, canary=CanarySpec(model_version="m2", weight=50))
    look(core)
    lose(core, "n0")
    world.show(make_quota(disk="4Gi", generation=2))
    look(core)
    assert set(entries(world, "uid-m2")) == {"n0", "n1", "n2"}
    world.show(make_quota(disk="3Gi", generation=3))
    look(core)
    assert set(entries(world, "uid-m2")) == {"n0", "n1"}


def test_a_version_that_is_held_is_charged_until_its_hold_ends(world):
    world.add_quota(disk="2Gi")
    world.add_cache(copies=1)
    core = lead(world)
    world.show(make_cache(version="m2", copies=1, generation=2))
    look(core)
    assert quota_of(world).disk == "2Gi/2Gi"
    world.add_cache("c3", version="m3")
    look(core)
    assert told(world, "c3")[0] == Reason.QUOTA_EXCEEDED
    world.clock.seconds += 4000
    world.renew_all()
    core.list_leases()
    look(core)
    look(core)
    assert told(world, "c3")[0] == Reason.CACHED


@pytest.mark.parametrize(
    ("wish", "says"),
    [
        pytest.param({"copies": "All"}, "copies: All is not granted", id="copies All"),
        pytest.param({"priority": Priority.HIGH}, "priority High is not granted", id="priority"),
        pytest.param({"retention": Retention.PINNED}, "Pinned is not granted", id="retention"),
    ],
)
def test_what_needs_a_quota_is_refused_by_the_default_and_granted_by_one(world, wish, says):
    world.default_quota = Limits({"pinned": 0}, Priority.NORMAL, all_nodes=False)
    world.add_cache(**wish)
    core = lead(world)
    reason, message = told(world)
    assert reason == Reason.QUOTA_EXCEEDED
    assert f"{says} by the default quota" in message
    world.add_quota(pinned="10Gi", max_priority=Priority.HIGH, all_nodes=True)
    look(core)
    assert told(world)[0] == Reason.CACHED


def test_pinned_copies_are_never_evictable_and_are_charged_apart(world):
    world.add_quota(pinned="2Gi")
    world.add_cache(copies=3, retention=Retention.PINNED)
    core = lead(world)
    found = entries(world, "uid-m1")
    assert len(found) == 2
    assert all(entry.pinned and not entry.evictable for entry in found.values())
    assert (quota_of(world).pinned, quota_of(world).disk) == ("2Gi/2Gi", "2Gi/-")
    change(world, retention=Retention.CACHED)
    look(core)
    found = entries(world, "uid-m1")
    assert len(found) == 3
    assert sum(entry.evictable for entry in found.values()) == 2, "all but minReady"


def test_one_version_of_two_model_caches_is_charged_once_for_each_node(world):
    world.add_quota(disk="2Gi")
    world.add_cache(copies=2)
    world.add_cache("c2", version="m1", copies=2)
    lead(world)
    assert (told(world)[0], told(world, "c2")[0]) == (Reason.CACHED, Reason.CACHED)
    assert quota_of(world).disk == "2Gi/2Gi"


def test_a_pod_whose_copy_the_quota_refuses_is_told_by_its_node(world):
    world.add_quota(disk="1Gi")
    world.add_cache(copies=1)
    core = lead(world)
    (held,) = entries(world, "uid-m1")
    cold = next(name for name in ("n0", "n1", "n2") if name != held)
    world.show(make_pod_view(node=NodeName(cold)))
    look(core)
    entry = entries(world, "uid-m1")[cold]
    assert (entry.origin, entry.over_quota) == (EntryOrigin.DEMAND, True)
    assert quota_of(world).disk == "1Gi/1Gi", "what is refused is not charged"
    world.show(make_quota(disk="2Gi", generation=2))
    look(core)
    assert not entries(world, "uid-m1")[cold].over_quota
    assert quota_of(world).disk == "2Gi/2Gi"


def test_the_default_quota_too_is_told_to_nodes_and_to_pods_that_it_refused(world):
    world.default_quota = Limits({Item.DISK: 2 * GIB})
    world.add_cache(copies=1)
    world.add_cache("c2", version="m2", copies=1)
    core = lead(world)
    (held,), (others,) = entries(world, "uid-m1"), entries(world, "uid-m2")
    cold = next(name for name in ("n0", "n1", "n2") if name not in {held, others})
    world.show(make_pod_view(node=NodeName(cold)))
    core.settle()
    assert entries(world, "uid-m1")[cold].over_quota
    world.hide(world.cache.model_cache(ObjectKey("search", "c2")))
    core.settle()
    assert not entries(world, "uid-m1")[cold].over_quota
    world.default_quota = Limits({Item.DISK: GIB})
    look(core)
    assert entries(world, "uid-m1")[held].over_quota


def test_the_copy_of_a_lost_node_is_not_charged_so_that_it_can_be_replaced(world):
    world.add_quota(disk="1Gi")
    world.add_cache(copies=1)
    core = lead(world)
    (lost,) = entries(world, "uid-m1")
    lose(core, lost)
    assert ready(world) == 1
    assert entries(world, "uid-m1").keys() - {lost}


def test_a_quota_that_cannot_be_read_leaves_everything_as_it_is(world):
    world.add_cache(copies=2)
    core = lead(world)
    world.obscure(ObservedKind.QUOTAS, make_quota())
    change(world, placement=Placement(copies=3))
    look(core)
    assert ready(world) == 2
    assert "ModelCacheQuota q1 holds what this operator does not know" in told(world)[1]


def test_quotas_of_other_namespaces_do_not_matter(world):
    world.add_quota(namespace="elsewhere", disk="0")
    world.add_cache(copies=3)
    lead(world)
    assert told(world)[0] == Reason.CACHED


def test_a_new_leader_reads_everything_back_and_writes_nothing(world):
    world.add_quota(pinned="9Gi", disk="2Gi", max_priority=Priority.HIGH)
    world.add_cache(copies=3, priority=Priority.HIGH, retention=Retention.PINNED)
    core = lead(world)
    world.show(make_quota(pinned="9Gi", disk="1Gi", max_priority=Priority.HIGH, generation=2))
    look(core)
    core.end()
    before = dict(world.writes)
    lead(world)
    assert dict(world.writes) == before
