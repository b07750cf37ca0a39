"""What was found of the HTTPRoute and the gate of each ModelCache. A new leader finds it anew."""

from __future__ import annotations

from dataclasses import dataclass, field

from modelcache_api.v1alpha1.rollout import GateSpec
from modelcache_operator.decide.promql_gate import Answer, Measurement
from modelcache_operator.decide.route import (
    Attempts,
    RouteVerdict,
    RouteWish,
    find_wish,
    recall_verdict,
)
from modelcache_operator.decide.world import ModelCacheView, ObjectKey


@dataclass(frozen=True, slots=True)
class Routed:
    """The last look at a route: for which wish, what came of it, and the writes so far."""

    wish: RouteWish
    verdict: RouteVerdict
    attempts: Attempts | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """The last question of a gate. `at` in seconds of a clock that never goes back."""

    gate: GateSpec
    answer: Answer
    at: float


@dataclass(slots=True)
class TrafficBook:
    """By ModelCache."""

    routed: dict[ObjectKey, Routed] = field(default_factory=dict)
    asked: dict[ObjectKey, Asked] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget everything."""
        self.routed.clear()
        self.asked.clear()

    def forget(self, key: ObjectKey) -> None:
        """The ModelCache is gone."""
        self.routed.pop(key, None)
        self.asked.pop(key, None)

    def verdict_of(self, cache: ModelCacheView) -> RouteVerdict | None:
        """What is known of the route that the ModelCache names, from the stored status at first."""
        ref = cache.spec.rollout.http_route_ref if cache.spec.rollout else None
        if ref is None:
            return None
        found = self.routed.get(cache.key)
        if found is None:
            return recall_verdict(cache)
        return found.verdict if found.wish.ref == ref else None

    def is_route_due(self, cache: ModelCacheView) -> bool:
        """True if the route was not looked at for what the ModelCache wants now."""
        found, wish = self.routed.get(cache.key), find_wish(cache)
        return wish != (found.wish if found is not None else None)

    def measured(self, key: ObjectKey, now: float) -> Measurement | None:
        """The last answer to the gate's query, with its age."""
        found = self.asked.get(key)
        return None if found is None else Measurement(found.gate, found.answer, now - found.at)
