"""Whatever a route looks like and whoever writes it meanwhile, only weights of the pair change."""

from __future__ import annotations

import copy

from hypothesis import given
from hypothesis import strategies as st

from fakes.http_routes import CANARY, STABLE, backend, make_route, make_wish
from modelcache_operator.adapters.routes import parse_route
from modelcache_operator.decide.route import decide_route
from modelcache_operator.desired.route_weights import build_weight_patch

SERVICES = (STABLE, CANARY, "third")
entries = st.builds(
    lambda name, weight, port, more: backend(name, weight, port, **more),
    st.sampled_from(SERVICES),
    st.sampled_from((None, 0, 1, 5, 50, 95, 1_000_000)),
    st.sampled_from((80, 81)),
    st.sampled_from(({}, {"kind": "ServiceImport"}, {"namespace": "other"}, {"kind": "Service"})),
)
pairs = st.builds(
    lambda stable, canary, swap: [canary, stable] if swap else [stable, canary],
    st.builds(backend, st.just(STABLE), st.sampled_from((None, 0, 1, 95, 100))),
    st.builds(backend, st.just(CANARY), st.sampled_from((None, 0, 5, 100))),
    st.booleans(),
)
rules = st.lists(st.one_of(pairs, st.lists(entries, max_size=4)), max_size=4)
weights = st.integers(0, 100)


def make(parts):
    raw = make_route("search", *parts)
    raw["metadata"]["uid"] = "r1"
    return raw


def apply(raw, patch):
    """What the API server does with it: everything, or nothing and False."""
    raw = copy.deepcopy(raw)
    for operation in patch:
        *parents, last = (int(p) if p.isdecimal() else p for p in operation["path"].split("/")[1:])
        target = raw
        for step in parents:
            if isinstance(target, list) and step >= len(target):
                return None
            target = target[step]
        if operation["op"] != "test":
            target[last] = operation["value"]
        elif (isinstance(target, list) and last >= len(target)) or target[last] != (
            operation["value"]
        ):
            return None
    return raw


def without_weights_of_the_pair(raw):
    raw = copy.deepcopy(raw)
    for rule in raw["spec"]["rules"]:
        names = {entry["name"] for entry in rule["backendRefs"]}
        for entry in rule["backendRefs"]:
            if entry["name"] in {STABLE, CANARY} <= names:
                entry.pop("weight", None)
    return raw


@given(rules, weights)
def test_nothing_but_weights_of_the_pair_changes_and_once_is_enough(parts, canary):
    raw, wish = make(parts), make_wish(canary)
    route = parse_route(raw)
    plan = decide_route(route, wish)
    after = apply(raw, build_weight_patch(route, plan.changes))
    assert after is not None
    assert without_weights_of_the_pair(after) == without_weights_of_the_pair(raw)
    again = decide_route(parse_route(after), wish)
    assert (again.changes, again.verdict) == ((), plan.verdict)


@given(st.lists(pairs, min_size=1, max_size=3), weights)
def test_every_rule_with_the_pair_splits_as_it_should(parts, canary):
    raw, wish = make(parts), make_wish(canary)
    route = parse_route(raw)
    plan = decide_route(route, wish)
    assert plan.verdict.is_routed
    after = apply(raw, build_weight_patch(route, plan.changes))
    for rule in parse_route(after).rules:
        found = {backend.service: backend.weight for backend in rule.backends}
        assert found[CANARY] * 100 == canary * (found[STABLE] + found[CANARY])
        assert found[STABLE] + found[CANARY] > 0


@given(rules, rules, weights)
def test_a_patch_made_of_an_older_route_is_applied_to_these_entries_or_not_at_all(
    read, written, canary
):
    """Whatever the owner has put in between: no other backend ever gets a weight of ours."""
    route, now = parse_route(make(read)), make(written)
    patch = build_weight_patch(route, decide_route(route, make_wish(canary)).changes)
    after = apply(now, patch)
    if after is None:
        return
    for before, became in zip(now["spec"]["rules"], after["spec"]["rules"], strict=True):
        for old, new in zip(before["backendRefs"], became["backendRefs"], strict=True):
            if old != new:
                assert old["name"] in {STABLE, CANARY}
                assert {**old, "weight": new["weight"]} == new


@given(rules)
def test_a_canary_that_is_to_get_nothing_gets_nothing_beside_stable(parts):
    raw, wish = make(parts), make_wish(0)
    route = parse_route(raw)
    after = apply(raw, build_weight_patch(route, decide_route(route, wish).changes))
    for rule in parse_route(after).rules:
        services = {backend.service for backend in rule.backends}
        if {STABLE, CANARY} <= services:
            assert all(b.weight == 0 for b in rule.backends if b.service == CANARY)
