"""Who goes first under each policy, and how fast each forgets."""

from __future__ import annotations

import re

import pytest

from fakes.agent_world import a_held, a_world, an_entry, digest_of
from fakes.cache_trace import Trace
from modelcache_agent.decide.history import History, LoadCost, Past, measure_load
from modelcache_agent.decide.planner import make_plan
from modelcache_agent.decide.policies import POLICIES, find_policy

SLOW, FAST = LoadCost(0.0, 1e-6), LoadCost(0.0, 1e-9)


def a_past(name, size=10, *, last_used=0.0, **history):
    return a_held(name, size, last_used=last_used, history=History(**history))


def ranking(policy, *contents):
    return [
        next(name for name in "abc" if digest_of(name) == ranked.held.digest)
        for ranked in find_policy(policy).rank(contents)
    ]


@pytest.mark.parametrize(
    ("policy", "contents", "first_to_go"),
    [
        pytest.param(
            "lru",
            (a_past("a", last_used=3, attaches=9), a_past("b", last_used=1), a_past("c")),
            "cba",
            id="lru: longest unused",
        ),
        pytest.param(
            "fifo",
            (a_past("a", arrived=1, last_used=9), a_past("b", arrived=2), a_past("c", arrived=3)),
            "abc",
            id="fifo: first come, however often used since",
        ),
        pytest.param(
            "lfu",
            (a_past("a", recent_attaches=2), a_past("b", recent_attaches=1, last_used=9)),
            "ba",
            id="lfu: least often attached",
        ),
        pytest.param(
            "lrfu",
            (a_past("a", last_used=1, attaches=9), a_past("b", last_used=2, attaches=1)),
            "ba",
            id="lrfu: frequency decides between those used in one hour",
        ),
        pytest.param(
            "lrfu",
            (a_past("a", attaches=9), a_past("b", last_used=7 * 86_400, attaches=1)),
            "ab",
            id="lrfu: a week without use outweighs any frequency",
        ),
        pytest.param(
            "gdsf",
            (a_past("a", 100, visits=1, load=SLOW), a_past("b", 100, visits=3, load=FAST)),
            "ba",
            id="gdsf: what is loaded again quickly",
        ),
        pytest.param(
            "gdsf",
            (a_past("a", visits=5, load=SLOW), a_past("b", inflation=9e-6, load=SLOW)),
            "ab",
            id="gdsf: old visits fall behind the clock",
        ),
        pytest.param(
            "value",
            (a_past("a", attaches=1, load=SLOW), a_past("b", attaches=5, load=FAST)),
            "ba",
            id="value: attaches weigh as much as the seconds that each would wait",
        ),
        pytest.param(
            "value",
            (
                a_past("a", 10, attaches=1, load=LoadCost(1.0, 1e-9)),
                a_past("b", 1000, attaches=1, load=LoadCost(1.0, 1e-9)),
            ),
            "ba",
            id="value: of two that wait for a slow start the larger one frees more",
        ),
        pytest.param(
            "value",
            (a_past("a", last_used=2), a_past("b", last_used=1), a_past("c", attaches=0.1)),
            "bac",
            id="value: what was never attached goes first, longest unused first",
        ),
    ],
)
def test_the_order(policy, contents, first_to_go):
    assert "".join(ranking(policy, *contents)) == first_to_go
    assert "".join(ranking(policy, *reversed(contents))) == first_to_go


@pytest.mark.parametrize("policy", POLICIES)
def test_C60_ties_go_by_last_use_and_then_by_digest(policy):
    by_digest = sorted((a_past(name) for name in "abc"), key=lambda held: held.digest)
    ranked = find_policy(policy).rank(reversed(by_digest))
    assert [r.held for r in ranked] == by_digest
    later, earlier = (a_past(name, last_used=at) for name, at in (("a", 2.0), ("b", 1.0)))
    assert ranking(policy, later, earlier) == ["b", "a"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("random", "neither be reproduced nor explained.*lru, lfu"),
        ("arc", "'arc' is not one of lru"),
    ],
)
def test_random_is_no_policy_and_the_error_says_why(name, says):
    with pytest.raises(ValueError, match=says):
        find_policy(name)


