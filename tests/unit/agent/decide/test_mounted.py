"""What pods show stays; what they wait for comes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.agent_world import a_flight, a_held, a_world, an_entry, digest_of, key_of
from modelcache_agent.decide.actions import DropPartial, Fetch, Remove, SetLabels
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.setbacks import Setback
from modelcache_api.names import EntryState, Reason

OLD, NEW = an_entry("old", 60, evictable=True), an_entry("new", 60)
SHOWN = frozenset({digest_of("old")})


def reason_of(plan, uid):
    return next(view.reason for view in plan.entries if view.uid == uid)


def test_a_shown_content_is_no_victim_even_if_nobody_has_it_open():
    plan = make_plan(a_world(OLD, NEW, held=[a_held("old", 60)], mounted=SHOWN))
    assert plan.condemned == frozenset()
    assert reason_of(plan, "new") is Reason.INSUFFICIENT_SPACE


def test_a_content_that_a_pod_is_about_to_be_shown_is_no_victim():
    plan = make_plan(a_world(OLD, NEW, held=[a_held("old", 60)], attached=frozenset({"old"})))
    assert plan.condemned == frozenset()
    assert reason_of(plan, "new") is Reason.INSUFFICIENT_SPACE


def test_a_lowered_capacity_takes_no_shown_content():
    held = [a_held("old", 60), a_held("new", 60)]
    entries = (OLD, an_entry("new", 60, evictable=True))
    plan = make_plan(a_world(*entries, held=held, mounted=SHOWN))
    assert plan.condemned == {digest_of("new")}


def test_a_content_that_no_entry_names_loses_its_label_and_stays_while_it_is_shown():
    world = a_world(held=[a_held("old", 60)], node_labels=frozenset({key_of("old")}))
    plan = make_plan(replace(world, mounted=SHOWN))
    assert plan.actions == (SetLabels(frozenset()),)
    assert make_plan(replace(world, mounted=SHOWN, node_labels=frozenset())).actions == ()
    gone = make_plan(replace(world, node_labels=frozenset()))
    assert gone.actions == (Remove(digest_of("old")),)


def test_its_bytes_count_as_used():
    plan = make_plan(a_world(NEW, held=[a_held("old", 60)], mounted=SHOWN))
    assert reason_of(plan, "new") is Reason.INSUFFICIENT_SPACE


@pytest.mark.parametrize("attached", [frozenset(), frozenset({"old"})])
def test_an_evicted_version_is_fetched_again_once_a_pod_asks(attached):
    world = a_world(OLD, evicted=frozenset({"old"}), partials={"old": 5}, attached=attached)
    expected = (Fetch(OLD),) if attached else (DropPartial("old"),)
    assert make_plan(world).actions == expected


def test_a_pod_that_asks_does_not_shorten_the_pause_after_a_failure():
    setback = Setback(
        Reason.TRANSFER_FAILED, "why", 2000.0, 1, OLD.source_digest, OLD.content_digest
    )
    world = a_world(OLD, setbacks={"old": setback}, attached=frozenset({"old"}))
    assert make_plan(world).actions == ()


def test_a_transfer_that_a_pod_waits_for_goes_on():
    world = a_world(OLD, flights=(a_flight(OLD),), attached=frozenset({"old"}))
    plan = make_plan(world)
    assert plan.actions == ()
    assert plan.entries[0].state is EntryState.DOWNLOADING
