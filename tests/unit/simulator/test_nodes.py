"""What tiers do with attaches, and how that is summed up."""

from __future__ import annotations

import pytest

from modelcache_agent.decide.history import LoadCost
from modelcache_agent.decide.policies import find_policy
from modelcache_simulator.belady import Belady, list_next_attaches
from modelcache_simulator.contents import make_content
from modelcache_simulator.errors import SimulationError
from modelcache_simulator.intervals import find_interval
from modelcache_simulator.levels import mean_access_time
from modelcache_simulator.node import SimulatedNode
from modelcache_simulator.replay import NodePlan, replay
from modelcache_simulator.sessions import Attach, Release
from modelcache_simulator.tally import find_quantile

COSTS = {
    "gpu": LoadCost(0.0, 0.0),
    "host": LoadCost(1.0, 0.0),
    "disk": LoadCost(10.0, 0.0),
    "store": LoadCost(100.0, 1.0),
}
A, B, C = (make_content(name, size) for name, size in (("a", 4), ("b", 6), ("c", 8)))


def a_node(policy="lru", *, protects=True, **capacities):
    return SimulatedNode(capacities, find_policy(policy), COSTS, protects_attached=protects)


def use(node, content, at):
    """A pod attaches it and is gone at once."""
    access = node.attach(content, at)
    node.release(content, at)
    return access


def test_a_model_is_read_from_the_fastest_tier_that_holds_it():
    node = a_node(gpu=4, host=10, disk=20)
    assert use(node, A, 0.0).found == "store"
    assert use(node, A, 1.0).found == "gpu"
    assert use(node, B, 2.0).refusals == 1, "too large for the GPU tier"
    second = use(node, B, 3.0)
    assert (second.found, second.access_seconds, second.load_seconds) == ("host", 1.0, 1.0)
    assert use(node, C, 4.0).evictions == 2, "both leave the host tier"
    assert use(node, B, 5.0).found == "disk"
    assert use(node, A, 6.0).found == "gpu"


def test_a_hit_in_the_fastest_tier_costs_no_load():
    node = a_node(host=10)
    assert use(node, A, 0.0).load_seconds == 104.0
    again = use(node, A, 1.0)
    assert (again.access_seconds, again.load_seconds) == (1.0, 0.0)


def test_pages_of_the_host_tier_go_with_their_files():
    node = a_node(host=100, disk=10)
    use(node, A, 0.0)
    use(node, C, 1.0)
    assert not node.tiers["host"].holds(A.digest)
    assert use(node, A, 2.0).found == "store"


def test_what_a_pod_uses_stays_and_the_newcomer_is_read_through():
    node = a_node(disk=10)
    node.attach(B, 0.0)
    refused = node.attach(C, 1.0)
    assert (refused.refusals, refused.evictions) == (1, 0)
    assert use(node, B, 2.0).found == "disk"


def test_without_protection_it_goes():
    node = a_node(disk=10, protects=False)
    node.attach(B, 0.0)
    assert node.attach(C, 1.0).evictions == 1


def test_value_leaves_out_who_is_worth_less_but_a_disk_takes_everybody():
    for tier, bypasses in (("host", 1), ("disk", 0)):
        node = a_node("value", **{tier: 10})
        for at in range(5):
            use(node, B, float(at))
        assert use(node, C, 6.0).bypasses == bypasses
        assert node.tiers[tier].holds(B.digest) == bool(bypasses)


def test_who_is_left_out_is_remembered_and_comes_when_it_is_worth_it():
    node = a_node("value", host=10)
    use(node, B, 0.0)
    use(node, B, 1.0)
    bypasses = [use(node, C, float(at)).bypasses for at in range(2, 5)]
    assert bypasses == [1, 0, 0]


def test_the_mean_access_time_is_the_formula_and_the_mean():
    assert mean_access_time([0.5, 0.4], [1.0, 10.0], 100.0) == pytest.approx(
        0.5 * 1 + 0.5 * (0.4 * 10 + 0.6 * 100)
    )
    events = [
        event
        for at, model in enumerate("abcabcbbaacab")
        for event in (Attach(float(at), model), Release(float(at), model))
    ]
    sizes = {"a": 4, "b": 6, "c": 8}
    plan = NodePlan({"gpu": 6, "host": 10, "disk": 16}, sizes, COSTS)
    tally = replay(events, plan, find_policy("lru"))
    spent = sum(tally.access_seconds.values())
    summary = tally.summarise()
    assert summary.attaches == 13
    assert summary.mean_access_seconds == pytest.approx(spent / 13)
    assert sum(hour.load_seconds for hour in tally.hours.values()) == summary.load_seconds


def test_only_the_attaches_that_are_asked_for_are_counted():
    events = [Attach(0.0, "a"), Release(1.0, "a"), Attach(2.0, "a"), Release(3.0, "a")]
    plan = NodePlan({"disk": 10}, {"a": 4}, COSTS, counts_from=1.5)
    assert replay(events, plan, find_policy("lru")).summarise().hit_rates == {"disk": 1.0}
    early = NodePlan({"disk": 10}, {"a": 4}, COSTS, counts_to=1.5)
    assert replay(events, early, find_policy("lru")).summarise().hit_rates == {"disk": 0.0}


def test_a_model_without_a_size_is_named():
    with pytest.raises(SimulationError, match="model 'z' of the trace has no size"):
        replay([Attach(0.0, "z")], NodePlan({"disk": 10}, {}, COSTS), find_policy("lru"))


def test_nothing_attached_gives_zeros():
    summary = replay([], NodePlan({"disk": 10}, {}, COSTS), find_policy("lru")).summarise()
    assert (summary.attaches, summary.load_seconds_p99, summary.evictions_per_hour) == (0, 0, 0)


def test_belady_gives_up_what_is_needed_last():
    models = "abcabdabc"
    events = [
        event
        for at, model in enumerate(models)
        for event in (Attach(float(at), model), Release(float(at), model))
    ]
    next_attaches = list_next_attaches(events)
    assert list(next_attaches[:4]) == [3.0, 4.0, 8.0, 6.0]
    plan = NodePlan({"disk": 2}, dict.fromkeys("abcd", 1), COSTS)
    best = replay(events, plan, Belady(next_attaches)).summarise()
    lru = replay(events, plan, find_policy("lru")).summarise()
    assert best.load_seconds < lru.load_seconds


def test_quantiles_are_values_that_were_seen():
    counts = {1.0: 94, 5.0: 5, 9.0: 1}
    assert [find_quantile(counts, share) for share in (0.5, 0.95, 0.99, 1.0)] == [1, 5, 5, 9]


def test_an_interval_is_students():
    assert find_interval([3.0]) == (3.0, 3.0, 3.0)
    mean, low, high = find_interval([1.0, 2.0, 3.0])
    assert (mean, round(low, 2), round(high, 2)) == (2.0, -0.48, 4.48)
    assert find_interval([0.0, 1.0] * 40).high == pytest.approx(0.5 + 1.96 * 0.503 / 80**0.5, 0.01)
    with pytest.raises(ValueError, match="no sample"):
        find_interval([])