HOUR = 3600.0


@pytest.mark.parametrize(
    ("victims", "is_refused"),
    [
        pytest.param((a_past("b", last_used=HOUR, attaches=2.0, load=SLOW),), False, id="equal"),
        pytest.param((a_past("b", last_used=HOUR, attaches=2.1, load=SLOW),), True, id="above"),
        pytest.param((a_past("b", last_used=HOUR, attaches=2.1, load=FAST),), False, id="cheap"),
        pytest.param(
            tuple(a_past(name, last_used=HOUR, attaches=1.1, load=SLOW) for name in "bc"),
            True,
            id="together above",
        ),
        pytest.param(
            (a_past("b", last_used=-4 * HOUR, attaches=99.0, load=SLOW),),
            False,
            id="a burst of five hours ago is believed to be over",
        ),
        pytest.param(
            (a_past("b", last_used=-1 * HOUR, attaches=99.0, load=SLOW),), True, id="two hours ago"
        ),
        pytest.param((), False, id="nobody"),
    ],
)
def test_value_leaves_a_newcomer_out_that_is_worth_less_than_its_victims(victims, is_refused):
    newcomer = a_past("a", last_used=HOUR, attaches=2.0, load=SLOW)
    refusal = find_policy("value").refuse(newcomer, victims)
    assert bool(refusal) == is_refused
    assert refusal is None or "saves" in refusal


@pytest.mark.parametrize("policy", sorted(POLICIES.keys() - {"value"}))
def test_other_policies_leave_nobody_out(policy):
    victim = a_past("b", attaches=99.0, load=SLOW)
    assert find_policy(policy).refuse(a_past("a"), [victim]) is None


def test_every_victim_is_explained_with_its_score_and_for_whom():
    newcomer = an_entry("new", 60)
    held = [a_past("a", 50, attaches=2.0, load=SLOW), a_past("b", 50, attaches=1.0, load=SLOW)]
    entries = (an_entry("a", 50, evictable=True), an_entry("b", 50, evictable=True))
    world = a_world(*entries, newcomer, held=held)
    victim, _ = make_plan(world, find_policy("value")).victims
    assert victim.digest == digest_of("b")
    said = (
        r"policy=value score=1e-06 attaches=1.000 load_seconds=5e-05 bytes=50: uid=new needs room"
    )
    assert re.fullmatch(said, str(victim))


def test_a_lowered_capacity_is_told_as_the_cause():
    held = [a_past("a", 50), a_past("b", 50)]
    entries = (an_entry("a", 50, evictable=True), an_entry("b", 50, evictable=True))
    (victim,) = make_plan(a_world(*entries, held=held, capacity=60)).victims
    assert victim.cause == "the cache holds more than its capacity"


# --- C60: how many requests until a policy has adapted ------------------------------------------

A_SECOND, A_MINUTE, AN_HOUR = 1.0, 60.0, 3600.0
REQUESTS_IN_TWO_DAYS = 48 * 6


@pytest.mark.parametrize(
    ("policy", "seconds_between", "at_most"),
    [
        ("lru", A_MINUTE, 4),
        ("fifo", A_MINUTE, 4),
        ("gdsf", A_MINUTE, 4),
        ("lfu", A_MINUTE, 140),
        ("lfu", A_SECOND, 140),
        ("lrfu", A_MINUTE, 1_100),
        ("lrfu", A_SECOND, 4_000),
        ("value", A_MINUTE, 2_100),
        ("value", A_SECOND, 4_000),
        ("value", 10 * A_MINUTE, REQUESTS_IN_TWO_DAYS + 4),
    ],
)
def test_C60_yesterdays_hot_models_leave_within_so_many_requests(policy, seconds_between, at_most):
    trace = Trace(find_policy(policy), seconds_between=seconds_between)
    for number in range(4_000):
        trace.ask("ABCD"[number % 4])
    assert trace.count_until_settled("EFGH", 10_000) <= at_most
    assert set(trace.used) == set("EFGH")


