"""What an HTTPRoute should say, which patch makes it say so, and who gives way to whom."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from builders import make_cache, make_condition
from fakes.http_routes import CANARY, STABLE, backend, make_route, make_wish
from modelcache_api.names import Condition, Reason
from modelcache_api.v1alpha1.model_cache import ModelCacheStatus
from modelcache_api.v1alpha1.rollout import HttpRouteRef, RolloutSpec
from modelcache_operator.adapters.routes import parse_route
from modelcache_operator.decide.route import (
    decide_route,
    describe_undone,
    find_rival,
    find_wish,
    judge_verdict,
    note_write,
    recall_verdict,
    seconds_until_lasting,
    seconds_until_write,
)
from modelcache_operator.desired.route_weights import build_weight_patch


def read(*rules, managers=()):
    raw = make_route("search", *rules)
    raw["metadata"] |= {"uid": "r1", "managedFields": list(managers)}
    return parse_route(raw)


def planned(route, wish):
    """{(rule, index): weight} of what is written."""
    return {
        (c.backend.rule, c.backend.index): c.weight
        for c in decide_route(route, wish).changes
        if c.weight != c.backend.weight
    }


PAIR = [backend(STABLE), backend(CANARY, 0)]


@pytest.mark.parametrize(
    ("rules", "canary", "changes", "reason"),
    [
        pytest.param([PAIR], 5, {(0, 0): 95, (0, 1): 5}, "RouteWeightsSet", id="a step"),
        pytest.param([PAIR], 0, {}, "RouteWeightsSet", id="1 to 0 is 100 to 0"),
        pytest.param(
            [[backend(STABLE, 190), backend(CANARY, 10)]],
            *(5, {}, "RouteWeightsSet"),
            id="the same share in other numbers",
        ),
        pytest.param(
            [[backend(STABLE, 0), backend(CANARY, 0)]],
            *(0, {(0, 0): 100}, "RouteWeightsSet"),
            id="nobody takes anything",
        ),
        pytest.param(
            [[backend(STABLE)], [backend(CANARY)], PAIR],
            *(25, {(2, 0): 75, (2, 1): 25}, "RouteWeightsSet"),
            id="rules with one of them are none of ours",
        ),
        pytest.param(
            [[backend(CANARY, 5), backend("old", 0), backend(STABLE, 95)]],
            *(0, {(0, 0): 0, (0, 2): 100}, "RouteWeightsSet"),
            id="the order is the owner's",
        ),
        pytest.param(
            [[*PAIR, backend("third", 2)]], 5, {}, "RouteUnsuited", id="a third takes a share"
        ),
        pytest.param(
            [[*PAIR, backend(STABLE, 2, namespace="other")]],
            *(5, {}, "RouteUnsuited"),
            id="a Service of another namespace is another one",
        ),
        pytest.param([[*PAIR, backend(STABLE)]], 5, {}, "RouteUnsuited", id="a Service twice"),
        pytest.param(
            [[backend(STABLE, 90), backend(CANARY, 10), backend("third", 2)]],
            *(0, {(0, 1): 0}, "RouteUnsuited"),
            id="a rollback is made even there",
        ),
        pytest.param([[backend(STABLE)]], 5, {}, "RouteBackendMissing", id="no canary"),
        pytest.param(
            [[backend(STABLE), backend(CANARY, kind="ServiceImport")]],
            *(5, {}, "RouteBackendMissing"),
            id="another kind of that name",
        ),
        pytest.param([], 5, {}, "RouteBackendMissing", id="no rules"),
    ],
)
def test_what_a_route_needs(rules, canary, changes, reason):
    route, wish = read(*rules), make_wish(canary)
    verdict = decide_route(route, wish).verdict
    assert planned(route, wish) == changes
    assert (verdict.reason, verdict.is_routed) == (reason, reason == "RouteWeightsSet")
    assert verdict.message


def test_without_a_canary_its_backend_may_be_missing():
    plan = decide_route(read([backend(STABLE)]), make_wish(0, has_canary=False))
    assert (plan.changes, plan.verdict.is_routed) == ((), True)
    gone = decide_route(read([backend(CANARY)]), make_wish(0, has_canary=False))
    assert gone.verdict.reason is Reason.ROUTE_BACKEND_MISSING
    assert STABLE in gone.verdict.message


def test_a_patch_tests_the_object_and_both_entries_before_it_writes_weights_alone():
    route = read([backend(STABLE), backend("old", 0), backend(CANARY, 0, port=81)])
    patch = build_weight_patch(route, decide_route(route, make_wish(5)).changes)
    assert patch == [
        {"op": "test", "path": "/metadata/uid", "value": "r1"},
        {"op": "test", "path": "/spec/rules/0/backendRefs/0", "value": backend(STABLE)},
        {"op": "test", "path": "/spec/rules/0/backendRefs/2", "value": backend(CANARY, 0, 81)},
        {"op": "add", "path": "/spec/rules/0/backendRefs/0/weight", "value": 95},
        {"op": "replace", "path": "/spec/rules/0/backendRefs/2/weight", "value": 5},
    ]


def test_weights_that_are_undone_again_and_again_are_written_less_and_less_often():
    wish, attempts, now, times = make_wish(5), None, 0.0, []
    while now < 6 * 3600:
        now += seconds_until_write(attempts, wish, now)
        times.append(now)
        attempts = note_write(attempts, wish, now)
        now += 0.1
    gaps = [round(after - before) for before, after in pairwise(times)]
    assert gaps[:5] == [1, 4, 60, 120, 240]
    assert set(gaps[6:]) == {900}
    assert len(times) < 40


def test_another_weight_is_written_at_once_whatever_was_undone():
    attempts = None
    for second in range(5):
        attempts = note_write(attempts, make_wish(25), float(second))
    assert seconds_until_write(attempts, make_wish(25), 5.0) > 60
    assert seconds_until_write(attempts, make_wish(0), 5.0) == 0
    assert seconds_until_write(attempts, make_wish(25), 4000.0) == 0


def test_a_contest_is_over_when_a_write_has_lasted():
    wish, attempts = make_wish(5), None
    for second in (0.0, 2.0):
        attempts = note_write(attempts, wish, second)
        assert seconds_until_lasting(attempts, wish, second) == 0
    attempts = note_write(attempts, wish, 12.0)
    assert seconds_until_lasting(attempts, wish, 12.0) == 30
    assert seconds_until_lasting(attempts, wish, 42.0) == 0


def test_who_undoes_it_is_named():
    managers = [
        {"manager": "modelcache-operator-routes", "time": "2026-01-03", "fieldsV1": RULES},
        {"manager": "kustomize-controller", "time": "2026-01-02", "fieldsV1": RULES},
        {"manager": "kubectl", "time": "2026-01-01", "fieldsV1": RULES},
        {"manager": "gateway", "time": "2026-01-04", "fieldsV1": {"f:status": {}}},
    ]
    route, wish = read(PAIR, managers=managers), make_wish(5)
    attempts = note_write(None, wish, 0.0)
    assert describe_undone(route, wish, attempts).reason is Reason.ROUTE_CHANGED
    for _ in range(2):
        attempts = note_write(attempts, wish, 1.0)
    verdict = describe_undone(route, wish, attempts)
    assert verdict.reason is Reason.ROUTE_CONTESTED
    assert verdict.message.startswith("kustomize-controller has set other weights")
    assert "somebody" in describe_undone(read(PAIR), wish, attempts).message
    # Right after our own write the route names nobody else.
    attempts = note_write(attempts, wish, 2.0, "kustomize-controller")
    assert describe_undone(read(PAIR), wish, attempts).message == verdict.message


RULES = {"f:spec": {"f:rules": {}}}


def make_routed(name="c1", *, services=(STABLE, CANARY), route="embed", **fields):
    ref = HttpRouteRef(name=route, stable_service=services[0], canary_service=services[1])
    made = make_cache(name, **fields)
    spec = made.spec.model_copy(update={"rollout": RolloutSpec(http_route_ref=ref)})
    return replace(made, spec=spec)


def test_of_two_that_name_the_same_backends_the_first_by_name_goes_first():
    first, second = make_routed("a"), make_routed("b")
    assert find_rival(second, (first, second)) == "a"
    assert find_rival(first, (first, second)) is None
    assert find_rival(second, (make_routed("a", route="other"), second)) is None
    assert find_rival(second, (make_routed("a", services=("x", "y")), second)) is None
    assert find_rival(second, (make_routed("a", services=("x", CANARY)), second)) == "a"
    assert find_rival(second, (replace(first, is_deleted=True), second)) is None
    elsewhere = replace(first, key=replace(first.key, namespace="other"))
    assert find_rival(second, (elsewhere, second)) is None


def test_nothing_is_wanted_of_a_route_before_the_first_decision():
    cache = make_routed()
    assert find_wish(replace(cache, status=ModelCacheStatus())) is None
    assert find_wish(make_cache()) is None
    decided = replace(cache, status=ModelCacheStatus(observed_generation=1))
    assert find_wish(decided) == make_wish(0, has_canary=False)
    assert find_wish(replace(decided, is_deleted=True)) is None


def test_a_new_leader_begins_with_what_the_status_says():
    told = make_condition("RouteContested", "False", Condition.TRAFFIC_ROUTED)
    cache = replace(make_cache(), status=ModelCacheStatus(conditions=(told,)))
    verdict = recall_verdict(cache)
    assert (verdict.reason, verdict.is_routed) == (Reason.ROUTE_CONTESTED, False)
    assert judge_verdict(verdict).reason is Reason.ROUTE_CONTESTED
    assert recall_verdict(replace(cache, generation=cache.generation + 1)) is None
    assert recall_verdict(make_cache()) is None
    assert judge_verdict(None).reason is Reason.ROUTE_PENDING
