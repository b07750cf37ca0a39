from __future__ import annotations

from dataclasses import replace

import pytest

from fakes.agent_world import a_held, a_world, an_entry, digest_of
from modelcache_agent.decide.actions import DropPartial, Evict, Remove, Verify
from modelcache_agent.decide.faults import Fault, make_fault
from modelcache_agent.decide.pauses import Pause
from modelcache_agent.decide.planner import make_plan
from modelcache_api.names import EntryState, Reason

FAULT = Fault("the disk failed: Read-only file system", Pause(1, 1010.0))
BAD = replace(a_held("a"), is_verified=False)
FULL = (a_held("a", 90), an_entry("a", 90, evictable=True), an_entry("b", 50))


@pytest.mark.parametrize(
    ("world", "action", "state"),
    [
        pytest.param(
            a_world(an_entry("a"), held=(BAD,)),
            Verify(digest_of("a")),
            EntryState.FAILED,
            id="cannot be hashed",
        ),
        pytest.param(
            a_world(*FULL[1:], held=FULL[:1], node_labels=frozenset()),
            Evict(digest_of("a"), ("a",)),
            EntryState.EVICTED,
            id="cannot be evicted",
        ),
        pytest.param(
            a_world(an_entry("a"), held=(a_held("a"),), partials={"a": 5}),
            DropPartial("a"),
            EntryState.CACHED,
            id="its leftovers cannot be removed",
        ),
    ],
)
def test_the_entry_tells_what_the_disk_refuses(world, action, state):
    assert action in make_plan(world).actions
    plan = make_plan(replace(world, faults={action: FAULT}))
    assert action in plan.actions, "it stays planned; the shell lets it rest"
    view = plan.entries[0]
    assert (view.state, view.reason) == (state, Reason.STORE_ERROR)
    assert view.message == FAULT.message


def test_what_nobody_wants_has_no_entry_to_tell():
    world = a_world(an_entry("b"), held=(a_held("a"),), faults={Remove(digest_of("a")): FAULT})
    assert [view.reason for view in make_plan(world).entries] == [Reason.DOWNLOADING]


def test_pauses_double_up_to_ten_minutes():
    fault = make_fault(None, "x", now=0.0, jitter=1.0)
    pauses = [fault.pause.until]
    for _ in range(8):
        fault = make_fault(fault, "x", now=0.0, jitter=1.0)
        pauses.append(fault.pause.until)
    assert pauses == [10, 20, 40, 80, 160, 320, 600, 600, 600]
