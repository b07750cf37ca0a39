"""Weights of HTTPRoutes on the real API server, beside a field manager that owns the rest."""

from __future__ import annotations

import copy

import pytest

from fakes.http_routes import CANARY, STABLE, backend, make_route, make_wish, weights_of
from modelcache_api.names import MANAGER_OPERATOR_ROUTES, Reason
from modelcache_kube import HTTP_ROUTES
from modelcache_operator.decide.rollout import Trouble
from modelcache_operator.decide.route import decide_route
from modelcache_operator.decide.world import ObjectKey
from modelcache_testbed.gateway_api import HTTP_ROUTE_CRD

pytestmark = pytest.mark.cluster


async def test_without_its_crd_the_reason_says_so(cluster, routes, namespace):
    cluster.kubectl("delete", "crd", HTTP_ROUTE_CRD, "--ignore-not-found")
    trouble = await routes.read(ObjectKey(namespace, "embed"))
    assert isinstance(trouble, Trouble)
    assert trouble.reason is Reason.GATEWAY_API_MISSING


async def test_a_missing_route_is_named(gateway_api, routes, namespace):
    trouble = await routes.read(ObjectKey(namespace, "embed"))
    assert trouble.reason is Reason.ROUTE_NOT_FOUND
    assert "embed" in trouble.message


async def test_only_weights_change_and_the_owner_keeps_the_rest(
    apply_route, kube, routes, namespace
):
    """The second rule has a header of its own; the third is none of ours."""
    wanted = make_route(
        namespace,
        [backend(STABLE), backend(CANARY, 0)],
        [
            backend("elsewhere", 0, namespace="default"),
            backend(CANARY, 3, filters=[_header("x-track", "canary")]),
            backend(STABLE, 7),
        ],
        [backend(CANARY, 1)],
    )
    before = await apply_route(wanted)
    view = await routes.read(ObjectKey(namespace, "embed"))
    assert view.changed_by == "route-owner"
    plan = decide_route(view, make_wish(5))
    assert await routes.set_weights(view, plan.changes) is None
    after = await kube.get(HTTP_ROUTES, "embed", namespace)
    assert [weights_of(after, rule) for rule in range(3)] == [[95, 5], [0, 5, 95], [1]]
    expected = copy.deepcopy(before["spec"])
    for rule, weights in enumerate([[95, 5], [0, 5, 95], [1]]):
        for entry, weight in zip(expected["rules"][rule]["backendRefs"], weights, strict=True):
            entry["weight"] = weight
    assert after["spec"] == expected
    managers = {entry["manager"] for entry in after["metadata"]["managedFields"]}
    assert managers == {"route-owner", MANAGER_OPERATOR_ROUTES}
    again = decide_route(await routes.read(ObjectKey(namespace, "embed")), make_wish(5))
    assert (again.changes, again.verdict.is_routed) == ((), True)


@pytest.mark.parametrize(
    "moved",
    [
        pytest.param([backend("new", 0), backend(STABLE, 1), backend(CANARY, 0)], id="an index"),
        pytest.param([backend(CANARY, 0), backend(STABLE, 1)], id="their order"),
        pytest.param([backend(STABLE, 1), backend(CANARY, 0, port=81)], id="a port"),
        pytest.param([backend(STABLE, 50), backend(CANARY, 50)], id="a weight"),
        pytest.param([backend(STABLE, 1)], id="how many there are"),
    ],
)
async def test_what_shifts_between_read_and_patch_is_left_alone(
    apply_route, kube, routes, namespace, moved
):
    await apply_route(make_route(namespace, [backend(STABLE, 1), backend(CANARY, 0)]))
    view = await routes.read(ObjectKey(namespace, "embed"))
    changed = await apply_route(make_route(namespace, moved))
    trouble = await routes.set_weights(view, decide_route(view, make_wish(5)).changes)
    assert trouble is not None
    assert trouble.reason is Reason.ROUTE_CHANGED
    assert await kube.get(HTTP_ROUTES, "embed", namespace) == changed


async def test_a_route_of_the_same_name_is_another_one(apply_route, kube, routes, namespace):
    route = make_route(namespace, [backend(STABLE, 1), backend(CANARY, 0)])
    await apply_route(route)
    view = await routes.read(ObjectKey(namespace, "embed"))
    await kube.delete(HTTP_ROUTES, "embed", namespace)
    gone = await routes.set_weights(view, decide_route(view, make_wish(5)).changes)
    assert gone.reason is Reason.ROUTE_CHANGED
    changed = await apply_route(route)
    trouble = await routes.set_weights(view, decide_route(view, make_wish(5)).changes)
    assert trouble.reason is Reason.ROUTE_CHANGED
    assert await kube.get(HTTP_ROUTES, "embed", namespace) == changed


async def test_the_owner_may_change_all_else_meanwhile(apply_route, kube, routes, namespace):
    route = make_route(namespace, [backend(STABLE, 1), backend(CANARY, 0)])
    await apply_route(route)
    view = await routes.read(ObjectKey(namespace, "embed"))
    route["spec"]["hostnames"] = ["other.example.com"]
    route["metadata"]["labels"] = {"team": "search"}
    await apply_route(route)
    assert await routes.set_weights(view, decide_route(view, make_wish(5)).changes) is None
    after = await kube.get(HTTP_ROUTES, "embed", namespace)
    assert weights_of(after) == [95, 5]
    assert after["spec"]["hostnames"] == ["other.example.com"]
    assert after["metadata"]["labels"] == {"team": "search"}


async def test_what_admission_refuses_is_told(gateway_api, apply_route, routes, namespace):
    await apply_route(make_route(namespace, [backend(STABLE, 1), backend(CANARY, 0)]))
    view = await routes.read(ObjectKey(namespace, "embed"))
    (first, second) = decide_route(view, make_wish(5)).changes
    too_much = type(first)(first.backend, 2_000_000)
    trouble = await routes.set_weights(view, (too_much, second))
    assert trouble.reason is Reason.ROUTE_REFUSED
    assert "1000000" in trouble.message


def _header(name, value):
    modifier = {"set": [{"name": name, "value": value}]}
    return {"type": "RequestHeaderModifier", "requestHeaderModifier": modifier}
