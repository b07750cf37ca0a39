from __future__ import annotations

import pytest

from modelcache_kube import HTTP_ROUTES, ConnectConfig, connect
from modelcache_operator.adapters.routes import KubeRoutes
from modelcache_testbed.gateway_api import HTTP_ROUTE_CRD, http_route_crd
from modelcache_testbed.waiting import wait_until


@pytest.fixture(scope="module")
def gateway_api(cluster):
    """The CRD of HTTPRoutes, as the Gateway API releases it."""
    cluster.apply(http_route_crd())
    cluster.kubectl("wait", "--for=condition=Established", f"crd/{HTTP_ROUTE_CRD}")
    wait_until(
        lambda: cluster.api.find("/apis/gateway.networking.k8s.io/v1/httproutes") is not None,
        seconds=30,
        what="HTTPRoutes being served",
    )
    try:
        yield cluster
    finally:
        cluster.kubectl("delete", "crd", HTTP_ROUTE_CRD)


@pytest.fixture
async def kube(cluster):
    async with connect(ConnectConfig(kubeconfig=cluster.kubeconfig)) as client:
        yield client


@pytest.fixture
def routes(kube):
    async def at_once():
        return None

    return KubeRoutes(kube, at_once)


@pytest.fixture
def apply_route(gateway_api, kube):
    """Server-side apply, as whoever owns the route."""

    async def apply(route, manager="route-owner", *, force=True):
        return await kube.apply(HTTP_ROUTES, route, field_manager=manager, force=force)

    return apply
