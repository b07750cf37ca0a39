"""First in, first out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modelcache_agent.decide.policies.policy import AdmitsAll, Ranked, order

if TYPE_CHECKING:
    from collections.abc import Iterable

    from modelcache_agent.decide.world import Held


@dataclass(frozen=True, slots=True)
class FirstInFirstOut(AdmitsAll):
    """By time of arrival, whatever happened since."""

    name: str = "fifo"

    def rank(self, candidates: Iterable[Held]) -> tuple[Ranked, ...]:
        """All candidates, the one that came first to the node first."""
        return order(
            Ranked(held, held.history.arrived, f"arrived={held.history.arrived:.0f}")
            for held in candidates
        )
