"""What has left the spec stays while its entry says Hold, and is never fetched."""

from __future__ import annotations

import pytest

from fakes.agent_world import a_flight, a_held, a_world, an_entry, digest_of, key_of
from modelcache_agent.decide.actions import CancelFetch, DropPartial, Evict, Fetch
from modelcache_agent.decide.planner import make_plan
from modelcache_api.names import EntryOrigin, EntryState, Reason

HELD = an_entry("old").model_copy(
    update={"origin": EntryOrigin.HOLD, "label_key": None, "evictable": True}
)
NEW = an_entry("new")


def view_of(plan, uid="old"):
    return next(view for view in plan.entries if view.uid == uid)


def test_held_bytes_stay_verified_and_unlabelled():
    plan = make_plan(a_world(HELD, held=[a_held("old")], node_labels=frozenset()))
    assert plan.actions == ()
    assert view_of(plan).state is EntryState.CACHED


@pytest.mark.parametrize(
    ("world", "actions"),
    [
        pytest.param(a_world(HELD), (), id="what is not here is not fetched"),
        pytest.param(
            a_world(HELD, flights=(a_flight(HELD),)),
            (CancelFetch("old"),),
            id="what is being fetched is left off",
        ),
    ],
)
def test_nothing_is_fetched_for_a_hold(world, actions):
    plan = make_plan(world)
    assert plan.actions == actions
    assert (view_of(plan).state, view_of(plan).reason) == (EntryState.EVICTED, Reason.EVICTED)


def test_an_unfinished_copy_of_what_is_only_held_goes():
    plan = make_plan(a_world(HELD, partials={"old": 500}))
    assert plan.actions == (DropPartial("old"),)


def test_a_held_copy_makes_room_and_is_fetched_when_it_is_wanted_again():
    world = a_world(HELD, NEW, held=[a_held("old")], node_labels=frozenset(), capacity=15)
    plan = make_plan(world)
    # No mark is left behind that would keep it away.
    assert Evict(digest_of("old"), ()) in plan.actions
    assert view_of(plan).state is EntryState.EVICTED
    wanted = HELD.model_copy(update={"origin": EntryOrigin.PLACEMENT})
    assert make_plan(a_world(wanted)).actions == (Fetch(wanted),)


def test_a_held_copy_that_is_wanted_again_is_labelled_without_a_byte():
    wanted = HELD.model_copy(update={"origin": EntryOrigin.PLACEMENT, "label_key": key_of("old")})
    plan = make_plan(a_world(wanted, held=[a_held("old")], node_labels=frozenset()))
    assert [type(action).__name__ for action in plan.actions] == ["SetLabels"]
