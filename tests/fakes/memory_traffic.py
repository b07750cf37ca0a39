"""Stand-ins below the ports of routes and metrics: one route in memory, and a number."""

from __future__ import annotations

from dataclasses import replace

from modelcache_api.names import Reason
from modelcache_kube import ApiUnavailable
from modelcache_operator.decide.promql_gate import Answer
from modelcache_operator.decide.rollout import Trouble
from modelcache_operator.decide.route import Backend, RouteView, RuleView
from modelcache_operator.decide.world import ObjectKey, Uid


class MemoryRoutes:
    """The route embed. `trouble` is what there is instead; `moves` writes find it changed.

    `failing` are the verbs that the API server fails for.
    """

    def __init__(self, stable: str, canary: str) -> None:
        backends = (Backend(0, 0, stable, 1), Backend(0, 1, canary, 0))
        key = ObjectKey("search", "embed")
        self.route = RouteView(key, Uid("r1"), (RuleView(backends),), "somebody-else")
        self.trouble: Trouble | None = None
        self.moves = 0
        self.failing: set[str] = set()
        self.failures = 0
        self.writes: list[list[int]] = []

    @property
    def weights(self) -> list[int]:
        return [backend.weight for backend in self.route.rules[0].backends]

    def put(self, *weights: int) -> None:
        """Somebody else writes."""
        old = self.route.rules[0].backends
        new = tuple(replace(b, weight=w) for b, w in zip(old, weights, strict=True))
        self.route = replace(self.route, rules=(RuleView(new),))

    async def read(self, key: ObjectKey) -> RouteView | Trouble:
        assert key == self.route.key
        self._fail("get")
        return self.trouble or self.route

    def _fail(self, verb: str) -> None:
        """No two failures in the same words."""
        if verb in self.failing:
            self.failures += 1
            raise ApiUnavailable(f"500: webhook failed, request {self.failures}", code=500)

    async def set_weights(self, route, changes) -> Trouble | None:
        self._fail("patch")
        if self.moves:
            self.moves -= 1
            return Trouble(Reason.ROUTE_CHANGED, "it moved")
        assert route == self.route
        self.put(*(change.weight for change in changes))
        self.writes.append(self.weights)
        return None


class MemoryMeasures:
    """Answers each query with the same."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[str] = []

    async def ask(self, query: str) -> Answer:
        self.asked.append(query)
        return self.answer
