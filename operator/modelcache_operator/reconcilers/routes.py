"""Brings the weight in force into the HTTPRoute that a ModelCache names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from modelcache_api.names import Reason
from modelcache_kube import KubeError
from modelcache_operator.decide.rollout import Trouble
from modelcache_operator.decide.route import (
    Attempts,
    RouteVerdict,
    RouteWish,
    decide_route,
    describe_undone,
    describe_unknown,
    find_rival,
    find_wish,
    note_write,
    seconds_until_lasting,
    seconds_until_write,
)
from modelcache_operator.decide.world import ModelCacheView, ObjectKey
from modelcache_operator.keys import Key, cache_key
from modelcache_operator.memory import Memory
from modelcache_operator.ports.clock import Clock
from modelcache_operator.ports.routes import Routes
from modelcache_operator.ports.world import ObservedWorld
from modelcache_operator.traffic_book import Routed
from modelcache_operator.workqueue import Requeue

# Whoever writes the route at the same moment is done soon.
_TRIES: Final = 3
_NEXT_TRIES_SECONDS: Final = 5.0
# Nothing tells of a right that is given, or of a rule of admission that is taken back.
_REFUSED_SECONDS: Final = 60.0
_LOOK_AGAIN: Final = {
    Reason.ROUTE_CHANGED: _NEXT_TRIES_SECONDS,
    Reason.ROUTE_REFUSED: _REFUSED_SECONDS,
}
_NOT_ENABLED: Final = RouteVerdict(
    Reason.ROUTES_NOT_ENABLED, "the operator is not set up to write HTTPRoutes"
)


@dataclass(frozen=True, slots=True)
class RouteReconciler:
    """`routes` is None where the administrator has not enabled them."""

    world: ObservedWorld
    memory: Memory
    routes: Routes | None
    clock: Clock
    add: Callable[[Key], None]

    async def reconcile(self, key: ObjectKey) -> Requeue:
        """Safe to call at any time, any number of times.

        Raises:
            KubeError: the API server fails for the route. That is told, and the queue asks again.
        """
        cache, book = self.world.model_cache(key), self.memory.traffic
        wish = find_wish(cache)
        if cache is None or wish is None:
            book.routed.pop(key, None)
            return Requeue()
        before = book.routed.get(key)
        attempts = before.attempts if before else None
        try:
            after, look_again = await self._follow(cache, wish, attempts)
        except KubeError as error:
            known = (before.wish, before.verdict) if before else None
            verdict = describe_unknown(wish, str(error), known)
            self._note(key, before, Routed(wish, verdict, attempts))
            raise
        self._note(key, before, after)
        return Requeue(look_again)

    def _note(self, key: ObjectKey, before: Routed | None, after: Routed) -> None:
        self.memory.traffic.routed[key] = after
        if before is None or (before.wish, before.verdict) != (after.wish, after.verdict):
            self.add(cache_key(key))

    async def _follow(
        self, cache: ModelCacheView, wish: RouteWish, attempts: Attempts | None
    ) -> tuple[Routed, float | None]:
        if self.routes is None:
            return Routed(wish, _NOT_ENABLED, attempts), None
        if (rival := find_rival(cache, self.world.model_caches())) is not None:
            message = f"ModelCache {rival} names the same backends of HTTPRoute {wish.ref.name}"
            return Routed(wish, RouteVerdict(Reason.ROUTE_CLAIMED, message), attempts), None
        ended = await self._try(self.routes, cache.key.namespace, wish, attempts)
        for _ in range(_TRIES - 1):
            if not _is_passing(ended):
                break
            ended = await self._try(self.routes, cache.key.namespace, wish, attempts)
        if not isinstance(ended, Trouble):
            return ended
        verdict = RouteVerdict(ended.reason, ended.message)
        return Routed(wish, verdict, attempts), _LOOK_AGAIN.get(ended.reason)

    async def _try(
        self, routes: Routes, namespace: str, wish: RouteWish, attempts: Attempts | None
    ) -> tuple[Routed, float | None] | Trouble:
        """One read and, where that differs, one write."""
        route = await routes.read(ObjectKey(namespace, wish.ref.name))
        if isinstance(route, Trouble):
            return route
        plan, now = decide_route(route, wish), self.clock.monotonic()
        if plan.changes:
            if wait := seconds_until_write(attempts, wish, now):
                return Routed(wish, describe_undone(route, wish, attempts), attempts), wait
            if (trouble := await routes.set_weights(route, plan.changes)) is not None:
                return trouble
            attempts = note_write(attempts, wish, now, route.changed_by)
        if plan.verdict.is_routed and (left := seconds_until_lasting(attempts, wish, now)):
            return Routed(wish, describe_undone(route, wish, attempts), attempts), left
        return Routed(wish, plan.verdict, attempts), None


def _is_passing(ended: object) -> bool:
    return isinstance(ended, Trouble) and ended.reason is Reason.ROUTE_CHANGED
