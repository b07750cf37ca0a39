"""HTTPRoutes of the Gateway API: read one, change weights of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from modelcache_operator.decide.rollout import Trouble
from modelcache_operator.decide.route import RouteView, WeightChange
from modelcache_operator.decide.world import ObjectKey


class Routes(Protocol):
    """Errors of the API server that pass by themselves (`modelcache_kube.KubeError`) are raised."""

    async def read(self, key: ObjectKey) -> RouteView | Trouble:
        """The route as it is now, or why there is none to be had."""

    async def set_weights(
        self, route: RouteView, changes: Sequence[WeightChange]
    ) -> Trouble | None:
        """Change these weights; why not, if they were not changed: RouteChanged, RouteRefused."""
