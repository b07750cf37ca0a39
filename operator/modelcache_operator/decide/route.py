"""Which weights an HTTPRoute should have, what to change, and how that is told. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from modelcache_api.names import Condition, Reason
from modelcache_api.v1alpha1.rollout import HttpRouteRef
from modelcache_operator.decide.events import find_condition
from modelcache_operator.decide.rollout import Trouble
from modelcache_operator.decide.world import ModelCacheView, ObjectKey, Uid

# Writes that may follow each other quickly before it is called a contest.
_QUICK_WRITES: Final = 3
_QUICK_DELAYS: Final = (0.0, 1.0, 4.0)
_FIRST_DELAY_SECONDS: Final = 60.0
_LONGEST_DELAY_SECONDS: Final = 900.0
# A contested write that was not undone in this time has lasted.
_LASTING_SECONDS: Final = 30.0
# After this time without a write, a change by somebody else is the first one again.
_FORGET_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class RouteWish:
    """What a ModelCache wants of its route. `canary` is the weight in force, in percent."""

    ref: HttpRouteRef
    canary: int
    has_canary: bool

    @property
    def split(self) -> str:
        """For people."""
        return f"{100 - self.canary}/{self.canary}"


@dataclass(frozen=True, slots=True)
class Backend:
    """One entry of a rule's backendRefs that is a Service of the route's namespace.

    `entry` is the whole of it as read.
    """

    rule: int
    index: int
    service: str
    weight: int
    entry: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RuleView:
    """One rule of a route. `other_weight` is the sum of its backends that are no such Services."""

    backends: tuple[Backend, ...]
    other_weight: int = 0


@dataclass(frozen=True, slots=True)
class RouteView:
    """An HTTPRoute as read. `changed_by` is the last field manager of its rules but ours."""

    key: ObjectKey
    uid: Uid
    rules: tuple[RuleView, ...]
    changed_by: str | None = None


@dataclass(frozen=True, slots=True)
class WeightChange:
    """The weight that one backend is to have; it may have it already."""

    backend: Backend
    weight: int


@dataclass(frozen=True, slots=True)
class RouteVerdict:
    """Whether the route carries the weight in force, in one word and one sentence.

    `is_routed` is None while nobody can know.
    """

    reason: Reason
    message: str
    is_routed: bool | None = False


@dataclass(frozen=True, slots=True)
class RoutePlan:
    """What is to be changed (nothing: `changes` is empty), and what holds once it is."""

    changes: tuple[WeightChange, ...]
    verdict: RouteVerdict


@dataclass(frozen=True, slots=True)
class Attempts:
    """Writes of one wish so far. `last_at` in seconds of a clock that never goes back.

    `against` is the field manager whose weights the last one replaced: right after it, the route
    itself names nobody but us.
    """

    wish: RouteWish
    writes: int
    last_at: float
    against: str | None = None


def find_wish(cache: ModelCacheView | None) -> RouteWish | None:
    """What the ModelCache wants of its route; None if it names none, or is not decided yet."""
    if cache is None or cache.is_deleted or cache.spec.rollout is None:
        return None
    ref, status = cache.spec.rollout.http_route_ref, cache.status
    if ref is None or not status.observed_generation:
        return None
    weight = status.traffic.canary if status.traffic else 0
    return RouteWish(ref, weight, has_canary=cache.spec.canary is not None)


def find_rival(cache: ModelCacheView, others: Iterable[ModelCacheView]) -> str | None:
    """The ModelCache of the same namespace whose claim on the same backends goes first, by name."""
    mine = _claim(cache)
    if mine is None:
        return None
    rivals = (
        other.key.name
        for other in others
        if other.key.namespace == cache.key.namespace and other.key.name < cache.key.name
        for theirs in [None if other.is_deleted else _claim(other)]
        if theirs is not None and theirs[0] == mine[0] and theirs[1] & mine[1]
    )
    return min(rivals, default=None)


def decide_route(route: RouteView, wish: RouteWish) -> RoutePlan:
    """The changes that a route needs, and what is said of it.

    Rules with both Services are the ModelCache's business, all others are not. Where the split
    cannot be made, a canary that is to get nothing still gets nothing.
    """
    ours: list[WeightChange] = []
    unsuited = None
    for number, rule in enumerate(route.rules):
        stable = [b for b in rule.backends if b.service == wish.ref.stable_service]
        canary = [b for b in rule.backends if b.service == wish.ref.canary_service]
        if not stable or not canary:
            continue
        if (obstacle := _find_obstacle(rule, stable, canary)) is not None:
            unsuited = f"rule {number} of HTTPRoute {route.key.name} {obstacle}"
            ours += _take_away(canary) if not wish.canary else ()
        else:
            ours += _split(stable[0], canary[0], wish.canary)
    changes = tuple(ours) if any(one.weight != one.backend.weight for one in ours) else ()
    if unsuited is not None:
        return RoutePlan(changes, RouteVerdict(Reason.ROUTE_UNSUITED, unsuited))
    if not ours and (missing := _find_missing(route, wish)) is not None:
        return RoutePlan((), RouteVerdict(Reason.ROUTE_BACKEND_MISSING, missing))
    message = f"HTTPRoute {route.key.name} splits {wish.split}"
    return RoutePlan(changes, RouteVerdict(Reason.ROUTE_WEIGHTS_SET, message, is_routed=True))


def note_write(
    attempts: Attempts | None, wish: RouteWish, now: float, against: str | None = None
) -> Attempts:
    """The attempts after one more write, over the weights of `against`."""
    return Attempts(wish, _count(attempts, wish, now) + 1, now, against)


def seconds_until_write(attempts: Attempts | None, wish: RouteWish, now: float) -> float:
    """How long a write must wait: not at all for a new wish, longer and longer for one undone."""
    writes = _count(attempts, wish, now)
    if attempts is None or not writes:
        return 0.0
    delay = (
        _QUICK_DELAYS[writes]
        if writes < _QUICK_WRITES
        else min(_FIRST_DELAY_SECONDS * 2.0 ** (writes - _QUICK_WRITES), _LONGEST_DELAY_SECONDS)
    )
    return max(0.0, attempts.last_at + delay - now)


def seconds_until_lasting(attempts: Attempts | None, wish: RouteWish, now: float) -> float:
    """How long a write that was undone before must stand until it is believed; else nothing."""
    if attempts is None or _count(attempts, wish, now) < _QUICK_WRITES:
        return 0.0
    return max(0.0, attempts.last_at + _LASTING_SECONDS - now)


def describe_undone(route: RouteView, wish: RouteWish, attempts: Attempts | None) -> RouteVerdict:
    """What is said while weights that were written are others again."""
    who = route.changed_by or (attempts.against if attempts else None) or "somebody"
    where = f"{who} has set other weights in HTTPRoute {route.key.name}"
    if attempts is None or attempts.writes < _QUICK_WRITES:
        message = f"{where}: {wish.split} is written again in some seconds"
        return RouteVerdict(Reason.ROUTE_CHANGED, message)
    message = f"{where} each time: {wish.split} is tried again at growing intervals"
    return RouteVerdict(Reason.ROUTE_CONTESTED, message)


def describe_unknown(
    wish: RouteWish, error: str, before: tuple[RouteWish, RouteVerdict] | None
) -> RouteVerdict:
    """What is said while the API server fails for the route; its first words stay while it lasts.

    Else each failure in other words would be one more write of a status.
    """
    if before is not None and before[0] == wish and before[1].reason is Reason.ROUTE_UNKNOWN:
        return before[1]
    message = f"the API server fails for HTTPRoute {wish.ref.name}, it is asked again: {error}"
    return RouteVerdict(Reason.ROUTE_UNKNOWN, message, is_routed=None)


def recall_verdict(cache: ModelCacheView) -> RouteVerdict | None:
    """What the stored status says of this very spec's route: all that a new leader has at first."""
    found = find_condition(cache.status.conditions, Condition.TRAFFIC_ROUTED)
    known = {reason.value: reason for reason in Reason}
    if found is None or found.reason not in known or found.observed_generation != cache.generation:
        return None
    is_routed = {"True": True, "False": False}.get(found.status)
    return RouteVerdict(known[found.reason], found.message, is_routed)


