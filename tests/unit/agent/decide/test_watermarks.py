"""When pressure begins and ends, and what is given up for it."""

from __future__ import annotations

import pytest

from fakes.agent_world import a_flight, a_held, a_world, an_entry, digest_of
from modelcache_agent.decide.actions import Evict, Fetch, PauseFetch, SetLabels
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.watermarks import (
    NO_WATERMARKS,
    Pressure,
    Space,
    Watermarks,
    judge_pressure,
)
from modelcache_api.names import EntryState, Reason

MARKS = Watermarks(80, 75)
PRESSED = Pressure(excess_bytes=15, round_bytes=1000, message="it is full")


def full(used: int, files: int = 0) -> Space:
    return Space(
        total_bytes=1000, free_bytes=1000 - used, total_files=1000, free_files=1000 - files
    )


@pytest.mark.parametrize(
    ("space", "was_pressed", "excess"),
    [
        pytest.param(full(790), False, None, id="below the high mark"),
        pytest.param(full(800), False, 50, id="at the high mark"),
        pytest.param(full(840), False, 90, id="C54 at 84 percent, before the kubelet's 85"),
        pytest.param(full(760), True, 10, id="between the marks it goes on"),
        pytest.param(full(760), False, None, id="between the marks it does not begin"),
        pytest.param(full(750), True, None, id="at the low mark it ends"),
        pytest.param(full(100, files=800), False, 0, id="files that others have made"),
        pytest.param(Space(1000, 900, 0, 0), False, None, id="no limit of files"),
        pytest.param(Space(0, 0), True, None, id="a file system that says nothing"),
    ],
)
def test_pressure_begins_at_the_high_mark_and_ends_at_the_low_one(space, was_pressed, excess):
    pressure = judge_pressure(space, MARKS, was_pressed=was_pressed)
    assert (None if pressure is None else pressure.excess_bytes) == excess


def test_without_watermarks_there_is_no_pressure():
    assert judge_pressure(full(1000), NO_WATERMARKS, was_pressed=True) is None
    assert NO_WATERMARKS.kept_free_bytes(full(0)) == 0


def test_what_newcomers_leave_free_is_just_enough_for_no_pressure():
    kept = MARKS.kept_free_bytes(full(0))
    assert judge_pressure(full(1000 - kept), MARKS, was_pressed=False) is None
    assert judge_pressure(full(1001 - kept), MARKS, was_pressed=False) is not None


def test_the_message_has_the_arithmetic_and_the_cure_and_moves_by_whole_percents():
    space = Space(1 << 40, (1 << 40) * 85 // 1000)
    pressure = judge_pressure(space, MARKS, was_pressed=False)
    assert pressure.message.startswith("92 % of the file system's 1Ti are used, some 17")
    assert "until 75 % or less are used: free space" in pressure.message
    closer = Space(1 << 40, space.free_bytes + 4096)
    assert judge_pressure(closer, MARKS, was_pressed=True).message == pressure.message


def view_of(plan, uid):
    return next(view for view in plan.entries if view.uid == uid)


def test_C54_unused_models_go_first_as_many_as_are_needed_label_first():
    entries = [an_entry(name, evictable=True) for name in ("a", "b", "c")]
    held = [a_held(name, last_used=number) for number, name in enumerate(("a", "b", "c"))]
    world = a_world(*entries, held=held, pressure=PRESSED)
    plan = make_plan(world)
    assert plan.condemned == {digest_of("a"), digest_of("b")}
    assert [type(action) for action in plan.actions] == [SetLabels], "labels go before bytes"
    assert view_of(plan, "a").state is EntryState.EVICTED
    settled = a_world(
        *entries, held=held, pressure=PRESSED, node_labels=plan.labels, condemned=plan.condemned
    )
    assert [action.digest for action in make_plan(settled).actions] == sorted(
        plan.condemned, key=[digest_of("a"), digest_of("b")].index
    )


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param({"in_use": frozenset({digest_of("a")})}, id="open or mapped"),
        pytest.param({"mounted": frozenset({digest_of("a")})}, id="shown by a pod's volume"),
        pytest.param({"attached": frozenset({"a"})}, id="waited for by a pod"),
        pytest.param({"pending_release": 15}, id="freed already and still open somewhere"),
        pytest.param({"pressure": Pressure(0, 1000, "files")}, id="only files are too many"),
    ],
)
def test_C54_what_is_used_stays_and_nothing_goes_in_vain(kept):
    world = a_world(
        an_entry("a", evictable=True), held=[a_held("a")], **{"pressure": PRESSED} | kept
    )
    assert make_plan(world).actions == ()


