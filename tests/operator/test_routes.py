"""The weight in force in a real HTTPRoute, by an operator under the chart's rights."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fakes.http_routes import CANARY, OWNER, STABLE, backend, make_route, weights_of
from fakes.prometheus_stand_in import PrometheusStandIn, prometheus_stand_in
from fakes.stage import OPERATOR_USER, _condition
from fakes.tenant import Tenant
from modelcache_kube import HTTP_ROUTES, MODEL_CACHES, ApiUnavailable
from modelcache_testbed.gateway_api import HTTP_ROUTE_CRD, http_route_crd
from modelcache_testbed.system import System

pytestmark = pytest.mark.cluster

REF = {"name": "embed", "stableService": STABLE, "canaryService": CANARY}


@pytest.fixture(scope="module")
def prometheus() -> Iterator[PrometheusStandIn]:
    """Lives as long as the operator that asks it."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    context = prometheus_stand_in()
    try:
        yield asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result()
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def system(cluster, seaweed, prometheus, tmp_path_factory) -> Iterator[System]:
    """An operator that writes routes and asks for metrics, on a cluster without the Gateway API."""
    cluster.kubectl("delete", "crd", HTTP_ROUTE_CRD, "--ignore-not-found")
    system = System(cluster, tmp_path_factory.mktemp("system"))
    system.install()
    cluster.add_node("home-of-the-operator")
    quick = ("--lease-list-interval=1s", "--agent-lost-after=12s")
    system.add_operator(extra=(*quick, "--http-routes=true", f"--prometheus-url={prometheus.url}"))
    try:
        yield system
    finally:
        system.remove()
        cluster.kubectl("delete", "crd", HTTP_ROUTE_CRD, "--ignore-not-found")


class Gateway:
    """The route of one stage, as users and its owner handle it."""

    def __init__(self, stage) -> None:
        self.stage = stage

    async def begin(self) -> None:
        await self.stage.apply_version("m1")
        await self.stage.apply_version("m2")
        await self.stage.apply_cache(copies=2)
        await self.wish(rollout={"httpRouteRef": REF, "interval": "10s"})

    async def run_canary_pod(self) -> None:
        tenant = Tenant(self.stage)
        await tenant.run_pod("embed-0", labels={"modelcache.io/track": "canary"})
        await tenant.show_canary("embed-0", "m2")
        await tenant.make_ready("embed-0")

    async def wish(self, **spec) -> None:
        body = {"spec": spec}
        await self.stage.kube.merge_patch(
            MODEL_CACHES, "c1", body, namespace=self.stage.namespace, field_manager="a-user"
        )

    async def try_canary(self, weight: int) -> None:
        await self.wish(canary={"modelVersion": "m2", "weight": weight})

    async def apply(self, *weights: int, manager: str = OWNER) -> None:
        pair = [backend(STABLE, weights[0]), backend(CANARY, weights[1])]
        route = make_route(self.stage.namespace, pair)
        await self.stage.kube.apply(HTTP_ROUTES, route, field_manager=manager)

    async def change(self, body) -> None:
        await self.stage.kube.merge_patch(
            HTTP_ROUTES, "embed", body, namespace=self.stage.namespace, field_manager=OWNER
        )

    async def is_failing(self) -> bool:
        """Whether the API server fails for a change of the route by now."""
        try:
            await self.change({"metadata": {"annotations": {"tried": str(time.monotonic())}}})
        except ApiUnavailable:
            return True
        return False

    async def route(self):
        return await self.stage.kube.get(HTTP_ROUTES, "embed", self.stage.namespace)

    async def weights(self) -> list[int]:
        return weights_of(await self.route())

    async def said(self, kind: str = "TrafficRouted") -> tuple[str, str]:
        return _condition(await self.stage.cache(), kind)


@pytest.mark.nodes(2)
async def test_a_route_is_found_when_its_kind_comes_and_follows_while_its_owner_writes(stage):
    gateway = Gateway(stage)
    await gateway.begin()
    await stage.until(gateway.said, ("False", "GatewayApiMissing"))
    await asyncio.to_thread(stage.cluster.apply, http_route_crd())
    await stage.until(gateway.said, ("False", "RouteNotFound"), seconds=60)
    await gateway.apply(100, 0)
    await stage.until(gateway.said, ("True", "RouteWeightsSet"))

    async def write_the_rest() -> None:
        for number in range(40):
            await gateway.change(
                {
                    "metadata": {"labels": {"turn": str(number)}},
                    "spec": {"hostnames": [f"n{number}.example.com"]},
                }
            )

    owner = asyncio.create_task(write_the_rest())
    await gateway.try_canary(25)
    await stage.until(
        lambda: gateway.said("RolloutProgressing"), ("True", "CanaryPodsNotReady"), seconds=60
    )
    assert await gateway.weights() == [100, 0]
    await gateway.run_canary_pod()
    await stage.until(gateway.weights, [75, 25])
    await gateway.try_canary(5)
    await stage.until(gateway.weights, [95, 5])
    await owner
    await gateway.wish(canary=None)
    await stage.until(gateway.weights, [100, 0])
    route = await gateway.route()
    assert route["metadata"]["labels"] == {"turn": "39"}
    assert route["spec"]["hostnames"] == ["n39.example.com"]
    assert await gateway.said() == ("True", "RouteWeightsSet")
    labels = f'name="c1",namespace="{stage.namespace}",reason="RouteWeightsSet"'
    await stage.until(stage.metrics, lambda text: f"modelcache_cache_route{{{labels}}} 1.0" in text)