def judge_verdict(verdict: RouteVerdict | None) -> Trouble | None:
    """What the route has against a higher weight."""
    if verdict is None:
        return Trouble(Reason.ROUTE_PENDING, "the HTTPRoute has not been looked at yet")
    return None if verdict.is_routed else Trouble(verdict.reason, verdict.message)


def _claim(cache: ModelCacheView) -> tuple[str, frozenset[str]] | None:
    ref = cache.spec.rollout.http_route_ref if cache.spec.rollout else None
    if ref is None:
        return None
    return ref.name, frozenset((ref.stable_service, ref.canary_service))


def _count(attempts: Attempts | None, wish: RouteWish, now: float) -> int:
    if attempts is None or attempts.wish != wish or now - attempts.last_at > _FORGET_SECONDS:
        return 0
    return attempts.writes


def _find_obstacle(rule: RuleView, stable: list[Backend], canary: list[Backend]) -> str | None:
    if len(stable) > 1 or len(canary) > 1:
        return f"names a Service twice: {(stable if len(stable) > 1 else canary)[0].service}"
    others = rule.other_weight + sum(
        one.weight for one in rule.backends if one not in stable and one not in canary
    )
    return f"gives other backends a weight of {others}" if others else None


def _split(stable: Backend, canary: Backend, percent: int) -> tuple[WeightChange, ...]:
    """Both, or nothing where the shares are right already, in whatever numbers."""
    total = stable.weight + canary.weight
    if total and canary.weight * 100 == percent * total:
        return (WeightChange(stable, stable.weight), WeightChange(canary, canary.weight))
    return (WeightChange(stable, 100 - percent), WeightChange(canary, percent))


def _take_away(canary: Iterable[Backend]) -> tuple[WeightChange, ...]:
    return tuple(WeightChange(one, 0) for one in canary if one.weight)


def _find_missing(route: RouteView, wish: RouteWish) -> str | None:
    services = {backend.service for rule in route.rules for backend in rule.backends}
    ref = wish.ref
    if (
        not wish.has_canary
        and ref.stable_service in services
        and ref.canary_service not in services
    ):
        return None
    missing = [name for name in (ref.stable_service, ref.canary_service) if name not in services]
    what = f"lacks {' and '.join(missing)}" if missing else "has them in different rules"
    return (
        f"no rule of HTTPRoute {route.key.name} has both Services {ref.stable_service} and "
        f"{ref.canary_service} as backends; it {what}"
    )
