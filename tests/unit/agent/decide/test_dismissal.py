"""Copies that somebody asked to let go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.agent_world import a_held, a_world, an_entry, digest_of, key_of
from modelcache_agent.adapters.kube_cluster import read_dismissals
from modelcache_agent.decide.actions import Evict, SetLabels
from modelcache_agent.decide.dismissal import CAUSE, LAPSES_SECONDS, find_dismissed
from modelcache_agent.decide.faults import make_fault
from modelcache_agent.decide.history import History
from modelcache_agent.decide.measures import EvictionCause
from modelcache_agent.decide.planner import make_plan
from modelcache_api.names import EntryState, Reason

A = an_entry("a", 25, evictable=True)
B = an_entry("b", 25, evictable=True)
HELD = (a_held("a", 25), a_held("b", 25))
ASKED = frozenset({digest_of("a")})
NOW = 1_000_000.0


def a_node(*entries, held=HELD, dismissed=ASKED, **changes):
    return a_world(*(entries or (A, B)), held=held, dismissed=dismissed, **changes)


def test_a_copy_that_is_asked_to_go_loses_its_label_then_its_bytes_though_there_is_room():
    first = make_plan(a_node())
    kept = frozenset({key_of("b")})
    assert first.actions == (SetLabels(kept),)
    (victim,) = first.victims
    assert (victim.digest, victim.cause, victim.kind) == (
        digest_of("a"),
        CAUSE,
        EvictionCause.ASKED,
    )
    second = make_plan(a_node(node_labels=kept, condemned=first.condemned))
    assert second.actions == (Evict(digest_of("a"), ("a",)),)


def test_what_is_on_its_way_out_and_still_there_is_told_from_what_is_gone():
    """By the digest of the bytes that are here: a pod, a load or a fault may still keep them."""
    going = view_of(make_plan(a_node()), "a")
    assert (going.state, going.digest) == (EntryState.EVICTED, digest_of("a"))
    assert going.message == "gives way: somebody asked for it"
    refused = Evict(digest_of("a"), ("a",))
    unlabelled = a_node(node_labels=frozenset({key_of("b")}))
    assert refused in make_plan(unlabelled).actions
    fault = make_fault(None, "Read-only file system", now=0.0, jitter=1.0)
    kept = view_of(make_plan(replace(unlabelled, faults={refused: fault})), "a")
    assert (kept.reason, kept.digest) == (Reason.STORE_ERROR, digest_of("a"))
    gone = view_of(make_plan(a_node(held=HELD[1:], evicted=frozenset({"a"}))), "a")
    assert (gone.state, gone.digest) == (EntryState.EVICTED, None)


def test_once_it_is_gone_it_is_not_fetched_again_until_a_pod_asks():
    gone = make_plan(a_node(held=HELD[1:], evicted=frozenset({"a"})))
    view = view_of(gone, "a")
    assert (view.state, view.reason) == (EntryState.EVICTED, Reason.EVICTED)
    assert gone.actions == ()


@pytest.mark.parametrize(
    ("entries", "changes"),
    [
        pytest.param((an_entry("a", 25), B), {}, id="not evictable"),
        pytest.param((A, B), {"mounted": ASKED}, id="mounted"),
        pytest.param((A, B), {"attached": frozenset({"a"})}, id="a pod waits for it"),
        pytest.param((A, B), {"in_use": ASKED}, id="a process has it open"),
        pytest.param((A, B), {"dismissed": frozenset()}, id="nobody asked"),
    ],
)
def test_what_is_protected_stays_whoever_asks(entries, changes):
    plan = make_plan(a_node(*entries, **changes))
    assert (plan.actions, plan.condemned) == ((), frozenset())


@pytest.mark.parametrize(
    ("entries", "changes"),
    [
        pytest.param((an_entry("a", 25), B), {}, id="not evictable"),
        pytest.param((A, B), {"mounted": ASKED}, id="mounted"),
        pytest.param((A, B), {"attached": frozenset({"a"})}, id="a pod waits for it"),
    ],
)
def test_for_what_stays_anyway_nobody_looks_which_process_has_it_open(entries, changes):
    assert not make_plan(a_node(*entries, in_use=None, **changes)).must_look_at_use


def test_what_another_entry_protects_stays_too():
    other = replace_uid(A, "other")
    plan = make_plan(a_node(A, other.model_copy(update={"evictable": False}), B))
    assert plan.condemned == frozenset()


def view_of(plan, uid):
    (view,) = [view for view in plan.entries if view.uid == uid]
    return view


def replace_uid(entry, uid):
    return entry.model_copy(update={"uid": uid})


def test_whose_use_nobody_looked_at_stays_until_somebody_does():
    plan = make_plan(a_node(in_use=None))
    assert (plan.condemned, plan.must_look_at_use) == (frozenset(), True)
    assert not make_plan(a_node(dismissed=frozenset(), in_use=None)).must_look_at_use


@pytest.mark.parametrize(
    ("arrived", "asked", "found"),
    [
        pytest.param(NOW - 100, NOW - 10, ASKED, id="asked after it came"),
        pytest.param(NOW - 10, NOW - 100, frozenset(), id="a pod brought it again since"),
        pytest.param(0.0, NOW - LAPSES_SECONDS - 1, frozenset(), id="the wish has lapsed"),
        pytest.param(0.0, NOW + LAPSES_SECONDS + 1, frozenset(), id="a clock far ahead"),
    ],
)
def test_a_wish_concerns_the_copy_that_was_there_and_lapses(arrived, asked, found):
    held = replace(a_held("a"), history=History(arrived=arrived))
    assert find_dismissed({"a": asked}, (A,), (held,), NOW) == found


def test_a_wish_about_what_is_not_here_is_none():
    assert find_dismissed({"z": NOW}, (A,), HELD, NOW) == frozenset()


def test_annotations_of_the_cache_node_are_read_and_what_is_no_time_is_dropped(caplog):
    annotations = {
        "evict.modelcache.io/u1": "2026-01-01T00:00:00.500+00:00",
        "evict.modelcache.io/u2": "now",
        "evict.modelcache.io/u3": "2026-01-01T00:00:00",
        "other/u4": "2026-01-01T00:00:00Z",
    }
    assert read_dismissals({"annotations": annotations}) == {"u1": 1767225600.5}
    assert "evict.modelcache.io/u2 is no time" in caplog.text
    assert read_dismissals({}) == {}
