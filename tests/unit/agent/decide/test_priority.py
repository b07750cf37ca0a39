"""Priorities, pinned copies and namespaces beyond their quotas, as a node's plan sees them."""

from __future__ import annotations

from dataclasses import replace

from fakes.agent_world import a_flight, a_held, a_world, an_entry, digest_of
from modelcache_agent.decide.actions import Fetch, PauseFetch
from modelcache_agent.decide.charges import charge
from modelcache_agent.decide.gpu.room import Key
from modelcache_agent.decide.gpu.world import GpuView, OnDevice
from modelcache_agent.decide.ledger import Blob, Ledger
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.turns import list_yielding, order_by_turn
from modelcache_api.names import EntryOrigin, EntryState, Priority, Reason, Tier
from modelcache_api.v1alpha1.cache_node import CacheNodeSpec, CacheRef


def an(name: str, priority: Priority = Priority.NORMAL, size: int = 10, **changes):
    entry = an_entry(name, size, evictable=changes.pop("evictable", False))
    return entry.model_copy(update={"priority": priority, **changes})


def view_of(plan, uid):
    return next(view for view in plan.entries if view.uid == uid)


def full(*entries, newcomer):
    """A node whose disk the entries fill, the first of them the longest unused."""
    held = [a_held(e.uid, e.size_bytes, last_used=float(n)) for n, e in enumerate(entries)]
    capacity = sum(entry.size_bytes for entry in entries)
    return a_world(*entries, newcomer, capacity=capacity, held=held)


def test_the_lower_priority_gives_way_first_whatever_the_policy_says():
    old, low = an("old", evictable=True), an("low", Priority.LOW, evictable=True)
    plan = make_plan(full(old, low, newcomer=an("new")))
    assert plan.condemned == {digest_of("low")}


def test_nothing_makes_room_for_a_lower_priority_and_the_figures_say_so():
    normal = an("normal", evictable=True)
    plan = make_plan(full(normal, newcomer=an("low", Priority.LOW)))
    assert plan.condemned == frozenset()
    view = view_of(plan, "low")
    assert view.reason is Reason.INSUFFICIENT_SPACE
    assert "eviction could free 0 " in view.message
    assert make_plan(full(normal, newcomer=an("equal"))).condemned == {digest_of("normal")}


def test_a_content_that_two_want_has_the_higher_priority():
    low = an("low", Priority.LOW, evictable=True)
    high = low.model_copy(update={"uid": "high", "priority": Priority.HIGH})
    world = full(low, newcomer=an("new"))
    assert make_plan(world).condemned
    assert not make_plan(replace(world, entries=(*world.entries, high))).condemned


def test_the_higher_priority_is_fetched_first_and_pods_before_all():
    low, high = an("a-low", Priority.LOW), an("z-high", Priority.HIGH)
    asked = an("m-asked", Priority.LOW, origin=EntryOrigin.DEMAND)
    world = a_world(low, high, asked)
    assert [entry.uid for entry in order_by_turn(world)] == ["m-asked", "z-high", "a-low"]
    flights = (a_flight(low), a_flight(high))
    assert list_yielding(replace(world, flights=flights), flights)[-1] == "a-low"


def test_a_pinned_copy_that_was_evicted_comes_back_and_another_one_does_not():
    pinned, cached = an("pinned", pinned=True), an("cached")
    plan = make_plan(a_world(pinned, cached, evicted=frozenset({"pinned", "cached"})))
    assert plan.actions == (Fetch(pinned),)
    assert view_of(plan, "cached").state is EntryState.EVICTED


def test_what_is_beyond_a_quota_is_not_fetched_and_says_so():
    beyond = an("beyond", over_quota=True)
    plan = make_plan(a_world(beyond))
    assert plan.actions == ()
    view = view_of(plan, "beyond")
    assert (view.state, view.reason) == (EntryState.FAILED, Reason.QUOTA_EXCEEDED)
    assert "kubectl get modelcachequotas" in view.message


def test_a_transfer_stops_when_its_namespace_turns_out_to_be_beyond_its_quota():
    """Also one that a pod's demand brought, or a canary that is to be given up anyway."""
    beyond, other = an("beyond", over_quota=True), an("other")
    flights = (a_flight(beyond), a_flight(other))
    plan = make_plan(replace(a_world(beyond, other), flights=flights))
    assert plan.actions == (PauseFetch("beyond"),)
    view = view_of(plan, "beyond")
    assert (view.state, view.reason) == (EntryState.FAILED, Reason.QUOTA_EXCEEDED)
    assert view_of(plan, "other").state is EntryState.DOWNLOADING
    whole = replace(flights[0], state=EntryState.VERIFYING)
    assert make_plan(replace(a_world(beyond), flights=(whole,))).actions == ()


def test_what_is_beyond_a_quota_gives_way_first_and_what_pods_use_stays():
    beyond = an("beyond", Priority.HIGH, over_quota=True, evictable=True)
    world = full(an("normal", evictable=True), beyond, newcomer=an("low", Priority.LOW))
    assert make_plan(world).condemned == {digest_of("beyond")}
    assert not make_plan(replace(world, mounted=frozenset({digest_of("beyond")}))).condemned
    assert not make_plan(replace(world, in_use=frozenset({digest_of("beyond")}))).condemned


def ref(namespace: str, stable: str, **more) -> CacheRef:
    return CacheRef(namespace=namespace, name="c", stable_uid=stable, **more)


def test_each_namespace_is_charged_its_own_copy_on_the_card_and_what_is_loaded():
    a, b = an("a", tier=Tier.GPU), an("b", content_digest=digest_of("a"), pinned=True)
    caches = (ref("one", "a"), ref("two", "b", canary_uid="c"))
    spec = CacheNodeSpec(node_uid="n", entries=(a, b), caches=caches)
    copies = {Key("one", "a"): OnDevice(digest_of("a"), 10), Key("two", "b"): OnDevice("b", 4)}
    card = GpuView(held=copies, loading={Key("two", "c"): 5})
    found = charge(spec, (), {}, card)
    assert found.namespaces == {"one": {Tier.GPU: 10}, "two": {Tier.GPU: 9}}
    assert found.pinned == {Tier.GPU: 4}
    assert charge(spec, (), {}).namespaces == {"one": {}, "two": {}}


def test_shared_bytes_are_charged_in_full_to_each_namespace_and_are_in_the_book_once():
    a, b = an("a", tier=Tier.HOST), an("b", content_digest=digest_of("a"), pinned=True)
    spec = CacheNodeSpec(
        node_uid="n",
        entries=(a, b, an("waiting", size=7)),
        caches=(ref("one", "a"), ref("two", "b", canary_uid="waiting", held_uids=("b",))),
    )
    held = (a_held("a", 10),)
    blobs = {digest_of("a"): frozenset({Blob("blob of a", 10)})}
    disk, host = (
        Ledger(100, blobs, partials={"waiting": 3}, reservations={"waiting": 7}),
        Ledger(50, blobs),
    )
    found = charge(spec, held, {Tier.DISK: disk, Tier.HOST: host})
    assert found.namespaces == {
        "one": {Tier.DISK: 10, Tier.HOST: 10},
        "two": {Tier.DISK: 17, Tier.HOST: 0},
    }
    assert found.pinned == {Tier.DISK: 10, Tier.HOST: 0}
    assert disk.used_bytes + disk.reserved_bytes == 17
