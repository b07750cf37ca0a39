"""Least recently used first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelcache_agent.decide.policies.policy import AdmitsAll, Ranked, order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelcache_agent.decide.world import Held


@dataclass(frozen=True, slots=True)
class LeastRecentlyUsed(AdmitsAll):
    """By time of last use."""

    name: str = "lru"

    def rank(self, candidates: Iterable[Held]) -> tuple[Ranked, ...]:
        """All candidates, longest unused first."""
        return order(
            Ranked(held, held.last_used, f"last_used={held.last_used:.0f}") for held in candidates
        )
