"""Least frequently used first, with ageing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelcache_agent.decide.policies.policy import AdmitsAll, Ranked, order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelcache_agent.decide.world import Held


@dataclass(frozen=True, slots=True)
class LeastFrequentlyUsed(AdmitsAll):
    """By attaches, of which the node's later attaches take away.

    Ageing goes by attaches and not by time: a quiet weekend makes nothing cold, and how many
    requests it takes to adapt does not depend on their rate.
    """

    name: str = "lfu"

    def rank(self, candidates: Iterable[Held]) -> tuple[Ranked, ...]:
        """All candidates, least often attached first."""
        return order(
            Ranked(
                held,
                held.history.recent_attaches,
                f"recent_attaches={held.history.recent_attaches:.3f}",
            )
            for held in candidates
        )
