"""Leave to read limited sources, between threads."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from fakes.fetch_world import LeapingClock
from modelcache_agent.decide.bandwidth import Bandwidth
from modelcache_agent.fetch.finder import RouteFinder
from modelcache_agent.fetch.routes import NoRoute, SourceRoute
from modelcache_agent.fetch.source_gate import SourceGate
from modelcache_agent.fetch.throttle import Throttle
from modelcache_agent.fetch.watch import StreamWatch

MIB = 1 << 20


def never():
    return False


def make_gate():
    clock = LeapingClock()
    return SourceGate(clock, clock.monotonic), clock


def test_without_a_permit_nothing_is_held_back():
    gate, _ = make_gate()
    assert gate.may_read("v1")
    assert gate.take("v1", 5 * MIB, never) == 5 * MIB


def test_a_closed_version_is_not_read_and_that_it_is_wanted_is_known():
    gate, _ = make_gate()
    gate.close("v1")
    assert not gate.is_wanted("v1")
    finder = RouteFinder(None, None, gate)
    job = SimpleNamespace(spec=SimpleNamespace(uid="v1"))
    assert isinstance(finder.find(job, None, 0), NoRoute)
    assert gate.is_wanted("v1")
    gate.open("v1", gate.now() + 10, None)
    assert finder.find(job, None, 0) == SourceRoute()
    assert not gate.is_wanted("v1")


def test_a_lease_that_ran_out_holds_streams_back_until_it_is_renewed():
    gate, _ = make_gate()
    got = []
    gate.open("v1", gate.now() - 1, None)
    thread = threading.Thread(target=lambda: got.append(gate.take("v1", 7, never)), daemon=True)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    assert got == []
    gate.open("v1", gate.now() + 3600, None)
    thread.join(10)
    assert got == [7]


def test_a_stopped_job_leaves():
    gate, _ = make_gate()
    gate.close("v1")
    assert gate.take("v1", 7, lambda: True) == 0


def test_bytes_stay_within_the_rate_also_when_it_changes():
    gate, clock = make_gate()
    gate.open("v1", gate.now() + 3600, 4 * MIB)
    begin, total = clock.monotonic(), 0
    while total < 4 * MIB:
        total += gate.take("v1", MIB, never)
    gate.open("v1", gate.now() + 3600, MIB)
    while total < 5 * MIB:
        total += gate.take("v1", MIB, never)
    burst = Bandwidth(4 * MIB).burst_bytes
    assert clock.monotonic() - begin >= (4 * MIB - burst) / (4 * MIB) + (MIB - burst) / MIB


def test_who_waits_for_a_large_turn_is_let_through_under_a_smaller_cap():
    clock = LeapingClock()
    throttle = Throttle(Bandwidth(200 * MIB), clock)
    throttle.take(MIB, never)
    throttle.set_cap(Bandwidth(64 << 10))
    assert throttle.take(4 * MIB, never) == Bandwidth(64 << 10).turn_bytes


@pytest.mark.parametrize(("node", "fleet"), [(MIB, 100 * MIB), (100 * MIB, MIB)])
def test_of_the_node_s_cap_and_the_fleet_s_share_the_smaller_one_holds_and_is_reached(node, fleet):
    gate, clock = make_gate()
    gate.open("v1", gate.now() + 3600, fleet)
    watch = StreamWatch(clock, Throttle(Bandwidth(node), clock), gate)
    begin, total = clock.monotonic(), 0
    while total < 4 * MIB:
        total += watch.await_turn(MIB, "v1")
    elapsed = clock.monotonic() - begin
    assert elapsed >= (total - Bandwidth(MIB).burst_bytes) / MIB
    assert elapsed <= 3 * total / MIB


def test_bytes_of_other_nodes_pass_a_closed_gate():
    gate, clock = make_gate()
    gate.close("v1")
    assert StreamWatch(clock, None, gate).await_turn(MIB) == MIB
