"""Who is fetched when more models wait than may be fetched at once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.agent_world import a_flight, a_world, an_entry
from modelcache_agent.decide.actions import Fetch, PauseFetch
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.setbacks import Setback
from modelcache_api.names import EntryOrigin, EntryState, Reason

A, B, C = an_entry("a"), an_entry("b"), an_entry("c")
WANTED = an_entry("w").model_copy(update={"origin": EntryOrigin.DEMAND, "evictable": True})
ALSO = an_entry("x").model_copy(update={"origin": EntryOrigin.DEMAND, "evictable": True})
FA, FB, FW = a_flight(A), a_flight(B), a_flight(WANTED)
FAILED = Setback(
    Reason.TRANSFER_FAILED, "why", 2000.0, 1, WANTED.source_digest, WANTED.content_digest
)


@pytest.mark.parametrize(
    ("world", "actions"),
    [
        pytest.param(
            a_world(A, B, WANTED, max_models=2), (Fetch(WANTED), Fetch(A)), id="demand goes first"
        ),
        pytest.param(
            a_world(A, B, max_models=1, attached=frozenset({"b"})),
            (Fetch(B),),
            id="a placed model that a pod waits for is a demand",
        ),
        pytest.param(
            a_world(A, B, C, max_models=2, partials={"c": 3}),
            (Fetch(C), Fetch(A)),
            id="what was begun goes before what was not",
        ),
        pytest.param(
            a_world(A, WANTED, max_models=1, partials={"a": 3}),
            (Fetch(WANTED),),
            id="but not before a demand",
        ),
        pytest.param(
            a_world(A, B, max_models=1, flights=(replace(FA, state=EntryState.PENDING),)),
            (Fetch(B),),
            id="what waits for another node to read the source takes nobody's turn",
        ),
        pytest.param(
            a_world(A, B, WANTED, max_models=2, flights=(FB, FA)),
            (PauseFetch("a"),),
            id="the placed transfer that began last makes way",
        ),
        pytest.param(
            a_world(A, B, WANTED, ALSO, max_models=2, flights=(FB, FA)),
            (PauseFetch("a"), PauseFetch("b")),
            id="one for each demand",
        ),
        pytest.param(
            a_world(A, B, WANTED, max_models=2, flights=(FA,)),
            (Fetch(WANTED),),
            id="nobody makes way while a slot is free",
        ),
        pytest.param(
            a_world(A, WANTED, ALSO, max_models=2, flights=(FW, FA)),
            (PauseFetch("a"),),
            id="a demand is never paused for another",
        ),
        pytest.param(
            a_world(WANTED, ALSO, max_models=1, flights=(FW,)), (), id="demands wait for each other"
        ),
        pytest.param(
            a_world(A, B, max_models=1, flights=(FA,)), (), id="placed models wait for each other"
        ),
        pytest.param(
            a_world(A, WANTED, max_models=1, flights=(a_flight(A, state=EntryState.VERIFYING),)),
            (),
            id="what is being published is not paused",
        ),
        pytest.param(
            a_world(A, WANTED, max_models=1, flights=(FA,), setbacks={"w": FAILED}),
            (),
            id="a demand that failed leaves the slot alone during its pause",
        ),
        pytest.param(
            a_world(A, WANTED, max_models=1, flights=(FA,), capacity=15),
            (),
            id="nobody makes way for what has no room",
        ),
    ],
)
def test_the_turns(world, actions):
    assert make_plan(world).actions == actions


def test_states_say_who_waits_for_what_in_the_order_of_the_spec():
    plan = make_plan(a_world(A, B, WANTED, max_models=1, flights=(FA,)))
    assert [view.uid for view in plan.entries] == ["a", "b", "w"]
    assert [view.state for view in plan.entries] == [
        EntryState.DOWNLOADING,
        EntryState.PENDING,
        EntryState.PENDING,
    ]
    assert "for its turn: 1 models" in plan.entries[1].message
    assert "to make way" in plan.entries[2].message


def test_partial_files_of_a_paused_transfer_are_kept():
    world = a_world(A, WANTED, max_models=1, flights=(FW,), partials={"a": 7})
    assert make_plan(world).actions == ()