@pytest.mark.parametrize(
    ("policy", "requests_before", "seconds_between", "survives"),
    [
        ("lfu", 60, AN_HOUR, True),
        ("lrfu", 60, 10 * A_MINUTE, True),
        ("lrfu", 60, AN_HOUR, False),
        ("value", 60, AN_HOUR, True),
        ("gdsf", 3_000, AN_HOUR, True),
        ("gdsf", 60, AN_HOUR, False),
        ("lru", 3_000, A_SECOND, False),
        ("fifo", 3_000, A_SECOND, False),
    ],
)
def test_C60_a_silent_hot_set_of_three_under_a_hundred_one_shot_models(
    policy, requests_before, seconds_between, survives
):
    trace = Trace(find_policy(policy), seconds_between=seconds_between)
    for number in range(requests_before):
        trace.ask("ABC"[number % 3])
    for number in range(100):
        trace.ask(f"once-{number}")
    assert (set("ABC") <= set(trace.used)) is survives


@pytest.mark.parametrize("policy", ["lfu", "lrfu", "value", "gdsf"])
def test_C60_a_hot_set_in_use_misses_nothing_during_the_scan(policy):
    trace = Trace(find_policy(policy))
    for number in range(60):
        trace.ask("ABC"[number % 3])
    hits = []
    for number in range(100):
        trace.ask(f"once-{number}")
        hits.append(trace.ask("ABC"[number % 3]))
    assert all(hits)


# --- what is counted ------------------------------------------------------------------------------

TWO_DAYS = 48 * 3600.0


def test_attaches_halve_with_every_two_days():
    past = Past(0.0).attach(0.0, 1, 0.0).attach(0.0, 2, 0.0)
    assert past.look(TWO_DAYS, 2, FAST).attaches == pytest.approx(1.0)
    assert past.look(TWO_DAYS, 2, FAST).recent_attaches == pytest.approx(2.0, abs=0.02)


def test_recent_attaches_halve_with_every_128_on_the_node_and_not_with_time():
    past = Past(0.0).attach(0.0, 1, 0.0)
    assert past.look(900 * TWO_DAYS, 129, FAST).recent_attaches == pytest.approx(0.5)


def test_a_running_pod_counts_as_one_until_it_ends():
    past = Past(0.0).attach(0.0, 1, 0.0).keep_running(10 * TWO_DAYS)
    assert past.look(10 * TWO_DAYS, 1, FAST).attaches == 1.0
    assert past.look(11 * TWO_DAYS, 1, FAST).attaches == pytest.approx(0.5)


def test_C62_a_clock_that_goes_back_makes_nothing_grow():
    past = Past(0.0).attach(TWO_DAYS, 1, 0.0)
    assert past.look(0.0, 1, FAST).attaches == 1.0


def test_what_came_back_keeps_its_attaches_but_not_its_visits():
    past = Past(0.0).attach(0.0, 1, 0.0).arrive(5.0, 7.0)
    history = past.look(5.0, 1, FAST)
    assert (history.arrived, history.visits, history.inflation) == (5.0, 0, 7.0)
    assert history.attaches == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(
    ("elapsed", "between", "size", "total", "cost"),
    [
        pytest.param(12.0, 9.0, 90, 100, LoadCost(2.0, 0.1), id="a slow start and a steady rate"),
        pytest.param(5.0, 9.0, 90, 100, LoadCost(0.0, 0.1), id="partly resumed: no start is seen"),
        pytest.param(5.0, 4.0, 40, 100, None, id="mostly resumed"),
        pytest.param(0.4, 0.0, 0, 100, None, id="over within one report"),
        pytest.param(0.4, 0.2, 0, 0, None, id="nothing to fetch"),
    ],
)
def test_the_cost_of_a_transfer(elapsed, between, size, total, cost):
    assert measure_load(elapsed, between, size, total) == cost


def test_a_new_measurement_counts_as_much_as_all_earlier_ones():
    assert LoadCost(4.0, 2.0).blend(LoadCost(2.0, 1.0)) == LoadCost(3.0, 1.5)