def test_what_placement_keeps_stays():
    world = a_world(an_entry("a"), held=[a_held("a")], pressure=PRESSED)
    assert make_plan(world).actions == ()


def test_foreign_bytes_are_nobodys_to_free_and_the_plan_comes_to_rest():
    pressure = Pressure(excess_bytes=10_000, round_bytes=20_000, message="it is full")
    world = a_world(an_entry("a", evictable=True), held=[a_held("a")], pressure=pressure)
    plan = make_plan(world)
    assert plan.condemned == {digest_of("a")}, "what we have is given, though it will not do"
    assert not plan.must_look_at_use
    after = a_world(an_entry("a", evictable=True), pressure=pressure, evicted=frozenset({"a"}))
    assert make_plan(after).actions == ()
    assert view_of(make_plan(after), "a").reason is Reason.DISK_PRESSURE
    assert "comes back when" in view_of(make_plan(after), "a").message


def test_one_round_gives_up_no_more_than_its_cap():
    names = [f"m{number}" for number in range(5)]
    entries = [an_entry(name, evictable=True) for name in names]
    pressure = Pressure(excess_bytes=50, round_bytes=20, message="it is full")
    world = a_world(*entries, held=[a_held(name) for name in names], pressure=pressure)
    assert len(make_plan(world).condemned) == 2


def test_who_uses_what_is_asked_before_the_plan_gives_in():
    world = a_world(
        an_entry("a", evictable=True), held=[a_held("a")], pressure=PRESSED, in_use=None
    )
    assert make_plan(world).must_look_at_use


def test_C54_nothing_new_is_fetched_and_what_was_begun_is_kept():
    new, running = an_entry("new"), an_entry("running")
    flight = a_flight(running, verified_bytes=4)
    plan = make_plan(a_world(new, running, flights=(flight,), pressure=PRESSED))
    assert plan.actions == (PauseFetch("running"),)
    for uid in ("new", "running"):
        view = view_of(plan, uid)
        assert (view.state, view.reason) == (EntryState.FAILED, Reason.DISK_PRESSURE)
        assert view.message == "it is full"
    later = a_world(new, running, partials={"running": 4}, pressure=PRESSED)
    assert make_plan(later).actions == ()


def test_a_transfer_whose_bytes_are_all_here_ends_in_spite_of_pressure():
    entry = an_entry("a")
    flight = a_flight(entry, verified_bytes=10, state=EntryState.VERIFYING)
    assert make_plan(a_world(entry, flights=(flight,), pressure=PRESSED)).actions == ()


def test_a_newcomer_brings_no_pressure_with_it():
    entry = an_entry("a", 30)
    assert make_plan(a_world(entry, free_bytes=50, kept_free_bytes=20)).actions == (Fetch(entry),)
    plan = make_plan(a_world(entry, free_bytes=49, kept_free_bytes=20))
    assert plan.actions == ()
    assert view_of(plan, "a").reason is Reason.INSUFFICIENT_SPACE
    assert "of which 20 (20 bytes) stay free above the watermark" in view_of(plan, "a").message


def test_what_has_just_come_goes_only_when_nothing_else_can():
    entries = [an_entry("old", evictable=True), an_entry("fresh", evictable=True)]
    held = [a_held("old", last_used=9), a_held("fresh", last_used=1)]
    labels = frozenset({entries[0].label_key, entries[1].label_key})
    fresh = frozenset({digest_of("fresh")})
    newcomer = an_entry("new", 10)
    world = a_world(*entries, newcomer, capacity=20, held=held, node_labels=labels, fresh=fresh)
    assert make_plan(world).condemned == {digest_of("old")}
    only = a_world(
        entries[1], newcomer, capacity=10, held=held[1:], node_labels=frozenset(), fresh=fresh
    )
    assert isinstance(make_plan(only).actions[0], Evict), "there is nothing else"
