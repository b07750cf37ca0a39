"""The seam between the planner and the policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelcache_agent.decide.world import Held


class EvictionPolicy(Protocol):
    """Orders contents by how gladly they are given up."""

    def order(self, candidates: Iterable[Held]) -> tuple[Held, ...]:
        """All candidates, first to go first. Equal input gives equal output, whatever its order."""
        ...