@pytest.mark.nodes(2)
async def test_a_controller_that_reverts_weights_is_named_and_not_fought(stage):
    gateway = Gateway(stage)
    await asyncio.to_thread(stage.cluster.apply, http_route_crd())
    await gateway.begin()
    await stage.until_cached(copies="2/2")
    await gateway.apply(100, 0, manager="stubborn")
    await stage.until(gateway.said, ("True", "RouteWeightsSet"))
    start = stage.cluster.audit.position()

    async def revert() -> None:
        while True:
            if await gateway.weights() != [100, 0]:
                await gateway.apply(100, 0, manager="stubborn")
            await asyncio.sleep(0.1)

    await gateway.run_canary_pod()
    stubborn = asyncio.create_task(revert())
    try:
        await gateway.try_canary(25)
        await stage.until(gateway.said, ("False", "RouteContested"))
        told = (await stage.cache())["status"]["conditions"]
        (message,) = [c["message"] for c in told if c["type"] == "TrafficRouted"]
        assert message.startswith("stubborn has set other weights")
        assert await stage.ready() == ("True", "Cached")
    finally:
        stubborn.cancel()
    mine = [
        event
        for event in stage.cluster.audit.events(start)
        if (event.resource, event.verb, event.user) == ("httproutes", "patch", OPERATOR_USER)
    ]
    assert 1 <= len(mine) <= 3
    await gateway.apply(75, 25, manager="stubborn")
    await gateway.wish(canary=None)
    await stage.until(gateway.weights, [100, 0])
    await stage.until(gateway.said, ("True", "RouteWeightsSet"))
    await asyncio.to_thread(stage.cluster.kubectl, "delete", "crd", HTTP_ROUTE_CRD)
    await stage.until(gateway.said, ("False", "GatewayApiMissing"))


def deny_changes(namespace: str) -> dict[str, Any]:
    """A webhook that nobody serves: the API server answers 500 to each change of a route there."""
    hook = {
        "name": "nobody.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "timeoutSeconds": 1,
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "rules": [
            {
                "apiGroups": ["gateway.networking.k8s.io"],
                "apiVersions": ["*"],
                "operations": ["UPDATE"],
                "resources": ["httproutes"],
            }
        ],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": f"nobody-{namespace}"},
        "webhooks": [hook],
    }


@pytest.mark.nodes(2)
async def test_while_the_api_server_fails_for_a_route_nothing_is_claimed_and_no_step_is_taken(
    stage,
):
    gateway = Gateway(stage)
    await asyncio.to_thread(stage.cluster.apply, http_route_crd())
    await gateway.begin()
    await stage.until_cached(copies="2/2")
    await gateway.apply(100, 0)
    await stage.until(gateway.said, ("True", "RouteWeightsSet"))
    await gateway.run_canary_pod()
    hook = deny_changes(stage.namespace)
    await asyncio.to_thread(stage.cluster.apply, [hook])
    try:
        await stage.until(gateway.is_failing, expected=True)
        await gateway.wish(rollout={"steps": [5]})
        await gateway.try_canary(25)
        await stage.until(gateway.said, ("Unknown", "RouteUnknown"))
        await stage.until(lambda: gateway.said("RolloutProgressing"), ("False", "RouteUnknown"))
        assert (await stage.cache())["status"]["trafficSummary"] == "95/5"
        assert await gateway.weights() == [100, 0]
    finally:
        name = hook["metadata"]["name"]
        kind = "validatingwebhookconfigurations"
        await asyncio.to_thread(stage.cluster.kubectl, "delete", kind, name)
    await stage.until(gateway.said, ("True", "RouteWeightsSet"), seconds=90)
    await stage.until(gateway.weights, [75, 25], seconds=60)


@pytest.mark.nodes(2)
async def test_the_weight_passes_the_gate_with_a_number_alone(stage, prometheus):
    gateway = Gateway(stage)
    await gateway.begin()
    prometheus.values = {"good": "0.001", "bad": "0.5"}
    gate = {"query": "silent", "comparison": "Below", "threshold": "0.01", "interval": "10s"}
    await gateway.wish(rollout={"httpRouteRef": None, "gate": gate, "onFailure": "Rollback"})
    await gateway.try_canary(25)
    await stage.until(lambda: gateway.said("RolloutProgressing"), ("False", "GateNoData"))
    await gateway.wish(rollout={"gate": {"query": "good"}})
    await stage.until(lambda: gateway.said("RolloutProgressing"), ("True", "WeightReached"))
    await gateway.wish(rollout={"gate": {"query": "bad"}})
    await stage.until(lambda: gateway.said("RolloutProgressing"), ("False", "GateFailed"))
    assert (await stage.cache())["status"]["trafficSummary"] == "100/0"
