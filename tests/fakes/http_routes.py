"""HTTPRoutes as their owners write them."""

from __future__ import annotations

from typing import Any

from modelcache_api.v1alpha1.rollout import HttpRouteRef
from modelcache_operator.decide.route import RouteWish

STABLE, CANARY = "embed-stable", "embed-canary"
OWNER = "route-owner"


def make_wish(canary: int, *, has_canary: bool = True, name: str = "embed") -> RouteWish:
    ref = HttpRouteRef(name=name, stable_service=STABLE, canary_service=CANARY)
    return RouteWish(ref, canary, has_canary)


def backend(name: str, weight: int | None = None, port: int = 80, **more: Any) -> dict[str, Any]:
    entry = {"name": name, "port": port, **more}
    return entry if weight is None else {**entry, "weight": weight}


def make_route(namespace: str, *rules: list[dict[str, Any]], name: str = "embed") -> dict[str, Any]:
    """One rule for each list of backends, under a path of its own."""
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "hostnames": ["embed.example.com"],
            "rules": [
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": f"/{number}"}}],
                    "backendRefs": list(backends),
                }
                for number, backends in enumerate(rules)
            ],
        },
    }


def weights_of(route: dict[str, Any], rule: int = 0) -> list[int]:
    return [entry["weight"] for entry in route["spec"]["rules"][rule]["backendRefs"]]
