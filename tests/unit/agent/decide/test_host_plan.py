"""What is locked in host memory, what makes way, and in which order labels and pages go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.agent_world import a_flight, a_held, a_world, an_entry, digest_of, key_of
from modelcache_agent.decide.actions import Demote, Evict, Fetch, Promote, Remove, SetLabels
from modelcache_agent.decide.history import History, LoadCost
from modelcache_agent.decide.host_pressure import HostPressure
from modelcache_agent.decide.host_world import HostSetback, HostView
from modelcache_agent.decide.ledger import Blob, Ledger
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.policies import POLICIES
from modelcache_agent.decide.report import make_status
from modelcache_api.names import EntryOrigin, Priority, Reason, Tier

LOW = HostPressure(cause="the node is low", free_bytes=1, room_bytes=0)


def in_host(name, size=10, **changes):
    return an_entry(name, size, evictable=changes.pop("evictable", True)).model_copy(
        update={"tier": Tier.HOST, **changes}
    )


def a_host(*locked, capacity=30, lingering=0, reserved=None, **changes) -> HostView:
    """A host tier in which these contents are locked, with their labels set."""
    ledger = Ledger(
        capacity,
        versions={held.digest: held.blobs for held in locked},
        reservations=reserved or {},
        pending_release_bytes=lingering,
    )
    names = changes.pop("marked", [o.uid for held in locked for o in held.origins])
    return HostView(ledger, marked=frozenset(map(key_of, names)), **changes)


def host_actions(plan):
    return tuple(a for a in plan.actions if isinstance(a, Promote | Demote))


def told(plan, uid):
    view = next(view for view in plan.entries if view.uid == uid)
    return view.reason, view.tier, view.message


A, B, C = in_host("a"), in_host("b"), in_host("c")
OLD, NEW = a_held("a", last_used=1.0), a_held("b", last_used=2.0)


def test_a_verified_version_is_locked_and_held_back_until_then():
    plan = make_plan(a_world(A, held=[OLD], host=a_host()))
    assert plan.actions == (Promote(digest_of("a"), 10),)
    view = plan.entries[0]
    assert (view.state, view.reason, view.tier) == ("Cached", Reason.LOADING, None)
    assert view.holds_back
    assert plan.labels == {key_of("a")}
    assert plan.in_memory == frozenset()


def test_pods_that_show_it_already_go_on_while_it_is_locked():
    world = a_world(A, held=[OLD], host=a_host(), mounted=frozenset({digest_of("a")}))
    plan = make_plan(world)
    assert host_actions(plan) == (Promote(digest_of("a"), 10),)
    assert not plan.entries[0].holds_back


def test_what_is_locked_says_so_in_label_and_status():
    host = a_host(OLD, marked=())
    plan = make_plan(a_world(A, held=[OLD], host=host))
    assert plan.actions == (SetLabels(plan.labels, frozenset({key_of("a")})),)
    status = make_status(plan.entries, Ledger(100), host=host, agent_version="1")
    assert status.entries[0].tier is Tier.HOST
    assert (status.tiers[1].name, status.tiers[1].used_bytes) == (Tier.HOST, 10)
    assert status.host_summary == "10/30"


def test_an_entry_of_the_disk_tier_with_the_same_content_is_in_memory_too():
    twin = an_entry("b").model_copy(update={"content_digest": digest_of("a")})
    plan = make_plan(a_world(A, twin, held=[OLD], host=a_host(OLD)))
    assert told(plan, "b")[1] is Tier.HOST
    assert plan.in_memory == {key_of("a"), key_of("b")}


@pytest.mark.parametrize(
    "entries", [(), (an_entry("a"),)], ids=["no entry wants it", "the entry wants the disk only"]
)
def test_the_label_falls_back_before_the_pages_are_unlocked_and_those_before_the_disk(entries):
    world = a_world(*entries, held=[OLD], node_labels=frozenset({key_of("a")}), host=a_host(OLD))
    first = make_plan(world)
    assert first.actions == (SetLabels(first.labels, frozenset()),)
    told_all = replace(world, node_labels=first.labels, host=a_host(OLD, marked=()))
    second = make_plan(told_all)
    assert second.actions == (Demote(digest_of("a"), ""),)
    third = make_plan(replace(told_all, host=a_host()))
    assert third.actions == (() if entries else (Remove(digest_of("a")),))


def test_while_the_labels_are_not_known_nothing_is_unlocked():
    world = a_world(an_entry("a"), held=[OLD], node_labels=None, host=a_host(OLD, marked=()))
    assert host_actions(make_plan(world)) == ()


def test_a_version_in_doubt_is_unlocked():
    held = replace(OLD, is_verified=False)
    world = a_world(A, held=[held], node_labels=frozenset(), host=a_host(held, marked=()))
    assert Demote(digest_of("a"), "") in make_plan(world).actions


def test_a_load_that_nobody_wants_is_ended_at_once():
    host = a_host(reserved={digest_of("a"): 10}, loading=frozenset({digest_of("a")}))
    world = a_world(an_entry("a"), held=[OLD], node_labels=None, host=host)
    assert host_actions(make_plan(world)) == (Demote(digest_of("a"), ""),)


def test_a_victim_of_the_disk_is_unlocked_first():
    entries = (in_host("a", 60), an_entry("n", 50))
    held = a_held("a", 60)
    world = a_world(*entries, held=[held], host=a_host(held, capacity=60))
    assert not any(isinstance(a, Evict | Demote) for a in make_plan(world).actions)
    settled = replace(world, node_labels=frozenset(), host=a_host(held, capacity=60, marked=()))
    assert host_actions(make_plan(settled)) == (Demote(digest_of("a"), ""),)
    unlocked = replace(settled, host=a_host(capacity=60))
    assert Evict(digest_of("a"), ("a",)) in make_plan(unlocked).actions


def test_C16_what_never_fits_says_so_with_the_numbers_and_displaces_nobody():
    big = a_held("b", 31)
    world = a_world(A, in_host("b", 31), held=[OLD, big], host=a_host(OLD))
    plan = make_plan(world)
    assert host_actions(plan) == ()
    reason, tier, message = told(plan, "b")
    assert (reason, tier) == (Reason.HOST_TIER_BYPASSED, None)
    assert "31 (31 bytes)" in message
    assert "30 (30 bytes)" in message


@pytest.mark.parametrize(
    "world",
    [
        pytest.param({"mounted": frozenset({digest_of("a")})}, id="mounted"),
        pytest.param({"attached": frozenset({"a"})}, id="attached"),
        pytest.param({"in_use": frozenset({digest_of("a")})}, id="in use"),
        pytest.param({"entry": in_host("a", evictable=False)}, id="not evictable"),
        pytest.param({"newest": True}, id="worth more to the policy"),
    ],
)
def test_C16_protected_contents_keep_their_place_and_the_newcomer_stays_on_the_disk(world):
    world = dict(world)
    entry = world.pop("entry", A)
    old = replace(OLD, last_used=9.0) if world.pop("newest", False) else OLD
    plan = make_plan(a_world(entry, B, held=[old, NEW], host=a_host(old, capacity=15), **world))
    assert host_actions(plan) == ()
    assert told(plan, "b")[0] is Reason.HOST_TIER_BYPASSED
    assert "5 (5 bytes) are free" in told(plan, "b")[2]
    assert told(plan, "a")[1] is Tier.HOST


def test_whoever_was_used_longer_ago_makes_way_label_first():
    world = a_world(A, B, held=[OLD, NEW], host=a_host(OLD, capacity=15))
    first = make_plan(world)
    assert first.actions == (SetLabels(first.labels, frozenset()),)
    assert first.host_condemned == {digest_of("a")}
    second = make_plan(replace(world, host=a_host(OLD, capacity=15, marked=())))
    assert host_actions(second) == (Demote(digest_of("a"), ""),)
    assert "policy=lru" in host_actions(second)[0].why
    third = make_plan(replace(world, host=a_host(capacity=15)))
    assert Promote(digest_of("b"), 10) in third.actions
    fourth = make_plan(replace(world, host=a_host(NEW, capacity=15)))
    assert host_actions(fourth) == (), "the one that went does not push out the one that came"


def in_value(name, size, attaches, **changes):
    return a_held(name, size, history=History(attaches=attaches), **changes)


SMALL, LARGE, COMER = (
    in_value("a", 10, 1.0, last_used=1.0),
    in_value("b", 20, 2.0, last_used=2.0),
    in_value("c", 15, 2.0, last_used=3.0),
)
CROWD = (in_host("a"), in_host("b", 20), in_host("c", 15))


def a_crowd(**changes):
    """Two are locked, and for the third both would have to go."""
    host = a_host(SMALL, LARGE, capacity=30, **changes.pop("seen", {}))
    held = [SMALL, changes.pop("large", LARGE), COMER]
    return a_world(*CROWD, held=held, host=host, unix_now=3.0, **changes)


def test_C60_value_leaves_out_of_memory_who_is_worth_less_than_all_its_victims():
    value = POLICIES["value"]
    plan = make_plan(a_crowd(), value)
    assert plan.host_victims == ()
    reason, _, message = told(plan, "c")
    assert reason is Reason.HOST_TIER_BYPASSED
    assert "by the policy value, what would give way saves pods more loading" in message
    assert plan.recheck_at == 1030.0
    waited_for = make_plan(a_crowd(attached=frozenset({"c"})), value)
    assert {v.digest for v in waited_for.host_victims} == {digest_of("b")}, "its attach counts too"


@pytest.mark.parametrize(
    ("world", "policy"),
    [
        pytest.param(a_crowd(), "lru", id="a policy that leaves nobody out"),
        pytest.param(
            a_crowd(seen={"condemned": frozenset({digest_of("b")}), "marked": ["a"]}),
            "value",
            id="who was condemned before stays condemned",
        ),
        pytest.param(
            replace(a_crowd(large=in_value("b", 20, 2.0, last_used=-9e5)), unix_now=9e5),
            "value",
            id="who was silent for days is believed to be over",
        ),
    ],
)
def test_C60_memory_goes_to_the_newcomer(world, policy):
    assert digest_of("b") in {v.digest for v in make_plan(world, POLICIES[policy]).host_victims}


def test_C60_a_higher_priority_is_not_weighed_against_lower_ones():
    world = a_crowd()
    high = CROWD[2].model_copy(update={"priority": Priority.HIGH})
    plan = make_plan(replace(world, entries=(*CROWD[:2], high)), POLICIES["value"])
    assert plan.host_victims


def test_what_the_source_was_like_decides_nothing_in_memory():
    slow = History(attaches=1.0, load=LoadCost(500.0, 1e-3))
    old = a_held("a", last_used=1.0, history=slow)
    new = a_held("b", last_used=2.0, history=History(attaches=2.0))
    world = a_world(A, B, held=[old, new], host=a_host(old, capacity=15))
    (victim,) = make_plan(world, POLICIES["value"]).host_victims
    assert victim.digest == digest_of("a")
    assert str(victim) == (
        "policy=value score=1e-09 attaches=1.000 load_seconds=1e-08 bytes=10: "
        "uid=b needs room in memory"
    )


def test_who_is_in_use_is_asked_before_anybody_makes_way():
    plan = make_plan(a_world(A, B, held=[OLD, NEW], host=a_host(OLD, capacity=15), in_use=None))
    assert plan.must_look_at_use
    assert host_actions(plan) == ()


def test_demand_does_not_push_out_placement():
    demanded = in_host("b", origin=EntryOrigin.DEMAND)
    plan = make_plan(a_world(A, demanded, held=[OLD, NEW], host=a_host(OLD, capacity=15)))
    assert told(plan, "b")[0] is Reason.HOST_TIER_BYPASSED
    placed = make_plan(
        a_world(
            in_host("a", origin=EntryOrigin.DEMAND),
            B,
            held=[OLD, NEW],
            host=a_host(OLD, capacity=15),
        )
    )
    assert placed.host_condemned == {digest_of("a")}


def test_placement_takes_free_room_before_demand():
    first = in_host("a", origin=EntryOrigin.DEMAND)
    plan = make_plan(a_world(first, B, held=[OLD, NEW], host=a_host(capacity=15)))
    assert host_actions(plan) == (Promote(digest_of("b"), 10),)


def test_C59_while_bytes_linger_nobody_else_goes_in_vain():
    held = [OLD, NEW, a_held("c", last_used=3.0)]
    host = a_host(OLD, capacity=20, lingering=10)
    plan = make_plan(a_world(A, B, held=held, host=host))
    assert host_actions(plan) == ()
    assert plan.host_condemned == frozenset()
    reason, _, message = told(plan, "b")
    assert (reason, message) == (
        Reason.LOADING,
        "waits until 10 (10 bytes) of host memory are released",
    )
    assert not plan.entries[1].holds_back, "pods do not wait for readers"


def test_one_content_is_locked_at_a_time_and_shared_blobs_are_promised_once():
    shared = Blob("shared", 20)
    one = a_held("a", blobs=frozenset({shared, Blob("x", 1)}))
    two = a_held("b", blobs=frozenset({shared, Blob("y", 1)}))
    entries = (in_host("a", 21), in_host("b", 21))
    first = make_plan(a_world(*entries, held=[one, two], host=a_host()))
    digest = host_actions(first)[0].digest
    assert len(host_actions(first)) == 1
    locked, other = (one, two) if digest == one.digest else (two, one)
    second = make_plan(a_world(*entries, held=[one, two], host=a_host(locked)))
    assert host_actions(second) == (Promote(other.digest, 1),)


def test_a_setback_is_told_until_it_is_tried_again():
    setback = HostSetback(Reason.HOST_TIER_BYPASSED, "readers hold it", 1010.0)
    host = a_host(setbacks={digest_of("a"): setback})
    world = a_world(A, held=[OLD], host=host)
    plan = make_plan(world)
    assert told(plan, "a") == (Reason.HOST_TIER_BYPASSED, None, "readers hold it")
    assert plan.recheck_at == 1010.0
    again = make_plan(replace(world, now=1010.0))
    assert host_actions(again)
    loading = a_host(setbacks=host.setbacks, loading=frozenset({digest_of("a")}))
    for trying in (again, make_plan(replace(world, now=1010.0, host=loading))):
        assert told(trying, "a") == told(plan, "a"), "a try alone rewrites no status"
        assert trying.entries[0].holds_back


@pytest.mark.parametrize(
    ("host", "words"),
    [(None, "host capacity"), (HostView(Ledger(0), unfit="no ext4 here"), "no ext4 here")],
)
def test_without_a_fit_tier_the_disk_goes_on_and_the_entry_says_why(host, words):
    plan = make_plan(a_world(A, held=[OLD], host=host))
    assert told(plan, "a")[0] is Reason.HOST_TIER_UNFIT
    assert words in told(plan, "a")[2]
    assert plan.labels == {key_of("a")}
    status = make_status(plan.entries, Ledger(100), host=host, agent_version="1")
    assert len(status.tiers) == 1
    assert status.host_summary == (None if host is None else "unfit")


def test_C54_under_pressure_unused_contents_go_first_and_nothing_is_loaded():
    held = [OLD, NEW, a_held("c", last_used=3.0)]
    world = a_world(
        A,
        B,
        C,
        held=held,
        host=a_host(OLD, NEW, pressure=LOW),
        mounted=frozenset({digest_of("a")}),
    )
    plan = make_plan(world)
    assert plan.host_condemned == {digest_of("b")}
    assert told(plan, "b")[0] is Reason.HOST_MEMORY_LOW
    assert told(plan, "c")[0] is Reason.HOST_MEMORY_LOW
    assert told(plan, "a")[1] is Tier.HOST
    (victim,) = plan.host_victims
    assert (victim.digest, victim.policy, victim.score) == (digest_of("b"), "lru", 2.0)
    assert victim.cause == "the node is low"
    between = replace(LOW, free_bytes=0)
    host = a_host(OLD, NEW, pressure=between, condemned=plan.host_condemned, marked=["a"])
    going = make_plan(replace(world, host=host))
    assert host_actions(going) == (Demote(digest_of("b"), ""),)
    assert going.host_victims == plan.host_victims, "it is explained when it goes, too"


def test_C54_under_pressure_used_contents_go_when_the_others_do_not_suffice():
    pressure = replace(LOW, free_bytes=15)
    host = a_host(OLD, NEW, pressure=pressure)
    world = a_world(A, B, held=[OLD, NEW], host=host, mounted=frozenset(map(digest_of, "ab")))
    assert make_plan(world).host_condemned == {digest_of("a"), digest_of("b")}


def test_C54_nothing_is_locked_that_would_bring_the_node_near_its_low_mark():
    host = a_host(pressure=HostPressure(room_bytes=9))
    plan = make_plan(a_world(A, held=[OLD], host=host))
    assert host_actions(plan) == ()
    assert told(plan, "a")[0] is Reason.HOST_MEMORY_LOW


@pytest.mark.parametrize(
    ("entry", "host", "through_memory"),
    [
        pytest.param(A, a_host(), True, id="room for it"),
        pytest.param(an_entry("a"), a_host(), False, id="of the disk tier"),
        pytest.param(A, a_host(NEW, capacity=15), False, id="no room without victims"),
        pytest.param(A, a_host(pressure=HostPressure(room_bytes=9)), False, id="too near the mark"),
        pytest.param(A, a_host(pressure=LOW), False, id="under pressure"),
        pytest.param(A, None, False, id="no tier"),
    ],
)
def test_what_will_be_locked_is_written_through_memory_if_there_is_room(
    entry, host, through_memory
):
    plan = make_plan(a_world(entry, B, held=[NEW], host=host))
    assert Fetch(entry, through_memory) in plan.actions


def test_a_transfers_room_is_nobody_elses():
    host = a_host(reserved={"c": 20}, capacity=25)
    world = a_world(A, C, held=[OLD], flights=(a_flight(C),), host=host)
    plan = make_plan(world)
    assert host_actions(plan) == ()
    assert told(plan, "a")[0] is Reason.HOST_TIER_BYPASSED


def test_what_is_wanted_on_a_card_is_in_memory_too_where_it_displaces_nothing_placed_there():
    on_card = B.model_copy(update={"tier": Tier.GPU})
    world = a_world(A, on_card, held=[OLD, NEW], host=a_host())
    assert host_actions(make_plan(world)) == (Promote(digest_of("a"), 10),)
    spare = replace(world, host=a_host(OLD))
    assert host_actions(make_plan(spare)) == (Promote(digest_of("b"), 10),)
    full = make_plan(replace(world, host=a_host(OLD, capacity=10)))
    assert host_actions(full) == ()
    assert told(full, "a")[1] is Tier.HOST
    assert told(full, "b")[0] == Reason.GPU_UNAVAILABLE, "the tier that it wants is named"
    placed = make_plan(replace(world, host=a_host(NEW, capacity=10)))
    assert placed.host_condemned in ({digest_of("b")}, frozenset())
