"""HTTPRoutes on the API server: one read, one patch, and a watch that tells what has changed."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

from modelcache_api import names
from modelcache_api.names import Reason
from modelcache_kube import (
    HTTP_ROUTES,
    Change,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    KubeClient,
    KubeError,
    NotFound,
)
from modelcache_operator.decide.rollout import Trouble
from modelcache_operator.decide.route import Backend, RouteView, RuleView, WeightChange
from modelcache_operator.decide.world import ObjectKey, Uid
from modelcache_operator.desired.route_weights import build_weight_patch

_log = logging.getLogger(__name__)
Raw = Mapping[str, Any]
_DEFAULT_WEIGHT = 1


class KubeRoutes:
    """Implements `ports.routes.Routes`. `begin_write` is awaited before each write."""

    def __init__(self, kube: KubeClient, begin_write: Callable[[], Awaitable[None]]) -> None:
        self._kube = kube
        self._begin_write = begin_write

    async def read(self, key: ObjectKey) -> RouteView | Trouble:
        """The route as it is now, or why there is none to be had."""
        try:
            raw = await self._kube.get(HTTP_ROUTES, key.name, key.namespace)
        except NotFound:
            message = f"the cluster serves no HTTPRoutes ({HTTP_ROUTES.api_version})"
            return Trouble(Reason.GATEWAY_API_MISSING, message)
        except (Forbidden, Invalid) as error:
            return _refused("read", key, error)
        if raw is None:
            message = f"there is no HTTPRoute {key.name} in this namespace"
            return Trouble(Reason.ROUTE_NOT_FOUND, message)
        return parse_route(raw)

    async def set_weights(
        self, route: RouteView, changes: Sequence[WeightChange]
    ) -> Trouble | None:
        """Change these weights; why not, if they were not changed."""
        key = route.key
        await self._begin_write()
        try:
            await self._kube.json_patch(
                HTTP_ROUTES,
                key.name,
                build_weight_patch(route, changes),
                namespace=key.namespace,
                field_manager=names.MANAGER_OPERATOR_ROUTES,
            )
        except (Conflict, NotFound):
            return _changed(key)
        except Invalid as error:
            # A test that fails names no field; what validation refuses does.
            if error.code == HTTPStatus.UNPROCESSABLE_ENTITY and not error.details.get("causes"):
                return _changed(key)
            return _refused("change", key, error)
        except Forbidden as error:
            return _refused("change", key, error)
        return None


async def watch_routes(
    kube: KubeClient,
    *,
    on_change: Callable[[ObjectKey], None],
    on_any: Callable[[], None],
) -> None:
    """Tell of every route whose spec has changed, and of all at each new beginning. For ever.

    All are told of after each failure, too: any may have changed unseen, or cannot be read any
    more. What is too old for the API server is only listed anew. While no HTTPRoutes are served it
    asks now and then.
    """
    known: dict[ObjectKey, tuple[str, int]] = {}
    is_missing = has_listed = False

    def tell(error: KubeError) -> None:
        nonlocal is_missing
        if isinstance(error, Expired):
            return
        if not isinstance(error, NotFound):
            _log.warning("cannot watch HTTPRoutes: %s", error)
            on_any()
        elif not is_missing:
            is_missing = True
            _log.info("the cluster serves no HTTPRoutes; they are looked for now and then")
            on_any()

    async with aclosing(kube.watch(HTTP_ROUTES, on_error=tell)) as events:
        async for event in events:
            if event.type is Change.SYNCED:
                is_missing, has_listed = False, True
                on_any()
                continue
            metadata = event.object["metadata"]
            key = ObjectKey(metadata["namespace"], metadata["name"])
            state = (metadata["uid"], metadata.get("generation", 0))
            if event.type is Change.DELETED:
                known.pop(key, None)
            elif known.get(key) == state:
                continue
            else:
                known[key] = state
            if has_listed:
                on_change(key)


def parse_route(raw: Raw) -> RouteView:
    """What matters of an HTTPRoute: its rules' backends, and who has changed them last."""
    metadata = raw["metadata"]
    namespace = metadata["namespace"]
    rules = (raw.get("spec") or {}).get("rules") or ()
    return RouteView(
        ObjectKey(namespace, metadata["name"]),
        Uid(metadata["uid"]),
        tuple(_parse_rule(number, rule, namespace) for number, rule in enumerate(rules)),
        _find_manager(metadata.get("managedFields") or ()),
    )


def _parse_rule(number: int, rule: Raw, namespace: str) -> RuleView:
    backends, others = [], 0
    for index, entry in enumerate(rule.get("backendRefs") or ()):
        weight = entry.get("weight", _DEFAULT_WEIGHT)
        is_service = (entry.get("group") or "", entry.get("kind") or "Service") == ("", "Service")
        if is_service and entry.get("namespace", namespace) == namespace:
            backends.append(Backend(number, index, entry["name"], weight, entry))
        else:
            others += weight
    return RuleView(tuple(backends), others)


def _find_manager(entries: Sequence[Raw]) -> str | None:
    """Who, but for us, was the last to change the spec's rules."""

    def others() -> Iterator[tuple[str, str]]:
        for entry in entries:
            spec = (entry.get("fieldsV1") or {}).get("f:spec") or {}
            if "f:rules" in spec and entry.get("manager") != names.MANAGER_OPERATOR_ROUTES:
                yield entry.get("time", ""), entry.get("manager", "")

    return max(others(), default=("", ""))[1] or None


def _changed(key: ObjectKey) -> Trouble:
    message = f"HTTPRoute {key.name} changes while it is written; it is tried again"
    return Trouble(Reason.ROUTE_CHANGED, message)


def _refused(what: str, key: ObjectKey, error: KubeError) -> Trouble:
    message = f"the API server does not let the operator {what} HTTPRoute {key.name}: {error}"
    return Trouble(Reason.ROUTE_REFUSED, message)
